"""Checks that many arguments here share."""

from numbers import Integral


def whole_number(name: str, value, least: int) -> int:
    """Returns an argument as Python's integer, or raises a ValueError that names it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"`{name}` must be at least {least}, an integer. Received: {value!r}.")
    return int(value)
