"""Preprocessing inside the model against PIL, numpy and transformers' image processor."""

import keras
import numpy as np
import pytest
from PIL import Image

from kerasmodels import export
from kerasmodels.layers.image_preprocessing import ImagePreprocessing
from tests.kit import assert_close, assert_equal, backend, contracts, normal, to_numpy

RESAMPLE = {"nearest": 0, "lanczos3": 1, "bilinear": 2, "bicubic": 3}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

test_contracts = contracts(
    lambda **kw: ImagePreprocessing(
        4, (4, 3), mean=MEAN, std=STD, data_format="channels_last", **kw
    ),
    options={"free": (0, 1, 2)},
    images=127.5 + 40.0 * normal(2, 6, 5, 3),
)


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def smooth(height, width):
    """An image without noise, so that a filter neither over- nor undershoots 0 and 255."""
    y, x, c = np.ogrid[:height, :width, :3]
    waves = np.sin(6.0 * y / height + c) + np.cos(5.0 * x / width - c)
    return np.round(127.5 + 50.0 * waves).astype(np.uint8)


def layer(*arguments, **kw):
    return ImagePreprocessing(*arguments, **{"data_format": "channels_last", **kw})


def middle(image, height, width):
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[top : top + height, left : left + width]


@pytest.mark.parametrize("interpolation", RESAMPLE)
@pytest.mark.parametrize("old,new", [((41, 60), (24, 31)), ((21, 31), (50, 44))])
def test_equals_pil(interpolation, old, new):
    """White noise, the worst there is, smaller and larger: every level equal but for ties, which
    are one level off for each of two roundings; a nearest neighbour has no ties in these sizes."""
    image = pixels(*old, 3)
    expected = np.array(Image.fromarray(image).resize(new[::-1], RESAMPLE[interpolation]))
    found = to_numpy(layer(new, scale=1, interpolation=interpolation)(image))
    off = np.abs(found - expected)
    assert off.max() <= 2 and (off > 0).mean() <= (0.02 if interpolation != "nearest" else 0)
    # Floats are not rounded: PIL's two roundings, half a level each, are all that is between.
    image = smooth(*old)
    expected = np.array(Image.fromarray(image).resize(new[::-1], RESAMPLE[interpolation]))
    found = layer(new, scale=1, interpolation=interpolation)(image.astype("float32"))
    assert_close(found, expected, rtol=0, atol=1.2)


@pytest.mark.parametrize("shape", [(45, 60), (60, 45), (30, 31)])
@pytest.mark.parametrize("size,crop", [(32, 28), (20, (25, 12)), ((33, 21), None), (None, 27)])
def test_equals_pil_and_numpy(shape, size, crop):
    """Short side, middle (zeros around it where it is larger), scale, mean, deviation."""
    image = pixels(*shape, 3)
    if isinstance(size, int):
        height, width = (size * n // min(shape) for n in shape)
    else:
        height, width = size or shape
    expected = np.array(Image.fromarray(image).resize((width, height), Image.BICUBIC))
    if crop is not None:
        crop = (crop, crop) if isinstance(crop, int) else crop
        room = [max(c - n, 0) for c, n in zip(crop, (height, width), strict=True)]
        around = [(r - r // 2, r // 2) for r in room]
        expected = middle(np.pad(expected, (*around, (0, 0))), *crop)
    expected = (expected / 255 - np.array(MEAN)) / np.array(STD)
    found = to_numpy(layer(size, crop, mean=MEAN, std=STD, interpolation="bicubic")(image))
    off = np.abs(found - expected)
    assert found.shape == expected.shape
    assert off.max() <= 2.001 / 255 / min(STD) and (off > 1e-5).mean() <= 0.02


@pytest.mark.parametrize("size", [224, 384])
def test_equals_transformers(size):
    """The processor of `microsoft/resnet-50`: 224 of 256, from 384 on a plain resize."""
    from transformers.models.convnext.image_processing_pil_convnext import (
        ConvNextImageProcessorPil,
    )

    image = pixels(300, 401, 3)
    processor = ConvNextImageProcessorPil(
        size={"shortest_edge": size}, crop_pct=0.875, image_mean=MEAN, image_std=STD
    )
    expected = processor([image], return_tensors="np")["pixel_values"].transpose(0, 2, 3, 1)
    sizes = {224: (256, 224), 384: ((384, 384), None)}[size]
    found = layer(*sizes, mean=MEAN, std=STD, interpolation="bicubic")(image[None])
    off = np.abs(to_numpy(found) - expected)
    assert off.max() <= 2.001 / 255 / min(STD) and (off > 1e-5).mean() <= 0.001


def test_batch_single_and_channels_first():
    images = pixels(3, 20, 26, 3)
    batch = layer(12, 10, mean=MEAN, std=STD)(images)
    assert_close(batch[1], layer(12, 10, mean=MEAN, std=STD)(images[1]))
    first = layer(12, 10, mean=MEAN, std=STD, data_format="channels_first")
    found = first(images.transpose(0, 3, 1, 2))
    assert_close(to_numpy(found).transpose(0, 2, 3, 1), batch)
    assert first.compute_output_shape((None, 3, None, None)) == (None, 3, 10, 10)
    assert_close(first(images[0].transpose(2, 0, 1)), found[0])


def test_other_channels_and_numbers():
    images = pixels(2, 6, 6, 5)
    assert_close(layer(scale=1, mean=100, std=2)(images), (images.astype("float32") - 100) / 2)
    assert_close(layer()(images), images.astype("float32") / 255)
    assert_equal(layer((6, 6), scale=1)(images), images.astype("float32"))


def test_half_precision_is_of_the_result_alone():
    """Computed in float32: bfloat16 could not tell 254.5 from 255."""
    images = 255 * np.random.default_rng(0).random((1, 9, 9, 3)).astype("float32")
    arguments = (5, 4, 1 / 255, MEAN, STD)
    half = layer(*arguments, dtype="mixed_bfloat16")(images)
    assert keras.backend.standardize_dtype(half.dtype) == "bfloat16"
    expected = keras.ops.cast(layer(*arguments)(images), "bfloat16")
    assert_equal(half, expected)


def test_served_with_images_of_any_size(tmp_path):
    """Raw uint8 images into a SavedModel; on PyTorch, which has none, into ONNX."""
    inputs = keras.Input((None, None, 3), dtype="uint8", name="images")
    model = keras.Model(inputs, layer(24, 20, mean=MEAN, std=STD)(inputs))
    assert model.output_shape == (None, 20, 20, 3)
    path = str(tmp_path / "model")
    if backend() == "torch":
        import onnxruntime

        export.onnx(model, path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        serve = lambda images: session.run(None, {"images": images})[0]  # noqa: E731
    else:
        import tensorflow as tf

        export.saved_model(model, path)
        served = tf.saved_model.load(path)
        serve = lambda images: served.serve(tf.constant(images))  # noqa: E731
    for shape in ((2, 30, 41, 3), (1, 57, 33, 3), (3, 16, 16, 3)):
        images = pixels(*shape)
        assert_close(serve(images), layer(24, 20, mean=MEAN, std=STD)(images), atol=1e-5)


def test_unknown_output_size():
    """The short side alone leaves the size open; JAX says that it cannot trace that."""
    inputs = keras.Input((None, None, 3), dtype="uint8")
    model = keras.Model(inputs, layer(8)(inputs))
    assert model.output_shape == (None, None, None, 3)
    assert model(pixels(2, 12, 20, 3)).shape == (2, 8, 13, 3)
    if backend() == "tensorflow":
        import tensorflow as tf

        call = tf.function(model, input_signature=[tf.TensorSpec((None, None, None, 3), "uint8")])
        assert call(pixels(2, 12, 20, 3)).shape == (2, 8, 13, 3)
    if backend() == "jax":
        import jax
        from jax import export as jax_export

        shape = jax_export.symbolic_shape("1, h, w, 3")
        with pytest.raises(ValueError, match="crop_size"):
            jax_export.export(jax.jit(model))(jax.ShapeDtypeStruct(shape, "uint8"))


@pytest.mark.parametrize(
    "name,value",
    [
        ("image_size", 0),
        ("image_size", (3, 4, 5)),
        ("crop_size", 2.5),
        ("scale", 0.0),
        ("mean", [0.1, float("nan")]),
        ("std", [1.0, 0.0, 1.0]),
        ("interpolation", "area"),
        ("data_format", "first"),
    ],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name) as error:
        ImagePreprocessing(**{name: value})
    assert str(value) in str(error.value)


def test_bad_images():
    with pytest.raises(ValueError, match=r"batch, height, width, channels.*\(28, 28\)"):
        layer(8)(pixels(28, 28))
    with pytest.raises(ValueError, match=r"\(2, 28, 28, 1\).*mean="):
        layer(8, mean=MEAN)(pixels(2, 28, 28, 1))
    with pytest.raises(ValueError, match="pixels"):
        layer(8)(pixels(2, 0, 28, 3))
