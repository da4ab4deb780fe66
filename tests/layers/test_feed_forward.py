"""The feed-forward network against equation 2."""

import keras
import numpy as np
import pytest

from kerasmodels.layers import FeedForward
from tests.kit import assert_close, contracts, normal, randomize, reference, to_numpy

test_contracts = contracts(lambda **kw: FeedForward(16, **kw), inputs=normal(2, 5, 8))
test_contracts_swish = contracts(
    lambda **kw: FeedForward(7, activation="swish", **kw),
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
