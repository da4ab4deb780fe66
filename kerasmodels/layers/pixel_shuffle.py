"""Pixel shuffle (Shi et al. 2016, section 2.2, equation 4).

"Real-time single image and video super-resolution using an efficient sub-pixel convolutional
neural network", arXiv:1609.05158.
"""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.data_format import standardize_data_format


@keras.saving.register_keras_serializable(package="kerasmodels")
class PixelShuffle(keras.layers.Layer):
    """Turns channels into pixels: `out[y, x, c] = in[y // r, x // r, c r^2 + r (y % r) + x % r]`.

    The order of the channels is that of equation 4 and of `torch.nn.PixelShuffle`, the blocks of
    an output channel adjacent; TensorFlow's `depth_to_space` has another.

    Args:
        factor: r, by which height and width grow.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to Keras's setting.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, height, width, channels)`; with `"channels_first"` the channels stand
            before the height, here and in the output.

    Returns:
        `(batch, height * factor, width * factor, channels / factor^2)`.

    Raises:
        ValueError: If `factor` is not a positive integer, or its square does not divide the
            channels.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    y = layers.PixelShuffle(2)(keras.ops.ones((1, 8, 8, 384)))  # (1, 16, 16, 96)
    ```
    """

    def __init__(self, factor, data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=4)
        self.factor = integer("factor", factor)
        self.data_format = standardize_data_format(data_format)

    def call(self, inputs):
        """Moves the pixels; see the class for the arguments."""
        r = self.factor
        if self.data_format == "channels_last":
            _, height, width, channels = ops.shape(inputs)
            channels = self._channels(channels)
            x = ops.reshape(inputs, (-1, height, width, channels, r, r))
            x = ops.transpose(x, (0, 1, 4, 2, 5, 3))  # (batch, height, r, width, r, channels)
            return ops.reshape(x, (-1, height * r, width * r, channels))
        _, channels, height, width = ops.shape(inputs)
        channels = self._channels(channels)
        x = ops.reshape(inputs, (-1, channels, r, r, height, width))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))  # (batch, channels, height, r, width, r)
        return ops.reshape(x, (-1, channels, height * r, width * r))

    def compute_output_shape(self, input_shape):
        """Larger sides, fewer channels."""
        last = self.data_format == "channels_last"
        if len(input_shape) != 4:
            layout = "height, width, channels" if last else "channels, height, width"
            raise ValueError(
                f"The input must be (batch, {layout}). Received: input_shape={tuple(input_shape)}"
            )
        batch, *sides = input_shape
        channels = self._channels(sides.pop(-1 if last else 0))
        sides = [None if n is None else n * self.factor for n in sides]
        return (batch, *sides, channels) if last else (batch, channels, *sides)

    def _channels(self, channels):
        if channels % self.factor**2:
            raise ValueError(
                "The number of channels must be divisible by the square of `factor`. "
                f"Received: channels={channels}, factor={self.factor}"
            )
        return channels // self.factor**2

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "factor": self.factor,
            "data_format": self.data_format,
        }
