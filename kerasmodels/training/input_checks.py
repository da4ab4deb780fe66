"""Ids that a model has no room for, found before they reach it.

`limits` says what there is room for: a dictionary `{name of an input: (count, length)}`. Ids are in
`[0, count)`, and a row has at most `length` of them, or any number if that is `None`. A `count`
that is the name of another input is the length of that.
"""

import keras
import numpy as np
from keras import ops

# What is counted, by the end of an input's name.
_COUNTED = {
    "token_ids": "the vocabulary",
    "segment_ids": "the segments of the model",
    "positions": "the positions of a row",
}


def visible(inputs):
    """The arrays of a dictionary that can be looked at, as those of numpy.

    Args:
        inputs: A dictionary of arrays and tensors.

    Returns:
        A dictionary without what is `None`, symbolic, being traced or compiled, or on a GPU of
        PyTorch's, whose steps are no graphs: looking would have every one of them wait.
    """
    arrays = {name: visible_array(value) for name, value in inputs.items()}
    return {name: array for name, array in arrays.items() if array is not None}


def visible_array(value):
    """One of `visible`, or `None`."""
    if isinstance(value, np.ndarray):
        return value
    if value is None or not ops.is_tensor(value):
        return None
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        if isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
            return None
        array = jax.device_get(value)
    elif backend == "torch":
        array = _of_torch(value)
    else:
        array = value.numpy() if hasattr(value, "numpy") else None
    # numpy has no bfloat16 of its own.
    return array.astype("float32") if array is not None and array.dtype.kind == "V" else array


def _of_torch(value):
    import torch

    plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.device.type == "cpu"
    if not plain or torch.compiler.is_compiling():
        return None
    value = value.detach()
    try:
        return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
    except RuntimeError:  # within torch.func.vmap a tensor has no memory of its own
        return None


def check_ids(arrays, limits):
    """Refuse ids beyond the limits.

    Args:
        arrays: A dictionary of arrays of numpy.
        limits: See the module.

    Raises:
        ValueError: For ids that are no integers or outside, and rows that are too long.
    """
    for name, (count, length) in limits.items():
        ids = arrays.get(name)
        if ids is None:
            continue
        if ids.dtype.kind not in "iu":
            raise ValueError(f"`{name}` must be integers. Received: dtype={ids.dtype}")
        if length is not None and ids.ndim > 1 and ids.shape[-1] > length:
            raise ValueError(f"{_too_long(name, length)}. Received: length {ids.shape[-1]}")
        if isinstance(count, str):
            if count not in arrays:
                continue
            count = arrays[count].shape[-1]
        if ids.size and (ids.min() < 0 or ids.max() >= count):
            wrong = ids.min() if ids.min() < 0 else ids.max()
            raise ValueError(f"{_outside(name, count)}. Received: {wrong}")


def assert_ids(tensors, limits):
    """The same in a graph of TensorFlow's: an error when it runs, not when it is made.

    Args:
        tensors: A dictionary of tensors, of which some may be missing.
        limits: See the module.

    Returns:
        The tensors, for what shall run after the checks.
    """
    import tensorflow as tf

    checks = []
    for name, (count, length) in limits.items():
        ids = tensors.get(name)
        if not isinstance(ids, tf.Tensor):
            continue
        if not ids.dtype.is_integer:
            raise ValueError(f"`{name}` must be integers. Received: dtype={ids.dtype.name}")
        if length is not None:
            message = _too_long(name, length)
            checks.append(tf.debugging.assert_less_equal(tf.shape(ids)[-1], length, message))
        message = _outside(name, count)
        count = tf.shape(tensors[count])[-1] if isinstance(count, str) else count
        ids = tf.cast(ids, "int64")
        checks.append(tf.debugging.assert_non_negative(ids, message))
        checks.append(tf.debugging.assert_less(ids, tf.cast(count, "int64"), message))
    with tf.control_dependencies([check for check in checks if check is not None]):
        return {
            name: tf.identity(value) if isinstance(value, tf.Tensor) else value
            for name, value in tensors.items()
        }


def _too_long(name, length):
    return (
        f"`{name}` must have at most {length} tokens a row, the positions that the model has "
        "learned (max_sequence_length): cut the text, or split it"
    )


def _outside(name, count):
    found = (words for end, words in _COUNTED.items() if name.endswith(end))
    what = next(found, "the rows of its table")
    count = f"length of `{count}`" if isinstance(count, str) else count
    return f"`{name}` must be in [0, {count}), {what}"
