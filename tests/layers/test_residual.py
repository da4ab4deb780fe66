"""The residual blocks against the paper's figures in numpy; where strides and shortcuts are."""

import functools

import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import BasicBlock, BottleneckBlock
from tests.kit import (
    assert_close,
    assert_equal,
    contracts,
    copy_weights,
    gradients,
    normal,
    randomize,
    to_numpy,
)

# A ReLU has a corner, so no finite differences. Between the two every branch of the code is seen.
test_contracts_basic = contracts(
    lambda **kw: BasicBlock(4, strides=2, **kw),
    options={"numeric": False},
    inputs=normal(2, 5, 4, 3),
)
test_contracts_bottleneck = contracts(
    lambda **kw: BottleneckBlock(
        2, strides=2, shortcut="A", stride_in="3x3", normalize_first=True, **kw
    ),
    without=("jit", "weights_file"),
    options={"numeric": False},
    inputs=normal(2, 5, 4, 3),
)

V15 = functools.partial(BottleneckBlock, stride_in="3x3")


def randomized(block, x, seed=0):
    """Built, with all weights and averages away from their start."""
    block(x)
    randomize(block, seed)
    rng = np.random.default_rng(seed)
    for weight in block.non_trainable_weights:
        value = rng.normal(size=weight.shape)
        weight.assign(value if weight.name == "moving_mean" else 0.5 + value**2)
    return block


# === The formulas ===


def convolve(layer, x):
    """Half the kernel of zeros on each side, in float64."""
    kernel, stride = to_numpy(layer.kernel.value).astype("float64"), layer.strides[0]
    half = kernel.shape[0] // 2
    x = np.pad(x, [(0, 0), (half, half), (half, half), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(x, kernel.shape[:2], (1, 2))
    return np.einsum("bhwcij,ijco->bhwo", windows[:, ::stride, ::stride], kernel)


def normalize(layer, x, training):
    gamma, beta, mean, variance = (to_numpy(v.value).astype("float64") for v in layer.variables)
    if training:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return gamma * (x - mean) / np.sqrt(variance + 1e-5) + beta


def relu(x):
    return np.maximum(x, 0.0)


def shortcut_of(block, x, training):
    """Section 3.3; x as the projection or the identity takes it."""
    if block.shortcut_convolution is not None:
        x = convolve(block.shortcut_convolution, x)
        # The second paper's projection takes what is normalized already.
        return x if block.normalize_first else normalize(block.shortcut_norm, x, training)
    x = x[:, :: block.strides, :: block.strides]
    more = block.filters * block.expansion - x.shape[-1]
    return np.concatenate([x, np.zeros((*x.shape[:3], more))], axis=-1)


def block_by_paper(block, x, training):
    """Figure 5, or figure 4e of the second paper: (responses, output)."""
    x = y = source = x.astype("float64")
    responses = []
    for i, (convolution, norm) in enumerate(zip(block.convolutions, block.norms, strict=True)):
        if block.normalize_first:
            y = relu(normalize(norm, y, training))
            if i == 0 and block.shortcut_convolution is not None:
                source = y
            y = convolve(convolution, y)
        else:
            y = normalize(norm, convolve(convolution, y if i == 0 else relu(y)), training)
        responses.append(y)
    y = y if block.shortcut is None else y + shortcut_of(block, source, training)
    return responses, y if block.normalize_first else relu(y)


@pytest.mark.parametrize(
    "make,kwargs",
    [
        (BasicBlock, {"shortcut": "A"}),
        (BasicBlock, {"shortcut": "B"}),
        (BasicBlock, {"shortcut": None}),
        (BottleneckBlock, {"shortcut": "B"}),
        (V15, {"shortcut": "C"}),
        (BasicBlock, {"shortcut": "B", "normalize_first": True}),
        (V15, {"shortcut": "A", "normalize_first": True}),
    ],
)
def test_equals_numpy(make, kwargs):
    """Outputs and responses, in inference and by the moments of the batch."""
    x = normal(2, 5, 4, 3)
    block = randomized(make(8 if make is BasicBlock else 2, strides=2, **kwargs), x)
    for training in (False, True):
        # The reference first: the call in training moves the averages, not what comes out.
        responses, expected = block_by_paper(block, x, training)
        assert expected.shape == (2, 3, 2, 8) == block.compute_output_shape(x.shape)
        assert_close(block(x, training=training), expected, rtol=1e-5, atol=1e-5)
        found, output = block.responses(x, training=training)
        assert_close(output, expected, rtol=1e-5, atol=1e-5)
        assert_close(found, responses, rtol=1e-5, atol=1e-5)
        assert len(found) == (2 if make is BasicBlock else 3)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_equal_shapes_take_the_identity(normalize_first):
    """The input itself, not what the first normalization makes of it; C projects all the same."""
    x = normal(2, 3, 3, 8)
    for shortcut in ("A", "B", "C"):
        block = BottleneckBlock(2, shortcut=shortcut, normalize_first=normalize_first)
        randomized(block, x)
        assert (block.shortcut_convolution is None) == (shortcut != "C")
        assert_close(block(x), block_by_paper(block, x, False)[1], rtol=1e-5, atol=1e-5)


# === Cases from trackers ===


def test_c24_where_the_stride_is():
    """v1 reads only every second pixel; v1.5 reads all. v1 is the default, as in the paper."""
    x = normal(1, 8, 8, 4)
    other = x.copy()
    other[0, 1, 1] += 1.0
    blocks = {
        stride_in: BottleneckBlock(2, strides=2, stride_in=stride_in)
        for stride_in in ("1x1", "3x3")
    }
    counts = set()
    for stride_in, block in blocks.items():
        randomized(block, x)
        assert block.shortcut_convolution is not None
        before, after = to_numpy(block(x)), to_numpy(block(other))
        assert before.shape == (1, 4, 4, 8)
        moved = np.abs(after - before).max()
        assert moved == 0 if stride_in == "1x1" else moved > 1e-3
        counts.add(block.count_params())
    assert len(counts) == 1
    assert BottleneckBlock(2).stride_in == "1x1"
    assert "the paper's place" in BottleneckBlock.__doc__


@pytest.mark.parametrize("side", [7, 8])
def test_c25_option_a(side):
    """Every second pixel in the first channels, zeros in the others, and no parameter.

    `zero_init` makes the block its shortcut.
    """
    x = np.arange(side * side * 2, dtype="float32").reshape(1, side, side, 2) + 1
    expected = np.zeros((1, 4, 4, 4), "float32")
    expected[..., :2] = x[:, ::2, ::2]
    for normalize_first in (False, True):
        block = BasicBlock(
            4, strides=2, shortcut="A", zero_init=True, normalize_first=normalize_first
        )
        for training in (False, True):
            assert_equal(block(x, training=training), expected)
        plain = BasicBlock(4, strides=2, shortcut=None, normalize_first=normalize_first)
        plain.build(x.shape)
        assert block.count_params() == plain.count_params()


@pytest.mark.parametrize("side", [7, 8])
@pytest.mark.parametrize("shortcut", ["A", "B", "C", None])
def test_c25_channels_first_is_the_transpose(shortcut, side):
    x = np.linspace(-1, 1, side * side * 2, dtype="float32").reshape(1, side, side, 2)
    last = randomized(BasicBlock(4, strides=2, shortcut=shortcut), x)
    first = BasicBlock(4, strides=2, shortcut=shortcut, data_format="channels_first")
    transposed = x.transpose(0, 3, 1, 2)
    first(transposed)
    copy_weights(last, first)
    for training in (False, True):
        expected = last(x, training=training)
        y = first(transposed, training=training)
        assert tuple(y.shape) == (1, 4, 4, 4) == first.compute_output_shape(transposed.shape)
        assert_close(ops.transpose(y, (0, 2, 3, 1)), expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(last.weights, first.weights, strict=True):
        assert_close(other.value, one.value)


def test_channels_first_of_the_other_block():
    x = normal(2, 5, 4, 3)
    last = randomized(V15(2, strides=2, shortcut="A", normalize_first=True), x)
    first = V15(2, 2, "A", normalize_first=True, data_format="channels_first")
    first(x.transpose(0, 3, 1, 2))
    copy_weights(last, first)
    y = ops.transpose(first(x.transpose(0, 3, 1, 2)), (0, 2, 3, 1))
    assert_close(y, last(x), rtol=1e-5, atol=1e-5)


def test_c25_where_options_project():
    """B where the shape changes, C everywhere; parameters by hand."""
    branch = 9 * 2 * 4 + 9 * 4 * 4 + 2 * 4 * 4
    same = 2 * 9 * 2 * 2 + 2 * 4 * 2
    for shortcut, changed, unchanged in (
        ("A", 0, 0),
        ("B", 2 * 4 + 4 * 4, 0),
        ("C", 2 * 4 + 4 * 4, 2 * 2 + 4 * 2),
    ):
        for filters, strides, expected in ((4, 2, branch + changed), (2, 1, same + unchanged)):
            block = BasicBlock(filters, strides, shortcut)
            block.build((None, None, None, 2))
            assert block.count_params() == expected
    # A stride alone is a change, more channels alone another.
    for filters, strides in ((2, 2), (4, 1)):
        block = BasicBlock(filters, strides, "B")
        block.build((None, 7, 7, 2))
        assert block.shortcut_convolution.strides == (strides, strides)


# === How it starts, and how it stands still ===


def test_zero_init_starts_as_the_shortcut_and_learns():
    """Goyal et al. 2017, section 5.1."""
    x = normal(2, 4, 4, 8)
    for make in (lambda **kw: BasicBlock(8, **kw), lambda **kw: BottleneckBlock(2, **kw)):
        for normalize_first in (False, True):
            block = make(zero_init=True, normalize_first=normalize_first)
            y = block(x, training=True)
            assert_equal(y, x if normalize_first else relu(x))
            last = block.convolutions[-1].kernel if normalize_first else block.norms[-1].gamma
            assert not to_numpy(last.value).any()
    (gradient,) = gradients(lambda: ops.sum(block(x, training=True) ** 2), [last])[1]
    assert np.abs(gradient).max() > 1e-3
    # With option B the projection's own normalization is not zero.
    block = BasicBlock(4, strides=2, zero_init=True)
    y = block(x)
    expected = relu(normalize(block.shortcut_norm, convolve(block.shortcut_convolution, x), False))
    assert_close(y, expected, atol=1e-5)


def test_he_initialization():
    """Section 3.4: a deviation of sqrt(2 / inputs)."""
    block = BasicBlock(64, strides=2)
    block.build((None, None, None, 32))
    for layer, inputs in (
        (block.convolutions[0], 9 * 32),
        (block.convolutions[1], 9 * 64),
        (block.shortcut_convolution, 32),
    ):
        kernel = to_numpy(layer.kernel.value)
        assert abs(kernel.std() / np.sqrt(2 / inputs) - 1) < 0.05
        assert layer.bias is None


def test_frozen():
    """In training too a frozen block normalizes by its averages, and leaves them."""
    x = normal(2, 5, 4, 3)
    block = randomized(BasicBlock(4, strides=2), x)
    expected, before = to_numpy(block(x)), [to_numpy(w.value) for w in block.weights]
    block.trainable = False
    assert_equal(block(x, training=True), expected)
    assert_equal([w.value for w in block.weights], before)
    assert not block.trainable_weights


# === Bad input ===


@pytest.mark.parametrize(
    "make,kwargs,message",
    [
        (BasicBlock, {"filters": 0}, "`filters` must be a positive integer. Received: filters=0"),
        (
            BasicBlock,
            {"strides": 1.5},
            "`strides` must be a positive integer. Received: strides=1.5",
        ),
        (BasicBlock, {"shortcut": "D"}, "'C' (projections everywhere) or None (a plain net). Rec"),
        (BasicBlock, {"shortcut": "D"}, "Received: shortcut='D'"),
        (BottleneckBlock, {"stride_in": "2x2"}, "'3x3' (v1.5). Received: stride_in='2x2'"),
        (BasicBlock, {"zero_init": True, "shortcut": None}, "`zero_init` needs a shortcut"),
        (BasicBlock, {"data_format": "NHWC"}, "Received: data_format='NHWC'"),
    ],
)
def test_bad_arguments(make, kwargs, message):
    with pytest.raises(ValueError) as error:
        make(**{"filters": 4, **kwargs})
    assert message in str(error.value)


def test_bad_images():
    with pytest.raises(ValueError, match="ndim=4, found ndim=3"):
        BasicBlock(4)(normal(5, 4, 3))
    with pytest.raises(ValueError, match="channels of the input must be known"):
        BasicBlock(4).build((None, 5, 4, None))
    with pytest.raises(ValueError, match="gives 8 channels, for an input of 9"):
        BottleneckBlock(2, shortcut="A")(normal(1, 5, 4, 9))
