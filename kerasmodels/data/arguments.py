"""Checks that many arguments here share."""

from collections.abc import Iterable, Mapping
from numbers import Integral


def whole_number(name: str, value, least: int) -> int:
    """Returns an argument as Python's integer, or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"`{name}` must be at least {least}, an integer. Received: {value!r}.")
    return int(value)


def class_names_of(names, count: int) -> list[str]:
    """Returns names of classes as a list, or raises a ValueError: a different string for each."""
    listed = isinstance(names, Iterable) and not isinstance(names, str | Mapping | set | frozenset)
    found = list(names) if listed else [None]
    if not all(isinstance(name, str) for name in found):
        raise ValueError(
            "`class_names` must be a list of strings, in the order of the classes. "
            f"Received: {names!r}"
        )
    if len(found) != count:
        raise ValueError(
            f"`class_names` must hold a name for each of the {count} classes. "
            f"Received: {len(found)} names"
        )
    if len(set(found)) < len(found):
        raise ValueError(f"`class_names` must differ from one another. Received: {found}")
    return [str(name) for name in found]
