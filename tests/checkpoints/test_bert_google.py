"""Google's TensorFlow checkpoints of BERT, written with TensorFlow, against transformers; and back.

No other file of tests imports TensorFlow on JAX and PyTorch, where that costs seconds.
"""

import json
import shutil
import sys

import numpy as np
import pytest

from kerasmodels.checkpoints import bert_google, read_weights, weights_for_file
from kerasmodels.checkpoints.tensorflow_files import TensorFlowFiles
from kerasmodels.data import BertTokenizer
from kerasmodels.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    BertSpanClassifier,
    BertTokenClassifier,
)

HIDDEN, INNER, LAYERS, VOCABULARY = 16, 20, 2, 30
CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "directionality": "bidi",  # in the multilingual ones
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.2,
    "hidden_size": HIDDEN,
    "initializer_range": 0.02,
    "intermediate_size": INNER,
    "max_position_embeddings": 12,
    "num_attention_heads": 2,
    "num_hidden_layers": LAYERS,
    "type_vocab_size": 2,
    "vocab_size": VOCABULARY,
}
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MASK = np.arange(9) < np.array([9, 3, 1, 6])[:, None]
DENSE = {  # of each layer
    "attention/self/query": (HIDDEN, HIDDEN),
    "attention/self/key": (HIDDEN, HIDDEN),
    "attention/self/value": (HIDDEN, HIDDEN),
    "attention/output/dense": (HIDDEN, HIDDEN),
    "intermediate/dense": (HIDDEN, INNER),
    "output/dense": (INNER, HIDDEN),
}
HEADS = {
    "pretraining": {
        "cls/predictions/transform/dense/kernel": (HIDDEN, HIDDEN),
        "cls/predictions/transform/dense/bias": (HIDDEN,),
        "cls/predictions/transform/LayerNorm/gamma": (HIDDEN,),
        "cls/predictions/transform/LayerNorm/beta": (HIDDEN,),
        "cls/predictions/output_bias": (VOCABULARY,),
        "cls/seq_relationship/output_weights": (2, HIDDEN),
        "cls/seq_relationship/output_bias": (2,),
    },
    "classifier": {"output_weights": (3, HIDDEN), "output_bias": (3,)},
    "squad": {"cls/squad/output_weights": (2, HIDDEN), "cls/squad/output_bias": (2,)},
}
# Ours, transformers', its outputs by our names.
CASES = {
    "pretraining": (
        BertPretraining,
        "BertForPreTraining",
        {"mlm": "prediction_logits", "nsp": "seq_relationship_logits"},
    ),
    "classifier": (BertClassifier, "BertForSequenceClassification", {"logits": "logits"}),
    "squad": (
        BertSpanClassifier,
        "BertForQuestionAnswering",
        {"start": "start_logits", "end": "end_logits"},
    ),
}


def shapes_of(head):
    """The names and shapes of the program's variables."""
    shapes = {
        "bert/embeddings/word_embeddings": (VOCABULARY, HIDDEN),
        "bert/embeddings/token_type_embeddings": (2, HIDDEN),
        "bert/embeddings/position_embeddings": (12, HIDDEN),
        "bert/pooler/dense/kernel": (HIDDEN, HIDDEN),
        "bert/pooler/dense/bias": (HIDDEN,),
    }
    norms = ["bert/embeddings"]
    for i in range(LAYERS):
        layer = f"bert/encoder/layer_{i}"
        norms += [f"{layer}/attention/output", f"{layer}/output"]
        for name, shape in DENSE.items():
            shapes |= {f"{layer}/{name}/kernel": shape, f"{layer}/{name}/bias": shape[1:]}
    for norm in norms:
        shapes |= {f"{norm}/LayerNorm/gamma": (HIDDEN,), f"{norm}/LayerNorm/beta": (HIDDEN,)}
    return shapes | HEADS[head]


def write_checkpoint(path, arrays):
    """As the program does: variables by name and a Saver."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        for name, array in arrays.items():
            tf.get_variable(name, initializer=array, use_resource=False)
        session.run(tf.global_variables_initializer())
        tf.train.Saver().save(session, str(path))


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """For each head the folder of a checkpoint, and its arrays by name."""
    made, rng = {}, np.random.default_rng(5)
    for head in HEADS:
        folder = tmp_path_factory.mktemp(head)
        arrays = {n: rng.normal(0, 0.4, s).astype("float32") for n, s in shapes_of(head).items()}
        stored = dict(arrays)
        if head == "pretraining":
            name = "bert_model.ckpt"
        else:  # left behind by fine-tuning, with what Adam keeps
            name = "model.ckpt-343"
            for slot in ("adam_m", "adam_v"):
                stored |= {f"{n}/{slot}": np.zeros_like(a) for n, a in arrays.items()}
            stored["global_step"] = np.int64(343)
        write_checkpoint(folder / name, stored)
        (folder / "bert_config.json").write_text(json.dumps(CONFIG))
        made[head] = folder, arrays
    return made


@pytest.fixture
def folder_of(published, tmp_path):
    """A copy of the folder with a head, that a test may spoil."""
    return lambda head: shutil.copytree(published[head][0], tmp_path / head)


def original(head, arrays, **config):
    """transformers' model with the same weights, each put in its place by hand."""
    import torch
    import transformers

    labels = {"num_labels": 3} if head == "classifier" else {}
    config = transformers.BertConfig(**{**CONFIG, **labels, **config})
    model = getattr(transformers, CASES[head][1])(config).eval()
    left = dict(arrays)

    def put(parameter, name, transposed=False):
        array = left.pop(name)
        with torch.no_grad():
            parameter.copy_(torch.tensor(array.T if transposed else array))

    def dense(layer, name):
        put(layer.weight, f"{name}/kernel", True)
        put(layer.bias, f"{name}/bias")

    def norm(layer, name):
        put(layer.weight, f"{name}/LayerNorm/gamma")
        put(layer.bias, f"{name}/LayerNorm/beta")

    def output(layer, name):
        put(layer.weight, f"{name}output_weights")
        put(layer.bias, f"{name}output_bias")

    embeddings = model.bert.embeddings
    put(embeddings.word_embeddings.weight, "bert/embeddings/word_embeddings")
    put(embeddings.token_type_embeddings.weight, "bert/embeddings/token_type_embeddings")
    put(embeddings.position_embeddings.weight, "bert/embeddings/position_embeddings")
    norm(embeddings.LayerNorm, "bert/embeddings")
    for i, layer in enumerate(model.bert.encoder.layer):
        name = f"bert/encoder/layer_{i}"
        for part in DENSE:  # the parts are called alike
            dense(layer.get_submodule(part.replace("/", ".")), f"{name}/{part}")
        norm(layer.attention.output.LayerNorm, f"{name}/attention/output")
        norm(layer.output.LayerNorm, f"{name}/output")
    if head == "squad":  # which has no pooler there
        del left["bert/pooler/dense/kernel"], left["bert/pooler/dense/bias"]
        output(model.qa_outputs, "cls/squad/")
    else:
        dense(model.bert.pooler.dense, "bert/pooler/dense")
    if head == "classifier":
        output(model.classifier, "")
    if head == "pretraining":
        dense(model.cls.predictions.transform.dense, "cls/predictions/transform/dense")
        norm(model.cls.predictions.transform.LayerNorm, "cls/predictions/transform")
        put(model.cls.predictions.bias, "cls/predictions/output_bias")
        output(model.cls.seq_relationship, "cls/seq_relationship/")
    assert not left
    return model


@pytest.fixture
def inputs(rng):
    return {
        "token_ids": np.where(MASK, rng.integers(1, VOCABULARY, (4, 9)), 0).astype("int32"),
        "segment_ids": rng.integers(0, 2, (4, 9)).astype("int32"),
        "padding_mask": MASK,
    }


def original_outputs(model, inputs):
    import torch

    ids, segments, mask = (torch.tensor(np.asarray(x, "int64")) for x in inputs.values())
    with torch.no_grad():
        outputs = model(ids, mask, segments)
    return {name: x.numpy() for name, x in outputs.items()}


def our_outputs(model, inputs):
    if isinstance(model, BertPretraining):  # at every position, as the original
        inputs = {**inputs, "mask_positions": np.repeat(np.arange(9)[None], 4, 0)}
    outputs = model.predict_on_batch(inputs)
    return outputs if isinstance(outputs, dict) else {"logits": outputs}


def weights(model):
    return [np.asarray(x) for x in model.get_weights()]


# === Against the original, and back ===


@pytest.mark.parametrize("head", CASES)
def test_outputs_both_ways(published, inputs, tmp_path, head):
    import tensorflow as tf

    folder, arrays = published[head]
    cls, _, names = CASES[head]
    by_tanh = head == "classifier"  # as transformers reads it the function is exact
    backbone = {"activation": "gelu_tanh"} if by_tanh else {}
    hidden_act = "gelu_new" if by_tanh else "gelu"
    model = cls.from_preset(folder, backbone=backbone)
    assert model.tokenizer is None
    assert model.backbone.dropout == 0.2 and model.backbone.attention_dropout == 0.1
    expected = original_outputs(original(head, arrays, hidden_act=hidden_act), inputs)
    found = our_outputs(model, inputs)
    for ours, theirs in names.items():
        kept = MASK if head == "squad" else ...  # the original does not mask
        np.testing.assert_allclose(found[ours][kept], expected[theirs][kept], rtol=1e-4, atol=1e-5)
    if by_tanh:  # and it is told apart
        exact = original_outputs(original(head, arrays), inputs)["logits"]
        assert np.abs(expected["logits"] - exact).max() > 1e-4
    # And back: the very names and numbers.
    model.save_to_preset(tmp_path / "new", layout="google")
    reader = tf.train.load_checkpoint(str(tmp_path / "new" / "bert_model.ckpt"))
    if head == "squad":  # the head has no use for it
        arrays = {name: array for name, array in arrays.items() if "pooler" not in name}
    assert set(reader.get_variable_to_shape_map()) == set(arrays)
    for name, array in arrays.items():
        assert reader.get_variable_to_dtype_map()[name] == tf.float32
        np.testing.assert_array_equal(reader.get_tensor(name), array)
    files = sorted(path.name.split(".", 1)[1] for path in (tmp_path / "new").iterdir())
    assert files == ["ckpt.data-00000-of-00001", "ckpt.index", "json"]
    written = json.loads((tmp_path / "new" / "bert_config.json").read_text())
    for field in CONFIG.keys() - {"directionality"}:
        assert written[field] == {**CONFIG, "hidden_act": hidden_act}[field]
    again = cls.from_preset(tmp_path / "new")
    assert again.get_config() == {**model.get_config(), "name": again.name} | {
        "backbone": {**model.backbone.get_config(), "name": again.backbone.name}
    }
    for one, other in zip(weights(again), weights(model), strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_encoder_comes_from_any_head(published):
    folder, arrays = published["classifier"]
    model = Bert.from_preset(folder)
    encoder = {n: array for n, array in arrays.items() if n.startswith("bert/")}
    found = weights_for_file(model, bert_google.key_table("encoder", {}))
    assert set(found) == set(encoder)
    for name, array in encoder.items():
        np.testing.assert_array_equal(found[name], array)
    assert Bert.from_preset(folder, pooler=False).pooler is None


# === Heads that are missing, other, or new ===


def test_a_missing_head_is_an_error(published):
    for cls, head, missing, ask in (
        (BertClassifier, "pretraining", "output_weights", "num_classes="),
        (BertTokenClassifier, "squad", "output_weights", "num_classes="),
        (BertSpanClassifier, "classifier", "cls/squad/output_weights", "new_head=True"),
        (BertPretraining, "classifier", "cls/predictions/output_bias", "new_head=True"),
    ):
        with pytest.raises(ValueError, match=f"missing: {missing}. Pass {ask}"):
            cls.from_preset(published[head][0])


@pytest.mark.parametrize(
    ("cls", "head", "asked"),
    [
        (BertClassifier, "pretraining", {"num_classes": 5}),
        (BertClassifier, "classifier", {"num_classes": 5}),
        (BertSpanClassifier, "pretraining", {"new_head": True}),
        (BertPretraining, "squad", {"new_head": True}),
    ],
)
def test_a_new_head_is_asked_for(published, cls, head, asked):
    folder, arrays = published[head]
    model = cls.from_preset(folder, **asked)
    np.testing.assert_array_equal(
        np.asarray(model.backbone.token_embedding.embeddings),
        arrays["bert/embeddings/word_embeddings"],
    )
    last = {BertClassifier: "classifier", BertSpanClassifier: "span", BertPretraining: "nsp_dense"}
    layer = getattr(model, last[cls])
    assert np.abs(weights(layer)[0]).max() < 0.06  # as it is initialized
    assert not weights(layer)[1].any()


def test_classes(published, tmp_path):
    """Their number is in the shape, and names go along."""
    folder, arrays = published["classifier"]
    for cls in (BertClassifier, BertTokenClassifier):  # the program calls both heads alike
        model = cls.from_preset(folder, class_names=["sad", "calm", "glad"])
        assert model.num_classes == 3 and model.dropout == 0.2
        np.testing.assert_array_equal(weights(model.classifier)[0].T, arrays["output_weights"])
        model.save_to_preset(tmp_path / cls.__name__, layout="google")
        again = cls.from_preset(tmp_path / cls.__name__)
        assert again.class_names == ["sad", "calm", "glad"]
        np.testing.assert_array_equal(weights(again.classifier)[0].T, arrays["output_weights"])
    with pytest.raises(ValueError, match="BertForTokenClassification"):
        BertClassifier.from_preset(tmp_path / "BertTokenClassifier")


# === The tokenizer ===


def test_the_vocabulary_tells_the_case(folder_of, tmp_path):
    folder = folder_of("classifier")
    for words, lowercase in (
        (["a", "##b", "<S>"], True),  # the last one is in the Chinese vocabulary, lower-cased
        (["a", "A", "##b"], False),
        (["a", "##B"], False),
    ):
        (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
        tokenizer = BertTokenizer.from_folder(folder)
        assert tokenizer.tokens == [*SPECIAL, *words] and tokenizer.lowercase == lowercase
    BertClassifier.from_preset(folder).save_to_preset(tmp_path / "new", layout="google")
    tokenizer = BertClassifier.from_preset(tmp_path / "new").tokenizer
    assert tokenizer.tokens == [*SPECIAL, "a", "##B"] and not tokenizer.lowercase


# === Folders that are not as they should be ===


def test_several_checkpoints(folder_of):
    folder = folder_of("squad")
    for path in list(folder.glob("model.ckpt-343.*")):
        shutil.copy(path, folder / path.name.replace("343", "9"))
    (folder / "model.ckpt-9.data-00000-of-00001").write_bytes(b"")
    BertSpanClassifier.from_preset(folder)  # the Saver's file names the other one
    (folder / "checkpoint").write_text('model_checkpoint_path: "gs://bucket/run/model.ckpt-343"\n')
    BertSpanClassifier.from_preset(folder)
    for text in ('model_checkpoint_path: "model.ckpt-7"\n', None):
        (folder / "checkpoint").unlink()
        if text:
            (folder / "checkpoint").write_text(text)
        with pytest.raises(ValueError, match=r"\['model.ckpt-343', 'model.ckpt-9'\]"):
            BertSpanClassifier.from_preset(folder)


def test_broken_files_change_nothing(folder_of):
    folder = folder_of("pretraining")
    table = bert_google.key_table("encoder", {})
    model = Bert.from_preset(folder, load_weights=False)
    before = weights(model)

    def load():
        read_weights(model, folder, table, open_tensors=TensorFlowFiles)

    index, data = (folder / f"bert_model.ckpt.{x}" for x in ("index", "data-00000-of-00001"))
    for path, spoil in (
        (index, lambda x: b""),
        (index, lambda x: x[:-1]),
        (index, lambda x: bytes([x[0] ^ 1]) + x[1:]),
        (data, lambda x: x[:-4]),
        (data, lambda x: x[:-4] + b"\0\0\0\0"),  # of the last one: what is read first is whole
    ):
        content = path.read_bytes()
        path.write_bytes(spoil(content))
        with pytest.raises(ValueError, match="bert_model.ckpt' is truncated or corrupt: .*[a-z]"):
            load()
        path.write_bytes(content)
    for one, other in zip(weights(model), before, strict=True):
        np.testing.assert_array_equal(one, other)
    load()
    assert np.abs(weights(model)[0] - before[0]).max() > 0.1
    for path, message in ((data, "ckpt' is incomplete"), (index, "no weights.*ckpt.index")):
        path.unlink()
        with pytest.raises(FileNotFoundError, match=message):
            load()


def test_tensors_that_do_not_fit(published, tmp_path):
    arrays = dict(published["classifier"][1])
    del arrays["bert/encoder/layer_1/output/dense/bias"]
    arrays["bert/embeddings/word_embeddings"] = np.zeros((31, HIDDEN), "float32")
    arrays["bert/extra"] = np.zeros((2,), "float32")
    write_checkpoint(tmp_path / "bert_model.ckpt", arrays)
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(ValueError) as error:
        BertClassifier.from_preset(tmp_path)
    for line in (
        "missing: bert/encoder/layer_1/output/dense/bias (16,)",
        "misshapen: bert/embeddings/word_embeddings (31, 16), expected (30, 16)",
        "unexpected: bert/extra (2,)",
    ):
        assert line in str(error.value)


def test_configurations_of_something_else(folder_of):
    import tensorflow as tf

    folder = folder_of("classifier")
    for config, message in (
        (CONFIG | {"model_type": "albert"}, "bert_config.json' has .*'albert'.*Bert reads 'bert'"),
        (CONFIG | {"hidden_act": "prelu"}, "hidden_act='prelu'; allowed"),
        ({"hidden_act": "gelu"}, r"lacks \['vocab_size', .*\]"),
        (CONFIG, "tf.train.Checkpoint"),
    ):
        (folder / "bert_config.json").write_text(json.dumps(config))
        if config is CONFIG:  # TensorFlow 2 has another kind of checkpoint
            for path in folder.glob("model.ckpt*"):
                path.unlink()
            tf.train.Checkpoint(kernel=tf.Variable([1.0])).write(str(folder / "model.ckpt"))
        with pytest.raises(ValueError, match=message):
            Bert.from_preset(folder)


def test_what_cannot_be_written(published, tmp_path, monkeypatch):
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4)
    for argument in ({"activation": "silu"}, {"layer_norm_epsilon": 1e-5}):
        ((name, value),) = argument.items()
        with pytest.raises(ValueError, match=f"Google's BERT.*\n.*{name}={value!r}"):
            Bert(7, **sizes, **argument).save_to_preset(tmp_path / "new", layout="google")
    model = Bert(7, **sizes)
    with pytest.raises(ValueError, match=r"layout='tf'; allowed: \['transformers', 'google'\]"):
        model.save_to_preset(tmp_path / "new", layout="tf")
    model.save_to_preset(tmp_path / "old")
    before = sorted(path.name for path in (tmp_path / "old").iterdir())
    with pytest.raises(ValueError, match="has a config.json.*another folder"):
        model.save_to_preset(tmp_path / "old", layout="google")
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(ImportError, match=r"pip install 'kerasmodels\[tensorflow\]'"):
        model.save_to_preset(tmp_path / "new", layout="google")
    with pytest.raises(ImportError, match=r"pip install 'kerasmodels\[tensorflow\]'"):
        Bert.from_preset(published["squad"][0])
    assert not (tmp_path / "new").exists()
    assert sorted(path.name for path in (tmp_path / "old").iterdir()) == before
