"""The Transformer: contracts, numpy, the paper's sizes, its cache, and cases C31 and C32."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import decoding
from kerasmodels.models import Transformer
from kerasmodels.models.transformer import SIZES
from tests.kit import (
    Case,
    assert_close,
    backend,
    check_export,
    compiled,
    gradients,
    model_contracts,
    padding_mask,
    randomize,
    reference,
    to_numpy,
    token_ids,
)

MODEL = {"rtol": 1e-4, "atol": 1e-5}
KEYS = ["encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"]


def make(**kw):
    sizes = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16)
    return Transformer(**{"vocabulary_size": 11, **sizes, **kw})


def data(batch=2, source=5, target=4, masks=True):
    found = {
        "encoder_token_ids": token_ids(batch, source, seed=1),
        "encoder_padding_mask": padding_mask(source, *[source - 2] * (batch - 1)),
        "decoder_token_ids": token_ids(batch, target, seed=2),
        "decoder_padding_mask": padding_mask(*[target - 1] * (batch - 1), target),
    }
    return found if masks else {k: None if "mask" in k else v for k, v in found.items()}


VARIANTS = {
    "paper": dict(num_layers=2),
    "pre-norm": dict(normalize_first=True, positions="learned", max_sequence_length=9),
    "marian": dict(positions="sinusoidal_halves", activation="swish", output_bias=True),
    "pairs": dict(
        vocabulary_size=(11, 13),
        num_layers=(2, 1),
        num_heads=(2, 4),
        intermediate_dim=(16, 12),
        scale_embeddings=False,
        attention_dropout=0.2,
        generation={"end_id": [2, 3], "suppress_ids": [0]},
    ),
}
PROMISES = dict(
    padding=[
        ("encoder_token_ids", "encoder_padding_mask", False),
        ("decoder_token_ids", "decoder_padding_mask", True),
    ],
    causal="decoder_token_ids",
    options={"output_dtype": "float32"},
)

test_contracts = model_contracts(lambda **kw: make(num_layers=2, **kw), **PROMISES, **data())
# The variants share the code of the paper's model: what their arguments touch is enough.
ELSEWHERE = ("symbolic", "dynamic", "half", "jit", "causal")
test_contracts_pre_norm = model_contracts(
    lambda **kw: make(**VARIANTS["pre-norm"], **kw), without=ELSEWHERE, **PROMISES, **data()
)
test_contracts_marian = model_contracts(
    lambda **kw: make(**VARIANTS["marian"], **kw), without=ELSEWHERE, **PROMISES, **data()
)
test_contracts_pairs = model_contracts(
    lambda **kw: make(**VARIANTS["pairs"], **kw), without=ELSEWHERE, **PROMISES, **data()
)


# ---- numbers ------------------------------------------------------------------------------------


def in_numpy(model, inputs, variant):
    positions = variant.get("positions", "sinusoidal")
    layout = {"sinusoidal": "interleaved", "sinusoidal_halves": "halves"}.get(positions, positions)
    logits = reference.transformer(
        model,
        model.num_heads,
        inputs,
        activation=reference.swish if variant.get("activation") == "swish" else reference.relu,
        normalize_first=variant.get("normalize_first", False),
        scale_embeddings=variant.get("scale_embeddings", True),
        layout=layout,
    )
    return logits if model.output_bias is None else logits + to_numpy(model.output_bias.bias.value)


@pytest.mark.parametrize("masks", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_equals_numpy(variant, masks):
    model, inputs = randomize(make(**VARIANTS[variant])), data(masks=masks)
    logits = model(inputs)
    assert logits.shape == (2, 4, 13 if variant == "pairs" else 11)
    assert_close(logits, in_numpy(model, inputs, VARIANTS[variant]), **MODEL)


def test_masks_of_any_dtype_and_none():
    model, inputs = make(), data()
    expected = model(inputs)
    for dtype in ("int32", "float32"):
        masks = {k: v.astype(dtype) for k, v in inputs.items() if "mask" in k}
        assert_close(model({**inputs, **masks}), expected)
        assert_close(model.predict({**inputs, **masks}, verbose=0), expected, **MODEL)
    ones = {k: np.ones_like(v) if "mask" in k else v for k, v in inputs.items()}
    assert_close(model(data(masks=False)), model(ones))
    one = {**inputs, "encoder_padding_mask": None}
    assert_close(model(one), model({**one, "encoder_padding_mask": ones["encoder_padding_mask"]}))


def test_rows_are_independent_and_padding_may_be_cut():
    model = randomize(make())
    inputs = data()
    whole = to_numpy(model(inputs))
    for row in range(2):
        source = int(inputs["encoder_padding_mask"][row].sum())
        target = int(inputs["decoder_padding_mask"][row].sum())
        alone = {
            "encoder_token_ids": inputs["encoder_token_ids"][row : row + 1, :source],
            "encoder_padding_mask": None,
            "decoder_token_ids": inputs["decoder_token_ids"][row : row + 1, :target],
            "decoder_padding_mask": None,
        }
        assert_close(model(alone), whole[row : row + 1, :target], **MODEL)


def test_padding_changes_no_gradient():
    """Right padding in training: the loss over real tokens has the unpadded gradient."""
    model = randomize(make(dropout=0.0))
    short = data(batch=1, masks=False)
    long = {
        k: np.concatenate([v, token_ids(1, 3, seed=7)], 1)
        for k, v in short.items()
        if v is not None
    }
    long["encoder_padding_mask"] = padding_mask(5, total=8)
    long["decoder_padding_mask"] = padding_mask(4, total=7)
    targets = token_ids(1, 4, seed=8)

    def loss(inputs):
        logits = model(inputs, training=True)[:, :4]
        return ops.sum(ops.sparse_categorical_crossentropy(targets, logits, from_logits=True))

    one, found = gradients(lambda: loss(short), model.trainable_weights)
    other, again = gradients(lambda: loss(long), model.trainable_weights)
    assert_close(other, one, **MODEL)
    for weight, a, b in zip(model.trainable_weights, found, again, strict=True):
        assert_close(b, a, rtol=1e-4, atol=1e-5, message=weight.path)


# ---- weights ------------------------------------------------------------------------------------


def parameters(vocabulary_size, num_layers, hidden_dim, intermediate_dim, **_):
    """Parameters of figure 1 by hand: one embedding matrix, N encoder and N decoder blocks."""
    d, f = hidden_dim, intermediate_dim
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * f + d + f, 2 * d
    encoder = attention + feed_forward + 2 * norm
    decoder = 2 * attention + feed_forward + 3 * norm
    return vocabulary_size * d + num_layers * (encoder + decoder)


def test_the_papers_sizes():
    """Table 3: 65 million (base) and 213 million (big) parameters."""
    assert abs(parameters(**SIZES["transformer_base"]) / 65e6 - 1) < 0.04
    assert abs(parameters(**SIZES["transformer_big"]) / 213e6 - 1) < 0.01
    base, big = SIZES["transformer_base"], SIZES["transformer_big"]
    assert (base["num_layers"], base["hidden_dim"], base["intermediate_dim"]) == (6, 512, 2048)
    assert (big["num_layers"], big["hidden_dim"], big["intermediate_dim"]) == (6, 1024, 4096)
    assert (base["num_heads"], big["num_heads"]) == (8, 16)
    assert base.get("dropout", 0.1) == 0.1 and big["dropout"] == 0.3
    # Section 6.3: four layers of 1024.
    parsing = SIZES["transformer_parsing"]
    assert (parsing["num_layers"], parsing["hidden_dim"]) == (4, 1024)
    assert parsing["vocabulary_size"] == 16000


def test_base_has_as_many_parameters_as_counted():
    model = Transformer.from_preset("transformer_base", load_weights=False)
    assert model.count_params() == parameters(**SIZES["transformer_base"]) == 63_082_496
    assert len(model.encoder_blocks) == len(model.decoder_blocks) == 6


def test_tiny_has_as_many_parameters_as_counted():
    sizes = dict(vocabulary_size=11, num_layers=2, hidden_dim=8, intermediate_dim=16)
    assert make(num_layers=2).count_params() == parameters(**sizes)
    tiny = Transformer.from_preset("transformer_tiny", load_weights=False, vocabulary_size=50)
    assert tiny.count_params() == parameters(**{**SIZES["transformer_tiny"], "vocabulary_size": 50})


def test_a_named_size_has_no_weights():
    with pytest.raises(ValueError, match="load_weights=False") as error:
        Transformer.from_preset("transformer_base")
    assert "Helsinki-NLP" in str(error.value)
    with pytest.raises((ValueError, FileNotFoundError), match="transformer_huge"):
        Transformer.from_preset("transformer_huge", load_weights=False)


def test_one_vocabulary_is_one_matrix():
    model = make()
    assert model.encoder_embedding is model.decoder_embedding
    assert sum("embedding" in w.path for w in model.weights) == 1
    model, inputs = make(vocabulary_size=(11, 13)), data(masks=False)
    assert model.encoder_embedding is not model.decoder_embedding
    assert sorted(w.shape[0] for w in model.weights if "embedding" in w.path) == [11, 13]
    assert model(inputs).shape == (2, 4, 13)


def test_parts_are_attributes():
    model = make(num_layers=2, normalize_first=True, output_bias=True)
    assert len(model.encoder_blocks) == len(model.decoder_blocks) == 2
    assert model.encoder_norm is not None and model.decoder_norm is not None
    assert model.output_bias is not None and model.encoder_position is model.decoder_position
    model = make(positions="learned", max_sequence_length=6)
    assert model.encoder_norm is None and model.decoder_norm is None and model.output_bias is None
    assert model.encoder_position is not model.decoder_position
    assert sorted(model.input_names if hasattr(model, "input_names") else KEYS) == sorted(KEYS)


def test_odd_hidden_dim():
    model = randomize(make(hidden_dim=7, num_heads=1))
    assert_close(model(data()), in_numpy(model, data(), {"num_heads": 1}), **MODEL)


def test_attention_scores():
    model, inputs = randomize(make(num_layers=(2, 1))), data()
    scores = model.attention_scores(inputs)
    assert {k: [s.shape for s in v] for k, v in scores.items()} == {
        "encoder": [(2, 2, 5, 5)] * 2,
        "decoder": [(2, 2, 4, 4)],
        "cross": [(2, 2, 4, 5)],
    }
    source = inputs["encoder_padding_mask"][:, None, None, :]
    for name in ("encoder", "cross"):
        for layer in scores[name]:
            assert_close(layer.sum(-1), np.ones(layer.shape[:-1]))
            assert (layer[~np.broadcast_to(source, layer.shape)] == 0).all()
            assert (layer[np.broadcast_to(source, layer.shape)] > 0).all()
    own = scores["decoder"][0]
    seen = np.broadcast_to(
        reference.causal_mask(4)[:, None] & inputs["decoder_padding_mask"][:, None, None], own.shape
    )
    assert (own[~seen] == 0).all() and (own[seen] > 0).all()
    # The first layer's, once more in numpy.
    table = to_numpy(model.encoder_embedding.embeddings.value)
    x = table[inputs["encoder_token_ids"]] * 8**0.5 + reference.sinusoids(range(5), 8)
    _, weights = reference.multi_head_attention(
        model.encoder_blocks[0].self_attention, 2, x, x, mask=source[:, 0]
    )
    assert_close(scores["encoder"][0], weights)
    unmasked = model.attention_scores(data(masks=False))
    assert (unmasked["cross"][0] > 0).all()


# ---- decoding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", VARIANTS)
def test_cached_equals_uncached(variant):
    model, inputs = randomize(make(**VARIANTS[variant])), data()
    expected = to_numpy(model({**inputs, "decoder_padding_mask": None}))
    state = model.start(inputs, 6)
    step = compiled(model.step)
    for i in range(4):
        logits, state = step(inputs["decoder_token_ids"][:, i], state, np.int32(i))
        assert keras.backend.standardize_dtype(logits.dtype) == "float32"
        assert_close(logits, expected[:, i], **MODEL)


def test_hypotheses_share_their_sources_memory():
    model, inputs = randomize(make()), data()
    state = model.start(inputs, 4)
    assert model.shared_state == ("memory",)
    state = {
        "memory": state["memory"],
        "cache": keras.tree.map_structure(lambda x: ops.repeat(x, 3, axis=0), state["cache"]),
    }
    tokens = token_ids(6, seed=4)
    logits, state = model.step(tokens, state, 0)
    repeated = {
        "encoder_token_ids": np.repeat(inputs["encoder_token_ids"], 3, 0),
        "encoder_padding_mask": np.repeat(inputs["encoder_padding_mask"], 3, 0),
        "decoder_token_ids": tokens[:, None],
        "decoder_padding_mask": None,
    }
    assert_close(logits, to_numpy(model(repeated))[:, 0], **MODEL)


def greedy_by_hand(model, inputs, length, start_id=1, end_id=2):
    """The whole model again for every token."""
    tokens = np.full((len(inputs["encoder_token_ids"]), 1), start_id, "int32")
    for _ in range(length):
        logits = to_numpy(
            model({**inputs, "decoder_token_ids": tokens, "decoder_padding_mask": None})
        )
        tokens = np.concatenate([tokens, logits[:, -1].argmax(-1)[:, None]], 1).astype("int32")
    tokens = tokens[:, 1:]
    ended = np.cumsum(tokens == end_id, 1) - (tokens == end_id) > 0
    return np.where(ended, 0, tokens)


def test_generate_is_greedy_by_default():
    model = randomize(make(), scale=0.5)
    inputs = data()
    found = model.generate(inputs, max_length=4)
    assert found.dtype == np.int32 and found.shape == (2, 4)
    np.testing.assert_array_equal(found, greedy_by_hand(model, inputs, 4))
    np.testing.assert_array_equal(model.generate(inputs, decoding.GreedySearch(), 4), found)


def test_generate_reads_padding_on_both_sides():
    """Sinusoids shift with left padding: what is refused or right is documented by `generate`."""
    model = randomize(make(), scale=0.5)
    ids = data(batch=3)["encoder_token_ids"]
    expected = model.generate(
        {"encoder_token_ids": ids, "encoder_padding_mask": None}, max_length=5
    )
    right = np.pad(ids, ((0, 0), (0, 3)))
    np.testing.assert_array_equal(model.generate(right, max_length=5), expected)
    left = np.pad(ids, ((0, 0), (3, 0)))
    np.testing.assert_array_equal(model.generate(left, max_length=5), expected)


def test_c16_beams_with_an_encoder():
    model = randomize(make(), scale=0.5)
    inputs = data()
    for beams in (2, 3):
        search = decoding.BeamSearch(num_beams=beams)
        ids, scores = model.generate(inputs, search, 6, return_scores=True)
        for row in range(beams - 2, 2):  # the second row has the padding
            real = int(inputs["encoder_padding_mask"][row].sum())
            alone = {"encoder_token_ids": inputs["encoder_token_ids"][row : row + 1, :real]}
            alone["encoder_padding_mask"] = None
            one, score = model.generate(alone, search, 6, return_scores=True)
            np.testing.assert_array_equal(one[0], ids[row])
            assert_close(score, scores[row : row + 1], atol=1e-5)


# ---- training, files, export --------------------------------------------------------------------


def test_fit_learns_to_copy(rng):
    model = make(num_layers=1, hidden_dim=16, intermediate_dim=32, dropout=0.0)
    ids = rng.integers(3, 11, (64, 4)).astype("int32")
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": np.ones((64, 4), bool),
        "decoder_token_ids": np.pad(ids[:, :-1], ((0, 0), (1, 0)), constant_values=1),
        "decoder_padding_mask": np.ones((64, 4), bool),
    }
    model.compile(
        keras.optimizers.Adam(1e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    losses = model.fit(inputs, ids, batch_size=16, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < 0.8 * losses[0]
    assert model.predict(inputs, verbose=0).shape == (64, 4, 11)


def test_c31_weights_cross_backends(tmp_path):
    """A file written here is read by another backend, with the same outputs to 1e-5."""
    model = randomize(make(**VARIANTS["pairs"]))
    inputs = data()
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", logits=to_numpy(model(inputs)), **inputs)
    other = "tensorflow" if backend() == "jax" else "jax"
    code = """
import sys, numpy as np, keras, kerasmodels
folder, = sys.argv[1:]
with np.load(folder + "/inputs.npz") as file:
    inputs = dict(file)
logits = inputs.pop("logits")
found = keras.ops.convert_to_numpy(keras.saving.load_model(folder + "/model.keras")(inputs))
np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-5)
print(keras.backend.backend(), "ok")
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={**os.environ, "KERAS_BACKEND": other},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == f"{other} ok", done.stderr


def test_c32_export_with_free_batch_and_lengths(tmp_path):
    check_export(Case(make, data()), tmp_path)


def test_config_is_readable_and_complete():
    for variant in VARIANTS.values():
        model = make(**variant, dtype="mixed_bfloat16", name="reader")
        config = json.loads(json.dumps(model.get_config()))
        for name, value in variant.items():
            if name not in ("generation", "activation"):  # Keras calls "swish" "silu"
                assert config[name] == (list(value) if isinstance(value, tuple) else value)
        again = Transformer.from_config(config)
        assert json.loads(json.dumps(again.get_config())) == config
        assert again.name == "reader" and again.dtype_policy.name == "mixed_bfloat16"
        assert again.encoder_blocks[0].compute_dtype == "bfloat16"


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given,says",
    [
        ({"num_heads": 3}, ["num_heads", "3", "8"]),
        ({"num_heads": (2, 3)}, ["num_heads", "3", "8"]),
        ({"num_layers": 0}, ["num_layers", "0"]),
        ({"num_layers": (1, 2, 3)}, ["num_layers", "(1, 2, 3)"]),
        ({"vocabulary_size": 0}, ["vocabulary_size", "0"]),
        ({"vocabulary_size": (5, -1)}, ["vocabulary_size", "-1"]),
        ({"hidden_dim": 0}, ["hidden_dim", "0"]),
        ({"intermediate_dim": 2.5}, ["intermediate_dim", "2.5"]),
        ({"dropout": 1.0}, ["dropout", "1.0"]),
        ({"attention_dropout": -0.5}, ["dropout", "-0.5"]),
        ({"positions": "rotary"}, ["positions", "rotary", "sinusoidal", "learned"]),
        ({"positions": "learned"}, ["max_sequence_length"]),
        ({"generation": {"stop_id": 3}}, ["stop_id", "end_id"]),
    ],
)
def test_bad_arguments(given, says):
    with pytest.raises(ValueError) as error:
        make(**given)
    for words in says:
        assert words in str(error.value)


@pytest.mark.parametrize(
    "given,says",
    [
        ({"encoder_padding_mask": np.ones((2, 4))}, ["padding_mask"]),
        ({"decoder_padding_mask": np.ones((2, 5))}, ["padding_mask"]),
        ({"encoder_padding_mask": np.ones((2, 5, 2))}, ["padding_mask"]),
    ],
)
def test_masks_that_do_not_fit(given, says):
    with pytest.raises(ValueError) as error:
        make()({**data(), **given})
    for words in says:
        assert words in str(error.value)


def test_longer_than_learned_positions():
    model = make(positions="learned", max_sequence_length=4)
    with pytest.raises(ValueError) as error:
        model(data(source=5))
    assert "4" in str(error.value) and "5" in str(error.value)
    with pytest.raises(ValueError) as error:
        model.generate(data(source=3), max_length=7)
    assert "4" in str(error.value) and "7" in str(error.value)


def test_a_missing_input_is_named():
    inputs = data()
    del inputs["decoder_token_ids"]
    with pytest.raises(ValueError, match="decoder_token_ids"):
        make()(inputs)
