"""Pixel shuffle against equation 4, written as loops, and against PyTorch's order."""

import numpy as np
import pytest

from kerasmodels.layers import PixelShuffle
from tests.kit import assert_equal, contracts, normal, to_numpy

test_contracts = contracts(
    lambda **kw: PixelShuffle(2, **kw),
    options={"free": (0, 1, 2)},
    inputs=normal(2, 3, 5, 8),
)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_equals_equation_4(factor):
    r, x = factor, normal(2, 3, 4, 2 * factor**2)
    expected = np.empty((2, 3 * r, 4 * r, 2), "float32")
    for row in range(3 * r):
        for column in range(4 * r):
            for c in range(2):
                channel = c * r**2 + r * (row % r) + column % r
                expected[:, row, column, c] = x[:, row // r, column // r, channel]
    assert_equal(PixelShuffle(r)(x), expected)


def test_equals_pytorch():
    """`torch.nn.PixelShuffle`, which has channels first."""
    import torch

    x = normal(2, 3, 4, 12)
    expected = torch.nn.PixelShuffle(2)(torch.from_numpy(x.transpose(0, 3, 1, 2)))
    assert_equal(PixelShuffle(2)(x), expected.numpy().transpose(0, 2, 3, 1))


def test_nothing_is_lost():
    x = normal(1, 2, 2, 8)
    assert_equal(np.sort(to_numpy(PixelShuffle(2)(x)), None), np.sort(x, None))


@pytest.mark.parametrize("factor", [0, 1.5])
def test_bad_factor(factor):
    with pytest.raises(ValueError, match="factor") as error:
        PixelShuffle(factor)
    assert str(factor) in str(error.value)


def test_bad_inputs():
    with pytest.raises(ValueError, match="channels=6, factor=2"):
        PixelShuffle(2)(normal(1, 2, 2, 6))
    with pytest.raises(ValueError, match="batch, height, width, channels"):
        PixelShuffle(2).compute_output_shape((1, 2, 4))
