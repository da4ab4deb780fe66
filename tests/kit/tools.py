"""Small tools for tests that run on three backends: arrays in and out, gradients, compiled
calls."""

import keras
import numpy as np
import pytest
from keras import ops, tree


def backend():
    """Name of the backend the suite runs on."""
    return keras.backend.backend()


# For what no backend has a part in, and takes seconds.
once = pytest.mark.skipif(backend() != "torch", reason="numpy alone: on one backend")


def normal(*shape, seed=0, scale=1.0):
    """A float32 array of normal numbers that is the same on every call."""
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype("float32")


def token_ids(*shape, vocabulary_size=11, seed=0):
    """An int32 array of ids from 1 to `vocabulary_size - 1` (0 is the padding)."""
    return np.random.default_rng(seed).integers(1, vocabulary_size, size=shape).astype("int32")


def padding_mask(*lengths, total=None):
    """A boolean mask with `lengths[i]` real positions in row i, then padding up to `total`."""
    total = max(lengths) if total is None else total
    return np.arange(total)[None, :] < np.asarray(lengths)[:, None]


def to_numpy(structure):
    """The structure with every tensor as a numpy array (half precisions as float32)."""

    def convert(leaf):
        if leaf is None or isinstance(leaf, (np.ndarray, np.generic, int, float)):
            return leaf
        if keras.backend.standardize_dtype(leaf.dtype) in ("float16", "bfloat16"):
            leaf = ops.cast(leaf, "float32")
        return ops.convert_to_numpy(leaf)

    return tree.map_structure(convert, structure)


def _leaves(actual, expected):
    """Pairs of arrays; nested lists of numbers are an array, a tuple and a list the same thing."""
    actual = tree.flatten(to_numpy(actual))
    numbers = tree.flatten(expected)
    if numbers and all(isinstance(leaf, (int, float)) for leaf in numbers):
        expected = np.asarray(expected)
    return list(zip(actual, tree.flatten(to_numpy(expected)), strict=True))


def assert_close(actual, expected, rtol=1e-5, atol=1e-6, message=""):
    """Compare two structures of arrays; shapes must be equal, nothing is broadcast."""
    for one, other in _leaves(actual, expected):
        assert np.shape(one) == np.shape(other), f"{np.shape(one)} != {np.shape(other)} {message}"
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol, err_msg=message)


def assert_equal(actual, expected, message=""):
    """Compare two structures of arrays bit for bit."""
    for one, other in _leaves(actual, expected):
        np.testing.assert_array_equal(one, other, err_msg=message)


def gradients(fn, variables):
    """Loss and gradients of `fn()` with respect to Keras variables, by the backend's own means.

    It is written here once more, apart from `kerasmodels.training`, so that the tests do not lean
    on what they test.
    A gradient that does not exist is None on TensorFlow and PyTorch, and zeros on JAX.
    """
    variables = list(variables)
    if not variables:
        return float(to_numpy(fn())), []
    if backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for variable in variables:
                tape.watch(variable.value)
            loss = fn()
        found = tape.gradient(loss, [variable.value for variable in variables])
        found = [tf.convert_to_tensor(g) if g is not None else None for g in found]
    elif backend() == "jax":
        import jax

        def stateless(values):
            with keras.StatelessScope(state_mapping=list(zip(variables, values, strict=True))):
                return fn()

        # Compiled, since JAX takes long over the many small parts of an eager gradient.
        loss, found = jax.jit(jax.value_and_grad(stateless))([v.value for v in variables])
    else:
        import torch

        loss = fn()
        found = torch.autograd.grad(loss, [v.value for v in variables], allow_unused=True)
        loss = loss.detach()
    return float(to_numpy(loss)), [None if g is None else to_numpy(g) for g in found]


def input_gradient(fn, array):
    """Gradient of the scalar `fn(tensor)` with respect to a float array."""
    variable = keras.Variable(array, dtype="float32")
    _, (gradient,) = gradients(lambda: fn(ops.convert_to_tensor(variable)), [variable])
    return np.zeros_like(array) if gradient is None else gradient


def compiled(fn):
    """`fn` of arrays, compiled: XLA on TensorFlow and JAX; PyTorch has nothing to compare, and runs
    it as it is."""
    if backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(fn, jit_compile=True)
    if backend() == "jax":
        import jax

        return jax.jit(fn)
    return fn


def called_once(fn, *arguments):
    """What `fn` gives; JAX compiles it, since each eager call of a quantized layer would anew."""
    if backend() == "jax":
        import jax

        fn = jax.jit(fn)
    return fn(*arguments)


def randomize(layer, seed=0, scale=0.2):
    """Move every weight away from its initial value, so that no bias stays 0 and no gain stays
    1."""
    rng = np.random.default_rng(seed)
    for weight in layer.trainable_weights:
        value = to_numpy(weight.value)
        weight.assign(value + scale * rng.normal(size=value.shape).astype("float32"))
    return layer


def copy_weights(source, target):
    """Give `target` the weights of `source`, whatever their dtypes."""
    assert [w.shape for w in source.weights] == [w.shape for w in target.weights]
    for one, other in zip(source.weights, target.weights, strict=True):
        other.assign(to_numpy(one.value))
    return target


def identity_projections(attention):
    """Make the four projections of a built attention layer the identity, biases 0 (cases C01 to
    C05)."""
    for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
        dense = getattr(attention, name)
        dense.kernel.assign(np.eye(*dense.kernel.shape, dtype="float32"))
        if dense.use_bias:
            dense.bias.assign(np.zeros(dense.bias.shape, "float32"))
    return attention
