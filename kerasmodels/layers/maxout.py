"""Maxout units (Goodfellow et al. 2013, "Maxout networks", section 2)."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.layers.initializers import get_initializer
from kerasmodels.layers.sublayers import KeepsSublayers


@keras.saving.register_keras_serializable(package="kerasmodels")
class Maxout(KeepsSublayers, keras.layers.Layer):
    """`h_i(x) = max_j z_ij` with `z_ij = x W_ij + b_ij`: the largest of several affine maps.

    The maps are one `Dense` layer, `dense`, with a kernel `(input_dim, pieces * units)`: piece j
    of all units, then piece j + 1. (Side by side by piece, the maximum runs along whole rows, and
    costs less than over a last axis of a few numbers.) There is no further activation.

    Args:
        units: Number of outputs, the paper's m.
        pieces: Number of affine maps an output is the maximum of, the paper's k.
        kernel_initializer: Of the kernel; the default draws each piece as a `Dense` layer of
            `units` outputs would.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(..., input_dim)`.

    Returns:
        `(..., units)` in the compute dtype.

    Raises:
        ValueError: If `units` or `pieces` is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    y = layers.Maxout(240, pieces=5)(keras.ops.ones((2, 784)))  # (2, 240)
    ```
    """

    def __init__(self, units, pieces, kernel_initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)
        self.units = integer("units", units)
        self.pieces = integer("pieces", pieces)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)

    def build(self, inputs_shape):
        """Builds the affine maps."""
        initializer = self.kernel_initializer
        if initializer is None:
            # Glorot's uniform distribution for `units` outputs, not for `pieces` times as many
            limit = (6 / (inputs_shape[-1] + self.units)) ** 0.5
            initializer = keras.initializers.RandomUniform(-limit, limit)
        self.dense = keras.layers.Dense(
            self.units * self.pieces,
            kernel_initializer=initializer,
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build(inputs_shape)

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        x = ops.cast(self.dense(inputs), self.compute_dtype)  # (..., pieces * units)
        if keras.backend.backend() == "torch":
            shape = ops.shape(inputs)[:-1]
            return ops.max(ops.reshape(x, (*shape, self.pieces, self.units)), axis=-2)
        # The gradient of a maximum looks for the numbers that equal it. XLA may compute them a
        # second time and round otherwise: none is found then, and the gradient is 0 / 0. A choice
        # has no such gap.
        largest, *others = ops.split(x, self.pieces, axis=-1)  # each (..., units)
        for piece in others:
            largest = ops.where(piece > largest, piece, largest)
        return largest

    def compute_output_shape(self, inputs_shape):
        """The input's shape with `units` in the last place."""
        return (*inputs_shape[:-1], self.units)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "units": self.units,
            "pieces": self.pieces,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
