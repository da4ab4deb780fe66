"""What is no array of numbers, and ids that a model has no room for, found before they reach it.

`limits` says what there is room for: a dictionary `{name of an input: (count, length)}`. Ids are in
`[0, count)`, and a row has at most `length` of them, or any number if that is `None`. A `count`
that is the name of another input is the length of that.
"""

import os
import sys

import keras
import numpy as np

from kerasmodels.training.losses import loss_argument

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
    """Anything that Keras takes for an array, as an array of numpy; or `None`, see `visible`.

    That is numpy's and pandas' own, sparse matrices of scipy, tensors of each backend whichever is
    in use, and whatever else has a method `__array__`.
    """
    if isinstance(value, np.ndarray):
        return value
    if value is None or isinstance(value, keras.KerasTensor | keras.Variable):
        return None
    # A backend that nobody has imported has made no tensor.
    tensorflow, torch, jax = (sys.modules.get(name) for name in ("tensorflow", "torch", "jax"))
    if torch is not None and isinstance(value, torch.Tensor):
        array = _of_torch(value)
    elif jax is not None and isinstance(value, jax.Array):
        if isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
            return None
        array = jax.device_get(value)
    elif tensorflow is not None and tensorflow.is_tensor(value):
        if isinstance(value, tensorflow.SparseTensor) and tensorflow.executing_eagerly():
            value = tensorflow.sparse.to_dense(value)
        array = value.numpy() if hasattr(value, "numpy") else None
    elif hasattr(value, "toarray"):
        array = value.toarray()
    else:
        array = np.asarray(value) if hasattr(value, "__array__") else None
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


def first_text(values):
    """The first string or path among values where numbers belong, or `None`.

    Args:
        values: An array, a tensor, or lists, tuples, sets and dictionaries of anything.
    """
    if isinstance(values, str | bytes | os.PathLike):
        return values
    if isinstance(values, dict):
        values = list(values.values())
    if not isinstance(values, list | tuple | set | frozenset):
        dtype = str(getattr(values, "dtype", "")).lower()
        if any(kind in dtype for kind in ("int", "float", "bool")):  # the common case, at once
            return None
        if "string" in dtype:  # of TensorFlow, symbolic ones too
            return values
        array = visible_array(values)
        if array is None or array.dtype.kind not in "OSTU":
            return None
        values = array.reshape(-1).tolist()
    found = (first_text(value) for value in values)
    return next((text for text in found if text is not None), None)


def check_numbers(name, values, finite=True):
    """Refuse targets and weights that are no arrays of finite numbers.

    Args:
        name: Of the values, for the message.
        values: An array, or a dictionary, list or tuple of arrays; anything that cannot be looked
            at is not.
        finite: Whether NaN and infinity are refused.

    Raises:
        ValueError: For what is not allowed.
    """
    several = isinstance(values, dict | list | tuple)
    parts = (values.values() if isinstance(values, dict) else values) if several else [values]
    for part in parts:
        if part is not None and not hasattr(part, "shape"):
            raise ValueError(
                f"`{name}` must be an array or a tensor, such as np.array(...), or several of them "
                f"by the names of the outputs. Received: a {type(part).__name__}"
                + (f" within a {type(values).__name__}" if several else "")
            )
        if several:
            check_numbers(name, part, finite)
    if several:
        return
    array = visible_array(values)
    if array is None:
        return
    if array.dtype.kind not in "biuf":
        others = [v for v in array.reshape(-1).tolist() if not isinstance(v, int | float)]
        found = f", such as {others[0]!r}" if others else ""
        raise ValueError(f"`{name}` must be finite numbers. Received: dtype={array.dtype}{found}")
    if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ValueError(f"`{name}` must be finite numbers. Received: NaN or infinity")


def check_labels(name, labels, count, what="the classes", loss=None):
    """Refuse integer labels outside `[0, count)`, but for the one that the loss ignores.

    Args:
        name: Of the labels, for the message.
        labels: An array, or anything else, which is not looked at.
        count: Number of classes.
        what: What is counted, for the message.
        loss: Of `compile`; its `ignore_id` or `ignore_class` is allowed.

    Raises:
        ValueError: For what is not allowed.
    """
    labels = visible_array(labels)
    if labels is None or not labels.size:
        return
    # Integers may come as floats, but not as anything else.
    if labels.dtype.kind not in "iuf" or not (labels % 1 == 0).all():
        raise ValueError(
            f"`{name}` must be integers in [0, {count}), {what}. "
            f"Received: dtype={labels.dtype}, {np.ravel(labels)[:5].tolist()}"
        )
    ignored = (loss_argument(loss, key) for key in ("ignore_id", "ignore_class"))
    wrong = (labels < 0) | (labels >= count)
    for label in ignored:
        if label is not None:
            wrong &= labels != label
    if wrong.any() and not is_of_others(loss):
        raise ValueError(
            f"`{name}` must be in [0, {count}), {what}, or what the loss ignores (Keras's "
            "`ignore_class`, the `ignore_id` of SmoothedCrossEntropy). "
            f"Received: {np.unique(labels[wrong])[:5].tolist()}"
        )


def is_of_others(loss):
    """Whether a loss is neither Keras's nor ours, so that nobody here knows what it allows."""
    if loss is None or isinstance(loss, str):
        return False
    module = getattr(loss, "__module__", None) or type(loss).__module__
    return module.partition(".")[0] not in ("keras", "kerasmodels")


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
            hint = " whose rows have one length: pad them" if ids.dtype.kind == "O" else ""
            raise ValueError(f"`{name}` must be integers{hint}. Received: dtype={ids.dtype}")
        if length is not None and ids.ndim > 1 and ids.shape[-1] > length:
            raise ValueError(f"{_too_long(name, length)}. Received: length {ids.shape[-1]}")
        if isinstance(count, str):
            if count not in arrays or not arrays[count].ndim:
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
