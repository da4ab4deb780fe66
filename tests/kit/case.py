"""A layer or model under test, and how to call it: eagerly, symbolically, in a functional model."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence

import keras
import numpy as np

from tests.kit.tools import randomize, to_numpy

# A key's bias adds the same number to all scores of a query: softmax does not see it, so its
# gradient is 0.
ZERO_GRADIENT = r"\bkey(_dense)?/bias"


@dataclasses.dataclass
class Case:
    """A layer or model under test: how to make it, what to call it with, what it promises.

    Attributes:
        make: `make(**kw)` returns a new object; `kw` holds at most `dtype`.
        inputs: the call's arguments by name.
        padding: triples `(input, mask, follows)`: what stands in `input` where `mask` is False
            moves nothing; `follows` says that the output has the same positions, of which only
            those behind the mask may move.
        causal: name of the input whose later positions move no earlier output, or None.
        free: axes of float inputs that may have any size (batch and length); all axes of ids and
            masks are free.
        zero_gradient: pattern of the paths of weights whose gradient is 0 by the mathematics.
        numeric: gradients are compared with finite differences (no use where a function is not
            smooth).
        half_tolerance: absolute tolerance by half-precision policy, for outputs of size 1.
        output_dtype: None (the compute dtype) or the dtype that the output has under every policy.
    """

    make: Callable
    inputs: dict
    padding: Sequence[tuple] = ()
    causal: str | None = None
    free: tuple = (0, 1)
    zero_gradient: str = ZERO_GRADIENT
    numeric: bool = True
    half_tolerance: dict = dataclasses.field(
        default_factory=lambda: {"mixed_bfloat16": 5e-2, "mixed_float16": 1e-2}
    )
    output_dtype: str | None = None
    _built: dict = dataclasses.field(default_factory=dict, init=False)

    @property
    def arrays(self):
        """Those of the inputs that are arrays."""
        return {k: v for k, v in self.inputs.items() if isinstance(v, np.ndarray)}

    def call(self, layer, inputs=None, **kwargs):
        """Call the layer with its arguments, or the model with its inputs by name."""
        inputs = {**self.inputs, **(inputs or {})}
        if isinstance(layer, keras.Model):
            return layer(_as_taken(layer, inputs), **kwargs)
        first, *others = inputs.values()
        names = list(inputs)[1:]
        if "training" not in inspect.signature(layer.call).parameters:
            kwargs.pop("training", None)
        return layer(first, **dict(zip(names, others, strict=True)), **kwargs)

    def built(self, dtype=None):
        """An object with weights that are all away from their initial values.

        It is made once and shared by the contracts of a case, since building takes most of their
        time; its variables are set back to the same values every time.
        """
        if dtype not in self._built:
            keras.utils.set_random_seed(20170612)  # whichever contract comes first
            layer = self.make() if dtype is None else self.make(dtype=dtype)
            self.call(layer)
            randomize(layer)
            self._built[dtype] = layer, [to_numpy(v.value) for v in layer.variables]
        layer, values = self._built[dtype]
        for variable, value in zip(layer.variables, values, strict=True):
            variable.assign(value)
        return layer

    def free_axes(self, array):
        """Axes of an input that may have any size."""
        return self.free if array.dtype.kind == "f" else tuple(range(array.ndim))

    def dynamic_shape(self, array):
        """The array's shape with None on its free axes."""
        free = self.free_axes(array)
        return tuple(None if i in free else n for i, n in enumerate(array.shape))

    def resized(self, batch, length):
        """The inputs tiled and cut to another batch and, by the function `length` of the old one,
        other lengths."""
        found = {}
        for name, array in self.arrays.items():
            for axis in self.free_axes(array):
                size = batch if axis == 0 else length(array.shape[axis])
                repeats = -(-size // array.shape[axis])
                array = np.take(np.concatenate([array] * repeats, axis), range(size), axis)
            found[name] = array
        return found

    def functional(self, layer):
        """The layer inside a functional model with free axes; a functional model as it is."""
        if isinstance(layer, keras.Model):
            return layer
        inputs = {
            name: keras.Input(
                batch_shape=self.dynamic_shape(array), dtype=str(array.dtype), name=f"input_{name}"
            )
            for name, array in self.arrays.items()
        }
        outputs = self.call(layer, inputs)
        return keras.Model({f"input_{k}": v for k, v in inputs.items()}, outputs)

    def run(self, model, arrays=None):
        """Call what `functional` or a loaded file gave."""
        arrays = {**self.inputs, **(arrays or {})}
        names = [tensor.name for tensor in model.inputs]
        if names and names[0].startswith("input_"):
            arrays = {f"input_{k}": arrays[k] for k in self.arrays}
        return model(_as_taken(model, arrays))


def _as_taken(model, inputs):
    """The inputs in the structure in which a functional model was built: dict, list or one."""
    return keras.tree.map_structure(lambda tensor: inputs[tensor.name], model.input)
