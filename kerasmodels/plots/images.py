"""Images side by side, and the filters of a convolution as such."""

import keras
import numpy as np

from kerasmodels.plots.figures import new_figure, to_numpy
from kerasmodels.training.samples import tile_images


def image_grid(images, columns=None, value_range=None, title=None):
    """Draws images side by side.

    Args:
        images: `(count, height, width)`, `(count, height, width, channels)` or
            `(count, channels, height, width)` with 1 or 3 channels.
        columns: Number of images in a row; by default as many as make it nearly square.
        value_range: `(black, white)`. By default `(0, 255)` for integers, `(-1, 1)` for floats of
            which some are negative, `(0, 1)` for others.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If `images` has another shape or is empty.

    Example:
    ```python
    import numpy as np
    from kerasmodels import plots

    figure = plots.image_grid(np.random.rand(12, 28, 28), columns=6)
    figure.savefig("samples.png")
    ```
    """
    return _show(tile_images(keras.ops.convert_to_numpy(images), columns, value_range), title)


def filters(model, layer=None, columns=None, title=None):
    """Draws the kernels of a convolution as images.

    Filters that see three channels are in colour, others in grey: one image a filter where there is
    one channel, else a row a filter with a column for each of its channels. Each filter is
    scaled to its own range, so that its least weight is black and its greatest white (with three
    channels: 0 and 1 of the three colours).

    Args:
        model: A Keras model or layer, or a kernel `(height, width, channels, filters)`.
        layer: Of which layer: its name, or the end of its path where layers inside of others share
            a name, such as `"stage1_block0/convolution_1"`. Defaults to the first convolution.
        columns: Number of filters in a row, where a filter is one image; by default as many as make
            it nearly square.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If the kernel has another rank, or the model has no convolution, or none of that
            name.

    Example:
    ```python
    from kerasmodels import models, plots

    resnet = models.ResNet(18)
    figure = plots.filters(resnet)  # the 64 filters of 7 x 7 x 3
    ```
    """
    kernel = _kernel(model, layer) if isinstance(model, keras.layers.Layer) else to_numpy(model)
    if kernel.ndim != 4 or 0 in kernel.shape:
        raise ValueError(
            "`model` must be a model or a kernel (height, width, channels, filters). "
            f"Received: shape {kernel.shape}"
        )
    height, width, channels, count = kernel.shape
    images = kernel.transpose(3, 0, 1, 2)  # (filters, height, width, channels)
    low = images.min(axis=(1, 2, 3), keepdims=True)
    spread = images.max(axis=(1, 2, 3), keepdims=True) - low
    images = np.where(spread > 0, (images - low) / np.where(spread > 0, spread, 1), 0.5)
    if channels not in (1, 3):
        images = images.transpose(0, 3, 1, 2).reshape(count * channels, height, width)
        columns = channels
    return _show(tile_images(images, columns, (0, 1)), title)


def _kernel(model, layer):
    """The kernel of a convolution in a model; by its weights, wherever the layer is hidden."""
    kernels = [v for v in model.weights if v.name == "kernel" and len(v.shape) == 4]
    for kernel in kernels:
        if layer is None or f"/{kernel.path}".endswith(f"/{layer}/kernel"):
            return to_numpy(kernel)
    names = [kernel.path.removesuffix("/kernel") for kernel in kernels]
    if not names:
        raise ValueError(f"`model` has no convolution. Received: model={model.name!r}")
    raise ValueError(
        f"`layer` must be a convolution of the model, one of {names}. Received: layer={layer!r}"
    )


def _show(pixels, title):
    height, width = pixels.shape[:2]
    figure = new_figure((6.0, 6.0 * height / width + (0.3 if title else 0.0)))
    axis = figure.subplots()
    axis.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axis.set_axis_off()
    if title:
        axis.set_title(title)
    return figure
