"""What is put around the functions that Keras's trainers make of a model's steps."""

import functools

import keras
from keras import ops

from kerasmodels.keras_internals import one_step_at_a_time, put_back_jax_state


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
            join = _together if kind == "predict" else _last
            setattr(self, name, guard_jax_state(self, getattr(self, name), join))
        return getattr(self, name)


def _and_sync(model, method, args, kwargs):
    try:
        return method(*args, **kwargs)
    except BaseException:
        if keras.backend.backend() == "jax":
            model.jax_state_sync()
        raise


def guard_jax_state(model, function, join):
    """Spares the JAX trainer two falls.

    It takes the values out of all variables while it trains: an error in the step would leave the
    model empty, and cleaning up would raise another error that hides the first. And it donates
    every buffer, which fails when two variables share one, as after `a.assign(b)` or after
    `use_ema` has put the averages into the weights.

    Args:
        model: The model that is trained, a `KeepsState`.
        function: Keras's, of `(state, iterator)`.
        join: What makes one output of those of several steps.

    Returns:
        A function of the same arguments.
    """

    @functools.wraps(function)
    def guarded(state, iterator):
        seen, outputs = set(), []
        state = tuple([_unshared(value, seen) for value in values] for values in state)
        try:
            for one in one_step_at_a_time(model, iterator):
                try:
                    output, state = function(state, one)
                except StopIteration:
                    if outputs:
                        break
                    raise
                outputs.append(output)
        except BaseException:
            if not any(value.is_deleted() for values in state for value in values):
                put_back_jax_state(model, state)  # `fit` would do so itself, `evaluate` does not
            raise
        return join(outputs), state

    return guarded


def _last(outputs):
    return outputs[-1]


def _together(outputs):
    """The outputs of several batches as one batch's."""
    if len(outputs) == 1:
        return outputs[0]
    return keras.tree.map_structure(lambda *parts: ops.concatenate(parts), *outputs)


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
