"""Which layers a forward pass calls, and with what shapes.

Keras runs the model for its shapes alone, which takes no time and no memory to speak of: on
TensorFlow in a graph that is thrown away, on JAX under `eval_shape`, on PyTorch on the meta device.
Meanwhile `keras.Operation.__call__`, through which every layer goes, takes notes.
"""

import contextlib
import dataclasses
import inspect
import threading
import typing

import keras
from keras import layers, tree

from kerasmodels.cost.formulas import UNKNOWN_LAYERS, first

# They repeat what is within them, seen or unseen: their steps are counted apart.
_LOOPS = (layers.RNN, layers.Bidirectional, layers.TimeDistributed)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a layer, or of an operation in a functional model's graph, `times` times."""

    path: str
    operation: keras.Operation
    arguments: dict
    outputs: typing.Any
    times: int = 1


def all_calls(layer, arguments, path, times=1):
    """All calls that a call of `layer` makes, its own among them.

    Args:
        layer: A built layer.
        arguments: `(args, kwargs)` with a `KerasTensor` for each tensor.
        path: Of the layer; `""` is that of the model itself.
        times: How often the layer is called.

    Returns:
        A list of `Call`, each before those within it.
    """
    forward = _Forward(layer, arguments, path)
    forward.compute_output_spec(*filter(_is_spec, tree.flatten(arguments)))
    calls = []
    for call in forward.calls:
        calls.append(dataclasses.replace(call, times=times))
        for part, part_arguments, steps in _parts(call):
            calls += all_calls(part, part_arguments, f"{call.path}/{part.name}", times * steps)
    return calls


def _parts(call):
    """Of a loop: `(layer, arguments, steps)` of what it repeats."""
    loop = call.operation
    if not isinstance(loop, _LOOPS) or isinstance(loop, UNKNOWN_LAYERS):
        return []
    sequence = first(call.arguments)  # (batch, steps, ...)
    if isinstance(loop, layers.Bidirectional):
        return [(part, ((sequence,), {}), 1) for part in (loop.forward_layer, loop.backward_layer)]
    rows, steps, *rest = sequence.shape
    step = keras.KerasTensor((rows, *rest), sequence.dtype)
    if isinstance(loop, layers.TimeDistributed):
        return [(loop.layer, ((step,), {}), steps)]
    return [(loop.cell, ((step, _specs(loop.get_initial_state(rows))), {}), steps)]


class _Forward(keras.Operation):
    """A call of a layer that notes the calls within it; Keras runs it for the shapes alone."""

    def __init__(self, layer, arguments, path):
        super().__init__()
        self.layer, self.arguments, self.path, self.calls = layer, arguments, path, []

    def call(self, *tensors):
        self.calls.clear()  # what the meta device of PyTorch cannot run, Keras begins anew
        tensors = iter(tensors)
        flat = [next(tensors) if _is_spec(x) else x for x in tree.flatten(self.arguments)]
        args, kwargs = tree.pack_sequence_as(self.arguments, flat)
        with _noting(self.calls, self.path):
            self.layer(*args, **kwargs)


_ONE_AT_A_TIME = threading.Lock()


@contextlib.contextmanager
def _noting(calls, path):
    """Every call of a layer in this thread goes into the list `calls`."""
    original, thread, around = keras.Operation.__call__, threading.get_ident(), []

    def noted(operation, *args, **kwargs):
        hidden = around and isinstance(around[-1][0], _LOOPS)
        if hidden or threading.get_ident() != thread:
            return original(operation, *args, **kwargs)
        names = [around[-1][1], operation.name] if around else [path]
        here = "/".join(filter(None, names))
        place = len(calls)  # before the calls within
        calls.append(None)
        around.append((operation, here))
        try:
            outputs = original(operation, *args, **kwargs)
        finally:
            around.pop()
        bound = inspect.signature(operation.call).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments, specs = _specs((dict(bound.arguments), outputs))
        calls[place] = Call(here or operation.name, operation, arguments, specs)
        return outputs

    with _ONE_AT_A_TIME:
        keras.Operation.__call__ = noted
        try:
            yield
        finally:
            keras.Operation.__call__ = original


def _is_spec(x):
    return isinstance(x, keras.KerasTensor)


def _specs(structure):
    """The structure with a `KerasTensor` for each tensor, one for each object."""
    found = {}

    def spec(x):
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            return x
        dtype = keras.backend.standardize_dtype(x.dtype)
        return found.setdefault(id(x), keras.KerasTensor(tuple(x.shape), dtype))

    return tree.map_structure(spec, structure)
