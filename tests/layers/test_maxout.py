"""Maxout against its formula."""

import keras
import numpy as np
import pytest

from kerasmodels.layers import Maxout
from tests.kit import assert_close, contracts, normal, randomize, to_numpy

# Where two pieces are equal the maximum has a corner, so no finite differences.
test_contracts = contracts(
    lambda **kw: Maxout(6, 3, **kw), options={"numeric": False}, inputs=normal(4, 7, 8)
)
test_contracts_flat = contracts(
    lambda **kw: Maxout(2, 2, kernel_initializer="he_normal", **kw),
    without=("half",),
    options={"numeric": False, "free": (0,)},
    inputs=normal(5, 8),
)


@pytest.mark.parametrize("units,pieces", [(6, 3), (1, 5), (4, 1)])
def test_equals_numpy(units, pieces):
    layer, x = Maxout(units, pieces), normal(3, 8)
    layer(x)
    randomize(layer)
    kernel, bias = (to_numpy(w.value) for w in layer.weights)
    assert kernel.shape == (8, pieces * units)
    expected = np.empty((3, units), "float32")
    for i in range(units):
        z = [x @ kernel[:, j * units + i] + bias[j * units + i] for j in range(pieces)]
        expected[:, i] = np.max(z, axis=0)
    assert_close(layer(x), expected)
    assert layer.count_params() == (8 + 1) * units * pieces


def test_one_piece_is_a_dense_layer_and_two_are_an_absolute_value():
    x = normal(5, 1)
    layer = Maxout(1, 2)
    layer(x)
    layer.dense.kernel.assign([[1.0, -1.0]])
    assert_close(layer(x), np.abs(x))


def test_each_piece_starts_as_a_dense_layer():
    """Glorot's limit for 100 inputs and 200 outputs."""
    layer = Maxout(200, 5)
    layer.build((None, 100))
    kernel = to_numpy(layer.dense.kernel.value)
    limit = np.sqrt(6 / 300)
    assert 0.99 * limit < np.abs(kernel).max() <= limit


@pytest.mark.parametrize("name,value", [("units", 0), ("units", 1.5), ("pieces", -1)])
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name) as error:
        Maxout(**{"units": 3, "pieces": 2, name: value})
    assert str(value) in str(error.value)


def test_initializer_in_the_config():
    layer = Maxout.from_config(Maxout(3, 2, kernel_initializer="zeros").get_config())
    assert isinstance(layer.kernel_initializer, keras.initializers.Zeros)
