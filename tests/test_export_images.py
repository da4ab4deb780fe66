"""A classifier in a file: raw images of any size in, names and scores out, TensorFlow alone."""

import keras
import numpy as np
import pytest

from kerasmodels import checkpoints, export, layers, models
from tests.kit import randomize, to_numpy
from tests.test_export import BACKEND, saves, serve

NAMES = ["ant", "bee", "Käfer", "dragonfly"]
ARGUMENTS = {"image_size": 12, "crop_size": 10, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.25]}


def small_net(**arguments):
    """A net of one block."""
    arguments = {"num_classes": 4, **arguments}
    net = models.ResNet((1,), "cifar", block="basic", filters=(4,), **arguments)
    return randomize(net, scale=0.5)


def pixels(batch, height, width):
    """Noise, every image in a colour of its own."""
    random = np.random.default_rng(height)
    colors = random.uniform(0, 1, (batch, 1, 1, 3))
    return (random.integers(0, 256, (batch, height, width, 3)) * colors).astype("uint8")


@saves
def test_image_classifier_without_keras(tmp_path):
    net = small_net(class_names=NAMES)
    net.preprocessor = checkpoints.ImageProcessor(**ARGUMENTS)
    export.image_classifier(net, tmp_path / "all")
    layer = layers.ImagePreprocessing(**ARGUMENTS)
    batches = [pixels(2, 17, 23), pixels(3, 31, 12), pixels(1, 10, 10)]
    # The function, and the two names of the signature.
    names = ["serve", "signature serve", "signature serving_default"]
    calls = [
        (name, images if name == "serve" else {"images": images})
        for name, images in zip(names, batches, strict=True)
    ]
    signatures, results = serve(tmp_path / "all", calls)
    assert signatures == ["serve", "serving_default"]
    orders = set()
    for images, result in zip(batches, results, strict=True):
        logits = to_numpy(net(layer(images))).astype("float64")
        scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        order = np.argsort(-scores, axis=1)
        assert set(result) == {"scores", "class_names"} and result["scores"].dtype == "float32"
        expected = np.take_along_axis(scores, order, axis=1)
        np.testing.assert_allclose(result["scores"], expected, rtol=1e-4, atol=1e-6)
        found = [[name.decode() for name in row] for row in result["class_names"]]
        assert found == [[NAMES[i] for i in row] for row in order]
        orders |= {tuple(row) for row in found}
    assert len(orders) > 1  # images differ


@saves
def test_best_classes_without_names(tmp_path):
    import tensorflow as tf

    # All logits equal: the lower class comes first. A layer of one's own makes the images.
    net = small_net(num_classes=12)
    for variable in net.classifier.weights:
        variable.assign(np.zeros(variable.shape))
    export.image_classifier(net, tmp_path / "net", keras.layers.Rescaling(1 / 255), top=3)
    served = tf.saved_model.load(str(tmp_path / "net"))
    answer = served.serve(tf.constant(pixels(2, 9, 14)))
    np.testing.assert_allclose(answer["scores"].numpy(), np.full((2, 3), 1 / 12), rtol=1e-6)
    assert answer["class_names"].numpy().tolist() == [[b"0", b"1", b"2"]] * 2


@saves
def test_bad_image_classifier(tmp_path):
    net, layer = small_net(), layers.ImagePreprocessing(**ARGUMENTS)
    x = keras.Input((8,))
    features = small_net(include_top=False, pooling=None)
    for bad, arguments, message in (
        ("net.keras", {}, "functional.*str"),
        (keras.Model(x, keras.layers.Dense(2)(x)), {}, "images"),
        (features, {}, "logits"),
        (net, {"class_names": NAMES[:3]}, "4 classes.*3 names"),
        (net, {"top": 5}, "1 to 4.*top=5"),
        (net, {"top": 0}, "top=0"),
        (net, {"preprocessing": None}, "preprocessing=None"),
        (net, {"preprocessing": len}, "must be a layer.*len"),
        (small_net(image_shape=(12, 12, 3)), {}, r"\(None, 12, 12, 3\).*\(None, 10, 10, 3\)"),
        (small_net(image_shape=(10, 10, 1)), {}, r"\(None, 10, 10, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            export.image_classifier(bad, tmp_path / "net", **{"preprocessing": layer, **arguments})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(BACKEND != "torch", reason="what PyTorch writes instead")
def test_onnx_of_raw_images(tmp_path):
    import onnxruntime

    net, layer = small_net(), layers.ImagePreprocessing(**ARGUMENTS)
    with pytest.raises(ValueError, match="torch backend.*export.onnx.*keras.Model"):
        export.image_classifier(net, tmp_path / "net", layer)
    images = keras.Input((None, None, 3), dtype="uint8", name="images")
    export.onnx(keras.Model(images, keras.layers.Softmax()(net(layer(images)))), tmp_path / "net")
    session = onnxruntime.InferenceSession(tmp_path / "net")
    for batch in (pixels(2, 17, 23), pixels(3, 31, 12)):
        (scores,) = session.run(None, {"images": batch})
        expected = to_numpy(keras.ops.softmax(net(layer(batch))))
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-6)


@saves
def test_channels_first(tmp_path):
    """Raw images then come as the model takes them."""
    import tensorflow as tf

    net = small_net(data_format="channels_first")
    net.preprocessor = checkpoints.ImageProcessor(**ARGUMENTS)
    export.image_classifier(net, tmp_path / "net")
    images = pixels(2, 17, 23).transpose(0, 3, 1, 2)
    layer = layers.ImagePreprocessing(**ARGUMENTS, data_format="channels_first")
    served = tf.saved_model.load(str(tmp_path / "net"))
    answer = served.serve(tf.constant(images))
    expected = -np.sort(-to_numpy(keras.ops.softmax(net(layer(images)))), axis=1)
    np.testing.assert_allclose(answer["scores"], expected, rtol=1e-4, atol=1e-6)
