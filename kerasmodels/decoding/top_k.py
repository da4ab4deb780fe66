"""The largest of many, in two levels."""

from keras import ops

_CHUNK = 128
# Below this size one selection over everything is as fast.
_LEAST_SIZE = 2048


def top_k(x, k):
    """The `k` largest entries of the last axis, sorted, and their places.

    Exact, without sorting or selecting over the whole axis: the `k` largest lie in the `k` chunks
    with the largest maxima, so only these are looked into.

    Args:
        x: `(..., size)` float tensor, `size` known.
        k: How many, at most `size`.

    Returns:
        Values and int32 indices, `(..., k)`. Of equal values the first chunk's comes first.
    """
    size = x.shape[-1]
    if size < _LEAST_SIZE or k >= size // _CHUNK:
        values, places = ops.top_k(x, k)
        return values, ops.cast(places, "int32")
    lead = ops.shape(x)[:-1]
    x = _chunks(x)
    best = ops.top_k(ops.max(x, axis=-1), k)[1]  # (..., k)
    x = ops.take_along_axis(x, best[..., None], axis=-2)  # (..., k, chunk)
    values, places = ops.top_k(ops.reshape(x, (*lead, k * _CHUNK)), k)
    places = ops.cast(places, "int32")
    chunk = ops.take_along_axis(ops.cast(best, "int32"), places // _CHUNK, axis=-1)
    # Fewer than k entries above -inf: some places may lie in the filling.
    return values, ops.minimum(chunk * _CHUNK + places % _CHUNK, size - 1)


def argmax(x):
    """The place of the first of the largest entries of the last axis, int32.

    Args:
        x: `(..., size)` float tensor, `size` known.
    """
    if x.shape[-1] < _LEAST_SIZE:
        return ops.cast(ops.argmax(x, axis=-1), "int32")
    # A maximum is vectorised where its place is not: compiled, this takes a tenth of the time.
    x = _chunks(x)
    best = ops.cast(ops.argmax(ops.max(x, axis=-1), axis=-1), "int32")[..., None]
    x = ops.take_along_axis(x, best[..., None], axis=-2)[..., 0, :]  # (..., chunk)
    return best[..., 0] * _CHUNK + ops.cast(ops.argmax(x, axis=-1), "int32")


def _chunks(x):
    """`(..., size)` -> `(..., chunks, chunk)`, filled up with -inf."""
    fill = -x.shape[-1] % _CHUNK
    if fill:
        widths = [(0, 0)] * (len(x.shape) - 1) + [(0, fill)]
        x = ops.pad(x, widths, constant_values=float("-inf"))
    return ops.reshape(x, (*ops.shape(x)[:-1], x.shape[-1] // _CHUNK, _CHUNK))
