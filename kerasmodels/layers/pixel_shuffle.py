"""Pixel shuffle (Shi et al. 2016, section 2.2, equation 4).

"Real-time single image and video super-resolution using an efficient sub-pixel convolutional
neural network", arXiv:1609.05158.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasmodels")
class PixelShuffle(keras.layers.Layer):
    """Turns channels into pixels: `out[y, x, c] = in[y // r, x // r, c r^2 + r (y % r) + x % r]`.

    The order of the channels is that of equation 4 and of `torch.nn.PixelShuffle`, the blocks of
    an output channel adjacent; TensorFlow's `depth_to_space` has another.

    Args:
        factor: r, by which height and width grow.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, height, width, channels)`.

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

    def __init__(self, factor, **kwargs):
        super().__init__(**kwargs)
        if int(factor) != factor or factor < 1:
            raise ValueError(f"`factor` must be a positive integer. Received: factor={factor}")
        self.factor = factor

    def call(self, inputs):
        """Moves the pixels; see the class for the arguments."""
        r = self.factor
        _, height, width, channels = ops.shape(inputs)
        channels = self._channels(channels)
        x = ops.reshape(inputs, (-1, height, width, channels, r, r))
        x = ops.transpose(x, (0, 1, 4, 2, 5, 3))  # (batch, height, r, width, r, channels)
        return ops.reshape(x, (-1, height * r, width * r, channels))

    def compute_output_shape(self, input_shape):
        """Larger sides, fewer channels."""
        if len(input_shape) != 4:
            raise ValueError(
                "The input must be (batch, height, width, channels). "
                f"Received: input_shape={tuple(input_shape)}"
            )
        batch, *sides, channels = input_shape
        sides = [None if n is None else n * self.factor for n in sides]
        return (batch, *sides, self._channels(channels))

    def _channels(self, channels):
        if channels % self.factor**2:
            raise ValueError(
                "The number of channels must be divisible by the square of `factor`. "
                f"Received: channels={channels}, factor={self.factor}"
            )
        return channels // self.factor**2

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "factor": self.factor}
