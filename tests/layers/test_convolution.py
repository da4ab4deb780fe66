"""The convolutions against their definition and against Keras's layers, gradients included."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import Conv2D, Conv2DTranspose
from tests.kit import (
    assert_close,
    backend,
    contracts,
    copy_weights,
    gradients,
    input_gradient,
    normal,
    randomize,
    to_numpy,
)

test_contracts_transpose = contracts(
    lambda **kw: Conv2DTranspose(3, 5, strides=2, padding="same", activation="tanh", **kw),
    options={"free": (0,)},
    inputs=normal(2, 4, 3, 2),
)
test_contracts = contracts(
    lambda **kw: Conv2D(3, 5, strides=2, padding="same", use_bias=False, **kw),
    options={"free": (0,)},
    inputs=normal(2, 6, 5, 2),
)

KERNELS_AND_STRIDES = [(3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (5, 2), (2, 3), ((3, 4), (2, 1))]
# Sides that are odd, even, different, and smaller than the kernel.
SIDES = [(4, 4), (5, 3), (1, 2)]


def _spread(x, kernel, strides):
    """The transposed convolution by its definition: every pixel adds its multiple of the kernel."""
    (sh, sw), (kh, kw) = strides, kernel.shape[:2]
    batch, height, width, _ = x.shape
    out = np.zeros((batch, height * sh + kh, width * sw + kw, kernel.shape[2]))
    for i in range(height):
        for j in range(width):
            part = np.einsum("bc,hwoc->bhwo", x[:, i, j], kernel)
            out[:, i * sh : i * sh + kh, j * sw : j * sw + kw] += part
    top, left = max(kh - sh, 0) // 2, max(kw - sw, 0) // 2
    return out[:, top : top + height * sh, left : left + width * sw]


@pytest.mark.parametrize("sides", SIDES)
@pytest.mark.parametrize("kernel_size,strides", KERNELS_AND_STRIDES)
def test_transpose_equals_numpy(kernel_size, strides, sides):
    layer, x = Conv2DTranspose(3, kernel_size, strides, padding="same"), normal(2, *sides, 4)
    y = layer(x)
    assert tuple(y.shape) == tuple(layer.compute_output_shape(x.shape))
    expected = _spread(x, to_numpy(layer.kernel.value), layer.strides)
    assert_close(y, expected, atol=1e-5)
    randomize(layer)
    expected = _spread(x, to_numpy(layer.kernel.value), layer.strides) + to_numpy(layer.bias.value)
    assert_close(layer(x), expected, atol=1e-5)


def _pairs(kernel_size, strides, padding="same", **kwargs):
    """Ours and Keras's, with the same weights."""
    for ours, theirs in (
        (Conv2D, keras.layers.Conv2D),
        (Conv2DTranspose, keras.layers.Conv2DTranspose),
    ):
        pair = [c(3, kernel_size, strides, padding=padding, **kwargs) for c in (ours, theirs)]
        x = normal(2, 8, 5, 2)
        for layer in pair:
            layer(x)
        copy_weights(randomize(pair[0]), pair[1])
        yield x, *pair


@pytest.mark.parametrize("kernel_size,strides", KERNELS_AND_STRIDES)
def test_equals_keras(kernel_size, strides):
    """Outputs, and the gradients with respect to input, kernel and bias."""
    for x, ours, theirs in _pairs(kernel_size, strides):
        assert_close(ours(x), theirs(x), atol=1e-5)

        def loss(layer, x=x):
            return ops.sum(ops.sin(layer(x)))

        _, found = gradients(lambda f=loss, m=ours: f(m), ours.trainable_weights)
        _, expected = gradients(lambda f=loss, m=theirs: f(m), theirs.trainable_weights)
        assert_close(found, expected, rtol=1e-4, atol=1e-4)
        found = input_gradient(lambda x, f=loss, m=ours: f(m, x), x)
        assert_close(found, input_gradient(lambda x, f=loss, m=theirs: f(m, x), x), atol=1e-5)


@pytest.mark.parametrize(
    "kwargs", [{"padding": "valid"}, {"dilation_rate": 2, "strides": 1}, {"activation": "relu"}]
)
def test_other_arguments_are_keras_own(kwargs):
    for x, ours, theirs in _pairs(3, **{"strides": 2, **kwargs}):
        assert_close(ours(x), theirs(x))


def test_groups_and_output_padding():
    x = normal(2, 6, 6, 4)
    for ours, theirs, kwargs in (
        (Conv2D, keras.layers.Conv2D, {"groups": 2}),
        (Conv2DTranspose, keras.layers.Conv2DTranspose, {"output_padding": 1}),
    ):
        pair = [c(4, 3, strides=2, padding="same", **kwargs) for c in (ours, theirs)]
        for layer in pair:
            layer(x)
        copy_weights(*pair)
        assert_close(pair[0](x), pair[1](x))


@pytest.mark.parametrize("make", [Conv2D, Conv2DTranspose])
def test_penalty_on_the_gradient(make):
    """The gradient of a squared gradient, as Wasserstein critics need it, and one order more."""
    layer, x = make(3, 5, strides=2, padding="same", activation="tanh"), normal(2, 4, 5, 2)
    layer(x)
    randomize(layer)
    weights = layer.trainable_weights

    def penalty():
        return _penalty(layer, x)

    value, found = gradients(penalty, weights)
    gradient = input_gradient(lambda x: ops.sum(layer(x) ** 2), x)
    np.testing.assert_allclose(value, (gradient**2).sum(), rtol=1e-4)
    rng = np.random.default_rng(0)
    direction = [rng.normal(size=w.shape).astype("float32") for w in weights]
    start, losses = [to_numpy(w.value) for w in weights], []
    for step in (1e-3, -1e-3):
        for weight, s, d in zip(weights, start, direction, strict=True):
            weight.assign(s + step * d)
        losses.append(float(to_numpy(penalty())))
    slope = (losses[0] - losses[1]) / 2e-3
    expected = sum((g * d).sum() for g, d in zip(found, direction, strict=True))
    np.testing.assert_allclose(slope, expected, rtol=1e-2)


def _penalty(layer, x):
    """The sum of squares of the gradient of `sum(layer(x)^2)` by x, by the backend's own means."""
    x = ops.convert_to_tensor(x)
    if backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(x)
            total = ops.sum(layer(x) ** 2)
        gradient = tape.gradient(total, x)
    elif backend() == "jax":
        import jax

        gradient = jax.grad(lambda x: ops.sum(layer(x) ** 2))(x)
    else:
        import torch

        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(ops.sum(layer(x) ** 2), x, create_graph=True)
    return ops.sum(gradient**2)


def test_no_slow_gradient_on_jax():
    """What makes Keras's layers slow there: a gradient of the kernel over a spread-out input."""
    if backend() != "jax":
        pytest.skip("the gradients of TensorFlow and PyTorch are their own")
    import jax

    def slow_convolutions(layer):
        x = normal(2, 4, 4, 3)
        layer(x)

        def loss(kernel):
            with keras.StatelessScope(state_mapping=[(layer.kernel, kernel)]):
                return ops.sum(layer(x) ** 2) + _penalty(layer, x)

        text = jax.jit(jax.grad(loss)).lower(layer.kernel.value).as_text()
        lines = [line for line in text.splitlines() if "stablehlo.convolution" in line]
        assert len(lines) > 3
        # [f, 0, 1, b]: channels and batch exchanged, as the gradient of a kernel has them
        return [s for s in lines if "[f, 0, 1, b]" in s and "lhs_dilate = [2, 2]" in s]

    for ours, theirs in (
        (Conv2DTranspose, keras.layers.Conv2DTranspose),
        (Conv2D, keras.layers.Conv2D),
    ):
        assert not slow_convolutions(ours(2, 5, strides=2, padding="same"))
        assert slow_convolutions(theirs(2, 5, strides=2, padding="same"))


def test_parameters():
    layer = Conv2DTranspose(6, 5, strides=2, padding="same")
    layer(normal(1, 3, 3, 4))
    assert layer.count_params() == 5 * 5 * 4 * 6 + 6


@pytest.mark.parametrize("make", [Conv2D, Conv2DTranspose])
def test_bad_arguments(make):
    with pytest.raises(ValueError, match="filters"):
        make(-1, 3)
