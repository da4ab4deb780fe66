"""The encoder and decoder block against numpy, and cases C04, C30 and C32."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import (
    PositionalEncoding,
    PositionEmbedding,
    TokenEmbedding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from tests.kit import (
    Case,
    assert_close,
    check_export,
    compiled,
    contracts,
    copy_weights,
    normal,
    padding_mask,
    randomize,
    reference,
    to_numpy,
    token_ids,
)

DROPOUT = {"dropout": 0.2, "attention_dropout": 0.3}


def encoder(**kw):
    return TransformerEncoderBlock(2, 16, **{**DROPOUT, **kw})


def decoder(**kw):
    return TransformerDecoderBlock(2, 16, **{**DROPOUT, **kw})


test_contracts_encoder = contracts(
    encoder,
    inputs=normal(2, 5, 8),
    padding_mask=padding_mask(3, 5),
    padding=[("inputs", "padding_mask", True)],
)
test_contracts_encoder_pre_norm = contracts(
    lambda **kw: encoder(normalize_first=True, activation="gelu", window=1, **kw),
    without=("half",),
    inputs=normal(2, 5, 8),
    padding_mask=padding_mask(3, 5),
    padding=[("inputs", "padding_mask", True)],
)
test_contracts_encoder_with_mask = contracts(
    encoder,
    without=("half", "keras_file"),
    inputs=normal(2, 5, 8),
    attention_mask=reference.causal_mask(5).repeat(2, 0),
    return_attention_scores=True,
    causal="inputs",
)
DECODER_INPUTS = dict(
    decoder_sequence=normal(2, 4, 8),
    encoder_sequence=normal(2, 5, 6, seed=1),
    decoder_padding_mask=padding_mask(2, 4),
    encoder_padding_mask=padding_mask(5, 3),
    padding=[
        ("decoder_sequence", "decoder_padding_mask", True),
        ("encoder_sequence", "encoder_padding_mask", False),
    ],
    causal="decoder_sequence",
)
test_contracts_decoder = contracts(decoder, **DECODER_INPUTS)
test_contracts_decoder_pre_norm_with_scores = contracts(
    lambda **kw: decoder(normalize_first=True, activation="swish", **kw),
    return_attention_scores=True,
    **DECODER_INPUTS,
)


# ---- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_encoder_equals_numpy(normalize_first, masked):
    block = encoder(normalize_first=normalize_first)
    x = normal(2, 5, 8)
    block(x)
    randomize(block)
    mask = padding_mask(3, 5) if masked else None
    expected = reference.encoder_block(
        block, 2, x, mask[:, None] if masked else None, normalize_first=normalize_first
    )
    assert_close(block(x, padding_mask=mask), expected)


@pytest.mark.parametrize("normalize_first", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_equals_numpy(normalize_first, masked):
    block = decoder(normalize_first=normalize_first, activation="swish", layer_norm_epsilon=1e-3)
    x, memory = normal(2, 4, 8), normal(2, 5, 6, seed=1)
    block(x, memory)
    randomize(block)
    own, other = (padding_mask(2, 4), padding_mask(5, 3)) if masked else (None, None)
    expected = reference.decoder_block(
        block,
        2,
        x,
        memory,
        own[:, None] if masked else None,
        other,
        activation=reference.swish,
        normalize_first=normalize_first,
    )
    out = block(x, memory, decoder_padding_mask=own, encoder_padding_mask=other)
    assert_close(out, expected)


def test_post_norm_is_the_default_and_ends_with_a_norm():
    x = normal(2, 5, 8, scale=7.0)
    for block, call in ((encoder(), (x,)), (decoder(), (x, x))):
        out = to_numpy(block(*call))
        assert_close(out.mean(-1), np.zeros((2, 5)), atol=1e-5)
        assert_close(out.std(-1), np.ones((2, 5)), atol=1e-2)
        assert block.feed_forward_norm.epsilon == 1e-5


@pytest.mark.parametrize("make", [encoder, decoder])
def test_residual_dropout_acts_on_the_sub_layers_only(make):
    """With everything dropped a pre-norm block does nothing, a post-norm one normalizes."""
    x = normal(2, 5, 8)
    call = (x,) if make is encoder else (x, normal(2, 3, 8))
    block = make(dropout=0.999999, attention_dropout=0.0, normalize_first=True)
    assert_close(block(*call, training=True), x)
    assert np.abs(to_numpy(block(*call, training=False)) - x).max() > 1e-2
    block = make(dropout=0.999999, attention_dropout=0.0)
    expected = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    assert_close(block(*call, training=True), expected, atol=1e-4)


@pytest.mark.parametrize("rates", [(0.5, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize("make", [encoder, decoder])
def test_both_dropouts_act_in_training_only(make, rates):
    block = make(dropout=rates[0], attention_dropout=rates[1])
    x = normal(2, 5, 8)
    call = (x,) if make is encoder else (x, normal(2, 3, 8))
    still = to_numpy(block(*call))
    assert_close(block(*call, training=False), still)
    one, other = (to_numpy(block(*call, training=True)) for _ in range(2))
    assert np.abs(one - still).max() > 1e-2 and np.abs(one - other).max() > 1e-2


def test_parameters():
    """4 d^2 + 4 d a attention, 2 d f + d + f a feed-forward, 2 d a LayerNorm."""
    d, f = 8, 16
    attention, feed_forward, norm = 4 * d * d + 4 * d, 2 * d * f + d + f, 2 * d
    x = normal(1, 2, d)
    for block, call, expected in (
        (encoder(), (x,), attention + feed_forward + 2 * norm),
        (decoder(), (x, x), 2 * attention + feed_forward + 3 * norm),
    ):
        block(*call)
        assert block.count_params() == expected


# ---- C04 ----------------------------------------------------------------------------------------


def test_c04_cross_attention_uses_the_sources_mask():
    block = decoder()
    x, memory = normal(1, 3, 8), normal(1, 5, 8, seed=1)
    masks = {
        "decoder_padding_mask": padding_mask(3),
        "encoder_padding_mask": padding_mask(2, total=5),
    }
    before, own, cross = to_numpy(block(x, memory, return_attention_scores=True, **masks))
    assert own.shape == (1, 2, 3, 3) and cross.shape == (1, 2, 3, 5)
    assert (cross[..., :2] > 0).all() and (cross[..., 2:] == 0).all()
    assert_close(cross.sum(-1), np.ones((1, 2, 3)))
    assert (np.triu(own[0, 0], 1) == 0).all()
    other = memory.copy()
    other[:, 2:] = normal(1, 3, 8, seed=5, scale=20.0)
    assert_close(block(x, other, **masks), before, rtol=0, atol=1e-6)
    other = memory.copy()
    other[:, 1] += 1
    assert np.abs(to_numpy(block(x, other, **masks))[:, 0] - before[:, 0]).max() > 1e-3


# ---- cache --------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize_first", [False, True])
def test_cached_equals_uncached(normalize_first):
    block = decoder(normalize_first=normalize_first)
    x, memory, mask = normal(2, 5, 8), normal(2, 4, 6, seed=1), padding_mask(4, 2)
    block(x, memory)
    randomize(block)
    expected = to_numpy(block(x, memory, encoder_padding_mask=mask))

    def step(new, keys, values, index):
        cross = block.cross_attention.project_memory(memory)
        cache = {"self": (keys, values), "cross": cross}
        out, cache = block(new, encoder_padding_mask=mask, cache=cache, cache_index=index)
        return out, *cache["self"]

    step = compiled(step)
    keys, values = block.self_attention.new_cache(2, 7)
    for i in range(5):
        out, keys, values = step(x[:, i : i + 1], keys, values, np.int32(i))
        assert_close(to_numpy(out)[:, 0], expected[:, i])


@pytest.mark.parametrize("beams", [1, 2, 3])
def test_hypotheses_share_the_memory_of_their_source(beams):
    block = decoder()
    x, memory, mask = normal(2 * beams, 1, 8), normal(2, 4, 6, seed=1), padding_mask(4, 2)
    block(x, np.repeat(memory, beams, 0))
    randomize(block)
    expected = block(x, np.repeat(memory, beams, 0), encoder_padding_mask=np.repeat(mask, beams, 0))
    cache = {
        "self": block.self_attention.new_cache(2 * beams, 3),
        "cross": block.cross_attention.project_memory(memory),
    }
    out, _ = block(x, encoder_padding_mask=mask, cache=cache, cache_index=0)
    assert_close(out, expected)


# ---- C30: Keras masks on the way ----------------------------------------------------------------


class Subclassed(keras.Model):
    """Embedding, position and two blocks, one call after the other."""

    def __init__(self, parts):
        super().__init__()
        self.parts = parts

    def call(self, x):
        for part in self.parts:
            x = part(x)
        return x


def functional(parts):
    inputs = x = keras.Input((None,), dtype="int32")
    for part in parts:
        x = part(x)
    return keras.Model(inputs, x)


def nested(parts):
    return keras.Sequential([parts[0], keras.Sequential(parts[1:3]), *parts[3:]])


@pytest.mark.parametrize("build", [functional, Subclassed, nested])
@pytest.mark.parametrize("ours", [False, True])
def test_c30_implicit_masks_reach_every_block(build, ours):
    parts = [
        (TokenEmbedding if ours else keras.layers.Embedding)(11, 8, mask_zero=True),
        PositionalEncoding() if ours else PositionEmbedding(9),
        encoder(),
        encoder(normalize_first=True),
    ]
    model = build(parts)
    short = model(np.array([[3, 4]]))
    long = model(np.array([[3, 4, 0, 0]]))
    assert_close(to_numpy(long)[:, :2], short)
    assert_close(model.predict(np.array([[3, 4, 0, 0]]), verbose=0)[:, :2], short)
    # The same with an explicit mask, and both at once: they combine by AND.
    x = ops.convert_to_tensor(to_numpy(parts[1](parts[0](np.array([[3, 4, 0, 0]])))))
    mask = np.array([[1, 1, 0, 0]])
    explicit = parts[3](parts[2](x, padding_mask=mask), padding_mask=mask)
    assert_close(to_numpy(explicit)[:, :2], short)
    hidden = parts[1](parts[0](np.array([[3, 4, 5, 0]])))  # the ids hide 3, the argument hides 2
    both = parts[2](hidden, padding_mask=np.array([[1, 1, 0, 1]]))
    expected = parts[2](x, padding_mask=mask)
    assert_close(to_numpy(both)[:, :2], to_numpy(expected)[:, :2])


def test_c30_implicit_masks_in_the_decoder():
    embedding = keras.layers.Embedding(11, 8, mask_zero=True)
    block = decoder()
    target, source = np.array([[3, 4, 5]]), np.array([[6, 7]])
    short = block(embedding(target), embedding(source))
    long = block(embedding(np.array([[3, 4, 5, 0]])), embedding(np.array([[6, 7, 0, 0, 0]])))
    assert_close(to_numpy(long)[:, :3], short)
    mask = np.array([[1, 1, 1, 0, 1]])
    both = block(
        embedding(target), embedding(np.array([[6, 7, 0, 8, 0]])), encoder_padding_mask=mask
    )
    assert_close(both, short)


def test_c30_under_mixed_precision():
    """Casting an input must not lose the mask it carries."""
    embedding = keras.layers.Embedding(11, 8, mask_zero=True, dtype="mixed_bfloat16")
    block = encoder(dtype="mixed_bfloat16")
    short = to_numpy(block(embedding(np.array([[3, 4]]))))
    long = to_numpy(block(embedding(np.array([[3, 4, 0, 0]]))))
    assert_close(long[:, :2], short, atol=2e-2)


# ---- C32: export --------------------------------------------------------------------------------


class Encoder(keras.layers.Layer):
    """Ids in, hidden states out, made of our layers."""

    def __init__(self, **kw):
        super().__init__(**kw)
        self.parts = [TokenEmbedding(11, 8), PositionalEncoding(), encoder(window=2), encoder()]

    def build(self, shape):
        for part in self.parts:
            part.build(shape)
            shape = (*shape[:2], 8)

    def call(self, ids):
        for part in self.parts:
            ids = part(ids)
        return ids


def test_c32_export_with_free_batch_and_length(tmp_path):
    check_export(Case(Encoder, {"ids": token_ids(2, 4)}), tmp_path)


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make,says",
    [
        (lambda: TransformerEncoderBlock(3, 16)(normal(1, 2, 8)), ["num_heads", "3", "8"]),
        (lambda: TransformerDecoderBlock(3, 16)(*[normal(1, 2, 8)] * 2), ["num_heads", "3", "8"]),
        (lambda: TransformerEncoderBlock(0, 16), ["num_heads", "0"]),
        (lambda: TransformerEncoderBlock(2, 0), ["intermediate_dim", "0"]),
        (lambda: TransformerEncoderBlock(2, 16, dropout=1.5), ["dropout", "1.5"]),
        (lambda: TransformerDecoderBlock(2, 16, attention_dropout=-1), ["dropout", "-1"]),
        (lambda: encoder()(normal(2, 5, 8), np.ones((2, 4))), ["padding_mask", "(2, 4)", "5"]),
        (lambda: encoder()(normal(2, 5, 8), np.ones((2, 5, 1))), ["padding_mask", "(2, 5, 1)"]),
        (
            lambda: encoder()(normal(2, 5, 8), attention_mask=np.ones((2, 5))),
            ["attention_mask", "(2, 5)"],
        ),
        (
            lambda: decoder()(normal(2, 4, 8), normal(2, 5, 8), None, np.ones((2, 4))),
            ["encoder_padding_mask", "(2, 4)", "5"],
        ),
        (
            lambda: decoder()(normal(2, 4, 8), normal(2, 5, 8), np.ones((2, 5))),
            ["decoder_padding_mask", "(2, 5)", "4"],
        ),
    ],
)
def test_bad_input(make, says):
    with pytest.raises(ValueError) as error:
        make()
    for words in says:
        assert words in str(error.value)


class WithMean(TransformerEncoderBlock):
    """A block with another output."""

    def call(self, inputs):
        y = super().call(inputs)
        return y, ops.mean(y, axis=1)


def test_a_symbolic_call_sees_another_call_and_bad_shapes():
    x = keras.Input((5, 8))
    sequence, mean = WithMean(2, 16)(x)
    assert sequence.shape == (None, 5, 8) and mean.shape == (None, 8)
    block = encoder()
    block(x)
    with pytest.raises(ValueError, match="axis -1"):
        block(keras.Input((5, 6)))
    with pytest.raises(ValueError, match="padding_mask"):
        block(x, padding_mask=keras.Input((4,)))


def test_the_same_weights_serve_both_orders():
    """Post- and pre-norm differ in nothing but the order."""
    one, other = encoder(), encoder(normalize_first=True)
    x = normal(2, 5, 8)
    one(x)
    other(x)
    copy_weights(randomize(one), other)
    assert np.abs(to_numpy(one(x)) - to_numpy(other(x))).max() > 1e-2
