"""The formulas once more, in numpy and float64, straight from the papers and without a thought for
speed.

Functions that take a layer read its weights by attribute and nothing else of it.
"""

import math

import numpy as np


def _weight(variable):
    import keras

    return keras.ops.convert_to_numpy(variable.value).astype("float64")


def dense(layer, x):
    """x W + b."""
    y = np.asarray(x, "float64") @ _weight(layer.kernel)
    return y + _weight(layer.bias) if layer.use_bias else y


def softmax(scores, mask=None):
    """Softmax over the last axis among what the mask keeps; a row that keeps nothing is 0."""
    kept = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    highest = np.where(kept, scores, -np.inf).max(-1, keepdims=True)
    highest = np.where(np.isfinite(highest), highest, 0.0)
    exponentials = np.where(kept, np.exp(np.where(kept, scores - highest, 0.0)), 0.0)
    total = exponentials.sum(-1, keepdims=True)
    return np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0)


def attention(query, key, value, mask=None, scale=None):
    """Equation 1 of the Transformer paper: (output, weights); (batch, heads, length, dim) in."""
    query, key, value = (np.asarray(a, "float64") for a in (query, key, value))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    weights = softmax(scale * query @ np.swapaxes(key, -1, -2), mask)
    return weights @ value, weights


def causal_mask(target_length, source_length=None):
    """(1, T, S): target i sees source j <= i."""
    source_length = target_length if source_length is None else source_length
    return np.tril(np.ones((1, target_length, source_length), bool))


def window_mask(target_length, source_length, window):
    """(1, T, S): target i sees source j with |i - j| <= window."""
    i, j = np.ogrid[:target_length, :source_length]
    return (np.abs(i - j) <= window)[None]


def multi_head_attention(layer, num_heads, query, value, key=None, mask=None, scale=None):
    """Section 3.2.2: (output, weights); `mask` broadcasts to (batch, T, S) or (batch, heads, T,
    S)."""
    key = value if key is None else key

    def heads(x):  # (batch, length, heads * dim) -> (batch, heads, length, dim)
        return x.reshape(*x.shape[:2], num_heads, -1).transpose(0, 2, 1, 3)

    if mask is not None and np.ndim(mask) == 3:
        mask = mask[:, None]
    output, weights = attention(
        heads(dense(layer.query_dense, query)),
        heads(dense(layer.key_dense, key)),
        heads(dense(layer.value_dense, value)),
        mask,
        scale,
    )
    output = output.transpose(0, 2, 1, 3).reshape(*output.shape[0:1], output.shape[2], -1)
    return dense(layer.output_dense, output), weights


def sinusoids(positions, dim, max_wavelength=10000.0, layout="interleaved"):
    """Section 3.5: PE(p, 2i) = sin(p / w^(2i/d)), PE(p, 2i+1) = cos of the same; or all sines, then
    all cosines."""
    table = np.zeros((len(positions), dim))
    for row, position in enumerate(positions):
        for column in range(dim):
            angle = position / max_wavelength ** (2 * (column // 2) / dim)
            table[row, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    if layout == "halves":
        table = np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)
    return table


def layer_norm(layer, x):
    """Ba et al. 2016, over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + layer.epsilon) * _weight(layer.gamma) + _weight(layer.beta)


def relu(x):
    """max(0, x)."""
    return np.maximum(x, 0.0)


def swish(x):
    """x sigmoid(x)."""
    return x / (1.0 + np.exp(-x))


def feed_forward(layer, x, activation=relu):
    """Equation 2: activation(x W1 + b1) W2 + b2."""
    return dense(layer.output_dense, activation(dense(layer.intermediate_dense, x)))


def _sublayer(norm, x, function, normalize_first):
    """LayerNorm(x + f(x)) as in the paper, or x + f(LayerNorm(x))."""
    if normalize_first:
        return x + function(layer_norm(norm, x))
    return layer_norm(norm, x + function(x))


def encoder_block(block, num_heads, x, mask=None, activation=relu, normalize_first=False):
    """Figure 1, left; `mask` broadcasts to (batch, T, T)."""
    x = np.asarray(x, "float64")
    x = _sublayer(
        block.self_attention_norm,
        x,
        lambda h: multi_head_attention(block.self_attention, num_heads, h, h, mask=mask)[0],
        normalize_first,
    )
    return _sublayer(
        block.feed_forward_norm,
        x,
        lambda h: feed_forward(block.feed_forward, h, activation),
        normalize_first,
    )


def decoder_block(
    block,
    num_heads,
    x,
    memory,
    mask=None,
    memory_mask=None,
    activation=relu,
    normalize_first=False,
):
    """Figure 1, right; `mask` (batch, T, T) hides padding, the future is hidden here; `memory_mask`
    (batch, S)."""
    x = np.asarray(x, "float64")
    past = causal_mask(x.shape[1]) if mask is None else causal_mask(x.shape[1]) & mask
    seen = None if memory_mask is None else np.asarray(memory_mask, bool)[:, None, :]
    x = _sublayer(
        block.self_attention_norm,
        x,
        lambda h: multi_head_attention(block.self_attention, num_heads, h, h, mask=past)[0],
        normalize_first,
    )
    x = _sublayer(
        block.cross_attention_norm,
        x,
        lambda h: multi_head_attention(
            block.cross_attention, num_heads, h, np.asarray(memory, "float64"), mask=seen
        )[0],
        normalize_first,
    )
    return _sublayer(
        block.feed_forward_norm,
        x,
        lambda h: feed_forward(block.feed_forward, h, activation),
        normalize_first,
    )


def transformer(
    model,
    num_heads,
    inputs,
    activation=relu,
    normalize_first=False,
    scale_embeddings=True,
    layout="interleaved",
):
    """Figure 1 as a whole: logits (batch, T, vocabulary) of a `models.Transformer` with tied
    embeddings.

    `num_heads` is a number or a pair; `layout` is that of the sinusoids, or "learned".
    """
    heads = num_heads if isinstance(num_heads, (tuple, list)) else (num_heads, num_heads)

    def embed(embedding, position, ids):
        table = _weight(embedding.embeddings)
        x = table[ids] * (math.sqrt(table.shape[1]) if scale_embeddings else 1.0)
        if layout == "learned":
            return x + _weight(position.embeddings)[None, : ids.shape[1]]
        return x + sinusoids(range(ids.shape[1]), table.shape[1], layout=layout)

    def rows(mask):
        return None if mask is None else np.asarray(mask, bool)[:, None, :]

    source_mask, target_mask = inputs["encoder_padding_mask"], inputs["decoder_padding_mask"]
    x = embed(model.encoder_embedding, model.encoder_position, inputs["encoder_token_ids"])
    for block in model.encoder_blocks:
        x = encoder_block(block, heads[0], x, rows(source_mask), activation, normalize_first)
    if normalize_first:
        x = layer_norm(model.encoder_norm, x)
    y = embed(model.decoder_embedding, model.decoder_position, inputs["decoder_token_ids"])
    for block in model.decoder_blocks:
        y = decoder_block(
            block, heads[1], y, x, rows(target_mask), source_mask, activation, normalize_first
        )
    if normalize_first:
        y = layer_norm(model.decoder_norm, y)
    return y @ _weight(model.decoder_embedding.embeddings).T
