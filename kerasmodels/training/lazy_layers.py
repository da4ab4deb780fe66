"""Layers that are not built yet make their variables before the first step.

An optimizer must know what it is built for, `minimize` must find the variables that it shall
update, and TensorFlow lets a compiled step make variables in its first trace alone. Keras builds a
model by calling it. A model that is trained by its own step may have no `call`, or a step that
uses more layers than its `call`; then the step itself is run on the shapes of the first batch.
"""

import keras
from keras import ops

from kerasmodels.keras_internals import all_layers, compute_output_spec
from kerasmodels.training.gradients import NestedScope


def unbuilt_layers(model):
    """The layers inside of a model that have not made their variables.

    Args:
        model: A `keras.Model`.

    Returns:
        A list of layers, without the model itself.
    """
    return [layer for layer in all_layers(model) if layer is not model and not layer.built]


def names_in(model, layers):
    """What its author calls the layers of a model: `self.<attribute>` where there is one."""
    # A module of PyTorch's keeps those that are inside of it in a place of their own.
    torch = keras.backend.backend() == "torch"
    held = dict(model.named_children()) if torch else vars(model)
    names = {id(value): f"self.{name}" for name, value in held.items()}
    return [names.get(id(layer), layer.name) for layer in layers]


def first_batch(iterator):
    """The first batch of one of Keras's epochs, or what TensorFlow knows about its shapes.

    Args:
        iterator: What Keras's trainers iterate over; they reset it afterwards.

    Returns:
        A batch of arrays, or of `keras.KerasTensor`s.
    """
    for _, _, batches in iterator:
        if keras.backend.backend() == "tensorflow":
            # Nothing is taken out: a generator would have lost it.
            return keras.tree.map_structure(_symbol_of_spec, batches.element_spec)
        return batches[0] if isinstance(batches, list | tuple) else next(batches)
    raise ValueError("The data must have at least one batch. Received: none")


def build_layers(model, batch, steps, run_eagerly):
    """Has the layers, the losses and the metrics of a model make their variables.

    Args:
        model: A `PortableModel`.
        batch: Its first batch, or one of `keras.KerasTensor`s.
        steps: Functions of a batch that may be run besides the model's `call`, each if what came
            before has left layers unbuilt. They must update nothing.
        run_eagerly: Whether steps may need numbers, not only shapes.

    Raises:
        ValueError: If layers are left, and none of the steps could be run.
    """
    has_call = type(model).call is not keras.Model.call
    error, was_run = None, False
    for step in [_call_of(model)] * has_call + steps:
        numbers = run_eagerly and step in steps and not _is_symbolic(batch)
        try:
            _run(step, batch, numbers)
            was_run = was_run or step in steps
        except Exception as raised:
            error = (
                error if error and step not in steps[:1] else raised
            )  # the first step's says most
        if not unbuilt_layers(model) and compiled_parts_are_built(model):
            break
    left = unbuilt_layers(model)
    if left and error is not None and not was_run:
        raise ValueError(
            "Every layer must be built before the first step, and running the step on the shapes "
            f"of the first batch has failed ({type(error).__name__}: {error}). Give each network "
            "an `Input`, or call it once on data before `fit`. Received these layers without "
            f"variables: {names_in(model, left)}"
        ) from error
    if not left and not model.built:
        model.built = True  # it has no `call` to be built by


def _call_of(model):
    def call(batch):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(batch)
        y_pred = model(x, training=False)
        if model._compile_metrics is not None:
            model._compile_metrics(y, y_pred, sample_weight)
        if model._compile_loss is not None:
            model._compile_loss(y, y_pred, sample_weight)

    return call


def compiled_parts_are_built(model):
    """Whether the losses and metrics that a model was compiled with have made their variables."""
    parts = (model._compile_metrics, model._compile_loss)
    return all(part is None or part.built for part in parts)


def _run(step, batch, numbers):
    if numbers:
        with keras.StatelessScope():  # nothing that is assigned here leaves it
            batch = keras.tree.map_structure(_tensor, batch)
            with NestedScope():
                step(batch)
        return
    flat = keras.tree.flatten(batch)

    def run(*leaves):
        leaves = iter(leaves)
        flat_batch = [None if leaf is None else next(leaves) for leaf in flat]
        with NestedScope():
            step(keras.tree.pack_sequence_as(batch, flat_batch))
        return flat_batch[0]

    compute_output_spec(run, *(_symbol(leaf) for leaf in flat if leaf is not None))


def _is_symbolic(batch):
    return any(isinstance(leaf, keras.KerasTensor) for leaf in keras.tree.flatten(batch))


def _tensor(leaf):
    return None if leaf is None else ops.convert_to_tensor(leaf)


def _symbol(leaf):
    if isinstance(leaf, keras.KerasTensor):
        return leaf
    return keras.KerasTensor(tuple(leaf.shape), keras.backend.standardize_dtype(leaf.dtype))


def _symbol_of_spec(spec):
    if not hasattr(spec, "dtype"):  # of an element that may be missing
        return None
    sparse = type(spec).__name__ == "SparseTensorSpec"
    return keras.KerasTensor(tuple(spec.shape), spec.dtype.name, sparse=sparse)
