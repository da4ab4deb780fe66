"""The inputs of a generation: checked, aligned, and rounded up to few shapes."""

import keras
import numpy as np
from keras import ops

_IDS, _MASK = "encoder_token_ids", "encoder_padding_mask"


def prepare_inputs(decoder, inputs):
    """NumPy arrays of the inputs, checked; sources moved to the left of their rows.

    A source's padding carries no information, so left padding is turned into right padding, and
    columns that are padding in every row are dropped.

    Args:
        decoder: The decoder, whose `vocabulary_size` and `max_sequence_length` are respected.
        inputs: A tree of arrays or tensors whose first axis is the batch. In a dict with
            `encoder_token_ids`, `encoder_padding_mask` may be missing or None (every position is
            real), and what is there for the decoder in training is left out.

    Returns:
        The tree, and the number of rows.

    Raises:
        ValueError: For an empty batch or source, rows of different number, ids that are no
            integers or lie outside the vocabulary, and masks that do not fit.
    """
    if isinstance(inputs, dict) and _IDS in inputs:
        inputs = {key: value for key, value in inputs.items() if not key.startswith("decoder_")}
        inputs.update(_source(decoder, inputs[_IDS], inputs.get(_MASK)))
    inputs = keras.tree.map_structure(
        lambda leaf: None if leaf is None else as_array("inputs", leaf), inputs
    )
    rows = {leaf.shape[0] if leaf.ndim else None for leaf in _leaves(inputs)}
    if len(rows) != 1 or None in rows:
        raise ValueError(
            "`inputs` must hold arrays whose first axis is the batch, the same for all. "
            f"Received: shapes {[leaf.shape for leaf in _leaves(inputs)]}"
        )
    (batch,) = rows
    if batch == 0:
        raise ValueError("`inputs` must hold at least one row. Received: an empty batch")
    return inputs, batch


def source_length(inputs):
    """Length of the longest source, or None if the inputs have none that is known by name."""
    return inputs[_IDS].shape[1] if isinstance(inputs, dict) and _IDS in inputs else None


def round_up(count, least=1):
    """The next of `least` times 1, 1.5, 2, 3, 4, 6, 8, 12, ...: at most half as much again."""
    rounded = least
    while rounded < count:
        # 2^n -> 3 * 2^(n-1) -> 2^(n+1)
        half = rounded // 2
        rounded = rounded + half if rounded & (rounded - 1) == 0 and half else (rounded // 3) * 4
        rounded = max(rounded, 2)
    return rounded


def round_inputs(decoder, inputs, batch):
    """Pads sources and rows so that few different shapes occur.

    Returns:
        The tree, with copies of the last row as filling.
    """
    if source_length(inputs) is not None:
        length = inputs[_IDS].shape[1]
        most = getattr(decoder, "max_sequence_length", None) or np.inf
        fill = max(int(min(round_up(length, least=8), most)) - length, 0)
        inputs = {**inputs, **{k: np.pad(inputs[k], ((0, 0), (0, fill))) for k in (_IDS, _MASK)}}
    fill = round_up(batch) - batch
    if not fill:
        return inputs

    def widen(leaf):
        return None if leaf is None else np.concatenate([leaf, np.repeat(leaf[-1:], fill, axis=0)])

    return keras.tree.map_structure(widen, inputs)


def align_left(inputs):
    """Turns left padding of sources into right padding, in tensors; masks are made if missing."""
    if not (isinstance(inputs, dict) and _IDS in inputs):
        return inputs
    ids = inputs[_IDS]
    mask = inputs.get(_MASK)
    if mask is None:
        return {**inputs, _MASK: ops.ones_like(ids, dtype="bool")}
    mask = ops.cast(mask, "bool")
    first = ops.cast(ops.argmax(ops.cast(mask, "int32"), axis=1), "int32")
    places = ops.arange(ops.shape(ids)[1], dtype="int32")[None] + first[:, None]
    places = places % ops.shape(ids)[1]
    return {
        **inputs,
        _IDS: ops.take_along_axis(ids, places, axis=1),
        _MASK: ops.take_along_axis(mask, places, axis=1),
    }


def _source(decoder, ids, mask):
    ids = as_array(_IDS, ids)
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"`{_IDS}` must be integers of shape (batch, length). "
            f"Received: shape {ids.shape}, dtype {ids.dtype}"
        )
    if ids.size == 0:
        raise ValueError(
            f"`{_IDS}` must hold at least one row and one token. Received: shape {ids.shape}"
        )
    mask = np.ones(ids.shape, "bool") if mask is None else as_array(_MASK, mask)
    if mask.shape != ids.shape:
        raise ValueError(
            f"`{_MASK}` must have the shape of `{_IDS}`, {ids.shape}. Received: {mask.shape}"
        )
    if mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise ValueError(f"`{_MASK}` must be boolean or 0/1. Received: {np.unique(mask)[:5]}")
    mask = mask.astype(bool)
    if not mask.any(axis=1).all():
        raise ValueError(
            f"`{_MASK}` must keep at least one token of every row. Received: nothing is kept of "
            f"rows {np.flatnonzero(~mask.any(axis=1))[:10].tolist()}"
        )
    size = getattr(decoder, "vocabulary_size", None)
    size = size[0] if isinstance(size, list | tuple) else size
    real = ids[mask]
    if real.min() < 0 or (size is not None and real.max() >= size):
        wrong = real.min() if real.min() < 0 else real.max()
        allowed = ">= 0" if size is None else f"in [0, {size}), the vocabulary"
        raise ValueError(f"`{_IDS}` must be {allowed}. Received: {wrong}")

    first = mask.argmax(axis=1)
    places = (np.arange(ids.shape[1]) + first[:, None]) % ids.shape[1]
    ids, mask = (np.take_along_axis(part, places, axis=1) for part in (ids, mask))
    length = int(np.flatnonzero(mask.any(axis=0))[-1]) + 1
    most = getattr(decoder, "max_sequence_length", None)
    if most is not None and length > most:
        raise ValueError(
            f"`{_IDS}` must have at most {most} tokens a row, the positions the model has. "
            f"Received: length {length}"
        )
    ids, mask = ids[:, :length], mask[:, :length]
    return {_IDS: np.where(mask, ids, 0).astype("int32"), _MASK: mask}


def as_array(name, values):
    """Inputs as an array of numpy, of 32 bits a number.

    Args:
        name: The name of the inputs, for the message.
        values: An array, a tensor, or nested lists of numbers.

    Raises:
        ValueError: If rows differ in length, or values are no numbers.
    """
    try:
        array = ops.convert_to_numpy(values) if ops.is_tensor(values) else np.asarray(values)
    except ValueError as error:  # numpy's, about a shape that nobody gave
        raise ValueError(
            f"`{name}` must be an array, or rows of one length: pad them, and give a mask. "
            "Received: rows of several lengths"
        ) from error
    if array.dtype.kind not in "biufV":
        raise ValueError(
            f"`{name}` must be numbers; of texts a tokenizer makes token ids. "
            f"Received: dtype={array.dtype}"
        )
    return array.astype({"int64": "int32", "float64": "float32"}.get(array.dtype.name, array.dtype))


def _leaves(inputs):
    return [leaf for leaf in keras.tree.flatten(inputs) if leaf is not None]
