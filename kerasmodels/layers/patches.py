"""An image as a sequence: patches and the class token (Dosovitskiy et al. 2021, section 3.1)."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.data_format import standardize_data_format
from kerasmodels.layers.initializers import get_initializer
from kerasmodels.layers.sublayers import KeepsSublayers


@keras.saving.register_keras_serializable(package="kerasmodels")
class PatchEmbedding(KeepsSublayers, keras.layers.Layer):
    """Cuts images into square patches and projects each of them linearly (equation 1).

    Patches run row by row: patch 1 is the right neighbour of patch 0. The projection is the
    `Dense` layer `projection`; within its kernel `(patch_size^2 * channels, hidden_dim)` a patch
    runs by row, column and channel, as a convolution's kernel does when it is flattened.

    Args:
        patch_size: Side of a patch in pixels.
        hidden_dim: Size of an embedding.
        kernel_initializer: The initializer of the projection's kernel.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to Keras's setting. Weights
            and numbers are the same for both.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, height, width, channels)`; with `"channels_first"` the channels stand
            before the height.

    Returns:
        `(batch, height * width / patch_size^2, hidden_dim)`.

    Raises:
        ValueError: If a size is not a positive integer, or `patch_size` does not divide height and
            width.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    x = layers.PatchEmbedding(4, 384)(keras.ops.ones((1, 32, 32, 3)))  # (1, 64, 384)
    ```
    """

    def __init__(
        self,
        patch_size,
        hidden_dim,
        kernel_initializer="glorot_uniform",
        data_format=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.patch_size = integer("patch_size", patch_size)
        self.hidden_dim = integer("hidden_dim", hidden_dim)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)
        self.data_format = standardize_data_format(data_format)

    def build(self, inputs_shape):
        """Builds the projection."""
        *_, channels = self._grid(inputs_shape)
        self.projection = keras.layers.Dense(
            self.hidden_dim,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="projection",
        )
        self.projection.build((None, None, self.patch_size**2 * channels))

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        p = self.patch_size
        rows, columns, channels = self._grid(ops.shape(inputs))
        if self.data_format == "channels_last":
            x = ops.reshape(inputs, (-1, rows, p, columns, p, channels))
            x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        else:
            x = ops.reshape(inputs, (-1, channels, rows, p, columns, p))
            x = ops.transpose(x, (0, 2, 4, 3, 5, 1))
        # (batch, rows, columns, p, p, channels)
        x = ops.reshape(x, (-1, rows * columns, p * p * channels))
        return ops.cast(self.projection(x), self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        """A sequence of patches."""
        rows, columns, _ = self._grid(inputs_shape)
        length = None if rows is None or columns is None else rows * columns
        return (inputs_shape[0], length, self.hidden_dim)

    def _grid(self, shape):
        """Rows and columns of patches, and the number of channels."""
        last = self.data_format == "channels_last"
        if len(shape) != 4:
            layout = "height, width, channels" if last else "channels, height, width"
            raise ValueError(
                f"The input must be (batch, {layout}). Received: input_shape={tuple(shape)}"
            )
        height, width, channels = shape[1:] if last else (*shape[2:], shape[1])
        for side in (height, width):
            if isinstance(side, int) and side % self.patch_size:
                raise ValueError(
                    "`patch_size` must divide the image's height and width. Received: "
                    f"height={height}, width={width}, patch_size={self.patch_size}"
                )
        sides = [None if side is None else side // self.patch_size for side in (height, width)]
        return *sides, channels

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "patch_size": self.patch_size,
            "hidden_dim": self.hidden_dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "data_format": self.data_format,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class ClassToken(keras.layers.Layer):
    """Puts a learned vector before a sequence (section 3.1; the [CLS] of BERT).

    Args:
        initializer: Of the vector. Defaults to a normal distribution of deviation 0.02.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, 1 + length, hidden_dim)`.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    x = layers.ClassToken()(keras.ops.ones((1, 64, 384)))  # (1, 65, 384)
    ```
    """

    def __init__(self, initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.initializer = get_initializer("initializer", initializer)
        if self.initializer is None:
            self.initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, inputs_shape):
        """Creates the vector, `(hidden_dim,)`."""
        self.token = self.add_weight(
            shape=(inputs_shape[-1],), initializer=self.initializer, name="token"
        )

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        token = ops.cast(ops.convert_to_tensor(self.token), inputs.dtype)
        token = ops.broadcast_to(token, (ops.shape(inputs)[0], 1, inputs.shape[-1]))
        return ops.concatenate([token, inputs], axis=1)

    def compute_output_shape(self, inputs_shape):
        """One position more."""
        batch, length, hidden_dim = inputs_shape
        return (batch, None if length is None else length + 1, hidden_dim)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "initializer": keras.initializers.serialize(self.initializer),
        }
