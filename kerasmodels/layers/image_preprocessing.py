"""Images as a checkpoint wants them: resized, cropped and normalised inside the model."""

import math
from collections.abc import Sequence

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import as_integer, positive_number
from kerasmodels.data_format import standardize_data_format


def _triangle(xp, x):
    return xp.maximum(1.0 - xp.absolute(x), 0.0)


def _cubic(xp, x):
    """Keys' cubic convolution with a = -1/2, that of PIL."""
    x = xp.absolute(x)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return xp.where(x < 1.0, near, xp.where(x < 2.0, far, 0.0))


def _lanczos(xp, x):
    """A sinc under the middle lobe of another that is three times as wide."""

    def sinc(x):
        nonzero = xp.where(x == 0.0, 1.0, math.pi * x)
        return xp.where(x == 0.0, 1.0, xp.sin(nonzero) / nonzero)

    return xp.where(xp.absolute(x) < 3.0, sinc(x) * sinc(x / 3.0), 0.0)


# Names of Keras. A nearest neighbour is picked, not weighed.
KERNELS = {"nearest": None, "bilinear": _triangle, "bicubic": _cubic, "lanczos3": _lanczos}


@keras.saving.register_keras_serializable(package="kerasmodels")
class ImagePreprocessing(keras.layers.Layer):
    """Resizes, crops and normalises images, so that a saved model takes them as they are.

    `((resized and cropped image) * scale - mean) / std`. It stands first in a model that is served:
    raw uint8 images of any size in, and height and width may be unknown when the model is traced
    or exported. `keras.layers.Resizing` cannot take its place: it crops to the target's aspect
    ratio first, and cannot resize the short side and then crop the middle.

    **Resizing** is that of PIL and of transformers' and timm's image processors: when an image gets
    smaller, the filter gets wider (antialiasing). An axis is one matrix product; with a crop, only
    the rows and columns that remain are computed. uint8 images are rounded to whole levels after
    each of the two products, columns first, as PIL does: equal to PIL but for ties, where each
    rounding may fall one level apart. (From version 13 on, PIL takes the rows first where the
    height loses more than twice as many pixels as the width; rounding then differs everywhere.)
    Floats are not rounded.

    **Cropping** takes the middle, `(size - crop) // 2` from the top and left, as transformers does.
    Where the crop is larger than the image, zeros stand around it (before the normalisation).

    Args:
        image_size: An integer: the short side gets this length and the aspect ratio is kept, the
            long side rounded down (transformers' `{"shortest_edge": n}`). A pair: exactly this
            height and width. `None`: images keep their size. With an integer and no `crop_size`
            the output's size is unknown where the input's is; JAX cannot trace that.
        crop_size: Height and width of what is cut out of the middle; an integer stands for a
            square. `None`: no crop.
        scale: What pixels are multiplied by; 1/255 takes 0..255 to 0..1.
        mean: What is subtracted afterwards, a number or one for each channel, or `None`.
        std: What is divided by, a number or one for each channel, or `None`.
        interpolation: `"nearest"`, `"bilinear"`, `"bicubic"` or `"lanczos3"`.
        data_format: `"channels_last"` or `"channels_first"`; by default that of Keras's
            configuration.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        images: `(batch, height, width, channels)`, or a single image `(height, width, channels)`,
            of dtype uint8 or float, in 0..255 where `scale` is 1/255; with `"channels_first"` the
            channels stand before the height.

    Returns:
        The images in the same layout, in the compute dtype of the layer; computed in float32.

    Raises:
        ValueError: If an argument is not one of those allowed, the images have another rank, no
            pixels, or another number of channels than `mean` and `std`.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import layers, models

    layer = layers.ImagePreprocessing(
        256, 224, mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225], interpolation="bicubic"
    )
    x = layer(np.zeros((1, 375, 500, 3), "uint8"))  # (1, 224, 224, 3)
    images = keras.Input((None, None, 3), dtype="uint8")
    model = keras.Model(images, models.ResNet(18)(layer(images)))  # to be saved and served
    ```
    """

    def __init__(
        self,
        image_size: int | Sequence[int] | None = None,
        crop_size: int | Sequence[int] | None = None,
        scale: float = 1 / 255,
        mean: float | Sequence[float] | None = None,
        std: float | Sequence[float] | None = None,
        interpolation: str = "bilinear",
        data_format: str | None = None,
        **kwargs,
    ):
        # bfloat16 has no room for pixels between two levels: they are cast at the end.
        super().__init__(autocast=False, **kwargs)
        self.image_size = _size("image_size", image_size)
        self.crop_size = _size("crop_size", crop_size)
        if isinstance(self.crop_size, int):
            self.crop_size = (self.crop_size, self.crop_size)
        self.scale = float(positive_number("scale", scale))
        self.mean = _per_channel("mean", mean)
        self.std = _per_channel("std", std)
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"`std` must be positive. Received: std={std}")
        if interpolation not in KERNELS:
            raise ValueError(
                f"`interpolation` must be one of {list(KERNELS)}. "
                f"Received: interpolation={interpolation!r}"
            )
        self.interpolation = interpolation
        self.data_format = standardize_data_format(data_format)

    def call(self, images):
        """Applies the layer; see the class for the arguments."""
        self._check(images.shape)
        x = ops.cast(images, "float32")
        if self.image_size is not None or self.crop_size is not None:
            whole_levels = keras.backend.standardize_dtype(images.dtype) == "uint8"
            x = self._resize(x, whole_levels)
        x = x * self.scale
        if self.mean is not None:
            x = x - self._align(self.mean)
        if self.std is not None:
            x = x / self._align(self.std)
        return ops.cast(x, self.compute_dtype)

    def _resize(self, x, whole_levels):
        """Resizes and crops in one: columns first, as PIL does."""
        last = self.data_format == "channels_last"
        if last:  # a plane for each channel, (..., channels, height, width)
            x = ops.moveaxis(x, -1, -3)
        height, width = ops.shape(x)[-2:]
        new_height, new_width = self._resized(height, width)
        crop_height, crop_width = self.crop_size or (new_height, new_width)
        columns = self._weights(width, new_width, crop_width)
        rows = self._weights(height, new_height, crop_height)
        if columns is not None:
            x = ops.matmul(x, ops.transpose(columns))  # (..., channels, height, crop_width)
            x = _whole_levels(x) if whole_levels else x
        if rows is not None:
            x = ops.matmul(rows, x)  # (..., channels, crop_height, crop_width)
            x = _whole_levels(x) if whole_levels else x
        return ops.moveaxis(x, -3, -1) if last else x

    def _resized(self, height, width):
        """Height and width before the crop: integers where those of the input are."""
        if self.image_size is None:
            return height, width
        if not isinstance(self.image_size, int):
            return self.image_size
        if isinstance(height, int) and isinstance(width, int):
            short = min(height, width)
        elif self.crop_size is None and keras.backend.backend() == "jax":
            raise ValueError(
                f"With image_size={self.image_size} and no `crop_size` the output's height and "
                "width follow the input's, which JAX must know when it traces. Give a `crop_size`, "
                f"or `image_size` as a pair. Received: height={height}, width={width}"
            )
        else:
            height, width = (_tensor(n) for n in (height, width))
            short = ops.minimum(height, width)
        return self.image_size * height // short, self.image_size * width // short

    def _weights(self, old, new, kept):
        """What each pixel of an axis gives to each that is kept: `(kept, old)`, or `None`."""
        known = all(isinstance(n, int) for n in (old, new, kept))
        if known and old == new == kept:
            return None
        # Sizes are mostly known: then the weights are a constant, and numpy runs it at once where
        # JAX would compile each operation for each size.
        xp, start = np if known else ops, (new - kept) // 2
        old_pixel, index = xp.arange(old, dtype="int32"), xp.arange(kept, dtype="int32")[:, None]
        if not known:
            old, new, start = (_tensor(n) for n in (old, new, start))
        index = index + start  # (kept, 1)
        real = np.float64 if known else lambda n: ops.cast(n, "float32")
        inside = xp.logical_and(index >= 0, index < new)
        # Twice the middle of a pixel; integers, so that nothing is rounded before the division.
        middle = 2 * xp.clip(index, 0, new - 1) + 1
        if self.interpolation == "nearest":
            weights = xp.where(xp.floor_divide(middle * old, 2 * new) == old_pixel, 1.0, 0.0)
        else:
            # From the middle of an old pixel, in old pixels.
            distance = real((2 * old_pixel + 1) * new - middle * old) / real(2 * new)
            stretch = real(xp.maximum(old, new)) / real(new)
            weights = KERNELS[self.interpolation](xp, distance / stretch)
            weights = weights / xp.sum(weights, axis=1, keepdims=True)
        return ops.convert_to_tensor(xp.where(inside, weights, 0.0), "float32")

    def _align(self, values):
        """A tensor of one value for each channel that broadcasts against images."""
        values = ops.convert_to_tensor(values, "float32")
        return values if self.data_format == "channels_last" else values[:, None, None]

    def compute_output_shape(self, input_shape):
        """Another height and width."""
        self._check(input_shape)
        shape = list(input_shape)
        place = slice(-3, -1) if self.data_format == "channels_last" else slice(-2, None)
        if self.crop_size is not None:
            shape[place] = self.crop_size
        elif None not in shape[place]:
            shape[place] = self._resized(*shape[place])
        elif self.image_size is not None:
            exact = not isinstance(self.image_size, int)
            shape[place] = self.image_size if exact else (None, None)
        return tuple(shape)

    def _check(self, shape):
        last = self.data_format == "channels_last"
        layout = "height, width, channels" if last else "channels, height, width"
        if len(shape) not in (3, 4):
            raise ValueError(
                f"`images` must be (batch, {layout}) or ({layout}). "
                f"Received: images.shape={tuple(shape)}"
            )
        channels = shape[-1 if last else -3]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) not in (1, channels):
                raise ValueError(
                    f"`images` must have as many channels as `{name}` has values. Received: "
                    f"images.shape={tuple(shape)} ({self.data_format}), {name}={values}"
                )
        if 0 in tuple(shape)[-3:]:
            raise ValueError(f"`images` must have pixels. Received: images.shape={tuple(shape)}")

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "image_size": self.image_size,
            "crop_size": self.crop_size,
            "scale": self.scale,
            "mean": self.mean,
            "std": self.std,
            "interpolation": self.interpolation,
            "data_format": self.data_format,
        }


def _whole_levels(x):
    # A little more than a half: sums that ought to end in .5 go up whatever float32 made of them.
    return ops.clip(ops.floor(x + 0.5002), 0.0, 255.0)


def _tensor(n):
    """A length as an int32 tensor, on PyTorch one that stays free when the model is exported."""
    if isinstance(n, int) or hasattr(n, "dtype"):
        return ops.convert_to_tensor(n, "int32")
    return ops.arange(n, dtype="int32")[-1] + 1


def _size(name, value):
    """A positive integer, a pair of them as a tuple, or None."""
    if value is None:
        return None
    single = not isinstance(value, Sequence) and np.ndim(value) == 0
    sizes = [as_integer(n) for n in ([value] if single else value)]
    if len(sizes) not in (1, 2) or any(n is None or n < 1 for n in sizes):
        raise ValueError(
            f"`{name}` must be a positive integer or a pair (height, width) of them. "
            f"Received: {name}={value}"
        )
    return sizes[0] if single else tuple(sizes)


def _per_channel(name, value):
    """A list of finite numbers, or None."""
    if value is None:
        return None
    values = np.atleast_1d(np.asarray(value, "float64"))
    if values.ndim > 1 or not values.size or not np.isfinite(values).all():
        raise ValueError(
            f"`{name}` must be a finite number or one for each channel. Received: {name}={value}"
        )
    return values.tolist()
