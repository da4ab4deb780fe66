"""Several values where a list is asked for, and the files of a folder that a user sees."""

from collections.abc import Iterable, Mapping
from pathlib import Path


def listed(name, values, what="strings"):
    """Several values as a list, whatever holds them in an order.

    Args:
        name: The argument, for the message.
        values: A list, a tuple, an array, a series of pandas, a view of a dictionary, or an
            iterator, which is used up.
        what: What it must hold, for the message.

    Returns:
        A new list.

    Raises:
        ValueError: For one string or path in place of several, a dictionary or a frame of pandas,
            of which only the names would be read, a set, which has no order, and whatever cannot be
            iterated.
    """
    several = isinstance(values, Iterable) and getattr(values, "ndim", 1) > 0
    several = several and not hasattr(values, "columns")
    if not several or isinstance(values, str | bytes | Path | Mapping | set | frozenset):
        raise ValueError(f"`{name}` must be a list of {what}. Received: {name}={values!r}")
    return list(values)


def strings_of(name, values):
    """Several strings as a list; see `listed`.

    Raises:
        ValueError: For what is no list of strings.
    """
    texts = listed(name, values)
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f"`{name}` must hold strings. Received: {text!r}")
    return [str(text) for text in texts]  # numpy's strings are a class of their own


def files_below(folder, pattern="*"):
    """The files of a folder and of the folders in it, sorted, without hidden ones.

    A name that begins with a dot hides a file or a folder: Jupyter, macOS and others keep copies
    there that nobody sees.

    Args:
        folder: A folder.
        pattern: Which names are wanted.

    Returns:
        A list of paths.
    """
    folder = Path(folder)
    found = (path for path in folder.rglob(pattern) if path.is_file())
    seen = [p for p in found if not any(part[0] == "." for part in p.relative_to(folder).parts)]
    return sorted(seen, key=lambda path: path.as_posix())
