"""What is put around the functions that Keras's trainers make of a model's steps."""

import functools

import keras


class KeepsState:
    """A mixin for `keras.Model`s: an error on JAX leaves the model as it was before that step.

    Be it an error of the data, of a callback, or Ctrl-C: Keras 3.15 takes the values out of all
    variables while it works, and puts them back after an error in `fit` alone, and only if a step
    is complete by then.
    """

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`."""
        return _and_sync(self, super().evaluate, args, kwargs)

    def predict(self, *args, **kwargs):
        """As `keras.Model.predict`."""
        return _and_sync(self, super().predict, args, kwargs)

    def _make_function(self, step_function, *args, **kwargs):
        """Keras's hook that turns a step into a function of an iterator."""
        if keras.backend.backend() != "jax":
            return super()._make_function(step_function, *args, **kwargs)

        def step(state, data):
            result = step_function(state, data)
            _remember(self, result[1])  # of several steps at once the last that is complete
            return result

        return super()._make_function(step, *args, **kwargs)

    def make_train_function(self, force=False):
        """Keras's hook."""
        return self._make_guarded("train", force)

    def make_test_function(self, force=False):
        """Keras's hook."""
        return self._make_guarded("test", force)

    def make_predict_function(self, force=False):
        """Keras's hook."""
        return self._make_guarded("predict", force)

    def _make_guarded(self, kind, force):
        name = f"{kind}_function"
        fresh = getattr(self, name) is None or force
        getattr(super(), f"make_{name}")(force)
        if fresh and keras.backend.backend() == "jax":
            setattr(self, name, guard_jax_state(self, getattr(self, name)))
        return getattr(self, name)


def _and_sync(model, method, args, kwargs):
    try:
        return method(*args, **kwargs)
    except BaseException:
        if keras.backend.backend() == "jax":
            model.jax_state_sync()
        raise


def guard_jax_state(model, function):
    """Spares the JAX trainer two falls.

    It takes the values out of all variables while it trains: an error in the step would leave the
    model empty, and cleaning up would raise another error that hides the first. And it donates
    every buffer, which fails when two variables share one, as after `a.assign(b)` or after
    `use_ema` has put the averages into the weights.

    Args:
        model: The model that is trained, a `KeepsState`.
        function: Keras's, of `(state, iterator)`.

    Returns:
        A function of the same arguments.
    """

    @functools.wraps(function)
    def guarded(state, iterator):
        seen = set()
        state = tuple([_unshared(value, seen) for value in values] for values in state)
        _remember(model, state)
        try:
            return function(state, iterator)
        except BaseException:
            state = model._state_to_keep
            if not any(value.is_deleted() for values in state for value in values):
                groups = {
                    4: ("trainable", "non_trainable", "optimizer", "metrics"),
                    3: ("trainable", "non_trainable", "metrics"),  # of a test
                    2: ("trainable", "non_trainable"),  # of a prediction
                }[len(state)]
                model._jax_state = {
                    f"{name}_variables": values for name, values in zip(groups, state, strict=True)
                }
                model._jax_state_synced = False
                model.jax_state_sync()  # `fit` would do so itself, `evaluate` does not
            raise
        finally:
            _remember(model, None)

    return guarded


def _remember(model, state):
    model.__dict__["_state_to_keep"] = state  # past Keras, which would look into it for layers


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
