"""The dense layer against Keras's own, and with what Keras's can do besides."""

import keras
import numpy as np
import pytest

from kerasmodels.layers import Dense
from tests.kit import assert_close, backend, compiled, contracts, copy_weights, normal, to_numpy

test_contracts = contracts(lambda **kw: Dense(6, activation="gelu", **kw), x=normal(2, 5, 8))
test_contracts_plain = contracts(
    lambda **kw: Dense(6, use_bias=False, **kw), options={"free": (0,)}, x=normal(2, 8)
)


@pytest.mark.parametrize("shape", [(3, 8), (2, 5, 8), (2, 3, 5, 8), (0, 8), (2, 0, 8)])
@pytest.mark.parametrize("use_bias", [True, False])
def test_equals_keras(shape, use_bias):
    x = normal(*shape)
    ours, theirs = (
        kind(6, activation="relu", use_bias=use_bias, bias_initializer="normal")
        for kind in (Dense, keras.layers.Dense)
    )
    theirs.build(shape)
    ours.build(shape)
    copy_weights(theirs, ours)
    assert_close(ours(x), theirs(x))
    assert_close(compiled(ours)(x), theirs(x))


def test_quantized():
    x = normal(4, 16)
    layer = Dense(8)
    before = to_numpy(layer(x))
    layer.quantize("int8")
    assert "int8" in {keras.backend.standardize_dtype(v.dtype) for v in layer.variables}
    assert_close(layer(x), before, rtol=0, atol=0.1)

    class Other(Dense):
        """Its `call` may be another."""

    other = Other(8)
    other.build((4, 16))
    with pytest.raises(NotImplementedError):
        other.quantize("int8")


def test_low_rank_updates():
    x = normal(4, 16)
    layer = Dense(8)
    before = to_numpy(layer(x))
    layer.enable_lora(2)
    assert_close(layer(x), before)
    layer.lora_kernel_a.assign(np.ones((16, 2)))
    layer.lora_kernel_b.assign(np.ones((2, 8)))
    assert_close(layer(x), before + 2 * x.sum(axis=1, keepdims=True), atol=1e-4)


@pytest.mark.skipif(backend() != "tensorflow", reason="sparse tensors of TensorFlow")
def test_sparse():
    import tensorflow as tf

    x = np.eye(3, 8, dtype="float32")
    layer = Dense(6)
    assert_close(layer(tf.sparse.from_dense(x)), layer(x))
