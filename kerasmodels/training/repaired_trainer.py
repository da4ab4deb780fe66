"""Repairs of Keras's trainer that every model of this package wants.

**The state on JAX.** Keras 3.15 takes the values out of all variables while `fit`, `evaluate` or
`predict` work, and puts them back at the end of an epoch or where a callback asks for
`self.model`. Until then whoever looks at the model another way (a function that was given to a
`LambdaCallback`, a network inside of the model, another thread) finds `None`, and an error in a
step leaves the model empty. `predict` even deletes the arrays that other threads compute with.
Here the variables hold the present state after every step, and a prediction deletes nothing.

**Weights that Keras drops.** `fit(x, sample_weight=w)` hands `x` alone to the step.
"""

import inspect
import itertools
import threading

import keras
from keras import ops

from kerasmodels.keras_internals import get_value, one_step_at_a_time, set_value

_SETS = {  # of variables in the state of a step, by their number
    4: ("trainable_variables", "non_trainable_variables", "optimizer", "metrics_variables"),
    3: ("trainable_variables", "non_trainable_variables", "metrics_variables"),  # of a test
    2: ("trainable_variables", "non_trainable_variables"),  # of a prediction
}


class RepairedTrainer:
    """A mixin for `keras.Model`s: the state stays in the variables, and no weight is dropped.

    Whatever ends a step (an error of the data or of a callback, or Ctrl-C), the model is then as
    it was before that step. Several threads may call the model, `predict` and `predict_on_batch`
    at the same time, as long as none of them trains it.
    """

    def fit(self, *args, **kwargs):
        """As `keras.Model.fit`; sample weights without targets are refused."""
        _refuse_lost_weights("fit", self, args, kwargs)
        return super().fit(*args, **kwargs)

    def evaluate(self, *args, **kwargs):
        """As `keras.Model.evaluate`; sample weights without targets are refused."""
        _refuse_lost_weights("evaluate", self, args, kwargs)
        return super().evaluate(*args, **kwargs)

    def train_on_batch(self, *args, **kwargs):
        """As `keras.Model.train_on_batch`; sample weights without targets are refused."""
        _refuse_lost_weights("train_on_batch", self, args, kwargs)
        return super().train_on_batch(*args, **kwargs)

    def test_on_batch(self, *args, **kwargs):
        """As `keras.Model.test_on_batch`; sample weights without targets are refused."""
        _refuse_lost_weights("test_on_batch", self, args, kwargs)
        return super().test_on_batch(*args, **kwargs)

    def predict(self, *args, **kwargs):
        """As `keras.Model.predict`; several threads may call it."""
        with self._one_at_a_time():
            return super().predict(*args, **kwargs)

    def predict_on_batch(self, *args, **kwargs):
        """As `keras.Model.predict_on_batch`; several threads may call it."""
        with self._one_at_a_time():
            return super().predict_on_batch(*args, **kwargs)

    def _one_at_a_time(self):
        # Past Keras, which looks into what it is given for layers. A prediction's callback may
        # predict.
        return self.__dict__.setdefault("_prediction_lock", threading.RLock())

    # What follows is JAX's: on other backends nobody calls it, or it hands on.

    def jax_state_sync(self):
        """Keras's hook before somebody looks at the variables, which hold the state already."""
        self._jax_state_synced = True  # the next step reads them

    state_sync = jax_state_sync  # the name that the Keras after 3.15 calls

    def _purge_model_variables(self, *args, **kwargs):
        """Keras's hook that takes the values out of the variables."""

    def _state_variables(self, count):
        """The variables of a state of `count` sets, in the order of Keras's trainer."""
        return [
            self.optimizer.variables if name == "optimizer" else getattr(self, name)
            for name in _SETS[count]
        ]

    def make_train_function(self, force=False):
        """Keras's hook."""
        return self._make_reading("train", force)

    def make_test_function(self, force=False):
        """Keras's hook."""
        return self._make_reading("test", force)

    def make_predict_function(self, force=False):
        """Keras's hook."""
        made = self.predict_function is not None and not force
        compiled = keras.backend.backend() == "jax" and not self.run_eagerly and self.jit_compile
        if made or not compiled:
            return self._make_reading("predict", force)
        import jax

        # Keras would have JAX delete the state that goes in: the step is compiled here.
        with self._one_at_a_time():
            self.__dict__.pop("predict_step", None)
            step = self.predict_step
            self.__dict__["predict_step"] = jax.jit(lambda state, data: step(state, data))
            self.jit_compile = False
            try:
                return self._make_reading("predict", force)
            finally:
                self.jit_compile = True

    def _make_reading(self, kind, force):
        name = f"{kind}_function"
        fresh = getattr(self, name) is None or force
        getattr(super(), f"make_{name}")(force)
        if fresh and keras.backend.backend() == "jax":
            join = _together if kind == "predict" else _last
            setattr(self, name, _reading(self, getattr(self, name), join))
        return getattr(self, name)


def _reading(model, function, join):
    """Has Keras's function of `(state, iterator)` read the variables, and put the new state there.

    A callback may have assigned some. And a buffer that two variables share, as after
    `a.assign(b)` or after `use_ema` has put the averages into the weights, is copied: JAX is told
    to delete every buffer that goes in, which it can do once.

    Args:
        model: A `RepairedTrainer`.
        function: Keras's.
        join: What makes one output of those of several steps.

    Returns:
        A function of the same arguments.
    """
    last, variables = None, None

    def reading(state, iterator):
        nonlocal last, variables
        if state is not last:  # Keras has collected the variables, which may be others now
            variables = model._state_variables(len(state))
        outputs = []
        for one in one_step_at_a_time(model, iterator):
            before = _unshared_values(variables)
            try:
                output, last = function(before, one)
            except StopIteration:
                if outputs:
                    break
                raise
            _keep(variables, before, last)
            outputs.append(output)
        return join(outputs), last

    return reading


def _unshared_values(variables):
    seen = set()
    for variable in itertools.chain(*variables):
        value = get_value(variable)
        if id(value) in seen:
            value = value.copy()
            set_value(variable, value)
        seen.add(id(value))
    return tuple([get_value(variable) for variable in group] for group in variables)


def _keep(variables, before, after):
    for group, old_values, new_values in zip(variables, before, after, strict=True):
        for variable, old, new in zip(group, old_values, new_values, strict=True):
            if get_value(variable) is old:  # else somebody has assigned another meanwhile
                set_value(variable, new)


def _last(outputs):
    return outputs[-1]


def _together(outputs):
    """The outputs of several batches as one batch's."""
    if len(outputs) == 1:
        return outputs[0]
    return keras.tree.map_structure(lambda *parts: ops.concatenate(parts), *outputs)


def _refuse_lost_weights(name, model, args, kwargs):
    call = inspect.signature(getattr(keras.Model, name)).bind(model, *args, **kwargs).arguments
    x, y, validation = call.get("x"), call.get("y"), call.get("validation_data")
    arrays = all(hasattr(part, "shape") for part in keras.tree.flatten(x) if part is not None)
    lost = [
        key for key in ("sample_weight", "class_weight") if arrays and call.get(key) is not None
    ]
    if y is None and lost:
        received = f"y=None, {lost[0]}={call[lost[0]]}"
    elif isinstance(validation, tuple | list) and len(validation) == 3:
        if validation[1] is not None or validation[2] is None:
            return
        received = "validation_data=(x, None, sample_weight)"
    else:
        return
    raise ValueError(
        "Weights need targets: without `y` Keras hands `x` alone to the model. Pass the targets, "
        "or the weights as a part of `x`, such as {'x': x, 'weight': weights}. "
        f"Received: {received}"
    )
