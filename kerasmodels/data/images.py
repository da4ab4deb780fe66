"""Images in batches: from a folder of class folders, and from CIFAR's own files."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data_format import standardize_data_format
from kerasmodels.image_files import open_image, read_image
from kerasmodels.listing import files_below, strings_of

__all__ = ["ImageFolder", "load_cifar10", "load_cifar100", "stratified_split"]

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP")


class ImageFolder(keras.utils.PyDataset):
    """Batches of images from a folder with one folder for each class.

    A batch is `(images, labels)`: images uint8 (rows, height, width, 3), or what `processor` makes
    of them; labels int32 (rows,), the positions of the classes in `class_names`. Class folders may
    hold further folders. Files and folders whose name begins with a dot are passed over; every
    other file must be a PNG, JPEG, BMP, GIF (its first picture) or WebP image. Each becomes RGB and
    is turned as its EXIF data say.

    **Every image once.** An epoch holds each image exactly once, and its last batch the rest. With
    `shuffle`, each epoch draws a new order from `seed` and the number of the epoch, the same on
    every backend. Keras's `fit` also shuffles the order of a `PyDataset`'s batches, by Python's
    `random`: pass `fit(..., shuffle=False)` for the order drawn from `seed`. The next epoch's draw
    takes effect when a pass begins, that is when `len` or `iter` is called after `on_epoch_end`.

    Args:
        folder: The folder of class folders.
        batch_size: Rows of a batch.
        image_size: Height and width to which images are resized (PIL, bilinear); their aspect
            ratio is not kept. Of no effect with a `processor`.
        processor: A function of a list of PIL images (RGB, of any sizes) that returns a float32
            array with one row for each, such as `checkpoints.ImageProcessor`.
        shuffle: Whether each epoch draws a new order; `False` for validation.
        seed: An integer.
        class_names: The class folders to be read, in the order of the labels; others are left out.
            Defaults to all of them, sorted. `train.class_names` gives other data the same labels.
        on_error: What becomes of a file that is no image: `"raise"` is an error; `"skip"` leaves
            the file out and notes it in `skipped`. Then all pixels are read once at the beginning,
            since a file may be broken far behind its header.
        data_format: `"channels_last"`, or `"channels_first"` for images (rows, 3, height, width).
            Defaults to Keras's setting. Of no effect with a `processor`.

    Attributes:
        class_names: The names of the classes in the order of the labels.
        paths: The files, sorted by class and name.
        skipped: Pairs (file, reason) of what `on_error="skip"` has left out.
        labels: int32 (images,): the class of each file.
        epoch: The number of the present draw.

    Raises:
        ValueError: There are no class folders, one is missing or has no images, a file is not an
            image that can be read, or an argument is not one of those allowed; the message names
            the folder or file. All files are opened for that, but unless `on_error="skip"` their
            pixels are not read before they are needed.

    Example:
    ```python
    import keras
    from kerasmodels import data, models

    train, validation = data.ImageFolder("flowers", image_size=(64, 64), shuffle=True).split(0.2)
    images, labels = train[0]
    images.shape, labels.shape  # (32, 64, 64, 3), (32,)
    resnet = models.ResNet(8, stem="cifar", class_names=train.class_names)
    model = keras.Sequential([keras.layers.Rescaling(1 / 255), resnet])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(train, validation_data=validation)
    ```
    """

    def __init__(
        self,
        folder: str | Path,
        batch_size: int = 32,
        image_size: tuple[int, int] = (224, 224),
        processor: Callable | None = None,
        shuffle: bool = False,
        seed: int = 0,
        class_names: Sequence[str] | None = None,
        on_error: str = "raise",
        data_format: str | None = None,
    ):
        # No workers: with them Keras 3.15 trains once more on what it had queued while building
        # the model (JAX and PyTorch).
        super().__init__()
        batch_size = whole_number("batch_size", batch_size, 1)
        if np.shape(image_size) != (2,):
            raise ValueError(
                f"`image_size` must be a positive height and width. Received: {image_size}."
            )
        if on_error not in ("raise", "skip"):
            raise ValueError(f"`on_error` must be 'raise' or 'skip'. Received: {on_error!r}.")
        self.batch_size = batch_size
        self.image_size = tuple(whole_number("image_size", side, 1) for side in image_size)
        self.data_format = standardize_data_format(data_format)
        self.processor = processor
        self.shuffle = shuffle
        self.seed = whole_number("seed", seed, 0)
        folder = Path(folder)
        if not folder.is_dir():
            raise ValueError(f"`folder` must be a folder. Received: {str(folder)!r}.")
        found = sorted(f.name for f in folder.iterdir() if f.is_dir() and f.name[0] != ".")
        if not found:
            raise ValueError(
                f"`folder` must hold one folder for each class. Received: {str(folder)!r}, which "
                "holds none."
            )
        class_names = found if class_names is None else strings_of("class_names", class_names)
        self.class_names = class_names
        missing = sorted(set(self.class_names) - set(found))
        if missing or len(set(self.class_names)) < len(self.class_names):
            raise ValueError(
                f"`class_names` must be folders of {str(folder)!r}, each once. Received: "
                f"{self.class_names}; there are no {missing}."
            )
        self.paths, self.skipped, labels = [], [], []
        for label, name in enumerate(self.class_names):
            paths = [path for path in files_below(folder / name) if self._is_image(path, on_error)]
            if not paths:
                raise ValueError(f"Every class must have images. {str(folder / name)!r} has none.")
            self.paths += paths
            labels += [label] * len(paths)
        self.labels = np.array(labels, np.int32)
        self._begin()

    def _is_image(self, path, on_error):
        if on_error == "raise":
            open_image(path, FORMATS).close()
            return True
        try:
            read_image(path, FORMATS)
        except ValueError as error:
            self.skipped.append((path, str(error)))
            return False
        return True

    def _begin(self):
        self._epochs_ended = 0
        self.epoch = 0
        self._drawn = (None, None)

    def __len__(self) -> int:
        """The number of batches in an epoch; asking for it begins a pass."""
        # As in `BucketedPairs`: Keras asks whenever it starts to iterate, and not in between.
        self.epoch = self._epochs_ended
        return -(-len(self.paths) // self.batch_size)

    def on_epoch_end(self):
        """Makes the next pass draw a new order, if there is one to draw."""
        self._epochs_ended += 1

    def rows(self, index: int) -> np.ndarray:
        """Says which images stand in a batch of the present epoch.

        Args:
            index: The position of the batch.

        Returns:
            int64 (rows,): positions in `paths` and `labels`.
        """
        number = -(-len(self.paths) // self.batch_size)
        if not -number <= index < number:
            raise IndexError(f"There are {number} batches. Received: index={index}.")
        index %= number
        epoch, order = self._drawn
        if epoch != self.epoch:
            order = np.arange(len(self.paths))
            if self.shuffle:
                order = np.random.default_rng([self.seed, self.epoch]).permutation(order)
            self._drawn = (self.epoch, order)
        return order[index * self.batch_size : (index + 1) * self.batch_size]

    def __getitem__(self, index: int):
        """The batch at `index`: `(images, labels)`."""
        rows = self.rows(index)
        images = [read_image(self.paths[row], FORMATS) for row in rows]
        if self.processor is not None:
            return self.processor(images), self.labels[rows]
        from PIL import Image

        size, bilinear = self.image_size[::-1], Image.Resampling.BILINEAR
        pixels = np.stack([image.resize(size, bilinear) for image in images])
        return _in_format(pixels, self.data_format), self.labels[rows]

    def split(self, test_size: int | float, seed: int = 0):
        """Splits the images in two, each class in the same proportion.

        Args:
            test_size: The number or share of images in the second part.
            seed: An integer: which images they are.

        Returns:
            Two `ImageFolder`s with the same classes. The first shuffles if this one does; the
            second does not.

        Raises:
            ValueError: As `stratified_split`.
        """
        parts = []
        for rows in stratified_split(self.labels, test_size, seed):
            part = copy.copy(self)
            part.paths = [self.paths[row] for row in rows]
            part.labels = self.labels[rows]
            part._begin()
            parts.append(part)
        parts[1].shuffle = False
        return tuple(parts)

    def __repr__(self) -> str:
        return (
            f"<ImageFolder: {len(self.paths)} images of {len(self.class_names)} classes in batches "
            f"of {self.batch_size}>"
        )


def _in_format(images, data_format):
    """Images `(rows, height, width, channels)` with their channels where they are wanted."""
    last = data_format == "channels_last"
    return images if last else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def stratified_split(labels, test_size: int | float, seed: int = 0):
    """Splits samples in two, each class in the same proportion.

    A class of n samples gets its share n * test_size / len(labels) of the test samples, rounded
    down; what is left goes to those with the largest remainders, to the lower label of two that
    are equal. scikit-learn's `train_test_split(stratify=labels)` rounds the same way but breaks
    ties at random; it would be one more package that all who read images need.

    Args:
        labels: (samples,): the class of each sample, integers or strings.
        test_size: The number of test samples, or their share, a float between 0 and 1; the number
            is then rounded.
        seed: An integer: which samples of a class they are.

    Returns:
        Two int64 arrays, the positions of the training and of the test samples, both ascending.

    Raises:
        ValueError: If `labels` is not a list of classes, `test_size` leaves one of the two without
            samples, or a class without training samples.

    Example:
    ```python
    from kerasmodels import data

    train, test = data.stratified_split([0, 0, 0, 0, 1, 1], 3)
    len(train), len(test)  # 3, 3: two samples of class 0 and one of class 1 in each
    ```
    """
    labels = np.asarray(labels)
    if labels.ndim != 1 or not len(labels) or labels.dtype.kind not in "iubUS":
        raise ValueError(
            "`labels` must be the classes of the samples, (samples,), integers or strings. "
            f"Received: shape {labels.shape}, dtype {labels.dtype}."
        )
    total = len(labels)
    share = isinstance(test_size, float | np.floating)
    number = round(test_size * total) if share and 0 < test_size < 1 else test_size
    if number != int(number) or not 0 < number < total:
        raise ValueError(
            f"`test_size` must be a number from 1 to {total - 1}, or a share of {total} samples "
            f"that is as much. Received: {test_size}."
        )
    names, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    sizes, remainders = np.divmod(counts * int(number), total)  # integers: nothing is rounded
    sizes[np.argsort(-remainders, kind="stable")[: int(number) - sizes.sum()]] += 1
    if (sizes == counts).any():
        name = names[(sizes == counts).argmax()]
        raise ValueError(
            f"Every class must have samples to train on. With test_size={test_size} class {name} "
            f"has none of its {counts[(sizes == counts).argmax()]}."
        )
    random = np.random.default_rng(seed)
    chosen = np.zeros(total, bool)
    for label, size in enumerate(sizes):
        chosen[random.permutation(np.flatnonzero(classes == label))[:size]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def load_cifar10(folder: str | Path):
    """Reads CIFAR-10 (Krizhevsky 2009) from the files of its binary version.

    It is to be downloaded as `cifar-10-binary.tar.gz` from the page of its author and unpacked.
    The "python version" is not read: it is a pickle, and unpickling a file runs whatever code
    stands in it.

    Args:
        folder: The folder with `data_batch_1.bin` to `data_batch_5.bin`, `test_batch.bin` and
            `batches.meta.txt`.

    Returns:
        `(x_train, y_train), (x_test, y_test), class_names`: images uint8 (samples, 32, 32, 3), or
        (samples, 3, 32, 32) where Keras is set to channels_first,
        labels int32 (samples,), and a list of ten names.

    Raises:
        ValueError: A file is missing, is not whole or holds an unknown label; or the folder holds
            the python version.

    Example:
    ```python
    import keras
    from kerasmodels import data, models

    train, test, class_names = data.load_cifar10("cifar-10-batches-bin")
    resnet = models.ResNet(8, stem="cifar", class_names=class_names)
    model = keras.Sequential([keras.layers.Rescaling(1 / 255), resnet])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(*train, validation_data=test)
    ```
    """
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return _load_cifar(folder, batches, "test_batch.bin", "batches.meta.txt", 0, 1)


def load_cifar100(folder: str | Path, label: str = "fine"):
    """Reads CIFAR-100 (Krizhevsky 2009) from the files of its binary version.

    It is to be downloaded as `cifar-100-binary.tar.gz`; see `load_cifar10`.

    Args:
        folder: The folder with `train.bin`, `test.bin`, `fine_label_names.txt` and
            `coarse_label_names.txt`.
        label: `"fine"` for the 100 classes, `"coarse"` for their 20 groups.

    Returns:
        `(x_train, y_train), (x_test, y_test), class_names`: images uint8 (samples, 32, 32, 3), or
        (samples, 3, 32, 32) where Keras is set to channels_first,
        labels int32 (samples,), and a list of 100 or 20 names.

    Raises:
        ValueError: `label` is another; or as `load_cifar10`.

    Example:
    ```python
    from kerasmodels import data

    train, test, class_names = data.load_cifar100("cifar-100-binary")
    ```
    """
    if label not in ("fine", "coarse"):
        raise ValueError(f"`label` must be 'fine' or 'coarse'. Received: {label!r}.")
    position = ("coarse", "fine").index(label)
    return _load_cifar(folder, ["train.bin"], "test.bin", f"{label}_label_names.txt", position, 2)


def _load_cifar(folder, train, test, names, position, num_labels):
    """Reads records of `num_labels` labels, of which one is wanted, and 3 x 32 x 32 pixels."""
    folder = Path(folder)
    missing = [name for name in (*train, test, names) if not (folder / name).is_file()]
    if missing:
        message = f"`folder` must hold CIFAR's files. {str(folder)!r} lacks {missing}."
        if any((folder / name.removesuffix(".bin")).is_file() for name in (*train, test)):
            message += (
                " It holds the python version, whose pickles are not read: unpickling a file runs "
                "whatever code stands in it. Take the binary version (cifar-10-binary.tar.gz, "
                "cifar-100-binary.tar.gz)."
            )
        raise ValueError(message)
    lines = (folder / names).read_text(encoding="utf-8").splitlines()
    class_names = [line.strip() for line in lines if line.strip()]

    def read(files):
        images, labels = [], []
        for name in files:
            content = np.fromfile(folder / name, np.uint8)
            if not content.size or content.size % (num_labels + 3072):
                raise ValueError(
                    f"{str(folder / name)!r} is not whole: {content.size} bytes are no multiple of "
                    f"{num_labels + 3072}, those of an image."
                )
            records = content.reshape(-1, num_labels + 3072)
            pixels = records[:, num_labels:].reshape(-1, 3, 32, 32)
            images.append(pixels.transpose(0, 2, 3, 1))  # (samples, 32, 32, 3)
            labels.append(records[:, position].astype(np.int32))
            if labels[-1].max() >= len(class_names):
                raise ValueError(
                    f"{str(folder / name)!r} has the label {labels[-1].max()}; {names} names "
                    f"{len(class_names)} classes."
                )
        images = np.ascontiguousarray(np.concatenate(images))
        return _in_format(images, keras.config.image_data_format()), np.concatenate(labels)

    return read(train), read([test]), class_names
