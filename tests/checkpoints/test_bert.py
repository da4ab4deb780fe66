"""BERT against transformers: all heads, folders both ways and of all ages, configurations."""

import json
import shutil

import numpy as np
import pytest

from kerasmodels import models
from kerasmodels.checkpoints import bert, weights_for_file
from kerasmodels.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    BertSpanClassifier,
    BertTokenClassifier,
)

CONFIG = dict(
    vocab_size=30,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=20,
    max_position_embeddings=12,
    type_vocab_size=3,
    initializer_range=0.3,
    hidden_dropout_prob=0.2,
)
LENGTHS = np.array([9, 3, 1, 6])
MASK = np.arange(9) < LENGTHS[:, None]
# transformers' class -> ours, what its configuration says besides, its outputs by our names
HEADS = {
    "BertModel": (
        Bert,
        {},
        {"sequence_output": "last_hidden_state", "pooled_output": "pooler_output"},
    ),
    "BertForPreTraining": (
        BertPretraining,
        {"hidden_act": "gelu_new"},
        {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"},
    ),
    "BertForMaskedLM": (BertPretraining, {"hidden_act": "relu"}, {"mlm": "logits"}),
    "BertForSequenceClassification": (
        BertClassifier,
        {"id2label": {0: "sad", 1: "calm", 2: "glad"}, "classifier_dropout": 0.4},
        "logits",
    ),
    "BertForTokenClassification": (
        BertTokenClassifier,
        {"num_labels": 5, "hidden_act": "gelu_pytorch_tanh"},
        "logits",
    ),
    "BertForQuestionAnswering": (
        BertSpanClassifier,
        {"layer_norm_eps": 1e-5},
        {"start": "start_logits", "end": "end_logits"},
    ),
}


def random_model(name, folder, **config):
    """Write a random model with transformers, and return it."""
    import torch
    import transformers

    torch.manual_seed(7)
    config = transformers.BertConfig(**{**CONFIG, **config})
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """The folder and the original of each kind of model, made when it is needed first."""
    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = folder, random_model(name, folder, **HEADS[name][1])
        return made[name]

    return get


@pytest.fixture
def folder_of(originals, tmp_path):
    """A copy of the folder of a kind of model, that a test may spoil."""
    return lambda name: shutil.copytree(originals(name)[0], tmp_path / name)


@pytest.fixture
def inputs(rng):
    return {
        "token_ids": np.where(MASK, rng.integers(1, 30, (4, 9)), 0).astype("int32"),
        "segment_ids": rng.integers(0, 3, (4, 9)).astype("int32"),
        "padding_mask": MASK,
    }


def original_outputs(model, inputs, names):
    import torch

    ids, segments, mask = (torch.tensor(np.asarray(x, "int64")) for x in inputs.values())
    with torch.no_grad():
        outputs = model(input_ids=ids, token_type_ids=segments, attention_mask=mask)
    if isinstance(names, str):
        return outputs[names].numpy()
    return {ours: outputs[theirs].numpy() for ours, theirs in names.items()}


def our_outputs(model, inputs):
    if isinstance(model, BertPretraining):  # at every position, as the original
        inputs = {**inputs, "mask_positions": np.repeat(np.arange(9)[None], 4, 0)}
    return model.predict_on_batch(inputs)  # compiled as a whole: quicker on JAX


def assert_close(actual, expected):
    if not isinstance(expected, dict):
        actual, expected = {"logits": actual}, {"logits": expected}
    assert set(actual) == set(expected)
    for name, array in expected.items():
        # The original does not mask the logits of spans.
        kept = MASK if name in ("start", "end") else ...
        assert actual[name].shape == array.shape
        np.testing.assert_allclose(actual[name][kept], array[kept], rtol=1e-4, atol=1e-5)


def _arrays(outputs):
    return list(outputs.values()) if isinstance(outputs, dict) else [outputs]


# === Against the original ===


@pytest.mark.parametrize("name", HEADS)
def test_outputs_both_ways(originals, inputs, tmp_path, name):
    import transformers

    folder, original = originals(name)
    cls, config, names = HEADS[name]
    model = cls.from_preset(folder)
    assert model.tokenizer is None
    expected = original_outputs(original, inputs, names)
    assert_close(our_outputs(model, inputs), expected)
    # And back: no tensor is missing there, and none is one too many.
    model.save_to_preset(tmp_path / "saved")
    theirs = getattr(transformers, name)
    again, info = theirs.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info
    found = original_outputs(again.eval(), inputs, names)
    same = again.config.hidden_act == original.config.hidden_act  # else rounded otherwise
    for one, other in zip(_arrays(found), _arrays(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=0 if same else 1e-5)
    saved = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert saved["architectures"] == [name]
    for field, value in {**CONFIG, **config}.items():
        if field != "hidden_act":
            assert getattr(again.config, field) == value
    assert bert.ACTIVATIONS[again.config.hidden_act] == bert.ACTIVATIONS[original.config.hidden_act]


def test_hidden_states_and_attention(originals, inputs):
    import torch

    folder, original = originals("BertModel")
    model = Bert.from_preset(folder)
    original.set_attn_implementation("eager")
    ids, segments, mask = (torch.tensor(np.asarray(x, "int64")) for x in inputs.values())
    with torch.no_grad():
        outputs = original(ids, mask, segments, output_hidden_states=True, output_attentions=True)
    for found, expected in (
        (model.hidden_states(inputs), outputs.hidden_states),
        (model.attention_scores(inputs), outputs.attentions),
    ):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["BertForPreTraining", "BertForTokenClassification"])
def test_an_encoder_comes_from_any_head(originals, name):
    folder, original = originals(name)
    model = Bert.from_preset(folder)
    assert (model.pooler is not None) == (name == "BertForPreTraining")
    state = {k.removeprefix("bert."): v for k, v in original.state_dict().items()}
    for key, array in weights_for_file(model, bert.key_table("encoder", {})).items():
        np.testing.assert_array_equal(array, state[key].numpy())
    if model.pooler is None:
        with pytest.raises(ValueError, match="missing: pooler.dense.weight"):
            Bert.from_preset(folder, pooler=True)
    else:
        assert Bert.from_preset(folder, pooler=False).pooler is None


# === Heads that are missing, other, or new ===


def test_a_missing_head_is_an_error(originals):
    for cls, missing, ask in (
        (BertClassifier, "classifier.weight", "num_classes="),
        (BertTokenClassifier, "classifier.weight", "num_classes="),
        (BertSpanClassifier, "qa_outputs.weight", "new_head=True"),
        (BertPretraining, "cls.predictions.bias", "new_head=True"),
    ):
        with pytest.raises(ValueError, match=f"missing: {missing}.*{ask}"):
            cls.from_preset(originals("BertModel")[0])
    # The two kinds of classifiers have one name for their heads.
    with pytest.raises(ValueError, match="BertForTokenClassification.*num_classes="):
        BertTokenClassifier.from_preset(originals("BertForSequenceClassification")[0])


@pytest.mark.parametrize(
    "cls,name,asked",
    [
        (BertClassifier, "BertForMaskedLM", {"num_classes": 2}),  # no pooler either
        (BertClassifier, "BertForSequenceClassification", {"num_classes": 4}),
        (BertClassifier, "BertForSequenceClassification", {"class_names": list("abc")}),
        (BertClassifier, "BertForSequenceClassification", {"new_head": True}),
        (BertSpanClassifier, "BertModel", {"new_head": True}),
        (BertPretraining, "BertForSequenceClassification", {"new_head": True}),
        (BertPretraining, "BertForMaskedLM", {"new_head": True, "next_sentence": True}),
    ],
)
def test_a_new_head_is_asked_for(originals, cls, name, asked):
    folder, original = originals(name)
    backbone = {"attention_dropout": 0.0, "initializer_range": 0.02}
    model = cls.from_preset(folder, **asked, backbone=backbone)
    assert model.backbone.attention_dropout == 0.0 and model.backbone.dropout == 0.2
    state = {k.removeprefix("bert."): v.numpy() for k, v in original.state_dict().items()}
    task = cls._task
    for key, array in weights_for_file(model, bert.key_table(task, model.get_config())).items():
        short = key.removeprefix("bert.")
        if key.startswith("bert.") and short in state:
            np.testing.assert_array_equal(array, state[short])
        elif key.endswith("weight") and "LayerNorm" not in key:
            assert 0 < np.abs(array).max() < 0.06  # as it is initialized
            assert short.startswith("pooler.") or not key.startswith("bert.")
    if "num_classes" in asked:
        assert model.num_classes == asked["num_classes"]
    if "class_names" in asked:
        assert model.class_names == asked["class_names"]


def test_classes_of_the_folder(originals):
    folder = originals("BertForSequenceClassification")[0]
    for asked in ({}, {"num_classes": 3}, {"class_names": ["sad", "calm", "glad"]}):
        model = BertClassifier.from_preset(folder, **asked)
        assert model.class_names == ["sad", "calm", "glad"] and model.num_classes == 3
        assert model.dropout == 0.4 and np.abs(model.classifier.kernel).max() > 0.05
    folder, original = originals("BertForTokenClassification")
    model = BertTokenClassifier.from_preset(folder, class_names=list("abcde"))  # names its own
    assert model.class_names == list("abcde") and model.dropout == 0.2
    weight = original.classifier.weight.detach().numpy()
    np.testing.assert_array_equal(np.asarray(model.get_weights()[-2]).T, weight)


def test_regression(tmp_path, inputs):
    from transformers import BertForSequenceClassification

    name = "BertForSequenceClassification"
    original = random_model(name, tmp_path / "a", num_labels=1, problem_type="regression")
    model = BertClassifier.from_preset(tmp_path / "a")
    assert model.num_classes == 1
    assert_close(our_outputs(model, inputs), original_outputs(original, inputs, "logits"))
    model.save_to_preset(tmp_path / "b")
    again = BertForSequenceClassification.from_pretrained(tmp_path / "b")
    assert again.config.problem_type == "regression" and again.config.num_labels == 1


def test_one_encoder_with_two_heads_saves_each(originals, tmp_path):
    """The pooler that the tagger does not read is not in its folder."""
    from transformers import BertForTokenClassification

    encoder = Bert.from_preset(originals("BertModel")[0])
    BertClassifier(encoder, 2)
    BertTokenClassifier(encoder, 2).save_to_preset(tmp_path / "tagger")
    _, info = BertForTokenClassification.from_pretrained(
        tmp_path / "tagger", output_loading_info=True
    )
    assert not any(info.values()), info


# === Folders of all ages ===


@pytest.mark.parametrize("kind", ["2018", "bin", "bare"])
def test_folders_written_otherwise(folder_of, kind):
    import torch
    from safetensors.numpy import load_file, save_file

    folder = folder_of("BertForPreTraining")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    expected = dict(tensors)
    if kind == "2018":  # gamma and beta, buffers, tied tensors twice, no model_type
        old = {".LayerNorm.weight": ".LayerNorm.gamma", ".LayerNorm.bias": ".LayerNorm.beta"}
        for name in list(tensors):
            for new, before in old.items():
                if name.endswith(new):
                    tensors[name.removesuffix(new) + before] = tensors.pop(name)
        tensors["bert.embeddings.position_ids"] = np.arange(12)[None]
        tensors["bert.embeddings.token_type_ids"] = np.zeros((1, 12), "int64")
        tensors["cls.predictions.decoder.weight"] = expected[
            "bert.embeddings.word_embeddings.weight"
        ].copy()
        tensors["cls.predictions.decoder.bias"] = expected["cls.predictions.bias"].copy()
        save_file(tensors, path)
        change(folder, model_type=None, architectures=None)
    elif kind == "bin":
        path.unlink()
        state = {name: torch.tensor(array) for name, array in tensors.items()}
        torch.save(state, folder / "pytorch_model.bin")
    else:  # the encoder alone has no prefix
        tensors = {n.removeprefix("bert."): x for n, x in tensors.items() if n[:5] == "bert."}
        save_file(tensors, path)
        expected = tensors
    cls = Bert if kind == "bare" else BertPretraining
    model = cls.from_preset(folder)
    written = weights_for_file(model, bert.key_table(cls._task, model.get_config()))
    assert set(written) == set(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(written[name], array)


def test_without_weights(folder_of):
    folder = folder_of("BertForMaskedLM")
    (folder / "model.safetensors").unlink()
    assert Bert.from_preset(folder, load_weights=False).hidden_dim == 16
    model = BertClassifier.from_preset(folder, False, num_classes=3, dtype="mixed_bfloat16")
    assert model.num_classes == 3 and model.backbone.compute_dtype == "bfloat16"
    with pytest.raises(FileNotFoundError, match="model.safetensors"):
        BertPretraining.from_preset(folder)


def test_tensors_that_do_not_fit(folder_of):
    from safetensors.numpy import load_file, save_file

    folder = folder_of("BertForSequenceClassification")
    path = folder / "model.safetensors"
    tensors = load_file(path)
    del tensors["bert.encoder.layer.1.output.dense.bias"]
    tensors["bert.embeddings.word_embeddings.weight"] = np.zeros((31, 16), "float32")
    tensors["bert.extra"] = np.zeros((2,), "float32")
    tensors["classifier.bias"] = np.zeros((2,), "float32")
    save_file(tensors, path)
    with pytest.raises(ValueError) as error:
        BertClassifier.from_preset(folder)
    for line in (
        "missing: bert.encoder.layer.1.output.dense.bias (16,)",
        "misshapen: bert.embeddings.word_embeddings.weight (31, 16), expected (30, 16)",
        "misshapen: classifier.bias (2,), expected (3,)",
        "unexpected: bert.extra (2,)",
    ):
        assert line in str(error.value)


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]


def test_the_tokenizer_goes_along(folder_of, tmp_path):
    folder = folder_of("BertModel")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    model = Bert.from_preset(folder)
    assert model.tokenizer.vocabulary_size == 30
    head = BertClassifier(model, 2)
    head.save_to_preset(tmp_path / "saved")
    again = BertClassifier.from_preset(tmp_path / "saved")
    batch = again.tokenizer(["a b c"])
    np.testing.assert_array_equal(batch["token_ids"], [[2, 5, 6, 7, 3]])
    assert again(batch).shape == (1, 2)
    (folder / "vocab.txt").write_text("\n".join([*WORDS, "z"]) + "\n")
    with pytest.raises(ValueError, match="31 tokens.*vocabulary_size=30"):
        Bert.from_preset(folder)


def test_masked_words_are_guessed_as_by_the_original(originals, folder_of):
    folder, texts = folder_of("BertForMaskedLM"), ["a [MASK] b c", "[MASK] d, [MASK]!"]
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    model = BertPretraining.from_preset(folder)
    found = model.fill_mask(texts, top_k=3)
    assert [[len(guesses) for guesses in text] for text in found] == [[3], [3, 3]]
    inputs = model.tokenizer(texts)
    logits = original_outputs(originals("BertForMaskedLM")[1], inputs, "logits").astype("float64")
    shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    at = np.argwhere(inputs["token_ids"] == 4)
    for (row, position), guesses in zip(at, [g for text in found for g in text], strict=True):
        best = np.argsort(-shares[row, position])[:3]
        assert [token for token, _ in guesses] == [WORDS[i] for i in best]
        expected = shares[row, position, best]
        np.testing.assert_allclose([share for _, share in guesses], expected, rtol=1e-4)
    with pytest.raises(ValueError, match="each have a .MASK.. Received: 'a b'"):
        model.fill_mask(["[MASK] a", "a b"])
    with (
        pytest.warns(UserWarning, match="cut to 12 tokens"),
        pytest.raises(ValueError, match="within the 12 tokens.* text 1, of whose 2 are 1 left"),
    ):
        model.fill_mask(["[MASK]", "[MASK] " + "a " * 20 + "[MASK]"])
    for bad in (None, 5, "a [MASK]"):
        with pytest.raises(ValueError, match="`texts` must be a list"):
            model.fill_mask(bad)
    with pytest.raises(ValueError, match="`top_k` must be in .1, 30., an.*top_k=31"):
        model.fill_mask(texts, top_k=31)
    assert model.fill_mask([]) == []
    model.tokenizer = None
    with pytest.raises(ValueError, match="needs a tokenizer"):
        model.fill_mask(texts)


# === Configurations ===


def change(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model_type="roberta"), "'roberta'.*Bert reads 'bert'"),
        (dict(position_embedding_type="relative_key"), "position_embedding_type.*only 'absolute'"),
        (dict(is_decoder=True), "is_decoder=True; only False"),
        (dict(add_cross_attention=True), "add_cross_attention"),
        (dict(hidden_act="prelu"), "hidden_act='prelu'; allowed"),
        (dict(vocab_size=None), r"lacks \['vocab_size'\]"),
        (dict(num_attention_heads=3), "num_heads=3"),
        (dict(model_type=None, architectures=["RobertaModel"]), "architectures=.'RobertaModel'"),
        (dict(layer_norm_eps="1e-12"), "layer_norm_epsilon='1e-12'"),
        (dict(hidden_dropout_prob="0.1"), "`dropout`.*'0.1'"),
    ],
)
def test_configurations_of_something_else(folder_of, changes, message):
    folder = folder_of("BertModel")
    change(folder, **changes)
    with pytest.raises(ValueError, match=message):
        Bert.from_preset(folder)


def test_untied_heads_and_broken_labels(folder_of):
    folder = folder_of("BertForMaskedLM")
    change(folder, tie_word_embeddings=False)
    with pytest.raises(ValueError, match="tie_word_embeddings"):
        BertPretraining.from_preset(folder)
    assert Bert.from_preset(folder).pooler is None  # nothing is tied there
    folder = folder_of("BertForSequenceClassification")
    for problem in ("regression", "multi_label_classification"):
        change(folder, problem_type=problem)
        with pytest.raises(ValueError, match=f"problem_type='{problem}'.*one number, can be read"):
            BertClassifier.from_preset(folder)
        assert BertClassifier.from_preset(folder, new_head=True).num_classes == 3
    for labels in ({"0": "a", "2": "c"}, ["a", "b"], "ab", {"a": 0}, 7):
        change(folder, id2label=labels)
        with pytest.raises(ValueError, match="config.json: id2label"):
            BertClassifier.from_preset(folder)


def test_what_transformers_cannot_hold(tmp_path):
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4)
    model = models.Bert(7, **sizes, activation="softplus")
    with pytest.raises(ValueError, match="activation='softplus'; allowed"):
        model.save_to_preset(tmp_path / "new")
    assert not (tmp_path / "new").exists()
