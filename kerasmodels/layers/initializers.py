"""Initializers that one layer hands to several others."""

import keras


def fresh(initializer):
    """An initializer of the same kind that draws other numbers.

    An initializer of Keras gives the same numbers whenever it is called: without this, kernels of
    one shape would be equal.

    Args:
        initializer: A name, a configuration, or an initializer.

    Returns:
        What a layer takes as its initializer.
    """
    is_initializer = isinstance(initializer, keras.initializers.Initializer)
    return initializer.clone() if is_initializer else initializer
