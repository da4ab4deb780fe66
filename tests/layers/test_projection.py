"""The projection discriminator's last layer against equation 4."""

import numpy as np
import pytest

from kerasmodels.layers import LabelProjection
from tests.kit import assert_close, contracts, normal, randomize, to_numpy

LABELS = np.array([0, 2, 1, 2], "int32")

test_contracts = contracts(
    lambda **kw: LabelProjection(3, **kw),
    options={"free": (0,)},
    inputs=normal(4, 8),
    labels=LABELS,
)


def test_equals_numpy():
    layer, h = LabelProjection(3), normal(4, 8)
    layer(h, LABELS)
    randomize(layer)
    kernel, bias, vectors = (to_numpy(w.value) for w in layer.weights)
    expected = h @ kernel + bias + (vectors[LABELS] * h).sum(-1, keepdims=True)
    assert_close(layer(h, LABELS), expected)
    assert layer.count_params() == 8 + 1 + 3 * 8


@pytest.mark.parametrize("value", [0, 2.5])
def test_bad_arguments(value):
    with pytest.raises(ValueError, match="num_classes") as error:
        LabelProjection(value)
    assert str(value) in str(error.value)
