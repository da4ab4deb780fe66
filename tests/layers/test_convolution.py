"""The convolutions against their definition and against the layers of Keras and PyTorch, gradients
included."""

import functools

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import Conv2D, Conv2DTranspose
from tests.kit import (
    assert_close,
    assert_equal,
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
test_contracts_symmetric = contracts(
    lambda **kw: Conv2D(3, 3, strides=2, padding="same", symmetric=True, **kw),
    without=("jit", "weights_file"),
    inputs=normal(2, 6, 5, 2),
)


@pytest.mark.parametrize("make", [Conv2D, Conv2DTranspose])
def test_channels_first_adds_the_bias_to_channels_where_images_are_as_wide(make):
    layer = make(3, 1, data_format="channels_first")
    x = normal(2, 2, 5, 3)
    layer.build(x.shape)
    layer.kernel.assign(np.zeros(layer.kernel.shape))
    layer.bias.assign([1, 2, 3])
    expected = np.broadcast_to(np.array([1, 2, 3]).reshape(1, 3, 1, 1), (2, 3, 5, 3))
    assert_close(layer(x), expected)


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


# === Padding on both sides ===


def _by_torch(layer, x):
    """PyTorch's `conv2d(padding=k // 2)`: outputs, gradients of the sum of their sines."""
    import torch

    kernel = to_numpy(layer.kernel.value)
    k = torch.tensor(kernel.transpose(3, 2, 0, 1), requires_grad=True)
    x = torch.tensor(x.transpose(0, 3, 1, 2), requires_grad=True)
    padding = [n // 2 for n in layer.kernel_size]
    y = torch.nn.functional.conv2d(x, k, stride=layer.strides, padding=padding)
    x_gradient, k_gradient = torch.autograd.grad(y.sin().sum(), (x, k))
    y, x_gradient = (v.detach().numpy().transpose(0, 2, 3, 1) for v in (y, x_gradient))
    return y, x_gradient, k_gradient.numpy().transpose(2, 3, 1, 0)


SYMMETRIC = [(k, s) for k in (1, 3, 5, 7) for s in (1, 2, 3)] + [((3, 5), (2, 1)), (3, 5)]


@pytest.mark.parametrize("kernel_size,strides", SYMMETRIC)
def test_symmetric_equals_torch(kernel_size, strides):
    """Outputs and gradients; the sides leave every remainder by 2 and by 3."""
    layer = Conv2D(3, kernel_size, strides, padding="same", symmetric=True, use_bias=False)
    layer.build((None, None, None, 2))
    for sides in ((8, 7), (6, 9), (1, 2)):
        x = normal(2, *sides, 2)
        y, x_gradient, k_gradient = _by_torch(layer, x)
        assert tuple(layer.compute_output_shape(x.shape)) == y.shape
        assert_close(layer(x), y, atol=1e-5)
        if sides[0] != 8:
            continue
        x = keras.Variable(x)

        def loss(x=x):
            return ops.sum(ops.sin(layer(ops.convert_to_tensor(x))))

        _, found = gradients(loss, [x, layer.kernel])
        assert_close(found, [x_gradient, k_gradient], rtol=1e-4, atol=1e-4)


def test_symmetric_looks_at_other_pixels_only_with_strides_and_even_sides():
    for sides, strides, equal in (((8, 8), 2, False), ((7, 7), 2, True), ((8, 8), 1, True)):
        x = normal(1, *sides, 2)
        pair = [Conv2D(3, 3, strides, padding="same", symmetric=s) for s in (True, False)]
        for layer in pair:
            layer(x)
        copy_weights(*pair)
        one, other = (to_numpy(layer(x)) for layer in pair)
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=1e-5) == equal


@pytest.mark.parametrize("kernel_size,strides,groups", [(3, 2, 1), (3, 1, 2), (1, 2, 1), (5, 2, 2)])
def test_symmetric_channels_first_is_the_transpose(kernel_size, strides, groups):
    x = normal(2, 6, 5, 4)
    last, first = (
        Conv2D(
            4,
            kernel_size,
            strides,
            padding="same",
            symmetric=True,
            groups=groups,
            activation="relu",
            data_format=f"channels_{which}",
        )
        for which in ("last", "first")
    )
    last(x)
    transposed = x.transpose(0, 3, 1, 2)
    first(transposed)
    copy_weights(randomize(last), first)
    y = first(transposed)
    assert tuple(first.compute_output_shape(transposed.shape)) == tuple(y.shape)
    assert_close(ops.transpose(y, (0, 2, 3, 1)), last(x), atol=1e-5)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"padding": "same", "dilation_rate": 2},
        {"padding": "same", "dilation_rate": (1, 2), "kernel_size": 2},
        {"padding": "valid", "dilation_rate": 2},
        {"padding": "valid", "strides": 2, "kernel_size": (2, 3)},
        {"padding": "same", "groups": 2, "activation": "relu"},
        {"padding": "valid", "groups": 2, "strides": 3},
        {"padding": "same", "groups": 2, "strides": 2},
        {"padding": "same", "groups": 2, "dilation_rate": 2, "data_format": "channels_first"},
        {"padding": "valid", "strides": 2, "data_format": "channels_first"},
    ],
)
def test_groups_and_dilation_equal_keras(kwargs):
    """By whatever way: on PyTorch its own layout, elsewhere Keras."""
    first = kwargs.get("data_format") == "channels_first"
    x = normal(2, 4, 7, 8) if first else normal(2, 7, 8, 4)
    layers = [
        c(**{"filters": 4, "kernel_size": 3, **kwargs}) for c in (Conv2D, keras.layers.Conv2D)
    ]
    for layer in layers:
        layer(x)
    copy_weights(randomize(layers[0]), layers[1])
    assert_close(layers[0](x), layers[1](x))


@pytest.mark.parametrize(
    "kwargs,received",
    [
        ({"kernel_size": (3, 4), "padding": "same"}, r"kernel_size=\(3, 4\)"),
        ({"kernel_size": 3, "padding": "valid"}, "padding='valid'"),
        ({"kernel_size": 3, "padding": "same", "dilation_rate": 2}, r"dilation_rate=\(2, 2\)"),
    ],
)
def test_bad_symmetric_arguments(kwargs, received):
    with pytest.raises(ValueError, match=f"`symmetric=True` takes .*{received}"):
        Conv2D(3, symmetric=True, **kwargs)


# === Gradients of gradients ===


@pytest.mark.parametrize(
    "make", [Conv2D, Conv2DTranspose, functools.partial(Conv2D, symmetric=True)]
)
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
    assert not slow_convolutions(Conv2D(2, 5, strides=2, padding="same", symmetric=True))


def test_parameters():
    layer = Conv2DTranspose(6, 5, strides=2, padding="same")
    layer(normal(1, 3, 3, 4))
    assert layer.count_params() == 5 * 5 * 4 * 6 + 6


@pytest.mark.parametrize("make", [Conv2D, Conv2DTranspose])
def test_bad_arguments(make):
    with pytest.raises(ValueError, match="filters"):
        make(-1, 3)


@pytest.mark.skipif(backend() != "torch", reason="how PyTorch multiplies")
def test_kernels_and_moments_lie_as_torch_multiplies(tmp_path):
    """Outputs first, inputs last in memory, whatever is assigned or loaded; so do the moments."""
    import torch

    from kerasmodels import training

    def lies_right(tensor):
        rows = tensor.detach().permute(3, 2, 0, 1)
        return rows.is_contiguous(memory_format=torch.channels_last)

    model = keras.Sequential([keras.Input((6, 6, 2)), Conv2D(3, 3, padding="same")])
    kernel = model.layers[0].kernel
    assert lies_right(kernel.value)
    kernel.assign(normal(3, 3, 2, 3))
    assert_close(kernel.value, normal(3, 3, 2, 3))
    for optimizer in (training.SGD(), training.AdamW()):
        model.compile(optimizer, "mse")
        model.fit(normal(4, 6, 6, 2), normal(4, 6, 6, 3), verbose=0)
        slots = [v for v in optimizer.variables if len(v.shape) == 4]
        assert slots and all(lies_right(v.value) for v in (kernel, *slots))
        assert all(np.abs(to_numpy(v.value)).max() > 0 for v in slots)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert lies_right(loaded.layers[0].kernel.value)
    assert_equal(loaded.layers[0].kernel.value, kernel.value)
