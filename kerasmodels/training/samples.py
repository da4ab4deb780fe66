"""A callback that writes down what a generator draws while it learns."""

import pathlib

import keras
import numpy as np

from kerasmodels.arguments import integer
from kerasmodels.training.numbered_files import numbered_files


def tile_images(images, columns=None, value_range=None, gap=1):
    """Puts images side by side into one.

    Args:
        images: `(count, height, width)` or `(count, height, width, channels)` with 1 or 3 channels;
            also `(count, channels, height, width)`, where no other axis than that of the channels
            has 1 or 3 places.
        columns: Number of images in a row; by default as many as make it nearly square.
        value_range: `(black, white)`. By default `(0, 255)` for integers, `(-1, 1)` for floats of
            which some are negative, `(0, 1)` for others. What lies outside is clipped.
        gap: White pixels between two images.

    Returns:
        uint8, `(height, width)` or `(height, width, 3)`.

    Raises:
        ValueError: If the shape is another or there is no image.

    Example:
    ```python
    import numpy as np
    from kerasmodels import training

    images = np.random.default_rng(0).uniform(-1, 1, (64, 28, 28, 1))
    picture = training.tile_images(images, columns=8, value_range=(-1, 1))
    ```
    """
    images = keras.ops.convert_to_numpy(images)
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim == 4 and [n in (1, 3) for n in images.shape[1:]] == [True, False, False]:
        images = images.transpose(0, 2, 3, 1)
    if images.ndim != 4 or images.shape[-1] not in (1, 3) or not len(images):
        raise ValueError(
            "`images` must be (count, height, width) or (count, height, width, channels) with 1 or "
            f"3 channels, and at least one. Received: shape {images.shape}"
        )
    if value_range is None:
        if images.dtype.kind in "iu":
            value_range = (0, 255)
        else:
            value_range = (-1, 1) if images.min() < 0 else (0, 1)
    low, high = value_range
    scaled = (images.astype("float32") - low) / (high - low)
    pixels = (np.clip(scaled, 0, 1) * 255).round().astype("uint8")
    count, height, width, channels = pixels.shape
    columns = columns or int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    cells = np.full((rows * columns, height + gap, width + gap, channels), 255, "uint8")
    cells[:count, :height, :width] = pixels
    cells = cells.reshape(rows, columns, height + gap, width + gap, channels)
    # (rows, height, columns, width, channels)
    tiled = cells.transpose(0, 2, 1, 3, 4).reshape(rows * (height + gap), -1, channels)
    tiled = tiled[: tiled.shape[0] - gap or None, : tiled.shape[1] - gap or None]
    return tiled[..., 0] if channels == 1 else tiled


class SampleGrid(keras.callbacks.Callback):
    """Writes a grid of samples every n epochs, and an animation of them at the end.

    The model must have `generate(count, seed=...)` that returns images, as `models.GAN` has; with
    `labels`, `generate(count, seed=..., labels=...)`. The seed stays, so each place of the grid
    shows what becomes of the same noise. Files are called `epoch-0005.png`; the animation takes all
    of them, those of an earlier run into the same folder too.

    Pictures are written with Pillow, which comes with `pip install "kerasmodels[plots]"`.

    Args:
        folder: Where the files go; it is made if need be.
        every: The number of epochs from one picture to the next.
        shape: `(rows, columns)` of the grid.
        labels: One label for each place of the grid, row by row, for a conditional model.
        seed: Of the noise.
        value_range: `(black, white)` of the images, see `tile_images`.
        zoom: How many pixels of the picture one pixel of an image takes, in each direction.
        seconds: How long the animation shows a picture; the last one stays five times as long.

    Raises:
        ValueError: If `every` or a number of `shape` is not positive, or labels do not fill the
            grid.

    Attributes:
        animation: The path of the animation, `samples.gif` in the folder.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, training

    gan = models.GAN(
        models.mlp_generator((28, 28, 1), latent_dim=100),
        models.maxout_discriminator((28, 28, 1)),
        latent_dim=100,
    )
    gan.compile(optimizer={"generator": "adam", "discriminator": "adam"})
    images = np.random.default_rng(0).uniform(-1, 1, (256, 28, 28, 1))
    grid = training.SampleGrid("runs/digits", every=5)
    gan.fit(images, epochs=100, callbacks=[grid])
    ```
    """

    def __init__(
        self,
        folder,
        every=1,
        shape=(8, 8),
        labels=None,
        seed=0,
        value_range=(-1, 1),
        zoom=2,
        seconds=0.4,
    ):
        super().__init__()
        rows, columns = (integer("shape", side) for side in shape)
        if labels is not None and len(labels) != rows * columns:
            raise ValueError(
                f"`labels` must fill the grid of {rows} x {columns}. Received: {len(labels)} labels"
            )
        self.folder = pathlib.Path(folder)
        self.animation = self.folder / "samples.gif"
        self.every = integer("every", every)
        self.shape = (rows, columns)
        self.labels = labels
        self.seed = integer("seed", seed, least=0)
        self.value_range = value_range
        self.zoom = integer("zoom", zoom)
        self.seconds = seconds

    def on_epoch_end(self, epoch, logs=None):
        """Writes `epoch-<number>.png` every `every` epochs."""
        if (epoch + 1) % self.every == 0:
            self._write(self.folder / f"epoch-{epoch + 1:04d}.png")

    def on_train_end(self, logs=None):
        """Writes the animation."""
        from PIL import Image

        paths = [path for _, path in numbered_files(self.folder, "epoch-{}.png")]
        if not paths:
            return
        first, *rest = [Image.open(path).convert("P") for path in paths]
        times = [int(1000 * self.seconds)] * len(rest) + [int(5000 * self.seconds)]
        first.save(self.animation, save_all=True, append_images=rest, duration=times, loop=0)

    def _write(self, path):
        from PIL import Image

        rows, columns = self.shape
        options = {} if self.labels is None else {"labels": np.asarray(self.labels)}
        images = self.model.generate(rows * columns, seed=self.seed, **options)
        picture = tile_images(images, columns, self.value_range)
        picture = picture.repeat(self.zoom, axis=0).repeat(self.zoom, axis=1)
        self.folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
