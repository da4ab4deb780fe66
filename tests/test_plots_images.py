"""Pictures of image models: what they show is compared with hand calculations."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import layers, models, plots
from tests.test_plots import images, pyplot_stays_out, write  # noqa: F401


@pytest.mark.filterwarnings("error::UserWarning")
def test_filters_in_colour(rng):
    kernel = rng.normal(size=(5, 4, 3, 6)).astype("float32")
    kernel[..., 1] = 0.25  # a filter without any range
    figure = plots.filters(kernel, columns=3, title="stem")
    write(figure)
    (shown,) = images(figure)
    assert shown.shape == (11, 14, 3)
    last = kernel[..., 5]
    expected = 255 * (last - last.min()) / (last.max() - last.min())
    np.testing.assert_allclose(shown[6:, 10:], expected, atol=0.51)
    np.testing.assert_allclose(shown[:5, 5:9], 127.5, atol=0.51)
    assert (shown[5] == 255).all()  # the gap


def test_filters_of_a_model():
    model = models.ResNet(8, stem="cifar", image_shape=(8, 8, 1))
    classifier = keras.Sequential([keras.layers.Rescaling(1 / 255), model])
    (stem,) = images(plots.filters(classifier))
    np.testing.assert_array_equal(stem, images(plots.filters(model.stem_convolution))[0])
    assert stem.shape == (15, 15)  # 4 x 4 filters of 3 x 3
    kernel = ops.convert_to_numpy(model.blocks[1].convolutions[0].kernel)
    (shown,) = images(plots.filters(model, "stage2_block0/convolution_1"))
    assert shown.shape == (32 * 4 - 1, 16 * 4 - 1)  # a row a filter, a column a channel
    one = kernel[..., 31]
    expected = 255 * (one[:, :, 2] - one.min()) / (one.max() - one.min())
    np.testing.assert_allclose(shown[31 * 4 :, 8:11], expected, atol=0.51)
    with pytest.raises(ValueError, match="one of.*stem_convolution.*'classifier'"):
        plots.filters(model, "classifier")
    with pytest.raises(ValueError, match="no convolution"):
        plots.filters(keras.layers.Dense(3))
    with pytest.raises(ValueError, match=r"\(3, 3, 4\)"):
        plots.filters(np.zeros((3, 3, 4)))


def make_classifier(activation=None):
    """A convolution, a shortcut around it, the mean over pixels, a dense layer."""
    x = keras.Input((4, 6, 3))
    y = keras.layers.Conv2D(3, 3, padding="same", name="conv")(x)
    y = keras.layers.Add(name="add")([x, y])
    y = keras.layers.GlobalAveragePooling2D(keepdims=True, name="pool")(y)
    y = keras.layers.Flatten(name="flatten")(y)
    return keras.Model(x, keras.layers.Dense(5, activation, name="top")(y))


@pytest.mark.filterwarnings("error::UserWarning")
def test_grad_cam_is_cam(rng):
    model = make_classifier("softmax")
    top = model.get_layer("top")
    image = rng.normal(size=(4, 6, 3)).astype("float32")
    conv = ops.convert_to_numpy(model.get_layer("conv")(image[None]))[0]
    weights, bias = (ops.convert_to_numpy(v) for v in (top.kernel, top.bias))
    logits = (conv + image).mean(axis=(0, 1)) @ weights + bias
    best = int(logits.argmax())

    # Zhou et al. 2016: class activation maps are the top's weights times the feature maps; the
    # mean over 24 pixels divides them.
    def cam(maps, index):
        return np.maximum(maps @ weights[:, index] / 24, 0)

    found = plots.grad_cam_map(model, image)
    np.testing.assert_allclose(found, cam(conv + image, best), rtol=1e-5, atol=1e-6)
    assert found.max() > 0
    for index in range(5):  # of the convolution: the shortcut goes around it
        found = plots.grad_cam_map(model, image[None], index, layer="conv")
        np.testing.assert_allclose(found, cam(conv, index), rtol=1e-5, atol=1e-6)
    assert top.activation is keras.activations.softmax  # put back

    # Inside of another model, behind other layers, whose softmax is a layer.
    whole = keras.Sequential([keras.layers.Rescaling(0.5), make_classifier()])
    whole.add(keras.layers.Softmax())
    whole.build((None, 4, 6, 3))
    whole.set_weights(model.get_weights())
    whole.class_names = ["$", "b", "c", "d", "e"]
    found = plots.grad_cam_map(whole, 2 * image, layer="conv")
    np.testing.assert_allclose(found, cam(conv, best), rtol=1e-5, atol=1e-6)
    figure = plots.grad_cam(whole, 2 * image, 0)
    write(figure)
    assert figure.get_suptitle() == "Grad-CAM: $, add"
    left, right = figure.axes
    span = image.max() - image.min()
    np.testing.assert_allclose(left.images[0].get_array(), (image - image.min()) / span, atol=1e-6)
    np.testing.assert_array_equal(right.images[0].get_array(), left.images[0].get_array())
    over = right.images[1]
    np.testing.assert_allclose(over.get_array(), cam(conv + image, 0), rtol=1e-5, atol=1e-6)
    assert over.get_extent() == [-0.5, 5.5, 3.5, -0.5]


def test_grad_cam_of_channels_first_and_of_a_block(rng):
    x = keras.Input((3, 4, 5))
    y = keras.layers.ReLU(name="relu")(x)
    y = keras.layers.GlobalAveragePooling2D(data_format="channels_first")(y)
    model = keras.Model(x, keras.layers.Dense(2, use_bias=False)(y))
    image = rng.normal(size=(3, 4, 5)).astype("float32")
    weights = ops.convert_to_numpy(model.layers[-1].kernel)
    expected = np.einsum("khw,k->hw", np.maximum(image, 0), weights[:, 1]) / 20
    found = plots.grad_cam_map(model, image, 1)
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)
    assert plots.grad_cam(model, image).axes[0].images[0].get_array().shape == (4, 5, 3)

    block = layers.BasicBlock(2, strides=2)
    x = keras.Input((4, 4, 3))
    y = keras.layers.GlobalAveragePooling2D()(block(x))
    model = keras.Model(x, keras.layers.Dense(2)(y))
    image = rng.uniform(size=(4, 4, 3))
    assert plots.grad_cam(model, image, 0).get_suptitle() == f"Grad-CAM: class 0, {block.name}"
    # Where the score does not go through a layer, there is no evidence: gamma is 0.
    block.norms[1].gamma.assign([0.0, 0.0])
    inner = plots.grad_cam_map(model, image, 0, layer=block.convolutions[0])
    np.testing.assert_array_equal(inner, np.zeros((2, 2)))


@pytest.mark.filterwarnings("error::UserWarning")
def test_saliency_of_a_linear_model_is_its_weights(rng):
    model = keras.Sequential(
        [keras.Input((4, 5, 3)), keras.layers.Flatten(), keras.layers.Dense(2, "sigmoid")]
    )
    image = rng.integers(0, 256, (4, 5, 3)).astype("uint8")
    weights = ops.convert_to_numpy(model.layers[-1].kernel).reshape(4, 5, 3, 2)
    for index in range(2):
        found = plots.saliency_map(model, image, index)
        np.testing.assert_allclose(found, np.abs(weights[..., index]).max(axis=-1), rtol=1e-6)
    figure = plots.saliency(model, image, 1)
    write(figure)
    assert figure.get_suptitle() == "Saliency: class 1"
    shown, slope = images(figure)
    np.testing.assert_allclose(shown, image / 255)
    np.testing.assert_array_equal(slope, found)


def test_bad_explanations():
    model, image = make_classifier(), np.zeros((4, 6, 3), "float32")
    shared = keras.layers.ReLU(name="shared")
    x = keras.Input((4, 6, 3))
    y = keras.layers.Flatten()(shared(shared(x)))
    twice = keras.Model(x, keras.layers.Dense(2)(y))
    flat = keras.Sequential([keras.Input((4, 6, 3)), keras.layers.Flatten(), keras.layers.Dense(2)])
    maps = keras.Model(x, shared(x))
    for fn in (plots.grad_cam_map, plots.grad_cam, plots.saliency_map, plots.saliency):
        for arguments, message in (
            ((model, np.zeros((2, 4, 6, 3))), r"one image.*\(2, 4, 6, 3\)"),
            ((model, image[0]), r"one image.*\(6, 3\)"),
            ((model, image, 5), "0 to 4.*class_index=5"),
            ((model, image, -1), "class_index=-1"),
            ((model, image, "cat"), "class_index='cat'"),
            ((maps, image), r"one score a class.*\(1, 4, 6, 3\)"),
        ):
            with pytest.raises(ValueError, match=message):
                fn(*arguments)
    for arguments, message in (
        ((flat, image), "no layer that.*feature maps.*flatten"),
        ((twice, image), "no layer that is called once.*shared"),
        ((model, image, 0, "cnov"), "'conv'.*layer='cnov'"),
        ((model, image, 0, "flatten"), "rank 4.*'flatten'.*(1, 3)"),
        ((model, image, 0, keras.layers.ReLU(name="stray")), "called once.*'stray'"),
        ((twice, image, 0, "shared"), "called once.*'shared'"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.grad_cam_map(*arguments)


@pytest.mark.filterwarnings("error::UserWarning")
def test_residual_responses(rng):
    responses = {
        "plain": [s * rng.normal(size=(3, 4, 4, 2)) for s in (1.0, 3.0, 2.0)],
        "residual": [ops.convert_to_tensor([0.0, 1.0]), ops.convert_to_tensor([[1.0, 4.0]])],
    }
    figure = plots.residual_responses(responses, title="Figure 7")
    write(figure)
    top, bottom = figure.axes
    plain = [response.std() for response in responses["plain"]]
    np.testing.assert_array_equal(top.lines[0].get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(top.lines[0].get_ydata(), plain, rtol=1e-6)
    np.testing.assert_allclose(bottom.lines[0].get_ydata(), sorted(plain)[::-1], rtol=1e-6)
    np.testing.assert_allclose(top.lines[1].get_ydata(), [0.5, 1.5])
    np.testing.assert_allclose(bottom.lines[1].get_ydata(), [1.5, 0.5])
    assert [text.get_text() for text in top.get_legend().get_texts()] == ["plain", "residual"]
    for bad, message in (({}, "at least one net"), ({"a": []}, "'a'"), ({"b": [[]]}, r"\(0,\)")):
        with pytest.raises(ValueError, match=message):
            plots.residual_responses(bad)


@pytest.mark.filterwarnings("error::UserWarning")
def test_confusion_counts():
    labels, predictions = np.array([0, 0, 2, 2, 2]), np.array([0, 1, 2, 0, 2])
    counts = [[1, 1, 0], [0, 0, 0], [1, 0, 2]]
    found = plots.confusion_counts(labels, predictions)
    assert found.tolist() == counts and found.dtype == "int64"
    assert plots.confusion_counts(labels, np.eye(3)[predictions]).tolist() == counts
    four = plots.confusion_counts(list(labels), list(predictions), list("abcd"))
    assert four.shape == (4, 4) and four[:3, :3].tolist() == counts and four.sum() == 5
    with pytest.raises(ValueError, match="`labels` must be integers"):
        plots.confusion_counts(["a"], [0])


@pytest.mark.parametrize("channels", [1, 3])
def test_image_grid_of_channels_first(channels, rng):
    images = rng.uniform(size=(5, 8, 6, channels))
    expected, found = (
        plots.image_grid(part).axes[0].get_images()[0].get_array()
        for part in (images, images.transpose(0, 3, 1, 2))
    )
    np.testing.assert_array_equal(found, expected)


def test_confusion_matrix():
    labels, predictions = [0, 0, 0, 2, 2], [0, 1, 1, 2, 0]
    figure = plots.confusion_matrix(labels, predictions, ["cat", "$x$", "dog"], title="pets")
    write(figure)
    axis = figure.axes[0]
    cells = {(t.get_position()[1], t.get_position()[0]): int(t.get_text()) for t in axis.texts}
    expected = np.zeros((3, 3), int)
    for label, prediction in zip(labels, predictions, strict=True):
        expected[label, prediction] += 1
    assert cells == dict(np.ndenumerate(expected))
    shares = [[1 / 3, 2 / 3, 0], [0, 0, 0], [1 / 2, 0, 1 / 2]]
    np.testing.assert_allclose(axis.images[0].get_array(), shares)
    assert [label.get_text() for label in axis.get_yticklabels()] == ["cat", "$x$", "dog"]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("predicted class", "true class")
    scores = ops.convert_to_tensor(np.eye(4, dtype="float32")[predictions])
    axis = plots.confusion_matrix(ops.convert_to_tensor(labels), scores).axes[0]
    assert axis.images[0].get_array().shape == (4, 4)  # a class that never occurs has its row
    many = plots.confusion_matrix(np.arange(100), np.arange(100))
    assert not many.axes[0].texts  # there is no room for 10,000 numbers
    for arguments, message in (
        (([], []), "at least one"),
        (([0, 1], [0]), r"\(2,\).*\(1,\)"),
        (([0, -1], [0, 1]), "`labels` must be integers from 0"),
        (([0, 1], [0.0, 1.0]), "`predictions` must be integers.*float"),
        (([0, 2], [0, 1], ["a", "b"]), "2 names for 3 classes"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.confusion_matrix(*arguments)
