"""Data augmentation that Keras does not have: a random crop of padded images, one an image."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.data_format import standardize_data_format


@keras.saving.register_keras_serializable(package="kerasmodels")
class RandomPadCrop(keras.layers.Layer):
    """Pads images with zeros and cuts the old size out at random (He et al. 2015, section 4.2).

    "4 pixels are padded on each side, and a 32x32 crop is randomly sampled from the padded image":
    each image is shifted by a whole number of pixels, from `-padding` to `padding` in height and in
    width, all equally likely, and each image by its own. `keras.layers.RandomCrop` gives all images
    of a batch the same place, and `keras.layers.RandomTranslation` interpolates. Zero is the mean
    pixel where the mean was subtracted before, as in the paper. The paper's other augmentation,
    the flip, is `keras.layers.RandomFlip("horizontal")`.

    Only active with `training=True`; otherwise images pass unchanged.

    Args:
        padding: Pixels on each side.
        seed: An integer, or `None` for a random one.
        data_format: `"channels_last"` or `"channels_first"`; by default that of Keras's
            configuration.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        images: `(batch, height, width, channels)`; with `"channels_first"` the channels stand
            before the height.
        training: Whether to shift.

    Returns:
        Images of the same shape, in the compute dtype of the layer.

    Raises:
        ValueError: If an argument is not one of those allowed, or the images have another rank.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    augment = keras.Sequential(
        [layers.RandomPadCrop(4, seed=1), keras.layers.RandomFlip("horizontal", seed=2)]
    )
    x = augment(keras.ops.ones((128, 32, 32, 3)), training=True)  # (128, 32, 32, 3)
    ```
    """

    def __init__(self, padding=4, seed=None, data_format=None, **kwargs):
        super().__init__(**kwargs)
        self.padding = integer("padding", padding)
        self.seed = None if seed is None else integer("seed", seed, least=0)
        self.seed_generator = keras.random.SeedGenerator(self.seed)
        self.data_format = standardize_data_format(data_format)

    def call(self, images, training=False):
        """Applies the layer; see the class for the arguments."""
        self._check(images.shape)
        x = ops.cast(images, self.compute_dtype)
        if not training:
            return x
        if self.data_format == "channels_first":
            return ops.transpose(self._shift(ops.transpose(x, (0, 2, 3, 1))), (0, 3, 1, 2))
        return self._shift(x)

    def _shift(self, x):
        """Gathers each pixel from where its image was shifted from."""
        # A single gather: 0.3 ms for 128 images of 28x28 on JAX, 0.5 on PyTorch, 0.9 on TensorFlow
        # (XLA: 0.4) on two cores. Rows, then columns, and products with one-hot matrices take 0.6
        # to 2 times as long; `vectorized_map` over slices is the fastest on JAX, on TensorFlow
        # without XLA the slowest, and PyTorch has none.
        p, (batch, height, width, channels) = self.padding, ops.shape(x)
        top, left = ops.unstack(
            keras.random.randint((2, batch), 0, 2 * p + 1, dtype="int32", seed=self.seed_generator),
            2,
        )
        image = ops.arange(batch, dtype="int32") * (height + 2 * p)  # the image's first row of all
        row = (image + top)[:, None] + ops.arange(height, dtype="int32")  # (batch, height)
        column = left[:, None] + ops.arange(width, dtype="int32")  # (batch, width)
        pixel = row[:, :, None] * (width + 2 * p) + column[:, None, :]  # (batch, height, width)
        padded = ops.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
        return ops.take(ops.reshape(padded, (-1, channels)), pixel, axis=0)

    def compute_output_shape(self, input_shape):
        """The shape of the input."""
        self._check(input_shape)
        return input_shape

    def _check(self, shape):
        if len(shape) != 4:
            last = self.data_format == "channels_last"
            layout = "height, width, channels" if last else "channels, height, width"
            raise ValueError(
                f"`images` must be (batch, {layout}). Received: images.shape={tuple(shape)}"
            )

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "padding": self.padding,
            "seed": self.seed,
            "data_format": self.data_format,
        }
