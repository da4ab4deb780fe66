"""Token embeddings, tied to the output (case C08)."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import LabelProjection, LogitBias, SegmentEmbedding, TokenEmbedding
from tests.kit import assert_close, contracts, normal, to_numpy, token_ids

test_contracts = contracts(lambda **kw: TokenEmbedding(11, 8, **kw), inputs=token_ids(2, 5))

test_contracts_bias = contracts(LogitBias, inputs=normal(2, 5, 11))

test_contracts_segments = contracts(
    lambda **kw: SegmentEmbedding(3, **kw),
    inputs=normal(2, 5, 8),
    segment_ids=token_ids(2, 5, vocabulary_size=4) - 1,
)


class Tied(keras.layers.Layer):
    """In and out through one matrix."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.embedding = TokenEmbedding(11, 8, dtype=self.dtype_policy)

    def build(self, shape):
        self.embedding.build(shape)

    def call(self, ids):
        return self.embedding(self.embedding(ids), reverse=True)


# The helper class is no part of the library.
test_contracts_tied = contracts(Tied, without=("config", "keras_file"), inputs=token_ids(2, 5))


def test_c08_scale_on_the_way_in_only():
    layer = TokenEmbedding(3, 4)
    layer(np.array([[1]]))
    table = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]], "float32")
    layer.embeddings.assign(table)
    assert_close(layer(np.array([[1]])), [[[2, 0, 0, 0]]])
    hidden = np.array([[[0.5, -0.25, 0, 0]]], "float32")
    assert_close(layer(hidden, reverse=True), [[[0, 0.5, -0.25]]])
    layer.embeddings.assign(3 * table)
    assert_close(layer(np.array([[1]])), [[[6, 0, 0, 0]]])
    assert_close(layer(hidden, reverse=True), [[[0, 1.5, -0.75]]])
    assert len(layer.weights) == 1 and layer.count_params() == 12


def test_without_scale():
    layer = TokenEmbedding(11, 8, scale=False)
    ids = token_ids(2, 5)
    assert_close(layer(ids), to_numpy(layer.embeddings.value)[ids])


def test_starts_with_variance_one_over_hidden_dim():
    layer = TokenEmbedding(2000, 64)
    layer(np.array([[0]]))
    table = to_numpy(layer.embeddings.value)
    assert abs(table.mean()) < 0.002
    assert abs(table.std() - 64**-0.5) < 0.002
    # Normal, not truncated and not uniform: 4.55 % lie beyond two deviations.
    assert abs((np.abs(table) > 2 * 64**-0.5).mean() - 0.0455) < 0.003


def test_logits_before_any_embedding():
    """The decoder may ask for logits first, and a symbolic build too."""
    layer = TokenEmbedding(11, 8)
    layer.build((None, None))
    assert to_numpy(layer(normal(2, 5, 8), reverse=True)).shape == (2, 5, 11)
    symbol = layer(keras.KerasTensor((None, None, 8)), reverse=True)
    assert symbol.shape == (None, None, 11)


def test_mask_zero_tells_later_layers():
    seen = []

    class Look(keras.layers.Layer):
        def call(self, x, mask=None):
            seen.append(None if mask is None else to_numpy(mask))
            return x

    ids = np.array([[3, 0, 5, 0]])
    Look()(TokenEmbedding(11, 8, mask_zero=True)(ids))
    Look()(TokenEmbedding(11, 8)(ids))
    assert seen[0].tolist() == [[True, False, True, False]] and seen[1] is None


@pytest.mark.parametrize(
    "sizes,says", [((0, 8), "vocabulary_size"), ((5, -1), "hidden_dim"), ((5, 2.5), "hidden_dim")]
)
def test_bad_arguments(sizes, says):
    with pytest.raises(ValueError, match=says):
        TokenEmbedding(*sizes)


def test_an_initializer_of_ones_own():
    layer = TokenEmbedding(5, 4, initializer=keras.initializers.Constant(2.0))
    layer(np.array([[0]]))
    assert (to_numpy(layer.embeddings.value) == 2.0).all()
    again = TokenEmbedding.from_config(layer.get_config())
    again(np.array([[0]]))
    assert (to_numpy(again.embeddings.value) == 2.0).all()


def test_segments_are_added():
    layer, x = SegmentEmbedding(2), normal(2, 3, 4)
    ids = np.array([[0, 0, 1], [1, 0, 1]])
    layer(x)
    table = to_numpy(layer.embedding.embeddings.value)
    assert table.shape == (2, 4)
    assert_close(layer(x, ids), x + table[ids])
    assert_close(layer(x), x + table[0])
    with pytest.raises(ValueError, match="num_segments=0"):
        SegmentEmbedding(0)


@pytest.mark.parametrize("kind", [np.array, ops.convert_to_tensor], ids=["array", "tensor"])
@pytest.mark.parametrize("wrong", [3, -1])
def test_ids_without_a_row_are_refused(kind, wrong):
    ids = kind([[0, 2, wrong]])
    with pytest.raises(ValueError, match=rf"in \[0, 3\). Received: {wrong}"):
        TokenEmbedding(3, 8)(ids)
    with pytest.raises(ValueError, match=rf"`segment_ids` .*in \[0, 3\). Received: {wrong}"):
        SegmentEmbedding(3)(normal(1, 3, 8), ids)
    with pytest.raises(ValueError, match=rf"`labels` .*in \[0, 3\). Received: {wrong}"):
        LabelProjection(3)(normal(3, 8), ids[0])
