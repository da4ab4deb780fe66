"""Which shapes belong together in a call of multi-head attention."""

import numpy as np

from kerasmodels.arguments import as_integer
from kerasmodels.layers.masks import fits


def size_of(name, value):
    """Returns an argument as a positive `int`; the message names it as Keras's does."""
    found = as_integer(value)
    if found is None or found < 1:
        raise ValueError(
            f"The argument `{name}` must be a positive integer. Received: {name}={value!r}"
        )
    return found


def output_sizes(output_shape):
    """Returns Keras's `output_shape` as a tuple of sizes, or `None`."""
    if output_shape is None:
        return None
    one = as_integer(output_shape)
    sizes = output_shape if isinstance(output_shape, tuple | list) else [one]
    found = tuple(as_integer(size) for size in sizes)
    if not found or any(size is None or size < 1 for size in found):
        raise ValueError(
            "Invalid `output_shape`: it must be a positive integer or a tuple of them. "
            f"Received: output_shape={output_shape!r}"
        )
    return found


def check_shapes(query, value, key=None):
    """Refuses inputs of which the reshapes of this layer would mix rows."""
    shapes = {"query": query, "value": value, "key": key}
    shapes = {name: tuple(shape) for name, shape in shapes.items() if shape is not None}
    if {"value", "key"} <= set(shapes) and not fits(shapes["value"][:-1], shapes["key"][:-1]):
        raise ValueError(
            "All dimensions of `value` and `key`, except the last one, must be equal. "
            f"Received: value of shape {shapes['value']} and key of shape {shapes['key']}"
        )
    for name, shape in shapes.items():
        if len(shape) != 3:
            raise ValueError(
                f"`{name}` must have rank 3, (batch, length, size). "
                f"Received: {name} of rank {len(shape)} and shape {shape}"
            )
    if len({shape[0] for shape in shapes.values() if isinstance(shape[0], int)}) > 1:
        raise ValueError(
            "`query`, `value` and `key` must have the same batch size. Received: shapes "
            + ", ".join(f"{name}={shape}" for name, shape in shapes.items())
        )


def merges_into(shape, wanted):
    """Whether axes of `shape`, each taken together with neighbours, are those of `wanted`."""
    return set(np.cumprod(wanted)) <= set(np.cumprod(shape)) and len(shape) > len(wanted)


def check_cache(cache, num_heads, sizes, query, index):
    """Refuses a cache of another layer, and a position that lies behind its end."""
    for name, part, size in zip(("keys", "values"), cache, sizes, strict=True):
        wanted = (query.shape[0], num_heads, None, size)
        if not fits(tuple(part.shape), wanted):
            raise ValueError(
                f"The {name} of `cache` must have shape (batch, heads, length, size), here "
                f"{wanted}. Received: shape {tuple(part.shape)}"
            )
    first, length, target = as_integer(index), cache[0].shape[2], query.shape[1]
    known = isinstance(length, int) and isinstance(target, int) and first is not None
    if known and not 0 <= first <= length - target:
        raise ValueError(
            f"`cache_index` must leave room for {target} new positions in a cache of length "
            f"{length}. Received: cache_index={first}"
        )
