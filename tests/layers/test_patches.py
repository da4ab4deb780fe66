"""Patches against loops over an image, against a strided convolution, and the class token."""

import keras
import numpy as np
import pytest

from kerasmodels.layers import ClassToken, PatchEmbedding
from tests.kit import assert_close, assert_equal, contracts, normal, randomize, to_numpy

test_contracts = contracts(
    lambda **kw: PatchEmbedding(2, 6, **kw), options={"free": (0,)}, inputs=normal(2, 4, 6, 3)
)
test_contracts_token = contracts(lambda **kw: ClassToken(**kw), inputs=normal(2, 5, 4))


@pytest.mark.parametrize("height,width", [(32, 16), (16, 32)])
def test_patches_run_row_by_row(height, width):
    """Case C28: patch 8, images 32x16x3 and 16x32x3."""
    layer, x = PatchEmbedding(8, 5), normal(2, height, width, 3)
    y = to_numpy(layer(x))
    randomize(layer)
    y = to_numpy(layer(x))
    kernel, bias = (to_numpy(w.value) for w in layer.weights)
    assert y.shape == (2, 8, 5)
    columns = width // 8
    for i in range(8):
        row, column = 8 * (i // columns), 8 * (i % columns)
        patch = x[:, row : row + 8, column : column + 8].reshape(2, -1)
        assert_close(y[:, i], patch @ kernel + bias, atol=1e-5)


def test_equals_a_strided_convolution():
    layer, x = PatchEmbedding(2, 5), normal(2, 4, 6, 3)
    y = layer(x)
    convolution = keras.layers.Conv2D(5, 2, strides=2, padding="valid")
    convolution(x)
    convolution.kernel.assign(to_numpy(layer.projection.kernel.value).reshape(2, 2, 3, 5))
    assert_close(y, to_numpy(convolution(x)).reshape(2, 6, 5))
    assert layer.count_params() == 2 * 2 * 3 * 5 + 5


@pytest.mark.parametrize("name,value", [("patch_size", 0), ("hidden_dim", -3)])
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name) as error:
        PatchEmbedding(**{"patch_size": 2, "hidden_dim": 4, name: value})
    assert str(value) in str(error.value)


def test_patches_that_do_not_fit():
    with pytest.raises(ValueError, match="height=30, width=16, patch_size=8"):
        PatchEmbedding(8, 4)(normal(1, 30, 16, 3))
    with pytest.raises(ValueError, match="batch, height, width, channels"):
        PatchEmbedding(8, 4)(normal(1, 64, 3))


def test_token_comes_first():
    layer, x = ClassToken(), normal(2, 5, 4)
    y = to_numpy(layer(x))
    assert_equal(y[:, 1:], x)
    assert_equal(y[:, 0], np.stack([to_numpy(layer.token.value)] * 2))
    assert layer.count_params() == 4
