"""Masks: True means keep, AND combines."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import causal_mask, combine_masks, window_mask
from tests.kit import compiled, reference, to_numpy


@pytest.mark.parametrize("target,source", [(1, 1), (3, 3), (2, 5), (5, 2)])
def test_causal_mask(target, source):
    found = to_numpy(causal_mask(target, source))
    assert found.dtype == bool
    np.testing.assert_array_equal(found, reference.causal_mask(target, source)[0])


def test_causal_mask_of_later_queries():
    whole = reference.causal_mask(6)[0]
    np.testing.assert_array_equal(to_numpy(causal_mask(2, 6, start_index=3)), whole[3:5])
    later = compiled(lambda index: causal_mask(2, 6, start_index=index))
    np.testing.assert_array_equal(to_numpy(later(np.int32(3))), whole[3:5])


@pytest.mark.parametrize("window", [0, 1, 2, 7])
@pytest.mark.parametrize("target,source", [(1, 1), (5, 5), (3, 6), (6, 3)])
def test_window_mask(target, source, window):
    """Section 4: the neighbourhood of size r = 2 * window + 1 around each position."""
    found = to_numpy(window_mask(target, source, window))
    expected = [[abs(i - j) <= window for j in range(source)] for i in range(target)]
    np.testing.assert_array_equal(found, expected)


def test_combine_masks():
    assert combine_masks() is None
    assert combine_masks(None, None) is None
    rows, columns = np.array([[1], [0]], "int32"), np.array([[1.0, 0.0]], "float32")
    found = combine_masks(rows, None, columns)
    assert keras.backend.standardize_dtype(found.dtype) == "bool"
    np.testing.assert_array_equal(to_numpy(found), [[True, False], [False, False]])
    assert to_numpy(combine_masks(ops.ones((2,), dtype="int32"))).dtype == bool
