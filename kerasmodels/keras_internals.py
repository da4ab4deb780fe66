"""Every private name of Keras and of the backends that this package leans on.

None of them is promised to anybody: a new version may move or drop it. So each stands here alone,
with the reason why no public name does, and with a canary in `tests/test_keras_internals.py` that
fails when the name changes and says what to look at. A private name that can be done without does
not belong here; a public one takes its place as soon as there is one.
"""

import itertools

import keras

# What a function returns for shapes without numbers: layers inside of it make their variables. The
# public `keras.Operation.compute_output_spec` puts a text of its own before every error.
from keras.src.backend import compute_output_spec

# A layer's implicit mask travels as an attribute of its output. Keras lets a layer receive it (an
# argument called `mask`), but a loss, a metric or a layer with several inputs cannot ask for it.
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

# Under `tf.distribute` all losses of Keras are divided by the number of replicas, by a function of
# this module that has no switch. `training/replicas.py` gives it one.
from keras.src.losses import loss as loss_module

__all__ = [
    "BuildsFromChosenBatch",
    "CALLED_BY_FIT",
    "CallsAfterBuild",
    "KerasAdamW",
    "KerasSGD",
    "OptimizerHooks",
    "all_layers",
    "better_when",
    "built_for",
    "drop_loss_tracker",
    "compute_output_spec",
    "fused_adam",
    "get_keras_mask",
    "get_value",
    "loss_module",
    "maker_of",
    "one_step_at_a_time",
    "own_layers",
    "set_keras_mask",
    "set_value",
]


class BuildsFromChosenBatch:
    """A mixin for `keras.Model`s: `batch_to_build_from` says from which batch `fit` builds.

    The trainers of TensorFlow and, since Keras 3.16, of JAX call `_maybe_symbolic_build` before the
    first batch. Under `tf.distribute` it reduces a whole batch over the replicas, which fails for
    boolean inputs, and nothing public comes between.
    """

    def batch_to_build_from(self, iterator):
        """The batch whose shapes a model is built for; None leaves the choice to Keras."""
        return None

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        chosen = None if iterator is None else self.batch_to_build_from(iterator)
        if chosen is not None:
            iterator, data_batch = None, chosen
        super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)


def one_step_at_a_time(model, iterator):
    """Splits the data of one call of a JAX train, test or predict function into that of its steps.

    With `steps_per_execution` the function takes several steps and donates the state of each to the
    next, so that an error in between leaves no state at all. Keras 3.15 takes the batches from the
    iterator one by one. Keras 3.16 finds them stacked and runs them as one program, which fails as
    a whole; only the last ones of an epoch, too few to be stacked, are still steps of their own.

    Args:
        model: A compiled `keras.Model`.
        iterator: What Keras calls the function with.

    Returns:
        Iterators, each for one call of the function. The function raises StopIteration for those
        that are left over when the data ends.
    """
    steps = model.steps_per_execution
    if steps == 1:
        return [iterator]
    if not hasattr(keras.Model, "state_sync"):  # Keras 3.15
        return [itertools.islice(iterator, 1) for _ in range(steps)]
    batch = next(iterator)
    if isinstance(batch, list):  # its class says that it holds single batches
        return [iter([type(batch)([one])]) for one in batch]
    return [iter([batch])]


def all_layers(layer):
    """A layer and all layers within it, however deep.

    The public `Model.layers` has a model's own layers, and a layer has no such attribute.
    """
    return layer._flatten_layers()


class CallsAfterBuild:
    """A mixin for layers and functional models: `after_build` is called when all weights are made.

    Keras wraps `build` and calls `_post_build` behind it. A `build` of our own would have to stand
    before that of each class that uses this, since a mixin comes after the class in the order of
    calls.
    """

    def _post_build(self):
        super()._post_build()
        self.after_build()

    def after_build(self):
        """Does what the class wants to do when it is built."""


def own_layers(layer):
    """The layers that a layer or model holds itself; those within them are left out."""
    return layer._flatten_layers(include_self=False, recursive=False)


def maker_of(tensor):
    """The operation that made a `keras.KerasTensor`, and what it made it of.

    The public `Operation.output` and `Operation.input` refuse an operation that was called twice.

    Returns:
        `(operation, list of KerasTensors)`.
    """
    history = tensor._keras_history
    node = history.operation._inbound_nodes[history.node_index]
    return history.operation, node.input_tensors


# On PyTorch Keras swaps its own class, and not a subclass, for one with multi-tensor kernels:
# `__new__` tells which class that is without making an optimizer (and with it, variables).
KerasAdamW = type(keras.optimizers.AdamW.__new__(keras.optimizers.AdamW))
KerasSGD = type(keras.optimizers.SGD.__new__(keras.optimizers.SGD))


class OptimizerHooks:
    """A mixin for optimizers that gives Keras's private hooks names of ours.

    Publicly an optimizer can only say how one variable is updated (`update_step`), and which are
    not decayed; neither how weights decay nor how PyTorch updates all variables at once.
    """

    def is_decayed(self, variable):
        """Whether a variable of an optimizer that is built is subject to weight decay."""
        return self._use_weight_decay(variable)

    def decay(self, variables):
        """Takes the decoupled weight decay off those of the variables that are decayed."""
        # PyTorch's multi-tensor kernel refuses an empty list.
        variables = [v for v in variables if self.is_decayed(v)]
        if variables:
            super()._apply_weight_decay(variables)

    def update_all(self, gradients, variables, learning_rate):
        """Updates all variables at once; only PyTorch asks for it."""
        super()._parallel_update_step(gradients, variables, learning_rate)

    def moments(self, variables):
        """The two moments that Adam keeps for each variable: `(means, variances)`."""
        places = [self._get_variable_index(v) for v in variables]
        return [self._momentums[i] for i in places], [self._velocities[i] for i in places]

    def _apply_weight_decay(self, variables):
        self.decay(variables)

    def _parallel_update_step(self, gradients, variables, learning_rate):
        self.update_all(gradients, variables, learning_rate)


def fused_adam(values, gradients, means, variances, steps, **kwargs):
    """PyTorch's kernel for one step of Adam, in one pass over memory.

    Publicly it is reached only through `torch.optim`, which keeps the moments itself.
    """
    import torch

    torch._fused_adam_(values, gradients, means, variances, [], steps, **kwargs)


# The argument by which `fit` tells `evaluate` that it validates: the data was seen before.
CALLED_BY_FIT = "_use_cached_eval_dataset"


def better_when(direction):
    """A decorator for metrics that tells monitors in mode "auto" which way is better.

    Keras looks for this attribute of the metric; publicly a callback can only be told itself.

    Args:
        direction: `"up"` or `"down"`.
    """

    def mark(cls):
        cls._direction = direction
        return cls

    return mark


def drop_loss_tracker(model):
    """Takes the metric `loss` off a compiled model whose step does not use Keras's loss.

    Keras adds it to every model, and it reports 0 where nobody updates it.
    """
    model._loss_tracker = None


def built_for(optimizer):
    """The variables that an optimizer was built for, in the order of `stateless_apply`."""
    return optimizer._trainable_variables


def get_value(variable):
    """What a variable holds, past the scope that may stand for it.

    The public `variable.value` asks the innermost `keras.StatelessScope` first.
    """
    return variable._value


def set_value(variable, value):
    """Has a variable hold an array of its own shape, dtype and layout.

    The public `variable.assign` converts, checks and lays out: too slow for every variable of a
    model at every step.
    """
    variable._value = value
