"""Last layers: the projection discriminator's against equation 4, and that of spans."""

import numpy as np
import pytest

from kerasmodels.layers import LabelProjection, SpanProjection
from tests.kit import assert_close, contracts, normal, padding_mask, randomize, to_numpy

LABELS = np.array([0, 2, 1, 2], "int32")

test_contracts = contracts(
    lambda **kw: LabelProjection(3, **kw),
    options={"free": (0,)},
    inputs=normal(4, 8),
    labels=LABELS,
)
test_contracts_span = contracts(
    lambda **kw: SpanProjection("he_normal", **kw),
    options={"output_dtype": "float32"},
    inputs=normal(2, 5, 8),
    padding_mask=np.ones((2, 5), bool),
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


def test_span_equals_numpy():
    layer, x, mask = SpanProjection(), normal(2, 5, 8), padding_mask(5, 3)
    layer(x)
    randomize(layer)
    logits = x @ to_numpy(layer.dense.kernel) + to_numpy(layer.dense.bias)
    assert_close(layer(x), (logits[..., 0], logits[..., 1]))
    masked = np.where(mask[..., None], logits, np.float32(-1e9))
    assert_close(layer(x, padding_mask=mask), (masked[..., 0], masked[..., 1]))
    with pytest.raises(ValueError, match="padding_mask"):
        layer(x, padding_mask=mask[:, :4])
