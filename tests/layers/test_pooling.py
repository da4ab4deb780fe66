"""Pooling: the maximum against PyTorch's, whose padding it has, the mean against numpy."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import MaskedAveragePooling, SymmetricMaxPooling2D
from tests.kit import (
    assert_close,
    assert_equal,
    contracts,
    input_gradient,
    normal,
    padding_mask,
    to_numpy,
)

# A maximum has corners, so no finite differences; there are no weights either.
test_contracts = contracts(
    lambda **kw: SymmetricMaxPooling2D(**kw),
    without=("weights_file",),
    options={"numeric": False},
    inputs=normal(2, 5, 4, 3),
)

SIZES = [(3, 2), (1, 2), (3, 1), (3, 3), (5, 2), (5, 3), (3, 5)]


def pool_by_torch(x, pool_size, strides):
    """Outputs, and the gradient of the sum of their sines."""
    import torch

    x = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    y = torch.nn.functional.max_pool2d(x, pool_size, strides, padding=pool_size // 2)
    (gradient,) = torch.autograd.grad(y.sin().sum(), x)
    return tuple(v.detach().numpy().transpose(0, 2, 3, 1) for v in (y, gradient))


@pytest.mark.parametrize("pool_size,strides", SIZES)
def test_equals_torch(pool_size, strides):
    """Sides that are even and odd; below 0 a border of zeros would win."""
    x = normal(2, 8, 7, 3) - 3.0
    layer = SymmetricMaxPooling2D(pool_size, strides)
    y, gradient = pool_by_torch(x, pool_size, strides)
    assert tuple(layer.compute_output_shape(x.shape)) == y.shape
    assert_equal(layer(x), y)
    found = input_gradient(lambda x: ops.sum(ops.sin(layer(x))), x)
    assert_close(found, gradient)


def test_the_gradient_goes_to_one_of_equal_values():
    """After a ReLU whole windows are 0."""
    x = np.maximum(normal(1, 6, 6, 2) - 0.7, 0.0)
    layer = SymmetricMaxPooling2D(3, 2)
    found = input_gradient(lambda x: ops.sum(layer(x)), x)
    y = pool_by_torch(x, 3, 2)[0]
    assert (y == 0).any()
    assert_close(found.sum(), y.size)


@pytest.mark.parametrize("shape", [(2, 8, 7, 3), (1, 1, 2, 3)])
def test_channels_first_is_the_transpose(shape):
    x = normal(*shape) - 3.0
    first = SymmetricMaxPooling2D(3, 2, data_format="channels_first")
    y = first(x.transpose(0, 3, 1, 2))
    assert tuple(y.shape) == tuple(first.compute_output_shape((shape[0], 3, *shape[1:3])))
    assert_equal(ops.transpose(y, (0, 2, 3, 1)), SymmetricMaxPooling2D(3, 2)(x))
    assert first.get_config()["data_format"] == "channels_first"


def test_the_format_that_keras_is_set_to():
    keras.config.set_image_data_format("channels_first")
    try:
        assert SymmetricMaxPooling2D().data_format == "channels_first"
    finally:
        keras.config.set_image_data_format("channels_last")
    assert SymmetricMaxPooling2D().data_format == "channels_last"


@pytest.mark.parametrize(
    "name,value",
    [
        ("pool_size", 2),
        ("pool_size", 0),
        ("pool_size", (3, 3)),
        ("strides", 0),
        ("strides", 1.5),
        ("data_format", "NCHW"),
    ],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=f"`{name}`") as error:
        SymmetricMaxPooling2D(**{name: value})
    assert f"{name}={value!r}" in str(error.value)


def test_bad_images():
    with pytest.raises(ValueError, match="ndim=4, found ndim=3"):
        SymmetricMaxPooling2D()(normal(5, 4, 3))


# ---- the mean -----------------------------------------------------------------------------------

test_contracts_mean = contracts(
    lambda **kw: MaskedAveragePooling(**kw),
    without=("weights_file",),
    padding=[("inputs", "padding_mask", False)],
    options={"output_dtype": "float32"},
    inputs=normal(2, 5, 4),
    padding_mask=padding_mask(5, 3),
)


def test_mean_equals_numpy():
    layer, x, mask = MaskedAveragePooling(), normal(3, 5, 4), padding_mask(5, 3, 0)
    expected = (x * mask[..., None]).sum(1) / np.array([[5], [3], [1]])
    assert_close(layer(x, padding_mask=mask), expected)
    assert_close(layer(x), x.mean(1))
    found = input_gradient(lambda x: ops.sum(layer(x, padding_mask=mask)), x)
    assert_close(found, mask[..., None] / np.array([[[5]], [[3]], [[1]]]) * np.ones_like(x))
    x[~mask] = np.inf  # whatever stands there
    assert_close(layer(x, padding_mask=mask), expected)
    with pytest.raises(ValueError, match="padding_mask"):
        layer(x, padding_mask=mask[:, :4])


def test_the_mean_follows_the_mask_of_keras():
    x = keras.layers.Embedding(5, 4, mask_zero=True)(np.array([[3, 4, 0, 0], [1, 2, 3, 0]]))
    layer = MaskedAveragePooling()
    assert_close(layer(x), np.stack([to_numpy(x)[0, :2].mean(0), to_numpy(x)[1, :3].mean(0)]))
    other = np.array([[0, 1, 1, 1], [1, 1, 0, 1]])
    assert_close(layer(x, padding_mask=other)[0], to_numpy(x)[0, 1])
