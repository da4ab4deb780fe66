"""Ranks, positions and ids that a layer has no room for, found where they enter."""

import keras
import numpy as np


def check_rank(name, tensor, rank):
    """Raises a ValueError if a tensor that is given has another number of axes than `rank`."""
    if tensor is not None and len(tensor.shape) != rank:
        raise ValueError(
            f"`{name}` must have {rank} {'axis' if rank == 1 else 'axes'}. "
            f"Received: shape {tuple(tensor.shape)}, which has {len(tensor.shape)}"
        )


def check_ids(name, ids, count):
    """Raises a ValueError if ids whose values are known lie outside of `[0, count)`.

    Args:
        name: The argument's name, for the message.
        ids: An array or a tensor, or `None`.
        count: How many things there are to choose from; nothing is checked if it is no integer.
    """
    found = known(ids) if isinstance(count, int) else None
    if found is not None and found.size and not (found.min() >= 0 and found.max() < count):
        wrong = found.min() if found.min() < 0 else found.max()
        raise ValueError(f"`{name}` must be integers in [0, {count}). Received: {wrong}")


def known_index(name, index):
    """Returns the value of a scalar index, or `None` where it is not known yet.

    Raises:
        ValueError: If the index is no integer, or not a scalar.
    """
    shape, dtype = getattr(index, "shape", ()), getattr(index, "dtype", None)
    whole = isinstance(index, int) if dtype is None else "int" in str(dtype)
    if isinstance(index, bool) or len(shape) or not whole:
        # PyTorch's exporter has integers of its own.
        if dtype is not None or isinstance(index, bool | float | str | list | tuple):
            raise ValueError(f"`{name}` must be an integer, a scalar. Received: {name}={index!r}")
        return None
    found = known(index)
    return None if found is None else int(found)


def known(values):
    """Returns values as an array of numpy, or `None` where they are not known yet.

    That is so for a symbolic tensor, and for one that is being traced or compiled. A tensor of
    PyTorch's on a GPU counts as unknown too: to look at it would have every call wait.
    """
    if values is None or isinstance(values, keras.KerasTensor):
        return None
    if keras.backend.backend() == "torch" and hasattr(values, "detach"):
        import torch

        plain = type(values) is torch.Tensor and values.device.type == "cpu"
        if not plain or torch.compiler.is_compiling():
            return None
    try:
        found = np.asarray(values)
    except Exception:  # each backend has its own error for a tensor without a value
        return None
    return None if found.dtype.kind == "O" else found
