"""Initializers and functions that are given as arguments."""

import json
import types

import keras
import numpy as np


def get_initializer(name, initializer):
    """Returns what `keras.initializers.get` does, if a config can write it.

    Args:
        name: The argument's name, for the message.
        initializer: A name, a configuration, an initializer, a function or `None`.

    Returns:
        An initializer, a function or `None`.

    Raises:
        ValueError: If it is none of these, or a saved model could not find it again.
    """
    if isinstance(initializer, np.ndarray | np.generic) or keras.ops.is_tensor(initializer):
        raise ValueError(
            f"`{name}` must be an initializer; a config has no room for an array. Assign the array "
            "to the weight when the layer is built, or give keras.initializers.Constant(array), "
            f"whose numbers are written into the config. Received: {name} of shape "
            f"{tuple(initializer.shape)}"
        )
    found = keras.initializers.get(initializer)
    check_writable(name, found)
    return found


def check_writable(name, value):
    """Refuses functions and objects that a saved model could not find again.

    Args:
        name: The argument's name, for the message.
        value: A function, an object with a `get_config`, or `None`.

    Raises:
        ValueError: If it is a lambda, or an object without a config.
    """
    if isinstance(value, types.FunctionType) and value.__name__ == "<lambda>":
        reason = "a lambda has no name by which a saved model could find it"
    elif value is None or isinstance(value, types.FunctionType) or _is_keras(value):
        return
    else:
        try:
            json.dumps(keras.saving.serialize_keras_object(value))
            return
        except Exception as error:  # whatever the object's own `get_config` raises
            reason = f"{type(error).__name__}: {error}"
    raise ValueError(
        f"`{name}` must be something that a config can write: a name, an object with `get_config`, "
        "or a function with a name, best under keras.saving.register_keras_serializable(). "
        f"Received: {name}={value!r} ({reason})"
    )


def _is_keras(value):
    return type(value).__module__.partition(".")[0] == "keras"


def fresh(initializer):
    """Returns an initializer of the same kind that draws other numbers.

    An initializer of Keras gives the same numbers whenever it is called: without this, kernels of
    one shape would be equal.

    Args:
        initializer: A name, a configuration, or an initializer.

    Returns:
        What a layer takes as its initializer.
    """
    is_initializer = isinstance(initializer, keras.initializers.Initializer)
    return initializer.clone() if is_initializer else initializer
