"""What `PortableModel` puts around the functions that Keras's trainers make of its steps."""

import functools


def guard_jax_state(model, function):
    """Spares the JAX trainer two falls.

    It takes the values out of all variables while it trains: an error in the step would leave the
    model empty, and cleaning up would raise another error that hides the first. And it donates
    every buffer, which fails when two variables share one, as after `a.assign(b)` or after
    `use_ema` has put the averages into the weights.

    Args:
        model: The model that is trained.
        function: Keras's, of `(state, iterator)`.

    Returns:
        A function of the same arguments.
    """

    @functools.wraps(function)
    def guarded(state, iterator):
        seen = set()
        state = tuple([_unshared(value, seen) for value in values] for values in state)
        try:
            return function(state, iterator)
        except Exception:
            if not any(value.is_deleted() for values in state for value in values):
                groups = ("trainable", "non_trainable", "optimizer", "metrics")
                if len(state) == 3:  # of a test
                    groups = ("trainable", "non_trainable", "metrics")
                model._jax_state = {
                    f"{name}_variables": values for name, values in zip(groups, state, strict=True)
                }
                model._jax_state_synced = False
                model.jax_state_sync()  # `fit` would do so itself, `evaluate` does not
            raise

    return guarded


def _unshared(value, seen):
    if id(value) in seen:
        return value.copy()
    seen.add(id(value))
    return value


def explain_double_backward(function):
    """PyTorch's compiler cannot differentiate what it compiled a second time: says what to do.

    Args:
        function: Keras's, of a batch.

    Returns:
        A function of the same argument.
    """

    @functools.wraps(function)
    def explained(data):
        try:
            return function(data)
        except RuntimeError as error:
            if "double backward" not in str(error):
                raise
            raise ValueError(
                "PyTorch compiles no gradient of a gradient, such as a gradient penalty. Use "
                "`compile(jit_compile=False)`. Received: jit_compile=True"
            ) from error

    return explained
