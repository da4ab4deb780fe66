"""The feed-forward network against equation 2."""

import math

import keras
import numpy as np
import pytest

from kerasmodels.layers import FeedForward, gelu_tanh
from tests.kit import assert_close, contracts, normal, randomize, reference, to_numpy

test_contracts = contracts(lambda **kw: FeedForward(16, **kw), inputs=normal(2, 5, 8))
test_contracts_swish = contracts(
    lambda **kw: FeedForward(7, activation="swish", **kw),
    without=("half", "symbolic", "dynamic"),
    inputs=normal(2, 5, 8),
)
test_contracts_gelu_tanh = contracts(
    lambda **kw: FeedForward(8, "gelu_tanh", keras.initializers.HeNormal(), **kw),
    without=("half", "symbolic", "dynamic"),
    inputs=normal(2, 5, 8),
)


@pytest.mark.parametrize(
    "activation,function",
    [("relu", reference.relu), ("swish", reference.swish), (keras.activations.tanh, np.tanh)],
)
def test_equals_numpy(activation, function):
    layer = FeedForward(16, activation=activation)
    x = normal(2, 5, 8)
    layer(x)
    randomize(layer)
    assert_close(layer(x), reference.feed_forward(layer, x, function))


def test_every_position_is_alike():
    layer, x = FeedForward(16), normal(2, 5, 8)
    assert_close(to_numpy(layer(x))[:, 3:4], layer(x[:, 3:4]))


@pytest.mark.parametrize("size", [0, -2, 1.5])
def test_bad_arguments(size):
    with pytest.raises(ValueError, match="intermediate_dim") as error:
        FeedForward(size)
    assert str(size) in str(error.value)


def test_parameters():
    """d_model * d_ff + d_ff and back: table 3's d_ff = 2048 scaled to 16."""
    layer = FeedForward(16)
    layer(normal(1, 1, 8))
    assert layer.count_params() == 8 * 16 + 16 + 16 * 8 + 8


# PyTorch's own is 7e-7 away.
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-6), ("bfloat16", 4e-3)])
def test_gelu_is_exact(dtype, tolerance):
    layer = FeedForward(8, "gelu", dtype=dtype)
    assert layer.get_config()["activation"] == "gelu"
    assert FeedForward.from_config(layer.get_config()).activation is layer.activation
    x = np.concatenate([np.linspace(-12, 12, 4001), [-1e4, 1e4]]).astype("float32")
    x = to_numpy(keras.ops.cast(x, dtype))
    exact = np.array([v * math.erfc(-v / math.sqrt(2)) / 2 for v in x.tolist()])
    found = layer.activation(keras.ops.cast(x, dtype))
    assert keras.backend.standardize_dtype(found.dtype) == dtype
    assert_close(found, exact, rtol=tolerance, atol=tolerance)


def test_gelu_tanh_goes_by_its_name():
    layer = FeedForward(8, "gelu_tanh")
    assert layer.activation is gelu_tanh and layer.get_config()["activation"] == "gelu_tanh"
    x = normal(4, 3)
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    assert_close(gelu_tanh(keras.ops.convert_to_tensor(x)), x / 2 * (1 + np.tanh(inner)))
    with pytest.raises(ValueError, match="gelu_erf"):
        FeedForward(8, "gelu_erf")


def test_one_initializer_gives_each_kernel_its_own_numbers():
    layer = FeedForward(8, kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02))
    layer(normal(1, 1, 8))
    one, other = (to_numpy(d.kernel) for d in (layer.intermediate_dense, layer.output_dense))
    assert np.abs(one - other).max() > 1e-3 and one.std() < 0.025
