"""Positions: sinusoids (cases C06 and C07) and learned ones."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import GatherPositions, PositionalEncoding, PositionEmbedding
from tests.kit import (
    assert_close,
    assert_equal,
    compiled,
    contracts,
    normal,
    randomize,
    reference,
    to_numpy,
)

test_contracts_sinusoids = contracts(PositionalEncoding, inputs=normal(2, 5, 8))
test_contracts_sinusoids_from_3 = contracts(
    lambda **kw: PositionalEncoding(max_wavelength=100.0, layout="halves", **kw),
    inputs=normal(2, 5, 7),
    start_index=3,
)
test_contracts_learned = contracts(
    lambda **kw: PositionEmbedding(9, **kw),
    inputs=normal(2, 5, 8),
    causal="inputs",
)
test_contracts_learned_from_1 = contracts(
    lambda **kw: PositionEmbedding(9, **kw), inputs=normal(2, 5, 8), start_index=1
)
PLACES = np.array([[0, 3, 3], [0, 1, 4]], "int32")
test_contracts_gather = contracts(GatherPositions, inputs=normal(2, 5, 8), positions=PLACES)


def encoding(length, dim, **kw):
    return to_numpy(PositionalEncoding(**kw)(np.zeros((1, length, dim), "float32")))[0]


def test_c06_odd_widths():
    table = encoding(4, 5)
    assert table.shape == (4, 5)
    assert_close(table[0], [0, 1, 0, 1, 0])
    assert_close(table[3], [0.141120, -0.989992, 0.075285, 0.997162, 0.001893])
    assert_close(encoding(4, 1), reference.sinusoids(range(4), 1))
    assert_close(encoding(6, 7, layout="halves"), reference.sinusoids(range(6), 7, layout="halves"))


def test_c07_layouts():
    expected = [
        [0, 1, 0, 1],
        [0.841471, 0.540302, 0.010000, 0.999950],
        [0.909297, -0.416147, 0.019999, 0.999800],
    ]
    assert_close(encoding(3, 4), expected)
    assert_close(encoding(3, 4, layout="interleaved"), expected)
    assert_close(encoding(3, 4, layout="halves"), np.array(expected)[:, [0, 2, 1, 3]])


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
@pytest.mark.parametrize("dim,wavelength", [(8, 10000.0), (64, 10000.0), (9, 50.0)])
def test_equals_the_formula(dim, wavelength, layout):
    found = encoding(500, dim, layout=layout, max_wavelength=wavelength)
    assert_close(found, reference.sinusoids(range(500), dim, wavelength, layout))


def test_invariants():
    """Each pair lies on the unit circle; the product of two positions depends on their distance."""
    table = encoding(50, 16).astype("float64")
    assert_close(table[:, 0::2] ** 2 + table[:, 1::2] ** 2, np.ones((50, 8)))
    products = table @ table.T
    for k in range(50):
        along = np.diagonal(products, k)
        assert_close(along, np.full(50 - k, along[0]), atol=1e-5)


def test_far_positions():
    layer = PositionalEncoding()
    x = np.zeros((1, 3, 16), "float32")
    for start in (2000, 10000):
        expected = reference.sinusoids(range(start, start + 3), 16)
        assert_close(to_numpy(layer(x, start_index=start))[0], expected, atol=1e-5)


def test_the_sinusoids_are_added():
    x = normal(2, 5, 8)
    assert_close(PositionalEncoding()(x), x + encoding(5, 8))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_computed_in_float32_whatever_the_policy(policy):
    """Only the sum is rounded: in bfloat16 itself positions above 256 could not be told apart."""
    x = np.zeros((1, 600, 8), "float32")
    found = PositionalEncoding(dtype=policy)(x)
    exact = ops.cast(ops.convert_to_tensor(encoding(600, 8)), found.dtype)
    assert keras.backend.standardize_dtype(found.dtype) == policy.removeprefix("mixed_")
    assert_equal(found[0], exact)


@pytest.mark.parametrize("make", [PositionalEncoding, lambda: PositionEmbedding(9)])
def test_start_index(make):
    layer = make()
    x = normal(2, 9, 8)
    layer(x)
    whole = to_numpy(randomize(layer)(x))
    assert_close(layer(x[:, 4:7], start_index=4), whole[:, 4:7])
    step = compiled(lambda array, index: layer(array, start_index=index))
    for i in (0, 4, 8):
        assert_close(step(x[:, i : i + 1], np.int32(i)), whole[:, i : i + 1])


def test_learned_positions_are_the_table():
    layer = PositionEmbedding(6)
    x = normal(2, 5, 8)
    layer(x)
    randomize(layer)
    assert layer.embeddings.shape == (6, 8)
    assert_close(layer(x), x + to_numpy(layer.embeddings.value)[:5])


@pytest.mark.parametrize("start", [0, 2])
def test_a_longer_input_names_both_numbers(start):
    layer = PositionEmbedding(6)
    fits = normal(1, 6 - start, 8)
    layer(fits, start_index=start)
    longer = normal(1, 7 - start, 8)
    with pytest.raises(ValueError) as error:
        layer(longer, start_index=start)
    assert "7" in str(error.value) and "6" in str(error.value)
    with pytest.raises(ValueError):
        layer(keras.Input((9, 8)))


def test_a_longer_input_is_never_cut_silently():
    """Neither where the length is free and known only when the graph runs."""
    inputs = keras.Input((None, 8))
    model = keras.Model(inputs, PositionEmbedding(6)(inputs))
    assert model.predict(normal(2, 6, 8), verbose=0).shape == (2, 6, 8)
    with pytest.raises(Exception, match=r"\b6\b"):
        model.predict(normal(2, 7, 8), verbose=0)


@pytest.mark.parametrize(
    "make,says",
    [
        (lambda: PositionalEncoding(layout="rows"), ["layout", "rows", "interleaved", "halves"]),
        (lambda: PositionalEncoding(max_wavelength=0), ["max_wavelength", "0"]),
        (lambda: PositionEmbedding(0), ["max_sequence_length", "0"]),
        (lambda: PositionEmbedding(2.5), ["max_sequence_length", "2.5"]),
    ],
)
def test_bad_arguments(make, says):
    with pytest.raises(ValueError) as error:
        make()
    for words in says:
        assert words in str(error.value)


def test_gather():
    x = normal(2, 5, 8)
    assert_equal(GatherPositions()(x, PLACES), x[np.arange(2)[:, None], PLACES])


STARTS = [
    pytest.param(lambda n: n, id="int"),
    pytest.param(np.int64, id="numpy"),
    pytest.param(lambda n: np.array(n, "int32"), id="array"),
    pytest.param(lambda n: ops.convert_to_tensor(n, "int32"), id="tensor"),
]


@pytest.mark.parametrize("start", STARTS)
def test_positions_beyond_the_table_are_refused_whatever_holds_the_start(start):
    layer = PositionEmbedding(8)
    x = normal(1, 4, 6)
    last = layer(x, start_index=start(4))
    table = to_numpy(layer.embeddings.value)
    assert_close(last, x + table[4:8])
    for call in (layer, compiled(lambda x: layer(x, start_index=5))):
        with pytest.raises(ValueError, match="length 9, beyond the 8"):
            call(x, start_index=start(5)) if call is layer else call(x)
    with pytest.raises(ValueError, match="start_index=-1"):
        layer(x, start_index=start(-1))


@pytest.mark.parametrize("start", STARTS)
def test_sinusoids_start_anywhere_whatever_holds_the_start(start):
    layer, x = PositionalEncoding(), np.zeros((1, 4, 6), "float32")
    for number in (-3, 0, 1000):
        expected = reference.sinusoids(range(number, number + 4), 6)[None]
        assert_close(layer(x, start_index=start(number)), expected)


@pytest.mark.parametrize("make", [lambda: PositionEmbedding(8), PositionalEncoding])
def test_a_start_that_is_no_single_integer_is_refused(make):
    layer, x = make(), normal(2, 4, 6)
    for start in (np.array([1, 2]), ops.convert_to_tensor([1, 2]), 1.5, np.float32(2.0), True, "1"):
        with pytest.raises(ValueError, match="`start_index` must be an integer"):
            layer(x, start_index=start)


def test_gathered_positions_outside_of_a_row_are_refused():
    layer = GatherPositions()
    for wrong in (5, -1):
        for kind in (np.array, ops.convert_to_tensor):
            with pytest.raises(ValueError, match=rf"in \[0, 5\). Received: {wrong}"):
                layer(normal(2, 5, 8), kind([[0, 4], [wrong, 2]]))
