"""Batch normalization against its formula and against Keras's layer, in training and after it."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import BatchNormalization
from tests.kit import (
    assert_close,
    assert_equal,
    backend,
    contracts,
    copy_weights,
    gradients,
    normal,
    randomize,
    to_numpy,
)

test_contracts = contracts(lambda **kw: BatchNormalization(**kw), inputs=normal(2, 4, 3, 5))

MOMENTUM, EPSILON = 0.9, 1e-5


def pair(shape, axis=-1, **kwargs):
    """Ours and Keras's with the same random weights and averages."""
    ours = BatchNormalization(axis, **kwargs)
    theirs = keras.layers.BatchNormalization(axis, MOMENTUM, EPSILON, **kwargs)
    for layer in (ours, theirs):
        layer.build(shape)
    randomize(ours)
    ours.moving_mean.assign(normal(shape[axis], seed=1))
    ours.moving_variance.assign(0.5 + normal(shape[axis], seed=2) ** 2)
    return ours, copy_weights(ours, theirs)


def averages(layer):
    return [to_numpy(v.value).astype("float64") for v in (layer.moving_mean, layer.moving_variance)]


def moments(x, axis=-1):
    """Mean and biased variance of each channel."""
    axes = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
    return x.astype("float64").mean(axes), x.astype("float64").var(axes)


def moved(before, now):
    return [MOMENTUM * a + (1 - MOMENTUM) * b for a, b in zip(before, now, strict=True)]


def normalize(layer, x, mean, variance):
    """Algorithm 1 of the paper."""

    def wide(v):  # the channels on their axis
        v = v if isinstance(v, np.ndarray) else to_numpy(v.value)
        return np.reshape(v, [-1 if i == layer.axis % x.ndim else 1 for i in range(x.ndim)])

    y = (x - wide(mean)) / np.sqrt(wide(variance) + EPSILON)
    y = y * wide(layer.gamma) if layer.scale else y
    return y + wide(layer.beta) if layer.center else y


CASES = [
    ((3, 4, 5, 2), -1, {}),
    ((3, 4, 5, 2), 3, {"center": False, "scale": False}),
    ((3, 2, 5, 4), 1, {"scale": False}),
    ((7, 3), -1, {"center": False}),
    ((4, 5, 3), -1, {}),
    ((4, 3, 5), 1, {}),
]


@pytest.mark.parametrize("shape,axis,kwargs", CASES)
def test_equals_numpy(shape, axis, kwargs):
    """In inference, and the outputs and the averages of two steps of training."""
    layer = pair(shape, axis, **kwargs)[0]
    x = 3 + 2 * normal(*shape)
    expected = averages(layer)
    assert_close(layer(x), normalize(layer, x, *expected), atol=1e-5)
    assert_equal(averages(layer), expected)
    for scale in (1.0, 0.5):
        now = moments(scale * x, axis)
        y = layer(scale * x, training=True)
        assert_close(y, normalize(layer, scale * x, *now), atol=1e-5)
        expected = moved(expected, now)
        assert_close(averages(layer), expected)


@pytest.mark.parametrize("shape,axis,kwargs", CASES[:4])
def test_gradients_equal_keras(shape, axis, kwargs):
    """With respect to inputs and weights, in inference and in training; and what has moved."""
    x = keras.Variable(3 + 2 * normal(*shape))
    for training in (False, True):
        found, layers = [], pair(shape, axis, **kwargs)
        for layer in layers:

            def loss(layer=layer, training=training):
                return ops.sum(ops.sin(layer(ops.convert_to_tensor(x), training=training)))

            found.append(gradients(loss, [x, *layer.trainable_weights]))
        assert_close(*found, rtol=1e-4, atol=1e-5)
        assert_close(averages(layers[0]), averages(layers[1]))


def penalty(layer, training, x):
    """The sum of squares of the gradient of `sum(sin(layer(x)))` by x."""

    def total(x):
        return ops.sum(ops.sin(layer(x, training=training)))

    if backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            y = total(x)
        gradient = tape.gradient(y, x)
    elif backend() == "jax":
        import jax

        gradient = jax.grad(total)(x)
    else:
        import torch

        (gradient,) = torch.autograd.grad(total(x), x, create_graph=True)
    return ops.sum(gradient**2)


@pytest.mark.parametrize("training", [False, True])
def test_second_derivatives_equal_keras(training):
    shape = (3, 4, 5, 2)
    x = keras.Variable(normal(*shape))
    found = []
    for layer in pair(shape):

        def loss(layer=layer):
            return penalty(layer, training, ops.add(x, 0.0))

        found.append(gradients(loss, [x, layer.gamma]))
    assert_close(*found, rtol=1e-4, atol=1e-4)
    assert np.abs(found[0][1][0]).max() > 1e-2


def test_the_kernel_is_in_use():
    """On TensorFlow and PyTorch, and not where it would compute something else."""
    if backend() == "jax":
        pytest.skip("Keras's form is the fast one there")
    x = normal(3, 4, 5, 2)

    def is_fused(layer, **kwargs):
        layer.build(x.shape)
        if backend() == "tensorflow":
            import tensorflow as tf

            graph = tf.function(lambda x: layer(x, **kwargs)).get_concrete_function(x).graph
            return any(op.type == "FusedBatchNormV3" for op in graph.get_operations())
        output = layer(x, **kwargs)
        names, nodes = set(), [output.grad_fn]
        while nodes:
            node = nodes.pop()
            names.add(type(node).__name__)
            nodes += [following for following, _ in node.next_functions if following]
        return "NativeBatchNormBackward0" in names

    for training in (False, True):
        assert is_fused(BatchNormalization(), training=training)
        assert is_fused(BatchNormalization(dtype="mixed_bfloat16"), training=training)
    assert not is_fused(keras.layers.BatchNormalization())
    assert not is_fused(BatchNormalization(), mask=np.ones((3, 4, 5), bool))
    assert not is_fused(BatchNormalization(renorm=True), training=True)
    assert not is_fused(BatchNormalization(dtype="bfloat16"))
    assert is_fused(BatchNormalization(1)) == (backend() == "torch")


def test_mask_and_renorm_are_keras_own():
    x, mask = normal(3, 4, 5, 2), np.random.default_rng(0).random((3, 4, 5)) < 0.5
    for kwargs, call in (({}, {"mask": mask}), ({"renorm": True}, {})):
        ours, theirs = pair(x.shape, **kwargs)
        assert_close(ours(x, training=True, **call), theirs(x, training=True, **call))
        assert_close(averages(ours), averages(theirs))
    seen = x[mask][:, None, None]  # (pixels, 1, 1, channels)
    layer = pair(x.shape)[0]
    y = to_numpy(layer(x, training=True, mask=mask))
    assert_close(y[mask][:, None, None], normalize(layer, seen, *moments(seen)), atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_as_a_whole(dtype):
    """Weights of that type too, which the kernels do not all take."""
    x = normal(3, 4, 5, 2)
    if dtype == "float64" and backend() == "jax":
        pytest.skip("JAX has no float64 unless it is asked for it")
    for training in (False, True):
        layer = BatchNormalization(dtype=dtype)
        y = layer(ops.cast(x, dtype), training=training)
        assert keras.backend.standardize_dtype(y.dtype) == dtype
        statistics = moments(x) if training else (np.zeros(2), np.ones(2))
        atol = {"float16": 1e-2, "bfloat16": 5e-2, "float64": 1e-6}[dtype]
        assert_close(ops.cast(y, "float32"), normalize(layer, x, *statistics), atol=atol)


@pytest.mark.parametrize("dtype,atol", [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_half_precision_in_training(dtype, atol):
    """Squares of 500 overflow float16: the moments are taken in float32, and kept so."""
    layer, full = pair((16, 4, 4, 3), dtype=f"mixed_{dtype}")[0], pair((16, 4, 4, 3))[0]
    x = to_numpy(ops.cast(500 + 20 * normal(16, 4, 4, 3), dtype))  # as rounded
    before, now = averages(layer), moments(x)
    y = layer(ops.cast(x, dtype), training=True)
    assert keras.backend.standardize_dtype(y.dtype) == dtype
    assert_close(y, normalize(full, x, *now), rtol=0, atol=4 * atol)
    assert_close(averages(layer), moved(before, now), rtol=1e-4)
    assert all(v.dtype == "float32" for v in layer.variables)


def test_one_pixel():
    """The variance of a single value is 0, in the output and in the averages."""
    layer = pair((1, 1, 1, 3))[0]
    before = averages(layer)
    x = keras.Variable(5 * normal(1, 1, 1, 3))

    def output():
        return layer(ops.convert_to_tensor(x), training=True)

    # x and its mean are each divided by sqrt(epsilon) before the one is taken from the other.
    assert_close(output(), to_numpy(layer.beta.value)[None, None, None], rtol=0, atol=5e-4)
    value = to_numpy(x.value)[0, 0, 0]
    assert_close(averages(layer), moved(before, (value, np.zeros(3))))
    _, found = gradients(lambda: ops.sum(ops.sin(output())), [x, *layer.trainable_weights])
    assert all(np.isfinite(g).all() for g in found)


def test_variance_far_from_one():
    """Tiny and huge images: the average of the variance is right to float32."""
    for scale in (1e-3, 1e4):
        layer = BatchNormalization(momentum=0.0)
        x = scale * normal(8, 3, 3, 2)
        y = layer(x, training=True)
        mean, variance = moments(x)
        assert_close(layer.moving_variance.value, variance, rtol=1e-4, atol=1e-10)
        assert_close(y, (x - mean) / np.sqrt(variance + EPSILON), atol=1e-5)


def test_constant_images_leave_no_negative_variance():
    layer = BatchNormalization(momentum=0.0)
    y = layer(np.full((2, 3, 3, 2), 7.0, "float32"), training=True)
    assert_close(y, np.zeros((2, 3, 3, 2)), atol=5e-4)  # as for one pixel
    assert_close(layer.moving_variance.value, np.zeros(2))
    assert np.isfinite(to_numpy(layer(normal(2, 3, 3, 2)))).all()


def test_frozen():
    """`trainable=False`: in training too it normalizes by the averages, and leaves them."""
    layer = pair((3, 4, 5, 2))[0]
    layer.trainable = False
    x, before = normal(3, 4, 5, 2), averages(layer)
    assert_close(layer(x, training=True), normalize(layer, x, *before), atol=1e-5)
    assert_equal(averages(layer), before)
    layer.trainable = True
    layer(x, training=True)
    assert_close(averages(layer), moved(before, moments(x)))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_training_in_a_graph_with_free_batch(jit_compile):
    """One graph for batches of 3 and 1, with and without XLA."""
    if backend() != "tensorflow":
        pytest.skip("the graphs are TensorFlow's; `fit` compiles on JAX below")
    import tensorflow as tf

    layer = pair((3, 4, 5, 2))[0]
    signature = [tf.TensorSpec((None, 4, None, 2), tf.float32)]

    @functools.partial(tf.function, input_signature=signature, jit_compile=jit_compile)
    def step(x):
        with tf.GradientTape() as tape:
            y = layer(x, training=True)
            loss = tf.reduce_sum(tf.sin(y))
        return y, tape.gradient(loss, layer.gamma.value)

    for shape in ((3, 4, 5, 2), (1, 4, 2, 2)):
        x, before = normal(*shape), averages(layer)
        y, gradient = step(x)
        now = moments(x)
        expected = normalize(layer, x, *now)
        assert_close(y, expected, atol=1e-5)
        unit = (x - now[0]) / np.sqrt(now[1] + EPSILON)
        assert_close(gradient, (np.cos(expected) * unit).sum((0, 1, 2)), rtol=1e-4, atol=1e-5)
        assert_close(averages(layer), moved(before, now))


def test_fit_moves_the_averages():
    """Two steps of `fit`, compiled as each backend does; the last batch is smaller."""
    x = 2 + normal(5, 4, 4, 2)
    layer = BatchNormalization()
    model = keras.Sequential([keras.Input((4, 4, 2)), layer])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    model.fit(x, x, batch_size=3, epochs=1, shuffle=False, verbose=0)
    expected = (np.zeros(2), np.ones(2))
    for part in (x[:3], x[3:]):
        expected = moved(expected, moments(part))
    assert_close(averages(layer), expected)


def test_defaults_are_those_of_pytorch():
    layer = BatchNormalization()
    assert (layer.axis, layer.momentum, layer.epsilon) == (-1, 0.9, 1e-5)
