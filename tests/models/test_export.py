"""Keras's own `export` of every family, the pad id of what is exported, and TFLite."""

import keras
import numpy as np
import pytest

from kerasmodels import data, export, models
from tests.kit import backend, randomize, to_numpy

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16)
saves = pytest.mark.skipif(backend() == "torch", reason="PyTorch writes ONNX, never a SavedModel")


def bert():
    return models.Bert(13, **SIZES)


FAMILIES = {
    "Transformer": lambda: models.Transformer((13, 13), **SIZES),
    "Bert": bert,
    "BertFeatures": lambda: bert().features((-1,)),
    "BertPretraining": lambda: models.BertPretraining(bert()),
    "BertClassifier": lambda: models.BertClassifier(bert(), 2),
    "BertSpanClassifier": lambda: models.BertSpanClassifier(bert()),
    "BertSentenceEncoder": lambda: models.BertSentenceEncoder(bert()),
    "ResNet": lambda: models.ResNet(8, stem="cifar"),
}
# The other heads of BERT have neither an input nor a layer that these have not.
FEW = "Transformer", "BertFeatures", "BertPretraining", "BertSpanClassifier", "ResNet"
LITE = "Transformer", "BertClassifier", "BertPretraining", "BertSentenceEncoder", "ResNet"


def arrays(model, rows=2, length=5):
    """Something for each input of a model; the last position of the first row is padding."""
    if not isinstance(model.input, dict):
        return np.random.default_rng(0).normal(size=(rows, 27 + length, 32, 3)).astype("float32")
    inputs = {}
    for name in model.input:
        inputs[name] = np.random.default_rng(0).integers(1, 13, (rows, length)).astype("int32")
        if name.endswith("padding_mask"):
            inputs[name] = np.ones((rows, length), bool)
            inputs[name][0, -1] = False
        elif name == "segment_ids":
            inputs[name] %= 2
        elif name == "mask_positions":
            inputs[name] = inputs[name][:, :2] % length
    return inputs


def leaves(outputs):
    return [to_numpy(leaf) for leaf in keras.tree.flatten(outputs)]


def assert_close(found, expected, tolerance=1e-5):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("family", FEW)
def test_export_of_keras(family, tmp_path):
    """It works as ours does, for any batch and length."""
    model = randomize(FAMILIES[family](), scale=0.1 if family == "ResNet" else 0.5)
    if backend() == "torch":
        import onnxruntime

        path = tmp_path / "model.onnx"
        model.export(path, format="onnx", verbose=False)
        session = onnxruntime.InferenceSession(str(path))

        def served(inputs):
            if not isinstance(inputs, dict):
                inputs = {session.get_inputs()[0].name: inputs}
            return session.run(None, inputs)
    else:
        import tensorflow as tf

        path = tmp_path / "model"
        model.export(path, verbose=False)
        loaded = tf.saved_model.load(path)

        def served(inputs):
            return leaves(loaded.serve(keras.tree.map_structure(tf.constant, inputs)))

    for shape in ((2, 5), (3, 7)):
        inputs = arrays(model, *shape)
        assert_close(served(inputs), leaves(model(inputs)))


@pytest.mark.parametrize("family", ["Transformer", "Bert", "ResNet"])
def test_what_keras_cannot_export_names_our_function(family, tmp_path):
    instead = "onnx" if backend() == "torch" else "saved_model"
    for format in ("onnx", "tf_saved_model", "xml"):
        if (format == "onnx") != (backend() == "torch") or format == "xml":
            with pytest.raises(ValueError, match=rf"{format}.*kerasmodels.export.{instead}\("):
                FAMILIES[family]().export(tmp_path / "model", format=format, verbose=False)


PAD = 1


@pytest.fixture(scope="module")
def padded_by_one(tmp_path_factory):
    """A folder whose tokenizer has [MASK] at 0 and [PAD] at 1, as KoBERT's has."""
    folder = tmp_path_factory.mktemp("kobert")
    words = ["[MASK]", "[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefgh"]
    model = randomize(bert(), scale=0.5)
    model.tokenizer = data.BertTokenizer(words)
    model.save_to_preset(folder)
    return folder


@saves
@pytest.mark.parametrize("family", ["BertClassifier", "BertSpanClassifier", "BertFeatures"])
def test_ids_alone_are_masked_by_the_pad_id_of_the_tokenizer(family, padded_by_one, tmp_path):
    import tensorflow as tf

    encoder = models.Bert.from_preset(padded_by_one)
    assert encoder.tokenizer.pad_id == PAD
    heads = {
        "BertFeatures": lambda: encoder.features((-1,)),
        "BertClassifier": lambda: models.BertClassifier(encoder, 2),
        "BertSpanClassifier": lambda: models.BertSpanClassifier(encoder),
    }
    model = heads[family]()
    inputs = encoder.tokenizer(["a b c", "d"])
    assert (inputs["token_ids"][1] == PAD).sum() == 2
    export.saved_model(model, tmp_path / "model")
    served = tf.saved_model.load(tmp_path / "model")
    ids = {name: tf.constant(inputs[name]) for name in ("token_ids", "segment_ids")}
    assert_close(leaves(served.serve_token_ids(ids)), leaves(model(inputs)))


@pytest.mark.skipif(backend() != "tensorflow", reason="the converter reads TensorFlow's graphs")
@pytest.mark.parametrize("family", LITE)
def test_tflite_of_a_saved_model(family, tmp_path):
    import tensorflow as tf

    model = randomize(FAMILIES[family](), scale=0.1 if family == "ResNet" else 0.5)
    export.saved_model(model, tmp_path / "model")
    converter = tf.lite.TFLiteConverter.from_saved_model(
        str(tmp_path / "model"), signature_keys=["serve"]
    )
    runner = tf.lite.Interpreter(model_content=converter.convert()).get_signature_runner("serve")
    loaded = tf.saved_model.load(tmp_path / "model").signatures["serve"]
    for shape in ((1, 4), (2, 6)):
        inputs = arrays(model, *shape)
        if not isinstance(inputs, dict):
            inputs = {name: inputs for name in runner.get_input_details()}
        expected = {name: tensor.numpy() for name, tensor in loaded(**inputs).items()}
        found = runner(**inputs)
        assert found.keys() == expected.keys()
        for name in found:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-3, atol=1e-3)
