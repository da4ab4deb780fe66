"""Attention masks: True (or 1) means keep, everywhere.

A mask enters in the shape its owner knows it in, padding as ``(batch, length)`` and attention as
``(batch, target, source)`` or ``(batch, heads, target, source)``, and is combined with the others
by AND. No additive masks and no large negative numbers: those are the kernel's affair.
"""

from keras import ops

from kerasmodels.keras_internals import get_keras_mask


def causal_mask(target_length, source_length, start_index=0):
    """Which source positions a target position may see: itself and what came before.

    Args:
        target_length: Number of queries, an integer or a scalar tensor.
        source_length: Number of keys, an integer or a scalar tensor.
        start_index: Position of the first query among the keys (decoding with a cache).

    Returns:
        Boolean tensor of shape `(target_length, source_length)`.

    Example:
    ```python
    from kerasmodels import layers

    layers.causal_mask(2, 3)  # [[True, False, False], [True, True, False]]
    ```
    """
    targets = ops.arange(target_length, dtype="int32") + ops.cast(start_index, "int32")
    sources = ops.arange(source_length, dtype="int32")
    return ops.expand_dims(targets, 1) >= ops.expand_dims(sources, 0)


def window_mask(target_length, source_length, window, start_index=0):
    """Restricted self-attention (section 4 of the Transformer paper): keys at most `window` away.

    Args:
        target_length: Number of queries, an integer or a scalar tensor.
        source_length: Number of keys, an integer or a scalar tensor.
        window: Greatest distance on each side; the paper's r is `2 * window + 1`.
        start_index: Position of the first query among the keys.

    Returns:
        Boolean tensor of shape `(target_length, source_length)`.
    """
    targets = ops.arange(target_length, dtype="int32") + ops.cast(start_index, "int32")
    sources = ops.arange(source_length, dtype="int32")
    return ops.abs(ops.expand_dims(targets, 1) - ops.expand_dims(sources, 0)) <= window


def combine_masks(*masks):
    """AND of all masks that are not `None`, as boolean; `None` when there is none.

    Args:
        *masks: Boolean or 0/1 tensors of shapes that broadcast, or `None`.

    Returns:
        A boolean tensor, or `None`.
    """
    combined = None
    for mask in masks:
        if mask is not None:
            mask = ops.cast(mask, "bool")
            combined = mask if combined is None else ops.logical_and(combined, mask)
    return combined


def fits(shape, expected):
    """Whether two shapes agree in rank and in every size that both know (`None`: unknown)."""
    return len(shape) == len(expected) and all(
        None in (have, want) or have == want for have, want in zip(shape, expected, strict=True)
    )


def check_mask(name, mask, expected):
    """Raises a ValueError if a mask that is given has another shape than `expected`."""
    if mask is not None and not fits(tuple(mask.shape), tuple(expected)):
        raise ValueError(
            f"`{name}` must have shape {tuple(expected)}. Received: shape {tuple(mask.shape)}"
        )


def with_implicit_mask(tensor, mask=None):
    """`mask` combined by AND with the mask that Keras carries on `tensor` (`mask_zero=True`).

    Args:
        tensor: Tensor of shape `(batch, length, ...)` that may carry a Keras mask.
        mask: Explicit padding mask `(batch, length)`, or `None`.

    Returns:
        Boolean tensor `(batch, length)`, or `None` when there is neither.
    """
    return combine_masks(mask, None if tensor is None else get_keras_mask(tensor))


def own_rows(query_mask):
    """Which queries are real, `(batch, target, 1)`; None means all."""
    return None if query_mask is None else ops.expand_dims(ops.cast(query_mask, "bool"), -1)


def rows_with_a_key(key_mask, causal, target):
    """Which queries see a key under a padding mask, `(batch, target or 1, 1)`; None means all."""
    if key_mask is None:
        return None
    has_key = ops.any(key_mask, axis=-1, keepdims=True)  # (batch, 1)
    if causal:
        # A query needs a real key at or before its own position: the place of the first real key
        # tells, without a look through (target, source).
        first = ops.cast(ops.argmax(ops.cast(key_mask, "int32"), axis=-1, keepdims=True), "int32")
        has_key = ops.logical_and(has_key, ops.arange(target, dtype="int32")[None] >= first)
    return ops.expand_dims(has_key, -1)


def keep_rows(x, rows):
    """Zero, and no gradient, for `(batch, target, heads, size)` where `rows` is False."""
    if rows is None:
        return x
    return ops.where(ops.expand_dims(rows, -1), x, ops.zeros((), dtype=x.dtype))


def check_attention_mask(mask, expected, num_heads):
    """Refuses a mask that does not fit `expected`, (batch, target, source), or all its heads."""
    if mask is None:
        return
    shape = tuple(mask.shape)
    if len(shape) == 2:
        raise ValueError(
            "`attention_mask` must have shape (batch, target, source) or "
            f"(batch, heads, target, source). Received: shape {shape}. For a padding mask of "
            "shape (batch, source) use `value_mask`; for one mask for the whole batch add an "
            "axis in front."
        )
    batch, target, source = expected
    free = (batch, target) if len(shape) == 3 else (batch, num_heads, target)
    # Those axes may be 1. Not so the source: (batch, source, 1) given by mistake would pass for
    # "the same for all keys".
    allowed = [1 if size == 1 else want for size, want in zip(shape, free, strict=False)]
    if not fits(shape, (*allowed, source)):
        raise ValueError(
            f"`attention_mask` must have shape ({batch}, {target}, {source}) or "
            f"({batch}, {num_heads}, {target}, {source}). Received: shape {shape}"
        )
