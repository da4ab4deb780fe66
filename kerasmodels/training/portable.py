"""A training step written once that runs inside `fit` on TensorFlow, JAX and PyTorch."""

import contextlib
import functools
import warnings

import keras
import numpy as np
from keras import ops

from kerasmodels.keras_internals import built_for, drop_loss_tracker
from kerasmodels.training.counted_tokens import CountsTokens
from kerasmodels.training.fit_on_replicas import FitOnReplicas, replaced
from kerasmodels.training.gradients import NestedScope, loss_of, value_and_grad
from kerasmodels.training.lazy_layers import (
    build_layers,
    compiled_parts_are_built,
    first_batch,
    names_in,
    unbuilt_layers,
)
from kerasmodels.training.named_optimizers import NamedOptimizers
from kerasmodels.training.random_state import load_seed_states, save_seed_states
from kerasmodels.training.repaired_trainer import RepairedTrainer
from kerasmodels.training.replicas import num_replicas, whole_losses
from kerasmodels.training.unused_weights import run_and_see


@keras.saving.register_keras_serializable(package="kerasmodels")
class PortableModel(CountsTokens, FitOnReplicas, RepairedTrainer, keras.Model):
    """A Keras model whose training step is written once, in plain stateful Keras.

    Write `training_step(self, data)`: compute losses, call `self.minimize`, update metrics, return
    the logs. `data` is what `fit` was given for one batch, `(x, y, sample_weight)` in Keras's
    nesting. Everything around it is Keras's own: `fit`, `evaluate` (with `validation_step`),
    callbacks, `tf.distribute`, `keras.distribution`, `steps_per_execution`, `jit_compile`, mixed
    precision and `.keras` files, which hold the state of the optimizers.

    What a step may do: call `minimize` any number of times, `value_and_grad`, assign variables of
    the model, its optimizers and its metrics. Any other variable would be updated on TensorFlow
    and PyTorch and forgotten on JAX, where it is an error. Random numbers come from a
    `keras.random.SeedGenerator` that is an attribute of the model.

    Layers need not be built: before the first step they make their variables for the shapes of the
    first batch, by `call` if there is one, and by a run of the step that updates nothing.

    Metrics are attributes too, `self.loss_tracker = keras.metrics.Mean(name="loss")`: Keras then
    resets them every epoch and reports their result over the whole of it, while anything else in
    the returned logs is reported as of the last batch. With `compile(loss=..., metrics=...)` a step
    can use `self.compute_loss(x, y, y_pred, sample_weight)` and return
    `self.compute_metrics(x, y, y_pred, sample_weight)`. Unlike in Keras there is no tracker named
    `loss` that nobody updates.

    A loss is a mean over the rows that the step sees. On several replicas `minimize` divides by
    their number, and Keras's losses, which would do so themselves, leave it to it; every replica
    draws random numbers of its own.

    Files hold the state of the random generators too, which Keras leaves out, so that a resumed run
    (`keras.callbacks.BackupAndRestore`, or a `.keras` file and `initial_epoch`) is the run that was
    not interrupted. Files without it load as well.

    Args:
        **kwargs: `keras.Model`'s arguments.

    Raises:
        ValueError: If a step returns no dict of logs, computes nothing from sample weights that it
            was given, or assigns a variable that is not the model's (JAX); if layers are not built
            and neither `call` nor a step can be run to build them; if weights come without targets.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import training


    class Regression(training.PortableModel):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)
            self.loss_tracker = keras.metrics.Mean(name="loss")

        def call(self, x):
            return self.dense(x)

        def training_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)

            def loss_fn():
                return keras.ops.mean((self(x, training=True) - y) ** 2)

            loss = self.minimize(loss_fn, self.trainable_variables)
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}


    model = Regression()
    model.compile("adam")
    model.fit(np.ones((8, 3)), np.ones((8, 1)))
    ```

    Several optimizers have names; each is built for the attribute of its name:

    ```python
    import keras
    import numpy as np
    from kerasmodels import training


    class Game(training.PortableModel):
        def __init__(self):
            super().__init__()
            self.generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
            self.discriminator = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

        def training_step(self, data):
            def loss_fn():
                return keras.ops.mean(self.discriminator(self.generator(data)))

            weights = self.generator.trainable_variables
            loss = self.minimize(loss_fn, weights, optimizer="generator")
            weights = self.discriminator.trainable_variables
            self.minimize(lambda: -loss_fn(), weights, optimizer="discriminator")
            return {"loss": loss}


    gan = Game()
    gan.compile(optimizer={"generator": "adam", "discriminator": keras.optimizers.SGD(0.1)})
    gan.fit(np.ones((8, 2)))
    ```
    """

    _is_building = False  # while a step is run for the variables that its layers make
    _all_built = False  # as far as it is known

    def training_step(self, data):
        """One step on one batch: written by the subclass.

        Args:
            data: A batch as Keras passes it; `keras.utils.unpack_x_y_sample_weight(data)` takes it
                apart.

        Returns:
            The logs, `{name: scalar}`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} needs a method `training_step(self, data)` that returns a "
            "dict of logs."
        )

    def validation_step(self, data):
        """What `evaluate` does with one batch: written by the subclass.

        Args:
            data: As for `training_step`.

        Returns:
            The logs, `{name: scalar}`.
        """
        raise NotImplementedError(
            f"{type(self).__name__} needs a method `validation_step(self, data)` that returns a "
            "dict of logs, for `evaluate` and `validation_data`."
        )

    def optimizer_variables(self):
        """Which variables each of several optimizers is built for.

        By default those of the attribute of its name, `self.generator.trainable_variables`.
        Override it when names and attributes differ.

        Returns:
            `{name: list of variables}`, one entry for each name given to `compile`.

        Raises:
            ValueError: If there is no layer of that name.
        """
        variables = {}
        for name in self.optimizer.names:
            layer = getattr(self, name, None)
            if not isinstance(layer, keras.Layer):
                raise ValueError(
                    f"The optimizer {name!r} belongs to no layer: {type(self).__name__} has no "
                    f"layer `self.{name}`. Name optimizers after attributes, or override "
                    "`optimizer_variables(self)` to return {name: variables}."
                )
            variables[name] = layer.trainable_variables
        return variables

    def minimize(self, loss_fn, variables, optimizer=None):
        """Takes one optimizer step on the loss.

        Args:
            loss_fn: A function without arguments that returns a scalar loss, or a tuple that
                starts with one; see `value_and_grad`.
            variables: The list of variables to update. With an empty list (everything frozen) the
                loss is computed, nothing is updated and a warning says so.
            optimizer: The name of the optimizer, if `compile` was given several.

        Returns:
            What `loss_fn` returned; the loss is not scaled.

        Raises:
            ValueError: If `optimizer` is missing or unknown.
        """
        # An unknown name is met before anything is computed.
        chosen = self._optimizer(optimizer)
        if self._is_building:
            return loss_fn()
        if not list(variables):
            warnings.warn("`minimize` got no variables: nothing is updated.", stacklevel=2)
        result, gradients = self._gradients(loss_fn, variables, chosen)
        self._take_step(gradients, variables, chosen)
        return result

    def _optimizer(self, name=None):
        if isinstance(self.optimizer, NamedOptimizers):
            return self.optimizer[name]
        if name is not None:
            raise ValueError(
                f"`compile` was given one optimizer without a name. Received: optimizer={name!r}"
            )
        return self.optimizer

    def _gradients(self, loss_fn, variables, optimizer):
        """What `loss_fn` returned, and gradients as the optimizer wants them: scaled."""
        unbuilt = [] if self._all_built else unbuilt_layers(self)
        self._all_built = not unbuilt

        def scaled():
            result = loss_fn()
            # float16 holds no scaled loss, and TensorFlow does not promote it.
            loss = ops.cast(loss_of(result), "float32") / num_replicas()
            return optimizer.scale_loss(loss), result

        (_, result), gradients = value_and_grad(scaled, variables)
        late = names_in(self, [layer for layer in unbuilt if layer.built])
        if late:
            raise ValueError(
                "Layers must be built before `minimize`, which cannot know what they make within "
                "the loss. Give each network an `Input`, or call it once on data beforehand. "
                f"Received a loss that builds {late}"
            )
        return result, gradients

    def _take_step(self, gradients, variables, optimizer):
        variables = list(variables)
        if not variables or self._is_building:
            return
        if keras.backend.backend() == "jax" and isinstance(
            optimizer, keras.optimizers.LossScaleOptimizer
        ):
            self._apply_stateless(gradients, variables, optimizer)
        elif keras.backend.backend() == "torch":
            import torch

            with torch.no_grad():
                optimizer.apply(gradients, variables)
        else:
            optimizer.apply(gradients, variables)

    def _apply_stateless(self, gradients, variables, optimizer):
        """`LossScaleOptimizer.apply` would assign inside a traced branch; its twin returns."""
        own = built_for(optimizer)
        by_id = {id(v): gradient for v, gradient in zip(variables, gradients, strict=True)}
        with warnings.catch_warnings():
            # Missing gradients of variables that this step leaves alone are no surprise.
            warnings.filterwarnings("ignore", message="Gradients do not exist")
            values, state = optimizer.stateless_apply(
                [v.value for v in optimizer.variables],
                [by_id.get(id(v)) for v in own],
                [v.value for v in own],
            )
        for variable, value in zip(own + optimizer.variables, values + state, strict=True):
            variable.assign(value)

    # What follows fits the step into Keras's trainers.

    def compile(self, optimizer="rmsprop", *args, **kwargs):
        """As `keras.Model.compile`; `optimizer` may also be a dict of named optimizers.

        Args:
            optimizer: An optimizer, Keras's name of one, or `{name: optimizer}`.
            *args: Keras's arguments.
            **kwargs: Keras's arguments.

        Raises:
            ValueError: If named optimizers are wrong or belong to no layer.
        """
        scale = kwargs.pop("auto_scale_loss", True) and self.dtype_policy.name == "mixed_float16"
        if isinstance(optimizer, dict):
            if scale:
                optimizer = {
                    name: _scaled(keras.optimizers.get(o)) for name, o in optimizer.items()
                }
            optimizer = NamedOptimizers(optimizer)
        elif scale and optimizer and not isinstance(optimizer, NamedOptimizers):
            optimizer = _scaled(keras.optimizers.get(optimizer))
        super().compile(optimizer, *args, auto_scale_loss=False, **kwargs)
        self._uses_weights = frozenset()  # names of the steps that were seen to use sample weights
        self._all_built = False  # as far as it is known
        drop_loss_tracker(self)  # the step has its own metrics; this one would report zeros
        if not self.built and type(self).build is keras.Model.build:
            # Networks that are built leave nothing to build, and `call` need not exist.
            needs_call = not self.layers and type(self).call is not keras.Model.call
            self.built = not needs_call and all(layer.built for layer in self.layers)
        if isinstance(self.optimizer, NamedOptimizers):
            self.optimizer.assign_variables(self.optimizer_variables)
            self.optimizer_variables()  # a name without a layer is met here
            if self.built:
                self.optimizer.build(self.trainable_variables)

    def compile_from_config(self, config):
        """Compiles a loaded model as it was, its optimizers ready for their saved state."""
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built and self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)

    def save_own_variables(self, store):
        """Keras's hook: also writes the state of the random generators, of all layers."""
        super().save_own_variables(store)
        save_seed_states(self, store)

    def load_own_variables(self, store):
        """Keras's hook: reads what `save_own_variables` wrote, and files without random state."""
        super().load_own_variables(load_seed_states(self, store))

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Keras's hook before the first batch on TensorFlow, where Keras itself builds nothing."""
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
        if keras.backend.backend() == "tensorflow":
            self._symbolic_build(iterator, data_batch)

    def _symbolic_build(self, iterator=None, data_batch=None):
        """Keras's hook before the first batch: everything makes its variables."""
        if unbuilt_layers(self) or not self.built or not compiled_parts_are_built(self):
            batch = first_batch(iterator) if data_batch is None else data_batch
            own = [
                getattr(self, name)
                for name in ("training_step", "validation_step")
                if getattr(type(self), name) is not getattr(PortableModel, name)
            ]
            self._is_building = True
            try:
                eager = self.run_eagerly or keras.backend.backend() == "torch"
                build_layers(self, batch, own, eager)
            finally:
                self._is_building = False
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        self._post_build()

    def train_step(self, *args):
        """Keras's hook: `(data)`, on JAX `(state, data)`."""
        if keras.backend.backend() == "jax":
            return self._run_on_state(self.training_step, *args)
        return self._run(self.training_step, *args)

    def test_step(self, *args):
        """Keras's hook: `(data)`, on JAX `(state, data)`."""
        if keras.backend.backend() == "jax":
            return self._run_on_state(self.validation_step, *args)
        return self._run(self.validation_step, *args)

    def _run(self, step, data):
        if keras.backend.backend() == "torch":
            # `train_on_batch` hands its arrays through.
            data = keras.tree.map_structure(
                lambda x: ops.convert_to_tensor(x) if isinstance(x, np.ndarray) else x, data
            )
        name = f"{type(self).__name__}.{step.__name__}"
        with whole_losses(), contextlib.nullcontext() if self.jit_compile else _after(data):
            if step.__name__ in self._uses_weights:
                logs = step(data)
            else:
                logs, used = run_and_see(step, data)
                if used:  # it need not be looked at again
                    self._uses_weights |= {step.__name__}
                elif used is not None:
                    raise ValueError(
                        f"{name} was given `sample_weight` (or `class_weight`) and computes "
                        "nothing from it. Use the third part of `data` in the loss, or leave the "
                        "weights out."
                    )
            if step.__name__ == "training_step" and isinstance(self.optimizer, NamedOptimizers):
                self.optimizer.iterations.assign_add(1)
        if not isinstance(logs, dict):
            raise ValueError(
                f"{name} must return its logs as a dict {{name: scalar}}, for example "
                f"`self.get_metrics_result()`. Received: {logs}"
            )
        return logs

    def _run_on_state(self, step, state, data):
        groups = self._state_variables(len(state))
        mapping = [
            pair
            for variables, values in zip(groups, state, strict=True)
            for pair in zip(variables, values, strict=True)
        ]
        with NestedScope(mapping) as scope:
            logs = self._run(step, data)
        known = {id(variable) for variable, _ in mapping}
        strangers = [v.path for key, v in scope.updated.items() if key not in known]
        if strangers:
            raise ValueError(
                f"{type(self).__name__}.{step.__name__} assigns variables that belong neither to "
                f"the model nor to its optimizer or metrics: {strangers}. JAX would lose their new "
                "values. Make the variable, or the layer, metric or seed generator that owns it, "
                "an attribute of the model."
            )
        state = tuple([scope.get_current_value(v) for v in variables] for variables in groups)
        return logs, state

    def _new_to_jax(self, name):
        """A step that is equal to none before.

        Keras compiles the bound method, which equals that of an earlier `compile`: as long as
        anything holds the old program, JAX takes that one, with the old loss.
        """
        step = getattr(self, name)
        return replaced(self, name, lambda *args: step(*args))

    def make_train_function(self, force=False):
        """Keras's hook."""
        fresh = self.train_function is None or force
        with self._new_to_jax("train_step"):
            super().make_train_function(force)
        if fresh and keras.backend.backend() == "torch" and self.jit_compile:
            self.train_function = _explain_double_backward(self.train_function)
        return self.train_function

    def make_test_function(self, force=False):
        """Keras's hook."""
        with self._new_to_jax("test_step"):
            return super().make_test_function(force)


def _after(data):
    """Has TensorFlow's graph wait for the data.

    The end of data of unknown length is met inside the step: what does not depend on the data,
    such as a draw of noise, would run once more, and its seed and counters move one too far. What
    XLA compiles runs as a whole or not at all.
    """
    if keras.backend.backend() != "tensorflow":
        return contextlib.nullcontext()
    import tensorflow as tf

    return tf.control_dependencies([x for x in keras.tree.flatten(data) if tf.is_tensor(x)])


def _scaled(optimizer):
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return optimizer
    return keras.optimizers.LossScaleOptimizer(optimizer)


def _explain_double_backward(function):
    """PyTorch's compiler cannot differentiate what it compiled a second time: says what to do."""

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
