"""Images side by side."""

import keras

from kerasmodels.plots.figures import new_figure
from kerasmodels.training.samples import tile_images


def image_grid(images, columns=None, value_range=None, title=None):
    """Draws images side by side.

    Args:
        images: `(count, height, width)` or `(count, height, width, channels)` with 1 or 3 channels.
        columns: Number of images in a row; by default as many as make it nearly square.
        value_range: `(black, white)`. By default `(0, 255)` for integers, `(-1, 1)` for floats of
            which some are negative, `(0, 1)` for others.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If `images` has another shape or is empty.

    Example:
        >>> import numpy as np
        >>> from kerasmodels import plots
        >>> figure = plots.image_grid(np.random.rand(12, 28, 28), columns=6)
        >>> figure.savefig("samples.png")
    """
    pixels = tile_images(keras.ops.convert_to_numpy(images), columns, value_range)
    height, width = pixels.shape[:2]
    figure = new_figure((6.0, 6.0 * height / width + (0.3 if title else 0.0)))
    axis = figure.subplots()
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axis.set_axis_off()
    if title:
        axis.set_title(title)
    return figure
