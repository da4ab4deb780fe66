"""Checkpoints as TensorFlow's ``Saver`` writes them: ``model.ckpt.index`` and its files of data.

TensorFlow itself reads and writes them, whatever the backend of the models. Nothing here knows a
model.
"""

import re
from pathlib import Path

INDEX = ".index"
STATE = "checkpoint"  # says which of several is the latest


class TensorFlowFiles:
    """The tensors of a TensorFlow checkpoint by name, each read when it is asked for.

    It is used as `files.TensorFiles` is.

    Args:
        folder: a folder with a checkpoint, whatever its prefix (``bert_model.ckpt``,
            ``model.ckpt-12345``). Where there are several, its file ``checkpoint`` names one.

    Example:
    ```python
    from kerasmodels import models
    from kerasmodels.checkpoints.tensorflow_files import TensorFlowFiles

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    bert.save_to_preset("bert", layout="google")
    with TensorFlowFiles("bert") as tensors:
        print(tensors.shapes)  # {"bert/pooler/dense/kernel": (64, 64), ...}
        array = tensors.read("bert/pooler/dense/kernel")
    ```

    Raises:
        FileNotFoundError: the folder has no checkpoint, or a part of it is missing.
        ValueError: there are several and nothing names one, or a file is truncated or corrupt.
        ImportError: TensorFlow is not installed.
    """

    def __init__(self, folder):
        self.path = _find(Path(folder))
        self._is_checked = False
        tensorflow = _tensorflow(self.path)
        try:
            self._reader = tensorflow.train.load_checkpoint(str(self.path))
            shapes = self._reader.get_variable_to_shape_map()
        except Exception as error:  # which one depends on the bytes that are broken
            raise self._broken(error) from error
        self.shapes = {name: tuple(shapes[name]) for name in sorted(shapes)}

    def read(self, name):
        """Return one tensor as a numpy array.

        TensorFlow finds bytes that are missing or changed when it reads the tensor. So the first
        call reads all of them once: nobody shall have half a model when the second half is lost.

        Raises:
            ValueError: the checkpoint is truncated or corrupt.
        """
        try:
            if not self._is_checked:
                for one in self.shapes:
                    self._reader.get_tensor(one)
                self._is_checked = True
            return self._reader.get_tensor(name)
        except Exception as error:
            raise self._broken(error) from error

    def _broken(self, error):
        reason = str(error).strip().splitlines()[:1]
        return ValueError(f"{str(self.path)!r} is truncated or corrupt: {reason}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._reader = None


def write_tensors(path, tensors):
    """Write a dictionary of numpy arrays as a checkpoint that ``tf.train.load_checkpoint`` reads.

    Args:
        path: the prefix of its files, such as ``folder / "bert_model.ckpt"``.
        tensors: numpy arrays by name.

    Raises:
        ImportError: TensorFlow is not installed.
    """
    v1 = _tensorflow(path).compat.v1
    # A session of its own: the eager runtime would take hold of every GPU, though the models may
    # run on another backend.
    config = v1.ConfigProto(device_count={"GPU": 0})
    with v1.Graph().as_default(), v1.Session(config=config) as session:
        inputs = [v1.placeholder(array.dtype, array.shape) for array in tensors.values()]
        save = v1.raw_ops.SaveV2(
            prefix=str(path),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=inputs,
        )
        session.run(save, dict(zip(inputs, tensors.values(), strict=True)))


def _tensorflow(path):
    try:
        import tensorflow
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} is a checkpoint of TensorFlow, which is needed on any backend: "
            "pip install 'kerasmodels[tensorflow]'"
        ) from error
    return tensorflow


def _find(folder):
    """The prefix of the files of the checkpoint in a folder."""
    files = (path.name for path in folder.glob("*" + INDEX))
    names = sorted(name.removesuffix(INDEX) for name in files if name[0] != ".")  # not hidden ones
    if not names:
        raise FileNotFoundError(
            f"the folder {str(folder)!r} has no weights: a TensorFlow checkpoint is needed, such "
            "as bert_model.ckpt.index and bert_model.ckpt.data-00000-of-00001"
        )
    name = names[0] if len(names) == 1 else _latest(folder / STATE)
    if name not in names:
        raise ValueError(
            f"the folder {str(folder)!r} has several checkpoints, and no file {STATE!r} names one "
            f"of them: {names}"
        )
    parts = [path.name for path in folder.iterdir() if path.name.startswith(f"{name}.data-")]
    if not parts or len(parts) < int(parts[0].rpartition("-")[2]):
        raise FileNotFoundError(
            f"{str(folder / name)!r} is incomplete: of its files {name}.data-... there are "
            f"{sorted(parts)}"
        )
    return folder / name


def _latest(path):
    """The name in a file ``checkpoint``; its folder is that of the machine that wrote it."""
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = re.search(r'^model_checkpoint_path: "(.*)"', text, re.MULTILINE)
    return re.split(r"[/\\]", found[1])[-1] if found else None
