"""Ids of any rank back to text, for every tokenizer: a row, a batch, or several results a row."""

import numpy as np


def rank_of(ids) -> int:
    """The rank of an array, or of nested lists whose rows may differ in length.

    Args:
        ids: An array, a tensor, or lists and tuples.

    Returns:
        An integer; 0 for a number, and 1 for an empty list.
    """
    shape = getattr(ids, "shape", None)
    if shape is not None:
        return len(shape)
    if not isinstance(ids, list | tuple):
        return 0
    return 1 + (rank_of(ids[0]) if len(ids) else 0)


def rows_of_ids(ids):
    """What `decode_nested` takes, of rank 2 or more.

    Args:
        ids: An array of rank 2 or more, or several rows: a list or an iterator.

    Returns:
        The array, or a list.

    Raises:
        ValueError: If there are no rows.
    """
    if hasattr(ids, "shape") and len(ids.shape) > 1:
        return ids
    try:
        rows = list(ids)
    except TypeError as error:
        raise ValueError(f"`ids` must be rows of integers. Received: ids={ids!r}") from error
    if rows and rank_of(rows) < 2:
        raise ValueError(f"`ids` must be rows of integers. Received: ids={ids!r}")
    return rows or np.zeros((0, 0), "int32")


def decode_nested(ids, decode_rows):
    """Turns ids into text, whatever their rank.

    Args:
        ids: Integers of rank 1 or more.
        decode_rows: A function from rows of ids to a list of strings.

    Returns:
        A string for rank 1, a list of strings for rank 2, a list of such lists for rank 3, which is
        what `generate` returns of a search with several results.
    """
    rank = rank_of(ids)
    if rank < 2:
        return decode_rows([ids])[0]
    if rank == 2:
        return decode_rows(ids)
    return [decode_nested(part, decode_rows) for part in ids]
