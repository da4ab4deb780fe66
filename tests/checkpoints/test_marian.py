"""Marian against transformers: logits, generated tokens, configurations, and folders both ways."""

import json
import shutil

import keras
import numpy as np
import pytest

from kerasmodels.checkpoints import marian, weights_for_file
from kerasmodels.decoding import BeamSearch, GreedySearch
from kerasmodels.models import Transformer

PAD, LENGTH = 36, 10
ONE_VOCABULARY = dict(
    vocab_size=37,
    d_model=24,
    encoder_layers=2,
    decoder_layers=1,
    encoder_attention_heads=2,
    decoder_attention_heads=3,
    encoder_ffn_dim=20,
    decoder_ffn_dim=28,
    pad_token_id=PAD,
    eos_token_id=0,
    decoder_start_token_id=PAD,
    forced_eos_token_id=0,
    activation_function="swish",
    scale_embedding=True,
    max_position_embeddings=64,
    init_std=0.3,
)
TWO_VOCABULARIES = ONE_VOCABULARY | dict(
    share_encoder_decoder_embeddings=False,
    decoder_vocab_size=41,
    d_model=15,  # odd: one sine more than cosines
    encoder_attention_heads=3,
    encoder_layers=1,
    decoder_layers=2,
    activation_function="gelu",
    scale_embedding=False,
)


def random_model(folder, config, **generation):
    """Write a random model with transformers, generation settings included, and return it."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(7)
    model = MarianMTModel(MarianConfig(**config)).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "embed_positions" not in name:
                weight.add_(0.1 * torch.randn_like(weight))
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0] += 3.0  # so that some sentences end by themselves
    for name, value in generation.items():
        setattr(model.generation_config, name, value)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The folder and the original of the model with one vocabulary."""
    folder = tmp_path_factory.mktemp("marian")
    return folder, random_model(folder, ONE_VOCABULARY, bad_words_ids=[[PAD], [5]])


@pytest.fixture
def folder(pair, tmp_path):
    """A copy of the folder that a test may spoil."""
    return shutil.copytree(pair[0], tmp_path / "preset")


@pytest.fixture
def inputs(rng):
    lengths = np.array([9, 3, 1, 6])
    mask = np.arange(9) < lengths[:, None]
    source = np.where(mask, rng.integers(1, PAD, (4, 9)), PAD).astype("int32")
    return {
        "encoder_token_ids": source,
        "encoder_padding_mask": mask,
        "decoder_token_ids": rng.integers(1, PAD, (4, 6)).astype("int32"),
        "decoder_padding_mask": np.arange(6) < np.array([6, 2, 5, 1])[:, None],
    }


def original_logits(model, inputs):
    import torch

    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    arrays = [torch.tensor(np.asarray(x, "int64")) for x in inputs.values()]
    with torch.no_grad():
        return model(**dict(zip(names, arrays, strict=True))).logits.numpy()


def original_tokens(model, inputs, **kwargs):
    import torch

    ids = model.generate(
        input_ids=torch.tensor(inputs["encoder_token_ids"]).long(),
        attention_mask=torch.tensor(inputs["encoder_padding_mask"]).long(),
        max_length=LENGTH + 1,
        do_sample=False,
        **kwargs,
    ).numpy()[:, 1:]
    return np.pad(ids, ((0, 0), (0, LENGTH - ids.shape[1])), constant_values=PAD)


def logits(model, inputs):
    return model.predict_on_batch(inputs)  # compiled as a whole: quicker on JAX


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


# === Against the original ===


def test_logits_both_ways_with_one_vocabulary(pair, inputs, tmp_path):
    from transformers import MarianMTModel

    folder, original = pair
    model = Transformer.from_preset(folder)
    assert model.encoder_embedding is model.decoder_embedding
    expected = original_logits(original, inputs)
    assert_close(logits(model, inputs), expected)
    model.save_to_preset(tmp_path / "saved")
    again = MarianMTModel.from_pretrained(tmp_path / "saved").eval()
    np.testing.assert_array_equal(original_logits(again, inputs), expected)
    for name in ("bad_words_ids", "forced_eos_token_id", "eos_token_id", "decoder_start_token_id"):
        assert getattr(again.generation_config, name) == getattr(original.generation_config, name)
    for name, value in ONE_VOCABULARY.items():
        if name not in ("init_std", "max_position_embeddings"):
            assert getattr(again.config, name) == value


def test_logits_both_ways_with_two_vocabularies(tmp_path, inputs):
    from transformers import MarianMTModel

    original = random_model(tmp_path / "original", TWO_VOCABULARIES)
    model = Transformer.from_preset(tmp_path / "original", dropout=0.5)
    assert model.dropout == 0.5
    expected = original_logits(original, inputs)
    assert expected.shape == (4, 6, 41)
    assert_close(logits(model, inputs), expected)
    model.save_to_preset(tmp_path / "saved")
    again = MarianMTModel.from_pretrained(tmp_path / "saved").eval()
    np.testing.assert_array_equal(original_logits(again, inputs), expected)


@pytest.mark.parametrize("renormalize", [False, True])
def test_generation_token_for_token(pair, inputs, folder, renormalize):
    original = pair[1]
    if renormalize:
        path = folder / "generation_config.json"
        settings = json.loads(path.read_text()) | {
            "renormalize_logits": True,
            "num_beams": 4,
            "max_length": LENGTH + 1,
            "length_penalty": 0.7,
        }
        path.write_text(json.dumps(settings))
    model = Transformer.from_preset(folder)
    assert model.generation["suppress_ids"] == [PAD, 5] and model.generation["forced_end"]
    if renormalize:  # as the folder says, without being asked
        actual = model.generate(inputs)
        expected = original_tokens(
            original, inputs, num_beams=4, renormalize_logits=True, length_penalty=0.7
        )
    else:
        search = BeamSearch(4, length_penalty=1.0, length_rule="mean")
        actual = model.generate(inputs, search=search, max_length=LENGTH)
        expected = original_tokens(original, inputs, num_beams=4)
        greedy = model.generate(inputs, search=GreedySearch(), max_length=LENGTH)
        np.testing.assert_array_equal(greedy, original_tokens(original, inputs, num_beams=1))
    np.testing.assert_array_equal(actual, expected)
    lengths = (expected != PAD).sum(axis=1)
    assert lengths.min() < LENGTH  # some end early,
    assert expected[lengths == LENGTH][:, -1].tolist() == [0] * (lengths == LENGTH).sum()


def test_a_transformer_of_the_paper_becomes_marian(tmp_path, inputs):
    from transformers import MarianMTModel

    model = Transformer(37, 1, 3, 15, 20, generation={"pad_id": PAD})
    expected = logits(model, inputs)
    model.save_to_preset(tmp_path / "saved")
    again = MarianMTModel.from_pretrained(tmp_path / "saved").eval()
    assert_close(original_logits(again, inputs), expected)
    assert again.generation_config.forced_eos_token_id is None
    ours = Transformer.from_preset(tmp_path / "saved")
    assert ours.positions == "sinusoidal_halves"
    assert ours.generation == model.generation


# === Folders of all ages ===


@pytest.mark.parametrize("kind", ["bin", "bare", "copies", "bfloat16"])
def test_folders_written_otherwise(pair, folder, kind):
    import torch
    from safetensors.numpy import load_file, save_file
    from safetensors.torch import save_file as save_torch_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    expected = dict(tensors)
    if kind == "bin":
        path.unlink()
        state = {name: torch.tensor(array) for name, array in tensors.items()}
        torch.save(state, folder / "pytorch_model.bin")
    elif kind == "bare":  # the model without its head: no prefix, no bias
        pair[1].model.save_pretrained(folder)
        expected["final_logits_bias"] = np.zeros((1, 37))
    elif kind == "copies":  # as in 2020, with every tied name and the position tables
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_tokens.weight"] = tensors["model.shared.weight"].copy()
            tensors[f"model.{side}.embed_positions.weight"] = np.zeros((64, 24))
        tensors["lm_head.weight"] = tensors["model.shared.weight"].copy()
        save_file(tensors, path)
    else:
        half = {name: torch.tensor(array).bfloat16() for name, array in tensors.items()}
        save_torch_file(half, path)
        expected = {name: tensor.float().numpy() for name, tensor in half.items()}
    model = Transformer.from_preset(folder)
    written = weights_for_file(model, marian.key_table(model.get_config()))
    assert set(written) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(written[name], array)


def test_a_size_has_no_weights():
    with pytest.raises(ValueError, match="load_weights=False.*hf://Helsinki-NLP/opus-mt-en-de"):
        Transformer.from_preset("transformer_base")
    model = Transformer.from_preset("transformer_tiny", load_weights=False, vocabulary_size=11)
    assert model.vocabulary_size == 11 and model.tokenizer is None
    with pytest.raises(FileNotFoundError, match="transformer_huge.*transformer_base"):
        Transformer.from_preset("transformer_huge", load_weights=False)


def test_a_folder_without_weights(folder):
    (folder / "model.safetensors").unlink()
    assert Transformer.from_preset(folder, load_weights=False).hidden_dim == 24
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        Transformer.from_preset(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match="config.json"):
        Transformer.from_preset(folder)


def test_tensors_that_do_not_fit(folder):
    from safetensors.numpy import load_file, save_file

    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.encoder.layers.1.fc1.bias"]
    tensors["model.encoder.layers.0.fc1.weight"] = np.zeros((20, 23), "float32")
    tensors["model.extra"] = np.zeros((2,), "float32")
    save_file(tensors, path)
    with pytest.raises(ValueError) as error:
        Transformer.from_preset(folder)
    for line in (
        "missing: model.encoder.layers.1.fc1.bias (20,)",
        "misshapen: model.encoder.layers.0.fc1.weight (20, 23), expected (20, 24)",
        "unexpected: model.extra (2,)",
    ):
        assert line in str(error.value)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="model.safetensors.*truncated"):
        Transformer.from_preset(folder)


@pytest.mark.parametrize("fault", ["unwritable", "no room"])
def test_a_failed_save_keeps_what_was_there(folder, tmp_path, monkeypatch, fault):
    import safetensors.numpy

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    model = Transformer(11, 1, 2, 8, 8, normalize_first=fault == "unwritable")
    if fault == "no room":

        def save_file(tensors, path, metadata):
            path.write_bytes(b"half")
            raise OSError("no room")

        monkeypatch.setattr(safetensors.numpy, "save_file", save_file)
    for target in (folder, tmp_path / "new"):
        with pytest.raises((ValueError, OSError), match="normalize_first|no room"):
            model.save_to_preset(target)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["preset"]


# === Configurations ===


def change(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model_type="bart"), "'bart'.*Transformer reads 'marian'"),
        (dict(normalize_before=True), "normalize_before=True; only False"),
        (dict(static_position_embeddings=False), "static_position_embeddings"),
        (dict(tie_word_embeddings=False), "tie_word_embeddings"),
        (dict(activation_function="prelu"), "activation_function='prelu'; allowed"),
        (dict(eos_token_id=None), None),  # generation_config.json has it
    ],
)
def test_configurations_of_something_else(folder, changes, message):
    change(folder, "config.json", **changes)
    if message is None:
        assert Transformer.from_preset(folder).generation["end_id"] == 0
        return
    with pytest.raises(ValueError, match=message):
        Transformer.from_preset(folder)


def test_sizes_must_be_said_and_training_extras_are_told():
    config = ONE_VOCABULARY | {"model_type": "marian"}
    with pytest.raises(ValueError, match=r"lacks \['d_model'\]"):
        marian.read_config({k: v for k, v in config.items() if k != "d_model"})
    with pytest.warns(UserWarning, match="encoder_layerdrop=0.1"):
        marian.read_config(config | {"encoder_layerdrop": 0.1})


@pytest.mark.parametrize(
    "changes",
    [
        dict(do_sample=True),
        dict(no_repeat_ngram_size=3),
        dict(repetition_penalty=1.2),
        dict(forced_bos_token_id=3),
        dict(early_stopping=True),
        dict(bad_words_ids=[[1, 2]]),
    ],
)
def test_settings_that_cannot_be_followed(folder, changes):
    change(folder, "generation_config.json", **changes)
    (name,) = changes
    with pytest.raises(ValueError, match=f"{name}=.*generation="):
        Transformer.from_preset(folder)


def test_settings_of_ones_own(folder):
    change(folder, "generation_config.json", do_sample=True)
    model = Transformer.from_preset(folder, load_weights=False, generation={"end_id": 7})
    assert model.generation["end_id"] == 7


def test_generation_settings():
    config = ONE_VOCABULARY | {"model_type": "marian"}
    rules = {
        "pad_id": PAD,
        "start_id": PAD,
        "end_id": 0,
        "forced_end": True,
        "suppress_ids": [],
        "renormalize": False,
    }
    assert marian.read_generation(config) == rules
    old = config | dict(max_length=512, num_beams=6, bad_words_ids=[[PAD], [0]])
    beam = {"max_length": 511, "num_beams": 6, "length_penalty": 1.0, "length_rule": "mean"}
    assert marian.read_generation(old) == rules | {"suppress_ids": [PAD]} | beam
    # With a file of its own, generation is what that file says.
    new = marian.read_generation(
        old, {"eos_token_id": [0, 4], "suppress_tokens": [9], "max_new_tokens": 5}
    )
    assert new == rules | {
        "end_id": [0, 4],
        "forced_end": False,
        "suppress_ids": [9],
        "max_length": 5,
    }
    with pytest.warns(UserWarning, match="forced_eos_token_id=3"):
        assert not marian.read_generation(config | {"forced_eos_token_id": 3})["forced_end"]
    with pytest.raises(ValueError, match="eos_token_id"):
        marian.read_generation(config | {"eos_token_id": None})
    without = marian.read_generation(config | dict(pad_token_id=None, decoder_start_token_id=None))
    assert without["pad_id"] == without["start_id"] == 0


def test_configurations_are_inverse():
    for theirs in (ONE_VOCABULARY, TWO_VOCABULARIES):
        config = theirs | {"model_type": "marian"}
        arguments = marian.read_config(config)
        arguments["generation"] = marian.read_generation(
            config, {"num_beams": 3, "renormalize_logits": True, "max_length": 20}
        )
        written = marian.write_config(arguments)
        assert marian.read_config(written) == {
            name: value for name, value in arguments.items() if name != "generation"
        }
        generation = marian.write_generation(arguments)
        assert generation["max_length"] == 20
        assert marian.read_generation(written, generation) == arguments["generation"]


@keras.saving.register_keras_serializable(package="tests")
def own_activation(x):
    return x


@pytest.mark.parametrize(
    "changes",
    [
        dict(normalize_first=True),
        dict(positions="learned", max_sequence_length=9),
        dict(layer_norm_epsilon=1e-6),
        dict(activation="elu"),
        dict(activation=own_activation),
        dict(generation={"num_beams": 4, "length_rule": "gnmt"}),
    ],
)
def test_models_that_are_no_marian(tmp_path, changes):
    model = Transformer(11, 1, 2, 8, 8, **changes)
    name = "length_rule" if "generation" in changes else next(iter(changes))
    with pytest.raises(ValueError, match=name):
        model.save_to_preset(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_every_weight_has_a_name():
    model = Transformer((11, 13), 2, 2, 8, 8, output_bias=True)
    written = weights_for_file(model, marian.key_table(model.get_config()))
    assert sum(array.size for array in written.values()) == model.count_params()
