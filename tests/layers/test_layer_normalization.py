"""LayerNorm against the formula and Keras's own."""

import keras
import numpy as np
import pytest

from kerasmodels.layers import LayerNormalization
from tests.kit import assert_close, backend, compiled, contracts, copy_weights, normal, randomize

test_contracts = contracts(lambda **kw: LayerNormalization(**kw), x=normal(2, 5, 8))


OPTIONS = [
    {},
    {"epsilon": 1e-12},
    {"center": False},
    {"scale": False},
    {"center": False, "scale": False},
    {"rms_scaling": True},
]
SHAPES = [(3, 8), (2, 5, 8), (2, 3, 5, 8), (0, 8)]
CASES = [(shape, options) for shape in SHAPES for options in OPTIONS]
CASES += [((2, 5, 8), {"axis": [1, -1]}), ((2, 3, 5, 8), {"axis": [2, 3]})]
if backend() != "torch":  # where Keras 3.15 normalizes over the last axes alone
    CASES += [((2, 5, 8), {"axis": 1}), ((2, 3, 5, 8), {"axis": [1, -1]})]


@pytest.mark.parametrize("shape, options", CASES)
def test_equals_keras(shape, options):
    x = 3 + 2 * normal(*shape)
    ours, theirs = (
        kind(**options) for kind in (LayerNormalization, keras.layers.LayerNormalization)
    )
    for layer in (theirs, ours):
        layer.build(shape)
    copy_weights(randomize(theirs), ours)
    assert_close(ours(x), theirs(x))
    assert_close(compiled(ours)(x), theirs(x))


def test_equals_numpy_far_from_zero():
    """Where the mean is a thousand deviations away, `x * a - mean * a` loses three digits."""
    x = (1000 + np.random.default_rng(0).normal(size=(4, 64))).astype("float32")
    expected = x.astype("float64")
    expected = (expected - expected.mean(-1, keepdims=True)) / expected.std(-1, keepdims=True)
    assert_close(LayerNormalization(epsilon=1e-12)(x), expected, rtol=1e-3, atol=1e-3)
