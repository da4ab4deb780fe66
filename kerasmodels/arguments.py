"""Checks of numbers that are given as arguments.

Each function returns Python's own number, whatever kind it was given (numpy's, or a tensor whose
value is known), so that a config can be written as JSON, and raises a ValueError otherwise.
"""

import functools
import math
import operator
from numbers import Real

import numpy as np


def integer(name, value, least=1, most=None):
    """Returns an argument as Python's integer.

    Args:
        name: The argument's name, for the message.
        value: The argument.
        least: The least value that is allowed.
        most: The greatest value that is allowed, or `None`.

    Returns:
        An `int`.

    Raises:
        ValueError: If the argument is no integer, or out of bounds.
    """
    found = as_integer(value)
    if found is None or found < least or (most is not None and found > most):
        if most is not None:
            wanted = f"an integer from {least} to {most}"
        else:
            wanted = "a positive integer" if least == 1 else f"an integer of at least {least}"
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={value!r}")
    return found


def as_integer(value):
    """Returns Python's integer, or `None` for what is none or has no value yet (as in a graph)."""
    # `bool` is an integer for Python, and an array of one element for numpy.
    if isinstance(value, bool) or getattr(value, "shape", ()) != ():
        return None
    try:
        return operator.index(value)
    except Exception:  # every backend has its own error for a tensor without a value
        return None


def number(name, value, wanted="a finite number", allowed=math.isfinite):
    """Returns an argument as Python's float.

    Args:
        name: The argument's name, for the message.
        value: The argument.
        wanted: What it must be, in words.
        allowed: A function that says of a float whether it is that.

    Returns:
        A `float`; an `int` remains one.

    Raises:
        ValueError: If the argument is no such number.
    """
    found = as_integer(value)
    is_number = isinstance(value, Real) or (
        getattr(value, "shape", None) == () and hasattr(value, "__float__")
    )
    if found is None and is_number and not isinstance(value, bool) and not _is_numpy_bool(value):
        try:
            found = float(value)
        except Exception:  # a tensor without a value
            found = None
    if found is None or not allowed(found):
        raise ValueError(f"`{name}` must be {wanted}. Received: {name}={value!r}")
    return found


def positive_number(name, value):
    """Returns an argument as Python's number if it is positive and finite."""
    return number(name, value, "a positive number", lambda x: 0 < x < math.inf)


def rate(name, value):
    """Returns an argument as Python's number if it lies in [0, 1), as a rate of dropout does."""
    return number(name, value, "a number in [0, 1)", lambda x: 0 <= x < 1)


def flag(name, value):
    """Returns an argument as Python's boolean, which 0 and 1 may stand for."""
    found = as_integer(value)
    if isinstance(value, bool) or (found in (0, 1)) or _is_numpy_bool(value):
        return bool(value)
    raise ValueError(f"`{name}` must be True or False. Received: {name}={value!r}")


def _is_numpy_bool(value):
    return getattr(getattr(value, "dtype", None), "kind", None) == "b" and value.shape == ()


def plain_numbers(structure):
    """Returns a structure with Python's numbers in place of numpy's, as JSON wants them.

    Args:
        structure: Anything; dictionaries, lists and tuples are looked into.

    Returns:
        The same, with numbers and booleans of numpy as Python's, and arrays as lists.
    """
    if isinstance(structure, np.generic | np.ndarray):
        return structure.tolist()
    if type(structure) in (list, tuple):
        return type(structure)(map(plain_numbers, structure))
    if type(structure) is dict:
        return {key: plain_numbers(value) for key, value in structure.items()}
    return structure


def takes_numpy_numbers(function):
    """Wraps a constructor, so that numbers of numpy become Python's, as Keras and JSON want."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*map(plain_numbers, args), **plain_numbers(kwargs))

    return wrapped
