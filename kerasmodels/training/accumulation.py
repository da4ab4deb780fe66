"""Gradient accumulation that gives what the whole batch would have given."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.keras_internals import get_keras_mask
from kerasmodels.training.checked_inputs import ChecksInputs
from kerasmodels.training.counted_tokens import CountsTokens
from kerasmodels.training.gradients import NestedScope
from kerasmodels.training.losses import loss_argument
from kerasmodels.training.portable import PortableModel
from kerasmodels.training.replicas import num_replicas


@keras.saving.register_keras_serializable(package="kerasmodels")
class GradientAccumulation(ChecksInputs, PortableModel):
    """Trains a model on batches that do not fit into memory, several rows at a time.

    Every batch that `fit` is given is split by rows into `steps` micro-batches; their gradients are
    added up and the optimizer takes one step. A batch of B rows therefore gives the step that it
    gives without splitting, for the memory of B / steps rows and one copy of the gradients.

    It is exact for means over tokens: each micro-batch's gradient counts with its share of the real
    tokens, not of the micro-batches, so unequal padding changes nothing. (Keras's
    `gradient_accumulation_steps` takes the plain mean over batches, which weighs the tokens of
    short ones more.) What differs from the whole batch is only what looks at rows together or draws
    numbers: batch normalization normalizes each micro-batch, and dropout masks are other ones.

    Metrics see every micro-batch, and `loss` is the whole batch's. If `steps` does not divide the
    rows, the sizes differ by one; a batch with fewer rows than `steps` is split into single rows.

    Compile and fit this object and use either one afterwards: the weights are the model's own.
    `GenerationCallback` asks the model itself, and `KeepLastCheckpoints` writes the model's files;
    Keras's callbacks see this object.

    Args:
        model: A model with one output, or with a dictionary of outputs, such as
            `models.BertPretraining`. It need not be compiled; its own compilation is not used.
        steps: The number of micro-batches, at least 1.
        **kwargs: `keras.Model`'s arguments.

    Compiling it:
        loss: `training.SmoothedCrossEntropy`, or another loss that has its `token_weight`; or a
            Keras loss that is a mean over the batch (`reduction="sum_over_batch_size"`), which is
            split by rows. For a dictionary of outputs a dictionary of such losses: each output's
            gradient then counts with its own share of what that loss is a mean over.

    Raises:
        ValueError: If `steps` is not a positive integer, `model` no Keras model, or a loss none
            that can be split.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import training

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    accumulation = training.GradientAccumulation(model, steps=4)
    accumulation.compile("adam", loss="mse")
    accumulation.fit(np.ones((256, 8)), np.ones((256, 3)), batch_size=128)  # 32 rows at a time
    model.save("model.keras")
    ```
    """

    def __init__(self, model, steps, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(model, keras.Model):
            raise ValueError(f"`model` must be a keras.Model. Received: model={model}")
        self.model = model
        self.steps = integer("steps", steps)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    @property
    def input_limits(self):
        """Those of the model."""
        return getattr(self.model, "input_limits", {})

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        if isinstance(self.model, ChecksInputs):
            self.model._check(inputs, targets, sample_weight, loss=getattr(self, "loss", None))

    def _counted(self, x, y):
        return self.model._counted(x, y) if isinstance(self.model, CountsTokens) else []

    def _check_class_weight(self, class_weight, y):
        if isinstance(self.model, ChecksInputs):
            self.model._check_class_weight(class_weight, y)

    def _check_source(self, source, with_targets):
        if isinstance(self.model, ChecksInputs):
            self.model._check_source(source, with_targets)

    def _checked(self, x, targets, with_targets):
        checks = isinstance(self.model, ChecksInputs)
        return super()._checked(x, targets, with_targets) if checks else x

    def call(self, inputs, training=None):
        """The model's own output."""
        return self.model(inputs, training=training)

    def compile(self, optimizer="rmsprop", loss=None, loss_weights=None, *args, **kwargs):
        """As `keras.Model.compile`; see the class for the losses that can be split."""
        for one in loss.values() if isinstance(loss, dict) else [loss]:
            name = getattr(one, "reduction", "sum_over_batch_size")
            by_tokens = hasattr(one, "token_weight")
            by_rows = not by_tokens and name in ("sum_over_batch_size", "mean")
            if one is None or isinstance(one, (list, tuple)) or not (by_tokens or by_rows):
                raise ValueError(
                    "`loss` must be one loss for the one output, or a dictionary of them: "
                    "SmoothedCrossEntropy or another with a method `token_weight`, or a Keras "
                    "loss with reduction='sum_over_batch_size'. "
                    f"Received: loss={loss}, reduction={name!r}"
                )
        if isinstance(loss, dict):
            loss = {name: keras.losses.get(one) for name, one in loss.items()}
            self._loss_weights = dict(loss_weights or {})
        super().compile(optimizer, loss, loss_weights, *args, **kwargs)

    def training_step(self, data):
        """One optimizer step on one batch, computed in `steps` parts."""
        data = keras.utils.unpack_x_y_sample_weight(data)
        if data[1] is None:
            raise ValueError(
                "GradientAccumulation needs batches (inputs, targets) or (inputs, targets, "
                "sample_weight). Received one without targets."
            )
        variables = self.trainable_variables
        optimizer = self._optimizer()
        # Shares are of this size rather than of the weight, which is known only at the end (it
        # may depend on the mask of the predictions): sums over tokens would overflow float16.
        several = isinstance(self.loss, dict)
        size = None if several else ops.cast(ops.size(data[1]), "float32")
        weights = self._weights(*data[1:]) if several else None

        def micro_step(batch, sums):
            """Adds a micro-batch's gradients, loss and weight to the sums."""
            x, y, sample_weight = batch

            def loss_fn():
                y_pred = self(x, training=True)
                if several:
                    part = ops.cast(_rows(y), "float32") / ops.cast(_rows(data[1]), "float32")
                    loss = self._sum_of_losses(y, y_pred, sample_weight, weights, part)
                    return loss, part, y_pred
                share = self._weight(self.loss, y, sample_weight, y_pred) / size
                loss = ops.cast(self.compute_loss(x, y, y_pred, sample_weight), "float32")
                return loss * share, share, y_pred

            with self._counting(x, y, sample_weight):
                (loss, share, y_pred), gradients = self._gradients(loss_fn, variables, optimizer)
            self.compute_metrics(x, y, y_pred, sample_weight)
            return [a + b for a, b in zip(sums, [*gradients, loss, share], strict=True)]

        zeros = [ops.zeros(v.shape, v.dtype) for v in variables] + [ops.zeros(()), ops.zeros(())]
        *gradients, loss, share = self._sum_over_micro_batches(micro_step, data, zeros)
        # A batch of nothing but padding: no loss and no gradient.
        scale = ops.divide_no_nan(1.0, share)
        gradients = [gradient * ops.cast(scale, gradient.dtype) for gradient in gradients]
        self._take_step(gradients, variables, optimizer)
        self.loss_tracker.update_state(loss * scale, sample_weight=_rows(data[1]))
        return self.get_metrics_result()

    def validation_step(self, data):
        """Loss and metrics of a batch, computed at once."""
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        loss = self.compute_loss(x, y, y_pred, sample_weight, training=False)
        self.loss_tracker.update_state(loss, sample_weight=_rows(y))
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def _weight(self, loss, y, sample_weight, y_pred=None):
        """How much a micro-batch's loss counts: what its mean divides by."""
        mask = get_keras_mask(y_pred) if y_pred is not None else None
        if hasattr(loss, "token_weight"):
            return ops.cast(loss.token_weight(y, sample_weight, mask), "float32")
        if mask is not None:
            raise ValueError(
                "The predictions carry a mask, so that the loss is a mean over what it keeps, and "
                f"{loss} cannot say how much that is. Use a loss with a method "
                "`token_weight`, such as SmoothedCrossEntropy."
            )
        ignored = loss_argument(loss, "ignore_class")
        if ignored is not None:  # Keras divides by the number of the others
            return ops.sum(ops.cast(ops.not_equal(y, ignored), "float32"))
        return ops.cast(ops.size(y), "float32")

    def _weights(self, y, sample_weight):
        """That of each of several outputs."""
        if not isinstance(y, dict) or set(y) != set(self.loss):
            raise ValueError(
                "Targets must be a dictionary with the keys of `loss`, "
                f"{sorted(self.loss)}. Received: {sorted(y) if isinstance(y, dict) else type(y)}"
            )
        return {
            name: self._weight(loss, y[name], _of(sample_weight, name))
            for name, loss in self.loss.items()
        }

    def _sum_of_losses(self, y, y_pred, sample_weight, weights, part):
        """The losses of several outputs, each with the micro-batch's share of its weight."""
        total = sum((ops.cast(loss, "float32") for loss in self.losses), ops.zeros(())) * part
        for name, loss in self.loss.items():
            if get_keras_mask(y_pred[name]) is not None:
                raise ValueError(
                    f"The predictions of {name!r} carry a mask. With several outputs give sample "
                    "weights instead: what a loss is a mean over must be known beforehand."
                )
            own = _of(sample_weight, name)
            share = ops.divide_no_nan(self._weight(loss, y[name], own), weights[name])
            value = ops.cast(loss(y[name], y_pred[name], sample_weight=own), "float32")
            total = total + self._loss_weights.get(name, 1.0) * share * value
        return total

    def _sum_over_micro_batches(self, micro_step, data, sums):
        if keras.backend.backend() == "jax":
            return self._jax_loop(micro_step, data, sums)
        # XLA wants static sizes, and replicas cannot meet one another inside of a loop.
        if keras.backend.backend() == "torch" or self.jit_compile or num_replicas() > 1:
            return self._unrolled_loop(micro_step, data, sums)
        return self._tensorflow_loop(micro_step, data, sums)

    def _unrolled_loop(self, micro_step, data, sums):
        rows = keras.tree.flatten(data[1])[0].shape[0]
        steps = self.steps if rows is None else min(self.steps, rows)
        for i in range(steps):
            batch = _map(lambda x, i=i: x[i::steps], data)
            sums = micro_step(_after(sums, batch), sums)
        return sums

    def _tensorflow_loop(self, micro_step, data, sums):
        import tensorflow as tf

        rows = _rows(data[1])
        steps = tf.minimum(self.steps, rows)

        def body(i, sums):
            part = tf.range(i, rows, steps)
            return i + 1, micro_step(_map(lambda x: tf.gather(x, part), data), sums)

        # One iteration at a time: several would hold the activations of several.
        _, sums = tf.while_loop(
            lambda i, sums: i < steps, body, (tf.constant(0), sums), parallel_iterations=1
        )
        return sums

    def _jax_loop(self, micro_step, data, sums):
        import jax

        rows = keras.tree.flatten(data[1])[0].shape[0]
        steps = min(self.steps, rows)
        state = self.non_trainable_variables + self.metrics_variables

        def scan(start, count, size, carry):
            """The micro-batches of one size: `count` of them, from row `start` on."""

            def part(x, i):  # (count * size, ...) -> (size, ...): the rows i, i + count, ...
                x = ops.reshape(x[start : start + count * size], (size, count, *x.shape[1:]))
                return jax.lax.dynamic_index_in_dim(x, i, axis=1, keepdims=False)

            def body(carry, i):
                sums, values = carry
                with NestedScope(zip(state, values, strict=True)) as scope:
                    sums = micro_step(_map(lambda x: part(x, i), data), sums)
                strangers = set(scope.updated) - {id(v) for v in state}
                if strangers:
                    raise ValueError(
                        "The model assigns variables that a micro-batch must not: "
                        f"{[scope.updated[key].path for key in strangers]}"
                    )
                return (sums, [scope.get_current_value(v) for v in state]), None

            return jax.lax.scan(body, carry, jax.numpy.arange(count))[0]

        small, larger = divmod(rows, steps)  # the first `larger` parts have one row more
        carry = (sums, [v.value for v in state])
        if larger:
            carry = scan(0, larger, small + 1, carry)
        sums, values = scan(larger * (small + 1), steps - larger, small, carry)
        for variable, value in zip(state, values, strict=True):
            variable.assign(value)
        return sums

    def get_config(self):
        """The constructor's arguments."""
        return {
            "model": keras.saving.serialize_keras_object(self.model),
            "steps": self.steps,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config):
        """Builds it from `get_config`'s result."""
        model = keras.saving.deserialize_keras_object(config["model"])
        return cls(model, config["steps"], name=config["name"])


def without_accumulation(model):
    """The model that a `GradientAccumulation` trains; any other model as it is."""
    return model.model if isinstance(model, GradientAccumulation) else model


def _rows(y):
    """The number of rows of a batch, by its targets."""
    return ops.shape(keras.tree.flatten(y)[0])[0]


def _of(sample_weight, name):
    """The weights of one of several outputs."""
    return sample_weight.get(name) if isinstance(sample_weight, dict) else sample_weight


def _map(fn, data):
    return keras.tree.map_structure(lambda x: None if x is None else fn(x), data)


def _after(done, batch):
    """The batch, but not before `done`: TensorFlow would run all parts of the loop at once."""
    if keras.backend.backend() != "tensorflow":
        return batch
    import tensorflow as tf

    with tf.control_dependencies(done):
        return _map(tf.identity, batch)
