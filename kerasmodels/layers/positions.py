"""Where a token stands: sinusoids (Vaswani et al. 2017, section 3.5) and learned positions.

And what stands at a position.
"""

import math

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import integer, positive_number
from kerasmodels.layers.indices import check_ids, check_rank, known_index
from kerasmodels.layers.initializers import get_initializer


@keras.saving.register_keras_serializable(package="kerasmodels")
class PositionalEncoding(keras.layers.Layer):
    """Adds the sinusoids of section 3.5 to its input.

    `PE(pos, 2i) = sin(pos / max_wavelength^(2i/d))` and `PE(pos, 2i+1) = cos(same angle)`. They
    are computed in float32 whatever the policy; an odd width has one sine more than cosines.

    Args:
        max_wavelength: Wavelength towards which the last columns go, over 2 pi.
        layout: `"interleaved"`, sine and cosine in turn as in the paper, or `"halves"`, all sines
            and then all cosines as in Marian and much common code: the same numbers in another
            order. (The tensor2tensor table has another exponent and is not offered.)
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        start_index: Position of the first column, an integer or a scalar int32 tensor.

    Returns:
        `(batch, length, hidden_dim)` in the compute dtype.

    Raises:
        ValueError: If `layout` is unknown or `max_wavelength` is not positive.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    x = layers.PositionalEncoding()(keras.ops.zeros((1, 50, 512)))  # (1, 50, 512)
    ```
    """

    def __init__(self, max_wavelength=10000.0, layout="interleaved", **kwargs):
        super().__init__(**kwargs)
        if layout not in ("interleaved", "halves"):
            raise ValueError(
                f'`layout` must be "interleaved" or "halves". Received: layout={layout!r}'
            )
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_masking = True
        self.max_wavelength = positive_number("max_wavelength", max_wavelength)
        self.layout = layout

    def table(self, length, hidden_dim, start_index=0):
        """The encoding itself.

        Args:
            length: Number of positions, an integer or a scalar tensor.
            hidden_dim: Number of columns, an integer.
            start_index: Position of the first row.

        Returns:
            float32 tensor of shape `(length, hidden_dim)`.
        """
        # Column j belongs to pair j // 2; in "halves" the even columns come first.
        columns = np.arange(hidden_dim)
        if self.layout == "halves":
            columns = np.concatenate([columns[0::2], columns[1::2]])
        # An angle of thousands of radians in float32 has lost its last digits before sin sees it.
        # In turns, as a 32-bit fraction, whole turns fall off by themselves as integers overflow,
        # and what remains is exact to position * 2^-33.
        turns = self.max_wavelength ** (-2.0 * (columns // 2) / hidden_dim) / (2 * math.pi)
        steps = np.round(np.mod(turns, 1.0) * 2.0**32).astype(np.uint64).astype(np.uint32)
        positions = ops.arange(length, dtype="int32") + ops.cast(start_index, "int32")
        product = ops.expand_dims(positions, 1) * ops.convert_to_tensor(steps.view(np.int32))[None]
        angles = ops.cast(product, "float32") * np.float32(2 * math.pi / 2.0**32)
        return ops.where(columns % 2 == 0, ops.sin(angles), ops.cos(angles))

    def call(self, inputs, start_index=0):
        """Adds the positions; see the class for the arguments."""
        known_index("start_index", start_index)
        # int(): PyTorch's exporter traces sizes as tensors
        table = self.table(ops.shape(inputs)[1], int(inputs.shape[-1]), start_index)
        return inputs + ops.cast(table, inputs.dtype)

    def compute_output_shape(self, input_shape):
        """The input's shape."""
        return input_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "max_wavelength": self.max_wavelength,
            "layout": self.layout,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class PositionEmbedding(keras.layers.Layer):
    """Adds a learned vector per position to its input (section 3.5, table 3 row E).

    Args:
        max_sequence_length: Number of positions that are learned.
        initializer: Of the table. Defaults to a normal distribution of deviation 0.02.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        start_index: Position of the first column, an integer or a scalar int32 tensor.

    Returns:
        `(batch, length, hidden_dim)` in the compute dtype.

    Raises:
        ValueError: If `max_sequence_length` is not positive, or the input reaches beyond it.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    x = layers.PositionEmbedding(512)(keras.ops.zeros((1, 50, 64)))  # (1, 50, 64)
    ```
    """

    def __init__(self, max_sequence_length, initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_masking = True
        self.max_sequence_length = integer("max_sequence_length", max_sequence_length)
        self.initializer = get_initializer("initializer", initializer)
        if self.initializer is None:
            self.initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, inputs_shape):
        """Creates the table, `(max_sequence_length, hidden_dim)`."""
        self.embeddings = self.add_weight(
            shape=(self.max_sequence_length, inputs_shape[-1]),
            initializer=self.initializer,
            name="embeddings",
        )

    def call(self, inputs, start_index=0):
        """Adds the positions; see the class for the arguments."""
        length, start = ops.shape(inputs)[1], known_index("start_index", start_index)
        if start is not None and start < 0:
            raise ValueError(f"`start_index` must not be negative. Received: start_index={start}")
        if isinstance(length, int):
            self._check_end(length + (start or 0))
        table = ops.convert_to_tensor(self.embeddings)  # (max_sequence_length, hidden_dim)
        if keras.backend.backend() == "jax" and not isinstance(length, int):
            # In an export: JAX cannot know that a free length is within the table.
            positions = ops.arange(length, dtype="int32") + ops.cast(start_index, "int32")
            table = ops.take(table, positions, axis=0)
        elif isinstance(start_index, int | np.integer) and (isinstance(length, int) or start == 0):
            table = table[start : start + length]
        elif isinstance(start_index, int) and keras.backend.backend() == "torch":
            table = table[start : start + length]  # its exporter knows no start that is a tensor
        else:
            start = ops.stack([ops.cast(start_index, "int32"), ops.zeros((), dtype="int32")])
            table = ops.slice(table, start, (length, inputs.shape[-1]))
        return inputs + ops.cast(table, inputs.dtype)

    def compute_output_shape(self, inputs_shape):
        """The input's shape."""
        if inputs_shape[1] is not None:
            self._check_end(inputs_shape[1])
        return inputs_shape

    def _check_end(self, end):
        if end > self.max_sequence_length:
            raise ValueError(
                f"The input reaches to length {end}, beyond the {self.max_sequence_length} "
                f"positions that are learned (max_sequence_length={self.max_sequence_length})."
            )

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "max_sequence_length": self.max_sequence_length,
            "initializer": keras.initializers.serialize(self.initializer),
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class GatherPositions(keras.layers.Layer):
    """The vectors at some positions, such as those of the masked tokens (BERT, section 3.1).

    Args:
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        positions: Integers `(batch, predictions)`, each in `[0, length)`.

    Returns:
        `(batch, predictions, hidden_dim)` in the compute dtype.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import layers

    layer = layers.GatherPositions()
    x = layer(keras.random.normal((2, 50, 64)), np.array([[3, 7], [1, 0]]))  # (2, 2, 64)
    ```
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)

    def call(self, inputs, positions):
        """Gathers; see the class for the arguments."""
        check_rank("positions", positions, 2)
        check_ids("positions", positions, ops.shape(inputs)[1])
        if keras.backend.backend() != "torch":
            # Along the rows: on several devices each keeps its own, also of the gradient.
            return ops.take_along_axis(inputs, ops.expand_dims(positions, -1), axis=1)
        # In the flat (batch * length): PyTorch's exporter makes a constant of the length otherwise.
        starts = ops.arange(ops.shape(inputs)[0], dtype="int32") * ops.shape(inputs)[1]
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))  # (batch * length, hidden)
        return ops.take(rows, ops.cast(positions, "int32") + starts[:, None], axis=0)

    def compute_output_shape(self, inputs_shape, positions_shape):
        """One vector a position."""
        return (*positions_shape, inputs_shape[-1])

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config()


def position_layers(kind, max_sequence_length, dtype):
    """The layers that add positions in encoder and decoder; sinusoids need only one.

    Args:
        kind: `"sinusoidal"`, `"sinusoidal_halves"` or `"learned"`.
        max_sequence_length: For learned positions alone.
        dtype: Dtype or policy of the layers.

    Returns:
        `(encoder_position, decoder_position)`.

    Raises:
        ValueError: If `kind` is unknown or `max_sequence_length` does not go with it.
    """
    if kind == "learned":
        if max_sequence_length is None:
            raise ValueError('positions="learned" needs `max_sequence_length`.')
        return tuple(
            PositionEmbedding(max_sequence_length, dtype=dtype, name=f"{side}_position")
            for side in ("encoder", "decoder")
        )
    if kind not in ("sinusoidal", "sinusoidal_halves"):
        raise ValueError(
            '`positions` must be "sinusoidal", "sinusoidal_halves" or "learned". '
            f"Received: positions={kind!r}"
        )
    if max_sequence_length is not None:
        raise ValueError(
            "Sinusoids have no greatest length: `max_sequence_length` goes with "
            f'positions="learned". Received: max_sequence_length={max_sequence_length}'
        )
    layout = "halves" if kind == "sinusoidal_halves" else "interleaved"
    layer = PositionalEncoding(layout=layout, dtype=dtype, name="position")
    return layer, layer
