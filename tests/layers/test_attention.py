"""Multi-head attention against numpy, against Keras's own layer, and cases C01 to C05."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import MultiHeadAttention
from tests.kit import (
    assert_close,
    assert_equal,
    backend,
    compiled,
    contracts,
    copy_weights,
    gradients,
    identity_projections,
    input_gradient,
    normal,
    padding_mask,
    randomize,
    reference,
    to_numpy,
)

HALF = 0.669762  # softmax([1/sqrt(2), 0])


def make(**kw):
    return MultiHeadAttention(2, 4, **{"dropout": 0.3, **kw})


test_contracts_cross = contracts(
    make,
    without=("half",),  # the same code as the next one's
    query=normal(2, 4, 8),
    value=normal(2, 5, 8, seed=1),
    value_mask=padding_mask(3, 5),
    padding=[("value", "value_mask", False)],
)
test_contracts_causal = contracts(
    make,
    query=normal(2, 5, 8),
    value=normal(2, 5, 8, seed=1),
    use_causal_mask=True,
    causal="value",
)
test_contracts_causal_with_scores_and_mask = contracts(
    lambda **kw: make(value_dim=3, output_dim=6, **kw),
    query=normal(2, 5, 8),
    value=normal(2, 5, 7, seed=1),
    key=normal(2, 5, 6, seed=2),
    key_mask=padding_mask(5, 4),
    return_attention_scores=True,
    use_causal_mask=True,
    causal="key",
    padding=[("key", "key_mask", False), ("value", "key_mask", False)],
)
test_contracts_attention_mask = contracts(
    lambda **kw: make(use_bias=False, **kw),
    without=("half", "keras_file"),
    query=normal(2, 4, 8),
    value=normal(2, 5, 8, seed=1),
    query_mask=padding_mask(4, 2),
    attention_mask=np.random.default_rng(5).random((2, 4, 5)) < 0.7,
)


class SelfAttention(keras.layers.Layer):
    """Query and value are one tensor: what the blockwise window is for."""

    def __init__(self, **kw):
        super().__init__(dtype=kw.get("dtype"))
        self.attention = make(**kw)

    def build(self, x_shape, mask_shape=None):
        self.attention.build(x_shape, x_shape)

    def call(self, x, mask=None, training=None):
        return self.attention(x, x, value_mask=mask, use_causal_mask=True, training=training)


test_contracts_window = contracts(
    lambda **kw: SelfAttention(window=2, **kw),
    without=("config", "keras_file"),  # the helper class is no part of the library
    x=normal(2, 40, 8),
    mask=padding_mask(40, 17),
    causal=None,
    padding=[("x", "mask", True)],
)


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masks", ["none", "value", "left", "all", "rank3", "rank4", "nothing"])
@pytest.mark.parametrize(
    "options",
    [{}, {"value_dim": 3, "output_dim": 5, "scale": 0.3}, {"use_bias": False, "window": 1}],
    ids=["plain", "sizes", "window"],
)
def test_equals_numpy(options, masks, causal, scores, rng):
    layer = MultiHeadAttention(2, 4, dropout=0.5, **options)
    query, value, key = normal(2, 4, 8), normal(2, 6, 7, seed=1), normal(2, 6, 5, seed=2)
    layer(query, value, key)
    randomize(layer)
    given = {
        "none": {},
        "value": {"value_mask": padding_mask(3, 6)},
        "left": {"value_mask": padding_mask(3, 6)[:, ::-1].copy()},
        "all": {
            "query_mask": padding_mask(4, 2),
            "value_mask": padding_mask(5, 6),
            "key_mask": padding_mask(6, 4),
            "attention_mask": rng.random((2, 4, 6)) < 0.6,
        },
        "rank3": {"attention_mask": rng.random((1, 4, 6)) < 0.6},
        "rank4": {"attention_mask": rng.random((2, 2, 4, 6)) < 0.6},
        "nothing": {"value_mask": np.array([[False] * 6, [True] * 6])},
    }[masks]
    mask = np.ones((2, 2, 4, 6), bool)
    for name in ("value_mask", "key_mask"):
        if name in given:
            mask = mask & given[name][:, None, None, :]
    if "query_mask" in given:
        mask = mask & given["query_mask"][:, None, :, None]
    if "attention_mask" in given:
        extra = given["attention_mask"]
        mask = mask & (extra[:, None] if extra.ndim == 3 else extra)
    if causal:
        mask = mask & reference.causal_mask(4, 6)
    if "window" in options:
        mask = mask & reference.window_mask(4, 6, options["window"])
    expected = reference.multi_head_attention(
        layer, 2, query, value, key, mask, options.get("scale")
    )
    got = layer(query, value, key, **given, use_causal_mask=causal, return_attention_scores=scores)
    assert_close(got if scores else (got,), expected if scores else expected[:1])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scores", [False, True])
def test_equals_keras(causal, scores, rng):
    """Argument for argument what `keras.layers.MultiHeadAttention` gives with the same weights."""
    # Keras's layer cannot have another size for values on JAX.
    size = 4 if backend() == "jax" else 3
    ours = MultiHeadAttention(2, 4, value_dim=size, output_dim=6)
    theirs = keras.layers.MultiHeadAttention(2, 4, value_dim=size, output_shape=6)
    query, value, key = normal(2, 5, 8), normal(2, 5, 7, seed=1), normal(2, 5, 6, seed=2)
    ours(query, value, key)
    theirs(query, value, key)
    randomize(ours)
    for name in ("query", "key", "value", "output"):
        mine, other = getattr(ours, f"{name}_dense"), getattr(theirs, f"{name}_dense")
        other.kernel.assign(np.reshape(to_numpy(mine.kernel.value), other.kernel.shape))
        other.bias.assign(np.reshape(to_numpy(mine.bias.value), other.bias.shape))
    for masks in (
        {},
        {"value_mask": padding_mask(3, 5)},
        {"key_mask": padding_mask(5, 2)},
        {"attention_mask": np.tril(np.ones((1, 5, 5), bool), 1)},
    ):
        given = {"use_causal_mask": causal, "return_attention_scores": scores, **masks}
        assert_close(ours(query, value, key, **given), theirs(query, value, key, **given))


@pytest.mark.parametrize(
    "length,window,masked,causal",
    [
        (1, 0, False, False),
        (5, 1, True, True),
        (7, 100, True, False),
        (33, 0, False, True),
        (64, 32, False, False),
        (70, 3, False, False),
        (70, 3, False, True),
        (70, 3, True, False),
        (70, 3, True, True),
        (97, 40, True, True),
        (97, 97, False, False),
    ],
)
def test_window_equals_brute_force(length, window, masked, causal):
    layer = MultiHeadAttention(2, 4, window=window, dropout=0.5)
    x = normal(2, length, 8)
    layer(x, x)
    randomize(layer)
    real = padding_mask(length, max(1, length // 3))
    mask = reference.window_mask(length, length, window)
    if causal:
        mask = mask & reference.causal_mask(length)
    if masked:
        mask = mask & real[:, None, :]
    expected, weights = reference.multi_head_attention(layer, 2, x, x, mask=mask)
    x = ops.convert_to_tensor(x)
    given = {"use_causal_mask": causal, **({"value_mask": real} if masked else {})}
    assert_close(compiled(lambda x: layer(x, x, **given))(x), expected)
    if length < 64:  # the other path: the whole matrix of scores
        found = layer(x, x, return_attention_scores=True, **given)
        assert_close(found, (expected, weights))


def test_window_gradient_equals_the_masked_layer():
    x = normal(1, 70, 8)
    real = padding_mask(45, total=70)
    layer, dense = (MultiHeadAttention(2, 4, window=w) for w in (3, None))
    layer(x, x)
    dense(x, x)
    copy_weights(randomize(layer), dense)
    near = reference.window_mask(70, 70, 3)
    factors = ops.convert_to_tensor(normal(1, 70, 8, seed=8))
    near_gradient = input_gradient(lambda t: ops.sum(layer(t, t, value_mask=real) * factors), x)
    gradient = input_gradient(
        lambda t: ops.sum(dense(t, t, value_mask=real, attention_mask=near) * factors), x
    )
    assert_close(near_gradient, gradient, atol=1e-5)


# ---- the cases ----------------------------------------------------------------------------------


def identity_attention(dim=2, **kw):
    layer = MultiHeadAttention(1, dim, **kw)
    layer(np.zeros((1, 1, dim), "float32"), np.zeros((1, 1, dim), "float32"))
    return identity_projections(layer)


@pytest.mark.parametrize("scores", [False, True])
def test_c01_a_query_with_nothing_to_attend_to(scores):
    layer = identity_attention()
    x = np.eye(2, dtype="float32")[None]
    mask = np.array([[[0, 0], [1, 1]]])

    def call(tensor):
        out = layer(tensor, tensor, attention_mask=mask, return_attention_scores=scores)
        return out[0] if scores else out

    assert_close(call(x), [[[0, 0], [1 - HALF, HALF]]])
    loss, found = gradients(lambda: ops.sum(call(x)[:, 1]), layer.trainable_weights)
    assert all(np.isfinite(g).all() for g in found)
    assert np.isfinite(input_gradient(lambda t: ops.sum(call(t)[:, 1]), x)).all()
    # Nothing flows back from the row that sees nothing.
    assert_close(input_gradient(lambda t: ops.sum(call(t)[:, 0] * 3.0), x), np.zeros_like(x))


@pytest.mark.parametrize("kind", ["value_mask", "query_mask", "left padding and causal", "window"])
@pytest.mark.parametrize("scores", [False, True])
def test_every_way_to_mask_a_whole_row_gives_zero(kind, scores):
    layer = MultiHeadAttention(2, 4, use_bias=False, window=1 if kind == "window" else None)
    x = normal(2, 5, 8)
    layer(x, x)
    some = np.array([[0, 0, 0, 1, 1], [1, 1, 1, 1, 1]], bool)
    given, empty = {
        "value_mask": ({"value_mask": np.array([[0] * 5, [1] * 5], bool)}, [0] * 5),
        "query_mask": ({"query_mask": some}, [0, 0, 0, 1, 1]),
        "left padding and causal": (
            {"value_mask": some, "use_causal_mask": True},
            [0, 0, 0, 1, 1],
        ),
        "window": ({"value_mask": np.array([[0, 0, 0, 1, 1], [1] * 5], bool)}, [0, 0, 1, 1, 1]),
    }[kind]
    empty = ~np.array([empty, [1] * 5], bool)

    def call(tensor):
        out = layer(tensor, tensor, return_attention_scores=scores, **given)
        return out[0] if scores else out

    out = to_numpy(call(ops.convert_to_tensor(x)))
    assert (out[empty] == 0).all()
    assert (np.abs(out[~empty]).max(-1) > 1e-4).all()
    factors = ops.convert_to_tensor(np.where(empty[..., None], 7.0, 0.0).astype("float32"))
    assert_close(input_gradient(lambda t: ops.sum(call(t) * factors), x), np.zeros_like(x))
    rest = ops.convert_to_tensor(np.where(empty[..., None], 0.0, 1.0).astype("float32"))
    gradient = input_gradient(lambda t: ops.sum(call(t) * rest), x)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 1e-3


@pytest.mark.parametrize("variant", ["plain", "scores", "dropout"])
def test_c02_causal_on_every_code_path(variant):
    layer = identity_attention(dropout=0.5 if variant == "dropout" else 0.0)
    x = np.array([[[1, 0], [0, 1], [1, 1]]], "float32")

    def call(tensor, **kw):
        out = layer(
            tensor,
            tensor,
            use_causal_mask=True,
            training=False,
            return_attention_scores=variant == "scores",
            **kw,
        )
        return out if variant == "scores" else (out, None)

    out, scores = call(x)
    assert_close(out, [[[1, 0], [1 - HALF, HALF], [0.751745, 0.751745]]], atol=1e-6)
    if scores is not None:
        expected = [[1, 0, 0], [1 - HALF, HALF, 0], [0.248255, 0.248255, 0.503490]]
        assert_close(scores, [[expected]], atol=1e-6)
    hidden = np.ones((1, 3, 3), "int32")
    hidden[:, :, 2] = 0
    assert_close(
        call(x, attention_mask=hidden)[0], [[[1, 0], [1 - HALF, HALF], [0.5, 0.5]]], atol=1e-6
    )
    for t in range(3):
        other = x.copy()
        other[:, t] = [5, -3]
        assert_close(to_numpy(call(other)[0])[:, :t], to_numpy(out)[:, :t])


@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
@pytest.mark.parametrize("scores", [False, True])
def test_c03_mask_dtypes_and_shapes(dtype, scores):
    layer = identity_attention()
    query = np.array([[[1, 0]], [[1, 0]]], "float32")
    value = np.array([np.eye(2), np.eye(2)], "float32")
    keep = np.array([[1, 0], [1, 1]], dtype)
    expected = [[[1, 0]], [[HALF, 1 - HALF]]]
    for given in (
        {"attention_mask": keep[:, None]},
        {"attention_mask": keep[:, None, None]},
        {"value_mask": keep},
        {"key_mask": keep},
    ):
        out = layer(query, value, return_attention_scores=scores, **given)
        assert_close(out[0] if scores else out, expected)


@pytest.mark.parametrize(
    "given,says",
    [
        ({"attention_mask": np.ones((2, 5))}, ["attention_mask", "value_mask", "(2, 5)"]),
        ({"attention_mask": np.ones((2, 5, 1))}, ["attention_mask", "(2, 5, 1)", "4", "5"]),
        ({"attention_mask": np.ones((2, 4, 6))}, ["attention_mask", "(2, 4, 6)", "5"]),
        ({"attention_mask": np.ones((2, 3, 4, 5))}, ["attention_mask", "(2, 3, 4, 5)"]),
        ({"attention_mask": np.ones((2, 1, 1, 4, 5))}, ["attention_mask", "(2, 1, 1, 4, 5)"]),
        ({"attention_mask": np.ones((3, 4, 5))}, ["attention_mask", "(3, 4, 5)", "2"]),
        ({"value_mask": np.ones((2, 4))}, ["value_mask", "(2, 4)", "5"]),
        ({"value_mask": np.ones((2, 5, 1))}, ["value_mask", "(2, 5, 1)"]),
        ({"value_mask": np.ones((3, 5))}, ["value_mask", "(3, 5)"]),
        ({"key_mask": np.ones((2, 6))}, ["key_mask", "(2, 6)", "5"]),
        ({"query_mask": np.ones((2, 5))}, ["query_mask", "(2, 5)", "4"]),
        ({"query_mask": np.ones((2,))}, ["query_mask", "(2,)"]),
    ],
)
def test_c03_masks_that_do_not_fit_are_refused(given, says):
    layer = MultiHeadAttention(2, 4)
    with pytest.raises(ValueError) as error:
        layer(normal(2, 4, 8), normal(2, 5, 8), **given)
    for words in says:
        assert words in str(error.value)


@pytest.mark.parametrize(
    "given,says",
    [
        ({"num_heads": 0}, "num_heads"),
        ({"num_heads": 2.5}, "num_heads"),
        ({"key_dim": -1}, "key_dim"),
        ({"value_dim": 0}, "value_dim"),
        ({"output_dim": 0}, "output_dim"),
        ({"dropout": 1.5}, "dropout"),
        ({"dropout": -0.1}, "dropout"),
        ({"window": -1}, "window"),
        ({"window": 1.5}, "window"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"output_shape": (3, 0)}, "output_shape"),
        ({"output_shape": "8"}, "output_shape"),
        ({"seed": 0.5}, "seed"),
        ({"use_gate": "yes"}, "use_gate"),
        ({"attention_axes": (1, 2)}, "attention_axes"),
        ({"attention_axes": 2}, "attention_axes"),
        ({"kernel_initializer": np.eye(8)}, "kernel_initializer"),
    ],
)
def test_bad_arguments(given, says):
    with pytest.raises(ValueError, match=says) as error:
        MultiHeadAttention(**{"num_heads": 2, "key_dim": 4, **given})
    value = given[says]
    assert str(np.shape(value) if isinstance(value, np.ndarray) else value) in str(error.value)


@pytest.mark.parametrize(
    "given",
    [{"output_dim": 6, "output_shape": 6}, {"window": 2, "sliding_window": 3}],
    ids=["output", "window"],
)
def test_two_names_of_one_thing_are_not_given_together(given):
    with pytest.raises(ValueError, match="Only one of") as error:
        MultiHeadAttention(2, 4, **given)
    for name, value in given.items():
        assert f"{name}={value}" in str(error.value)


RANK_4 = (2, 5, 3, 8)


@pytest.mark.parametrize(
    "query,value,key,says",
    [
        (RANK_4, RANK_4, None, ["`query`", "rank 4", str(RANK_4)]),
        ((2, 5, 8), RANK_4, None, ["`value`", "rank 4", str(RANK_4)]),
        ((2, 8), (2, 5, 8), None, ["`query`", "rank 2", "(2, 8)"]),
        ((2, 5, 8), (2, 4, 8), (2, 4, 1, 8), ["must be equal", "(2, 4, 8)", "(2, 4, 1, 8)"]),
        ((2, 5, 8), (2, 4, 8), (2, 3, 8), ["must be equal", "(2, 4, 8)", "(2, 3, 8)"]),
        ((2, 5, 8), (1, 4, 8), None, ["batch size", "(2, 5, 8)", "(1, 4, 8)"]),
        ((2, 5, 8), (2, 4, 8), (1, 4, 8), ["must be equal", "(2, 4, 8)", "(1, 4, 8)"]),
    ],
)
@pytest.mark.parametrize("built", [False, True])
def test_inputs_that_do_not_belong_together_are_refused(query, value, key, says, built):
    layer = MultiHeadAttention(2, 4)
    if built:  # by inputs that it takes
        layer(normal(2, 5, 8), normal(2, 4, 8))
    arrays = [None if shape is None else normal(*shape) for shape in (query, value, key)]
    symbols = [None if shape is None else keras.KerasTensor(shape) for shape in (query, value, key)]
    calls = [lambda: layer(*arrays), lambda: layer(*symbols)]
    if query != (2, 8):
        calls.append(lambda: layer.compute_output_shape(query, value, key))
    for call in calls:
        with pytest.raises(ValueError) as error:
            call()
        for words in says:
            assert words in str(error.value)


def test_a_memory_of_another_rank_is_refused():
    layer = MultiHeadAttention(2, 4)
    layer(normal(2, 5, 8), normal(2, 4, 8))
    with pytest.raises(ValueError, match="rank 4"):
        layer.project_memory(normal(*RANK_4))


@pytest.mark.parametrize("index", [4, np.int64(4), np.int32(-1), "tensor"])
def test_a_position_behind_the_end_of_the_cache_is_refused(index):
    """JAX would write over the last positions, and PyTorch nothing at all."""
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 2, 8)
    layer(x, x)
    index = ops.convert_to_tensor(4) if index == "tensor" else index
    with pytest.raises(ValueError, match="2 new positions in a cache of length 5") as error:
        layer(x, x, cache=layer.new_cache(2, 5), cache_index=index)
    assert f"cache_index={int(index)}" in str(error.value)
    layer(x, x, cache=layer.new_cache(2, 5), cache_index=np.int64(3))


@pytest.mark.parametrize("heads,size,batch", [(1, 4, 2), (2, 3, 2), (2, 4, 1)])
def test_a_cache_of_another_layer_is_refused(heads, size, batch):
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 1, 8)
    layer(x, x)
    with pytest.raises(ValueError, match="`cache` must have shape") as error:
        layer(x, x, cache=MultiHeadAttention(heads, size).new_cache(batch, 5), cache_index=0)
    assert str((batch, heads, 5, size)) in str(error.value)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("scores", [False, True])
def test_c05_half_precision(policy, scores):
    layer = MultiHeadAttention(1, 1, value_dim=4, output_dim=4, scale=1.0, dtype=policy)
    query, key = np.zeros((1, 4, 1), "float32"), np.zeros((1, 4, 1), "float32")
    value = np.eye(4, dtype="float32")[None]
    layer(query, value, key)
    identity_projections(layer)
    mask = np.array([[1, 1, 0, 0]], bool)

    def call(q, k):
        out = layer(q, value, k, value_mask=mask, return_attention_scores=scores)
        return out if scores else (out,)

    for q, k in (
        (query, key),
        (np.ones_like(query), np.array([[[-20.0], [-20], [5], [5]]], "float32")),
    ):
        for out in call(q, k):
            assert keras.backend.standardize_dtype(out.dtype) == layer.compute_dtype
            assert_close(
                np.reshape(to_numpy(out), (4, 4)), np.tile([0.5, 0.5, 0, 0], (4, 1)), atol=2e-3
            )
        _, found = gradients(
            lambda q=q, k=k: ops.sum(ops.cast(call(q, k)[0], "float32")[..., 0]),
            layer.trainable_weights,
        )
        assert all(np.isfinite(g).all() for g in found)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("scores", [False, True])
def test_half_precision_of_a_row_that_sees_nothing(policy, scores):
    layer = MultiHeadAttention(2, 4, dtype=policy)
    x = normal(2, 5, 8)
    mask = np.array([[0] * 5, [1, 1, 1, 0, 0]], bool)

    def call():
        out = layer(x, x, value_mask=mask, use_causal_mask=True, return_attention_scores=scores)
        return out[0] if scores else out

    out = to_numpy(call())
    assert (out[0] == 0).all() and np.isfinite(out).all()
    _, found = gradients(lambda: ops.sum(ops.cast(call(), "float32")), layer.trainable_weights)
    assert all(np.isfinite(g).all() for g in found)


# ---- cache --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"value_dim": 3}, {"window": 2}])
@pytest.mark.parametrize("chunks", [(1, 1, 1, 1, 1, 1), (3, 1, 2), (6,)])
def test_cached_equals_uncached(options, chunks):
    layer = MultiHeadAttention(2, 4, dropout=0.5, **options)
    x = normal(2, 6, 8)
    layer(x, x)
    randomize(layer)
    expected, weights = layer(x, x, use_causal_mask=True, return_attention_scores=True)
    cache, start, outputs = layer.new_cache(2, 9), 0, []
    for size in chunks:
        new = x[:, start : start + size]
        out, scores, cache = layer(
            new, new, cache=cache, cache_index=start, return_attention_scores=True
        )
        seen = to_numpy(scores)
        assert seen.shape == (2, 2, size, 9)
        assert_close(seen[..., :6], to_numpy(weights)[:, :, start : start + size])
        assert (seen[..., 6:] == 0).all()
        outputs.append(to_numpy(out))
        start += size
    assert_close(np.concatenate(outputs, 1), expected)


def test_cache_with_padding_and_a_traced_index():
    """Left padding under a compiled step whose position is a tensor; the layer keeps no state."""
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 5, 8)
    layer(x, x)
    randomize(layer)
    real = padding_mask(5, 3)[:, ::-1].copy()
    expected = to_numpy(layer(x, x, value_mask=real, use_causal_mask=True))
    before = [to_numpy(v.value) for v in layer.variables]

    def step(new, keys, values, index):
        out, cache = layer(new, new, cache=(keys, values), cache_index=index, value_mask=real)
        return out, cache[0], cache[1]

    step = compiled(step)
    keys, values = layer.new_cache(2, 5)
    for i in range(5):
        out, keys, values = step(x[:, i : i + 1], keys, values, np.int32(i))
        assert_close(to_numpy(out)[:, 0], expected[:, i])
    for variable, value in zip(layer.variables, before, strict=True):
        np.testing.assert_array_equal(to_numpy(variable.value), value)


def test_cached_memory_equals_the_memory():
    layer = MultiHeadAttention(2, 4, value_dim=5)
    query, memory = normal(2, 3, 8), normal(2, 6, 7, seed=1)
    layer(query, memory)
    randomize(layer)
    mask = padding_mask(6, 4)
    out, _ = layer(query, None, value_mask=mask, cache=layer.project_memory(memory))
    assert_close(out, layer(query, memory, value_mask=mask))
    with pytest.raises(ValueError, match="value"):
        layer(query, None)


# ---- the fused kernel, dropout, implicit masks --------------------------------------------------


@pytest.mark.parametrize(
    "options,call,fused",
    [
        ({}, {}, True),
        ({"dropout": 0.5}, {}, True),
        ({"dropout": 0.5}, {"training": False}, True),
        ({"dropout": 0.5}, {"training": False, "use_causal_mask": True}, True),
        ({"dropout": 0.5}, {"training": False, "value_mask": padding_mask(3, 5)}, True),
        ({"dropout": 0.5}, {"training": True}, False),
        ({"dropout": 0.0}, {"training": True, "use_causal_mask": True}, True),
        ({}, {"return_attention_scores": True}, False),
    ],
)
def test_the_fused_kernel_serves_wherever_it_can(options, call, fused, monkeypatch):
    calls, kernel = [], ops.dot_product_attention

    def counted(*args, **kwargs):
        calls.append(kwargs)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(ops, "dot_product_attention", counted)
    x = normal(2, 5, 8)
    MultiHeadAttention(2, 4, **options)(x, x, **call)
    assert bool(calls) == fused


def test_a_causal_mask_alone_needs_no_correction(monkeypatch):
    """Each query has a key: the kernel gets the causal flag alone, and on TensorFlow the mask that
    Keras would make of it, since Keras makes it in a way that TFLite refuses."""
    calls, kernel = [], ops.dot_product_attention

    def counted(*args, **kwargs):
        calls.append(kwargs)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(ops, "dot_product_attention", counted)
    x = normal(2, 5, 8)
    MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    mask = calls[0].get("mask")
    if backend() == "tensorflow":
        assert_equal(mask, np.tri(5, dtype=bool)[None, None])
    else:
        assert calls[0]["is_causal"] and mask is None


@pytest.mark.parametrize("scores", [False, True])
def test_dropout_acts_on_the_weights_in_training_only(scores):
    layer = MultiHeadAttention(1, 4, dropout=0.5, use_bias=False)
    length = 2000
    x = np.zeros((1, 1, 4), "float32")
    value = np.ones((1, length, 4), "float32")
    layer(x, value)
    identity_projections(layer)

    def call(training):
        out = layer(x, value, training=training, return_attention_scores=scores)
        return to_numpy(out if scores else (out,))

    still, moving = call(False), call(True)
    assert_close(still[0], np.ones((1, 1, 4)), atol=1e-4)
    # Half of the 2000 weights of 1/2000, doubled: 1 with a deviation of 1/sqrt(2000) = 0.022.
    assert 1e-6 < np.abs(moving[0] - 1).max() < 0.1
    if scores:  # as Keras: the weights before dropout
        assert_close(moving[1], np.full((1, 1, 1, length), 1 / length))


def test_implicit_masks_are_seen():
    """What `Embedding(mask_zero=True)` knows reaches attention, and joins a mask that is given."""
    ids = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 0]])
    embedding = keras.layers.Embedding(11, 8, mask_zero=True)
    layer = MultiHeadAttention(2, 4)
    x = embedding(ids)
    real = ids != 0
    bare = ops.convert_to_tensor(to_numpy(x))
    expected = to_numpy(layer(bare, bare, value_mask=real))
    assert_close(to_numpy(layer(x, x))[real], expected[real])
    assert_close(to_numpy(layer(bare, x)), expected)
    some = np.array([[1, 0, 1, 1, 1], [0, 1, 1, 1, 1]])
    expected = to_numpy(layer(bare, bare, value_mask=real & some.astype(bool)))
    assert_close(to_numpy(layer(bare, x, value_mask=some)), expected)
    assert_close(to_numpy(layer(bare, x, attention_mask=some[:, None].repeat(5, 1))), expected)


def test_the_projections_start_as_glorot_uniform():
    layer = MultiHeadAttention(4, 16)
    layer(normal(1, 2, 64), normal(1, 2, 64))
    for name in ("query_dense", "key_dense", "value_dense", "output_dense"):
        kernel = to_numpy(getattr(layer, name).kernel.value)
        limit = np.sqrt(6 / sum(kernel.shape))
        assert 0.95 * limit < np.abs(kernel).max() <= limit
        assert abs(kernel.std() - limit / np.sqrt(3)) < 0.05 * limit
        assert (to_numpy(getattr(layer, name).bias.value) == 0).all()


def test_kernels_are_matrices():
    """(in, heads * head size) and back: a torch Linear's weight is the transpose."""
    layer = MultiHeadAttention(2, 4, value_dim=3, output_dim=6)
    layer(normal(1, 2, 8), normal(1, 2, 7), normal(1, 2, 5))
    shapes = [
        tuple(getattr(layer, f"{name}_dense").kernel.shape)
        for name in ("query", "key", "value", "output")
    ]
    assert shapes == [(8, 8), (5, 8), (7, 6), (6, 6)]


def test_every_pair_of_mask_arguments_combines_by_and(rng):
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 5, 8)
    layer(x, x)
    randomize(layer)
    query, value, key = (rng.random((2, 5)) < 0.8 for _ in range(3))
    full = rng.random((2, 5, 5)) < 0.8
    parts = {
        "query_mask": (query, query[:, :, None]),
        "value_mask": (value, value[:, None]),
        "key_mask": (key, key[:, None]),
        "attention_mask": (full, full),
        "use_causal_mask": (True, reference.causal_mask(5)),
    }
    for one, other in itertools.combinations(parts, 2):
        given = {name: parts[name][0] for name in (one, other)}
        mask = np.broadcast_to(parts[one][1] & parts[other][1], (2, 5, 5))
        expected = reference.multi_head_attention(layer, 2, x, x, mask=mask)
        assert_close(layer(x, x, return_attention_scores=True, **given), expected)
        assert_close(layer(x, x, **given), expected[0], message=f"{one} and {other}")


@pytest.mark.skipif(backend() == "torch", reason="PyTorch compiles nothing here")
def test_compiled_with_a_row_that_sees_nothing():
    layer = MultiHeadAttention(2, 4)
    x = normal(2, 5, 8)
    mask = np.array([[0] * 5, [1, 1, 1, 0, 0]], bool)
    expected = to_numpy(layer(x, x, value_mask=mask, use_causal_mask=True))
    call = compiled(lambda a, m: layer(a, a, value_mask=m, use_causal_mask=True))
    assert_close(call(x, mask), expected)
