"""Pooling: the maximum over windows with PyTorch's padding, the mean over what a mask keeps."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.data_format import standardize_data_format
from kerasmodels.layers.masks import check_mask, with_implicit_mask


@keras.saving.register_keras_serializable(package="kerasmodels")
class SymmetricMaxPooling2D(keras.layers.Layer):
    """The greatest value of each window; the windows begin half a window outside of the images.

    As `torch.nn.MaxPool2d(pool_size, strides, padding=pool_size // 2)`. `keras.layers.MaxPooling2D`
    with padding "same" lets them begin at the first pixel when the size is even. What lies outside
    is never the greatest.

    Args:
        pool_size: Side of the windows, odd.
        strides: Distance between them.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to Keras's setting.
        **kwargs: `name`, `dtype`.

    Call arguments:
        inputs: `(batch, height, width, channels)`.

    Returns:
        `(batch, ceil(height / strides), ceil(width / strides), channels)`.

    Raises:
        ValueError: If `pool_size` is not odd, or `strides` is not positive, or images have not
            four axes.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    pool = layers.SymmetricMaxPooling2D(3, 2)
    y = pool(keras.ops.ones((1, 112, 112, 64)))  # (1, 56, 56, 64)
    ```
    """

    def __init__(self, pool_size=3, strides=2, data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=4)
        self.pool_size = integer("pool_size", pool_size)
        if self.pool_size % 2 == 0:
            raise ValueError(f"`pool_size` must be odd. Received: pool_size={pool_size}")
        self.strides = integer("strides", strides)
        self.data_format = standardize_data_format(data_format)

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        last, half = self.data_format == "channels_last", self.pool_size // 2
        if keras.backend.backend() == "torch":
            import torch

            # Channels last in memory is a view for PyTorch; Keras's pooling copies there and back.
            x = inputs.permute(0, 3, 1, 2) if last else inputs
            x = torch.nn.functional.max_pool2d(x, self.pool_size, self.strides, padding=half)
            return x.permute(0, 2, 3, 1) if last else x
        side, none = [half, half], [0, 0]
        widths = [none, side, side, none] if last else [none, none, side, side]
        x = ops.pad(inputs, widths, constant_values=float("-inf"))
        return ops.max_pool(
            x, self.pool_size, self.strides, padding="valid", data_format=self.data_format
        )

    def compute_output_shape(self, input_shape):
        """`(batch, ceil(height / strides), ceil(width / strides), channels)`."""
        shape = list(input_shape)
        for i in (1, 2) if self.data_format == "channels_last" else (2, 3):
            shape[i] = None if shape[i] is None else -(-shape[i] // self.strides)
        return tuple(shape)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "pool_size": self.pool_size,
            "strides": self.strides,
            "data_format": self.data_format,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class MaskedAveragePooling(keras.layers.Layer):
    """The mean over the positions that a mask keeps.

    `sum(mask * x) / max(sum(mask), 1e-9)`, as sentence-transformers makes a vector of a sentence
    from those of its tokens. A row of which nothing is kept gives zeros, not NaN.

    Args:
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        padding_mask: `(batch, length)`, 1 = keep, or `None`: all is real. A mask that Keras
            carries on `inputs` is joined to it by AND.

    Returns:
        `(batch, hidden_dim)`, float32 whatever the policy: sums of many numbers need it.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import layers

    layer = layers.MaskedAveragePooling()
    x = layer(keras.random.normal((1, 3, 64)), padding_mask=np.array([[1, 1, 0]]))  # (1, 64)
    ```
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_masking = True

    def call(self, inputs, padding_mask=None):
        """Applies the layer; see the class for the arguments."""
        check_mask("padding_mask", padding_mask, inputs.shape[:2])
        mask = with_implicit_mask(inputs, padding_mask)
        x = ops.cast(inputs, "float32")
        if mask is None:
            return ops.mean(x, axis=1)
        mask = ops.expand_dims(mask, -1)  # (batch, length, 1)
        total = ops.sum(ops.where(mask, x, ops.zeros_like(x)), axis=1)  # (batch, hidden)
        return total / ops.maximum(ops.sum(ops.cast(mask, "float32"), axis=1), 1e-9)

    def compute_mask(self, inputs, previous_mask=None):
        """None: no positions are left."""
        return None

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config()
