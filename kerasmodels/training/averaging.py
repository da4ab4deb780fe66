"""Averaging the weights of a run's last checkpoints.

"Attention Is All You Need", section 6.1: "For the base models, we used a single model obtained by
averaging the last 5 checkpoints, which were written at 10-minute intervals. For the big models, we
averaged the last 20 checkpoints."
"""

import os
import pathlib
import shutil
import tempfile
import zipfile

import keras
import numpy as np

from kerasmodels.arguments import integer
from kerasmodels.training.accumulation import without_accumulation
from kerasmodels.training.numbered_files import numbered_files

_SUFFIXES = (".weights.h5", ".keras")
_WEIGHTS = "model.weights.h5"  # the name inside a `.keras` file


class KeepLastCheckpoints(keras.callbacks.Callback):
    """Writes the weights every n epochs or steps and keeps the last files alone.

    Files are called `epoch-00012.weights.h5` or `step-0012000.weights.h5` and are complete whenever
    they are there: each is written under another name first, and an old one is deleted only after
    the new one stands. A second run into the same folder goes on with the files it finds.

    Args:
        folder: Where the files go; it is made if need be.
        keep: The number of files that are kept. The paper's are 5 (base) and 20 (big).
        every: The number of epochs or steps from one file to the next.
        unit: `"epoch"` or `"step"`. Steps are those of the optimizer's own count if it has one, so
            that a resumed run counts on.

    Raises:
        ValueError: If a number is not positive or `unit` is unknown.

    Attributes:
        paths: The files that are kept, oldest first.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import training

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    model.compile("adam", loss="mse")
    checkpoints = training.KeepLastCheckpoints("run/checkpoints", keep=5)
    model.fit(np.ones((64, 8)), np.ones((64, 3)), epochs=20, callbacks=[checkpoints])
    training.average_checkpoints(checkpoints.paths, model)
    ```
    """

    def __init__(self, folder, keep=5, every=1, unit="epoch"):
        super().__init__()
        if unit not in ("epoch", "step"):
            raise ValueError(f'`unit` must be "epoch" or "step". Received: unit={unit!r}')
        self.folder = pathlib.Path(folder)
        self.keep = integer("keep", keep)
        self.every = integer("every", every)
        self.unit = unit
        # Keras runs training steps ahead of their logs unless a callback asks for each one.
        self.async_safe = unit == "epoch"
        # A run that began anew in a folder counts from 1 again: the time tells first.
        found = numbered_files(self.folder, f"{unit}-{{}}.weights.h5")
        self.paths = [p for _, p in sorted(found, key=lambda pair: pair[1].stat().st_mtime_ns)]
        self._steps = self._last_batch = 0

    def on_train_begin(self, logs=None):
        """Finds out how many steps the model has behind it."""
        optimizer = getattr(self.model, "optimizer", None)
        optimizer = getattr(optimizer, "inner_optimizer", optimizer)
        iterations = getattr(optimizer, "iterations", None)
        # An optimizer that accumulates gradients counts its updates, not the batches.
        batches = getattr(optimizer, "gradient_accumulation_steps", None) or 1
        self._steps = 0 if iterations is None else int(iterations) * batches

    def on_epoch_begin(self, epoch, logs=None):
        """Counts batches of the epoch from 0."""
        self._last_batch = -1

    def on_train_batch_end(self, batch, logs=None):
        """Writes a file when `every` steps are over."""
        # With `steps_per_execution` above 1 one call stands for several steps.
        before, self._steps = self._steps, self._steps + batch - self._last_batch
        self._last_batch = batch
        if self.unit == "step" and before // self.every != self._steps // self.every:
            self._save(f"step-{self._steps:07d}.weights.h5")

    def on_epoch_end(self, epoch, logs=None):
        """Writes a file when `every` epochs are over."""
        if self.unit == "epoch" and (epoch + 1) % self.every == 0:
            self._save(f"epoch-{epoch + 1:05d}.weights.h5")

    def _save(self, name):
        path = self.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        _write_atomically(path, without_accumulation(self.model).save_weights)
        self.paths = [p for p in self.paths if p != path] + [path]
        while len(self.paths) > self.keep:
            self.paths.pop(0).unlink(missing_ok=True)


def average_checkpoints(paths, target):
    """Averages the weights of several files of one model.

    The mean of every weight is taken in float64. Integer state (seeds, counters) and the state of
    an optimizer come from the last file.

    Args:
        paths: Files that Keras wrote, `.weights.h5` or `.keras`, of models with equal weights.
        target: A model, which is given the averaged weights (its optimizer stays as it is), or the
            path of a file to write: `.weights.h5`, or `.keras` if the last of `paths` is one, whose
            config is taken.

    Returns:
        `target`.

    Raises:
        ValueError: If there are no paths, if a file is of another kind, or if the files' weights
            differ in names or shapes. A file at `target` is then as it was before.
        FileNotFoundError: If a file is missing.

    Example:
    ```python
    import keras
    from kerasmodels import training

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    paths = ["epoch-00019.weights.h5", "epoch-00020.weights.h5"]
    for path in paths:
        model.save_weights(path)  # as a training does, epoch by epoch
    training.average_checkpoints(paths, model)
    training.average_checkpoints(paths, "averaged.weights.h5")
    ```
    """
    paths = [pathlib.Path(path) for path in paths]
    if not paths:
        raise ValueError("`paths` must name at least one file. Received: paths=[]")
    for path in paths:
        _check_suffix("paths", path)
        if not path.is_file():
            raise FileNotFoundError(f"`paths` names a file that is not there: {path}")
    if isinstance(target, keras.Model):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / _WEIGHTS
            _write_mean(paths, file)
            # Averaged weights say nothing about the moments of a run that may go on.
            optimizer = getattr(target, "optimizer", None)
            target.load_weights(file, objects_to_skip=[optimizer] if optimizer else None)
        return target

    path = pathlib.Path(target)
    _check_suffix("target", path)
    if path.name.endswith(".weights.h5"):
        _write_atomically(path, lambda file: _write_mean(paths, file))
    elif paths[-1].suffix == ".keras":
        _write_atomically(path, lambda file: _write_mean_archive(paths, file))
    else:
        raise ValueError(
            "`target` can be a `.keras` file only if the last of `paths` is one, since weights "
            f"alone do not say what the model is. Received: target={target}, {paths[-1]}"
        )
    return target


def _check_suffix(name, path):
    if not path.name.endswith(_SUFFIXES):
        raise ValueError(f"`{name}` must end in `.weights.h5` or `.keras`. Received: {path}")


def _write_atomically(path, write):
    """Calls `write` with another name in the same folder, then renames: all or nothing."""
    suffix = next(s for s in _SUFFIXES if path.name.endswith(s))
    # Keras insists on the suffix; the name before it tells what a killed run has left.
    partial = path.with_name(f".partial-{os.getpid()}-{path.name.removesuffix(suffix)}{suffix}")
    try:
        write(partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_mean_archive(paths, file):
    """A copy of the last `.keras` file with the mean of all in the place of its weights."""
    with tempfile.TemporaryDirectory() as folder:
        weights = pathlib.Path(folder) / _WEIGHTS
        _write_mean(paths, weights)
        with zipfile.ZipFile(paths[-1]) as source, zipfile.ZipFile(file, "w") as archive:
            for item in source.infolist():
                if item.filename == _WEIGHTS:
                    archive.write(weights, _WEIGHTS)
                else:
                    archive.writestr(item, source.read(item))


def _write_mean(paths, file):
    """Writes the mean of the files' weights to `file`, one weight after another."""
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        extracted = [_extract(path, pathlib.Path(folder) / str(i)) for i, path in enumerate(paths)]
        shutil.copyfile(extracted[-1], file)
        sources = [h5py.File(path, "r") for path in extracted]
        try:
            shapes = [_shapes(source) for source in sources]
            for path, other in zip(paths, shapes, strict=True):
                _check_same(paths[-1], shapes[-1], path, other)
            with h5py.File(file, "r+") as mean:
                for name in shapes[-1]:
                    last = _read(mean[name])
                    # Moments of another step do not belong to averaged weights, nor do counters.
                    if name.startswith("optimizer/") or not _is_float(last.dtype):
                        continue
                    total = np.zeros(last.shape, "float64")
                    for source in sources:
                        total += _read(source[name]).astype("float64")
                    value = (total / len(sources)).astype(last.dtype)
                    mean[name][...] = value.view(mean[name].dtype)
        finally:
            for source in sources:
                source.close()


def _read(dataset):
    """The array of an HDF5 dataset, which calls bfloat16 two bytes of anything."""
    if dataset.attrs.get("dtype") == "bfloat16":
        import ml_dtypes

        return dataset[()].view(ml_dtypes.bfloat16)
    return dataset[()]


def _is_float(dtype):
    return "float" in keras.backend.standardize_dtype(dtype)


def _extract(path, folder):
    """The HDF5 file of a checkpoint."""
    if path.suffix != ".keras":
        return path
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.extract(_WEIGHTS, folder)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"`paths` names a file that holds no Keras model: {path}") from error


def _shapes(source):
    """Name to shape of every weight in an open HDF5 file."""
    import h5py

    shapes = {}

    def note(name, item):
        if isinstance(item, h5py.Dataset):
            shapes[name] = item.shape

    source.visititems(note)
    return shapes


def _check_same(path, shapes, other_path, other_shapes):
    """Raises a ValueError that lists how two files' model weights differ."""
    # One file may have been written without the optimizer.
    names = {n for n in {*shapes, *other_shapes} if not n.startswith("optimizer/")}
    wrong = sorted(n for n in names if shapes.get(n) != other_shapes.get(n))
    if wrong:
        lines = [f"{n}: {shapes.get(n)} and {other_shapes.get(n)}" for n in wrong[:10]]
        raise ValueError(
            f"`paths` must name files of one model. {len(wrong)} weights differ between {path} and "
            f"{other_path} (shape, or None where there is no such weight):\n" + "\n".join(lines)
        )
