"""Sentence vectors: contracts, pooling in numpy, and `embed`: order, shapes, cuts, bad input."""

import json

import keras
import numpy as np
import pytest

from kerasmodels.data import BertTokenizer
from kerasmodels.models import Bert, BertSentenceEncoder
from kerasmodels.models.sentence_encoder import _batches, _round_up
from tests.kit import assert_close, assert_equal, model_contracts, randomize, to_numpy
from tests.models.test_bert import MODEL, TINY, data

PADDED = [("token_ids", "padding_mask", False)]


def bert(**kw):
    return Bert(**{**TINY, "num_layers": 1, **kw})


test_contracts_mean = model_contracts(
    lambda **kw: BertSentenceEncoder(bert(**kw)),
    without=("dynamic", "weights_file"),
    padding=PADDED,
    options={"output_dtype": "float32"},
    **data(),
)
# The encoder's graph is the same, and so are its gradients.
test_contracts_cls = model_contracts(
    lambda **kw: BertSentenceEncoder(bert(**kw), pooling="cls", normalize=False),
    without=("symbolic", "dynamic", "jit", "weights_file", "gradients"),
    padding=PADDED,
    options={"output_dtype": "float32"},
    **data(),
)


# ---- pooling ------------------------------------------------------------------------------------


def test_pooling_equals_numpy():
    encoder, inputs = randomize(bert()), data()
    states = to_numpy(encoder(inputs)["sequence_output"])  # (batch, length, hidden)
    mask = inputs["padding_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    for pooling, expected in (("mean", mean), ("cls", states[:, 0])):
        model = BertSentenceEncoder(encoder, pooling=pooling, normalize=False)
        assert_close(model(inputs), expected, **MODEL)
        model = BertSentenceEncoder(encoder, pooling=pooling)
        unit = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        assert_close(model(inputs), unit, **MODEL)
    assert not any("pooler" in w.path for w in model.weights)  # nothing reads it


def test_a_row_without_any_token_is_finite():
    inputs = data()
    inputs["padding_mask"] = np.array([[True] * 5, [False] * 5])
    for pooling in ("mean", "cls"):
        vectors = to_numpy(BertSentenceEncoder(bert(), pooling=pooling)(inputs))
        assert np.isfinite(vectors).all()
        assert_close(np.linalg.norm(vectors[0]), 1.0)
    model = BertSentenceEncoder(bert(dropout=0.0))
    model.compile("sgd", "mse")
    model.train_on_batch(inputs, np.ones((2, 8), "float32"))
    assert all(np.isfinite(to_numpy(w.value)).all() for w in model.weights)


def test_config_is_readable_and_complete():
    model = BertSentenceEncoder(bert(), pooling="cls", normalize=False, name="e")
    config = json.loads(json.dumps(model.get_config()))
    given = {"pooling": "cls", "normalize": False, "name": "e"}
    assert {key: config[key] for key in given} == given
    assert json.loads(json.dumps(BertSentenceEncoder.from_config(config).get_config())) == config


def test_a_keras_file_keeps_a_pooler_that_is_not_read(tmp_path):
    """So that a folder written from it later has the right one."""
    model = randomize(BertSentenceEncoder(bert()))
    randomize(model.backbone)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert_equal(loaded.backbone.pooler.kernel.value, model.backbone.pooler.kernel.value)


# ---- embed --------------------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d", "e", "f"]
LONGEST = 40


@pytest.fixture(scope="module")
def encoder():
    # One object for the module, so that its programs are compiled once.
    keras.utils.set_random_seed(1)
    model = randomize(BertSentenceEncoder(bert(max_sequence_length=LONGEST, hidden_dim=16)))
    model.tokenizer = BertTokenizer(WORDS, max_sequence_length=LONGEST)
    return model


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(3)
    lengths = [30, 0, 1, 8, 3, 60, 17, 2, 5, 29, 1, 12]
    return [" ".join(rng.choice(list("abcdefxyz"), n)) for n in lengths]


@pytest.fixture(scope="module")
def expected(encoder, texts):
    """Each text's tokens, padded all to one length by the tokenizer."""
    return encoder.predict_on_batch(encoder.tokenizer(texts, truncation=True))


@pytest.mark.parametrize("batch_size", [3, 32])
def test_rows_come_back_in_order(encoder, texts, expected, batch_size):
    shapes = []
    whole = BertSentenceEncoder.predict_on_batch

    def predict_on_batch(inputs):
        shapes.append(inputs["token_ids"].shape)
        return whole(encoder, inputs)

    encoder.predict_on_batch = predict_on_batch
    try:
        found = encoder.embed(texts, batch_size=batch_size, show_progress=False)
    finally:
        del encoder.predict_on_batch
    assert found.dtype == np.float32 and found.shape == (len(texts), 16)
    assert_close(found, expected, **MODEL)
    assert {width for _, width in shapes} <= {8, 16, 24, 32, LONGEST}
    assert max(rows for rows, _ in shapes) <= batch_size


def test_few_texts_and_none(encoder, texts, expected):
    assert_close(encoder.embed(texts[3:4]), expected[3:4], **MODEL)
    assert_close(encoder.embed(np.array(texts[:2])), expected[:2], **MODEL)  # strings of numpy
    none = encoder.embed([])
    assert none.shape == (0, 16) and none.dtype == np.float32


def test_texts_are_cut(encoder, texts, recwarn):
    long = texts[5]
    short = " ".join(long.split()[: LONGEST - 2])
    encoder._warned = False
    assert_close(*encoder.embed([long, short], truncation=True), rtol=0, atol=0)
    assert not [w for w in recwarn if "cut" in str(w.message)]
    for _ in range(2):
        assert_close(*encoder.embed([long, short]), rtol=0, atol=0)
    said = [str(w.message) for w in recwarn if "cut" in str(w.message)]
    assert len(said) == 1 and said[0].startswith(f"1 of 2 texts are cut to {LONGEST} tokens.")
    with pytest.raises(ValueError, match="Text 1 of `texts` has .* at most .* are allowed"):
        encoder.embed([short, long], truncation=False)
    with pytest.raises(ValueError, match="`truncation` must be True, False or None"):
        encoder.embed([long], truncation="yes")
    cut = encoder.embed([long], max_length=10)
    assert_close(cut, encoder.embed([" ".join(long.split()[:8])]), rtol=0, atol=0)
    assert np.abs(cut - encoder.embed([long])).max() > 1e-3
    encoder.tokenizer.max_sequence_length = 10  # as a folder may say
    try:
        assert_close(encoder.embed([long]), cut, rtol=0, atol=0)
        whole = encoder.embed([long], max_length=LONGEST)  # unless the caller says otherwise
        assert_close(whole, encoder.embed([short], max_length=LONGEST), rtol=0, atol=0)
    finally:
        encoder.tokenizer.max_sequence_length = LONGEST


def test_progress(encoder, texts, capsys):
    encoder.embed(texts[:3], show_progress=False)
    encoder.embed(texts[:1])
    assert not capsys.readouterr().out
    encoder.embed(texts, batch_size=4)
    assert "12/12" in capsys.readouterr().out
    encoder.embed(texts[:1], show_progress=True)
    assert "1/1" in capsys.readouterr().out


def test_batches_waste_little_and_have_few_shapes(rng):
    lengths = np.minimum(rng.lognormal(3.5, 1.0, 3000).astype("int64") + 2, 512)
    order, batches = _batches(lengths, 32, 512)
    assert sorted(order) == list(range(3000))
    assert sum(count for count, _ in batches) == 3000
    start = 0
    for count, (rows, width) in batches:
        members = lengths[order[start : start + count]]
        assert members.max() <= width <= max(1.25 * members.max(), members.max() + 7)
        assert count <= rows <= 32 and rows * width <= 32 * 64
        assert count == rows or start + count == 3000
        start += count
    cells = sum(rows * width for _, (rows, width) in batches)
    as_they_come = sum(32 * lengths[i : i + 32].max() for i in range(0, 3000, 32))
    assert cells < 1.15 * lengths.sum() < as_they_come / 3
    assert len({shape for _, shape in batches}) <= 21
    assert len({_round_up(length) for length in range(1, 513)}) == 20


def test_one_long_text_is_more_than_a_batch_of_small_ones():
    assert _batches(np.array([500, 3]), 1, 512)[1] == [(1, (1, 512)), (1, (1, 8))]
    assert _batches(np.array([500, 3]), 1, 505)[1][0] == (1, (1, 505))  # no more positions


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", ["max", None])
def test_bad_pooling(pooling):
    with pytest.raises(ValueError, match="`pooling`.*'mean', 'cls'") as error:
        BertSentenceEncoder(bert(), pooling=pooling)
    assert f"pooling={pooling!r}" in str(error.value)
    with pytest.raises(ValueError, match="`normalize`.*'no'"):
        BertSentenceEncoder(bert(), normalize="no")


@pytest.mark.parametrize(
    "arguments,says",
    [
        ({"texts": "a b"}, ["texts", "list of strings", "'a b'"]),
        ({"texts": ["a", None]}, ["texts", "None"]),
        ({"texts": None}, ["texts", "list of strings", "None"]),
        ({"texts": np.array("a")}, ["texts", "list of strings"]),
        ({"texts": ["a"], "batch_size": 0}, ["batch_size", "0"]),
        ({"texts": ["a"], "batch_size": 2.0}, ["batch_size", "2.0"]),
        ({"texts": ["a"], "max_length": 1}, ["max_length", "1"]),
        ({"texts": ["a"], "max_length": LONGEST + 1}, ["max_length", "40", "41"]),
        ({"texts": ["a"], "max_length": 2.5}, ["max_length", "2.5"]),
    ],
)
def test_bad_arguments_of_embed(encoder, arguments, says):
    """Where an integer is wanted, numpy's is one."""
    assert encoder.embed(["a"], np.int64(2), np.int64(5)).shape[0] == 1
    with pytest.raises(ValueError) as error:
        encoder.embed(**arguments)
    for words in says:
        assert words in str(error.value)


def test_no_tokenizer_or_that_of_others():
    model = BertSentenceEncoder(bert())
    with pytest.raises(ValueError, match=r"needs a tokenizer.*encoder\.tokenizer"):
        model.embed(["a"])
    model.tokenizer = BertTokenizer([*WORDS, "g"])
    with pytest.raises(ValueError, match=r"token_ids.*\[0, 11\), the vocabulary"):
        model.embed(["g"])


def test_a_size_has_no_weights():
    with pytest.raises(ValueError, match="load_weights=False"):
        BertSentenceEncoder.from_preset("bert_base")
    small = {"vocabulary_size": 11, "num_layers": 1}
    model = BertSentenceEncoder.from_preset("bert_tiny", False, backbone=small, pooling="cls")
    assert model.pooling == "cls" and model.normalize and model.tokenizer is None
    assert model.backbone.hidden_dim == 128
