"""Self-attention restricted to a window, in blocks (Vaswani et al. 2017, section 4)."""

from keras import ops

from kerasmodels.layers.fused_attention import fused_attention
from kerasmodels.layers.masks import keep_rows

# The blocks are at least this long: below it the matrix products are so small that their overhead
# outweighs the keys that are computed for nothing.
_LEAST_BLOCK = 32


def block_length(window):
    """Returns how many queries go together: nothing within reach lies outside three blocks."""
    return max(window, _LEAST_BLOCK)


def windowed_attention(q, keys, values, key_mask, window, causal=False, **options):
    """Attends in blocks: a block of queries sees its own and both neighbour blocks.

    The cost is 3 * length * block instead of length^2.

    Args:
        q: `(batch, length, heads, key_dim)`.
        keys: `(batch, length, heads, key_dim)`.
        values: `(batch, length, heads, value_dim)`.
        key_mask: `(batch, length)`, boolean, or `None`.
        window: The greatest distance of a key from its query.
        causal: Whether a query sees only keys up to its own position.
        **options: Of `fused_attention`.

    Returns:
        `(batch, length, heads, value_dim)`, zero where a query sees no key.
    """
    block = block_length(window)
    length = ops.shape(q)[1]
    blocks = (length + block - 1) // block
    if key_mask is None:
        key_mask = ops.ones((ops.shape(q)[0], length), dtype="bool")
    fill = blocks * block - length

    def pad(x, before, after):
        def zeros(count):
            return ops.zeros((ops.shape(x)[0], count, *x.shape[2:]), dtype=x.dtype)

        return ops.concatenate([zeros(before), x, zeros(after)], axis=1)

    def neighbours(x):
        # (batch, length, ...) -> (batch, blocks, 3 * block, ...)
        rest = x.shape[2:]
        x = pad(x, block, fill + block)
        x = ops.reshape(x, (ops.shape(x)[0], blocks + 2, block, *rest))
        return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)

    def flat(x, width):
        # (batch, blocks, width, ...) -> (batch * blocks, width, ...)
        return ops.reshape(x, (-1, width, *x.shape[3:]))

    q_blocks = ops.reshape(pad(q, 0, fill), (-1, block, *q.shape[2:]))
    near = ops.arange(block)[:, None] + block - ops.arange(3 * block)[None, :]
    allowed = ops.abs(near) <= window  # (block, 3 * block), distance query - key
    if causal:
        allowed = ops.logical_and(allowed, near >= 0)
    mask = ops.logical_and(  # padding, inside and at both ends, is no key
        ops.expand_dims(allowed, 0), ops.expand_dims(flat(neighbours(key_mask), 3 * block), 1)
    )
    out = fused_attention(
        q_blocks,
        flat(neighbours(keys), 3 * block),
        flat(neighbours(values), 3 * block),
        mask=ops.expand_dims(mask, 1),
        **options,
    )
    out = keep_rows(out, ops.any(mask, axis=-1, keepdims=True))
    out = ops.reshape(out, (-1, blocks * block, *values.shape[2:]))
    return out[:, :length]
