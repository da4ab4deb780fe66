"""Checkpoint folders on disk: finding one, reading its JSON and tensors, replacing its files.

A folder is what transformers writes: ``config.json``, ``generation_config.json``, the weights in
``model.safetensors`` (or shards with an index, or the older ``pytorch_model.bin``) and the
tokenizer's files. Nothing here knows a model.
"""

import contextlib
import json
import os
import re
import shutil
import uuid
import zipfile
from pathlib import Path

import numpy as np

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"
SAFETENSORS = "model.safetensors"
TORCH = "pytorch_model.bin"
INDEX = ".index.json"
# In the order in which they are looked for, which is that of transformers.
WEIGHT_FILES = (SAFETENSORS, SAFETENSORS + INDEX, TORCH, TORCH + INDEX)
HUB = "hf://"
RESIDENT_BYTES = 2**25  # of a mapped file, before it is mapped anew


def find_folder(preset, load_weights=True, extra_files=(), sizes=()):
    """Return the folder that a preset names, downloading it when it is on the Hugging Face Hub.

    Args:
        preset: a local folder, or ``"hf://organisation/name"``.
        load_weights: whether a download includes the weights. Safetensors are preferred; a
            ``.bin`` is fetched only where there is nothing else.
        extra_files: names of the tokenizer's files, fetched where the repository has them.
        sizes: other names that the caller knows, for the error message.

    Returns:
        A ``pathlib.Path`` of an existing folder.

    Raises:
        FileNotFoundError: there is no such folder or repository, or no connection.
        ValueError: the name after ``hf://`` is not ``organisation/name``.
    """
    preset = check_preset(preset)
    if not preset.startswith(HUB):
        folder = Path(preset).expanduser()
        if not folder.is_dir():
            raise FileNotFoundError(
                f"preset={preset!r}: there is no such folder. Allowed: a local folder, "
                f"'hf://organisation/name', or one of {sorted(sizes)}"
            )
        return folder
    repository = preset.removeprefix(HUB)
    if repository.count("/") != 1 or not all(repository.split("/")):
        raise ValueError(f"preset={preset!r}: a repository is named 'hf://organisation/name'")
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ImportError(
            f"preset={preset!r} needs huggingface_hub: pip install 'kerasmodels[hub]'"
        ) from error
    patterns = [CONFIG, GENERATION_CONFIG, *extra_files]
    if load_weights:
        patterns += [SAFETENSORS, SAFETENSORS + INDEX, "model-*.safetensors"]
    try:
        folder = Path(snapshot_download(repository, allow_patterns=patterns))
        if load_weights and not any((folder / name).exists() for name in WEIGHT_FILES[:2]):
            patterns += [TORCH, TORCH + INDEX, "pytorch_model-*.bin"]
            folder = Path(snapshot_download(repository, allow_patterns=patterns))
    except OSError as error:  # every error of the hub: no such repository, gated, no connection
        raise FileNotFoundError(f"preset={preset!r} cannot be fetched: {error}") from error
    return folder


def check_preset(preset):
    """Return the name of a preset as a string; refuse what names none.

    Raises:
        ValueError: it is neither a string nor a path, or empty, which would be the folder that the
            program runs in.
    """
    if not isinstance(preset, str | os.PathLike) or not os.fspath(preset):
        raise ValueError(
            "preset must name a local folder or 'hf://organisation/name'. "
            f"Received: preset={preset!r}"
        )
    return os.fspath(preset)


def read_json(path, kind=dict):
    """Return the dictionary, or with ``kind=list`` the list, in a JSON file.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file does not hold a JSON object, or a JSON array.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path.name} is missing in the folder {str(path.parent)!r}")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # invalid JSON as well as invalid UTF-8
        raise ValueError(f"{str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(value, kind):
        what = {dict: "object", list: "array"}[kind]
        raise ValueError(f"{str(path)!r} must hold a JSON {what}, not {type(value).__name__}")
    return value


def write_json(path, value):
    """Write a dictionary or list the way transformers does: indented, sorted, one final newline."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    Path(path).write_text(text + "\n", encoding="utf-8")


class TensorFiles:
    """The tensors of a folder by name, each read when it is asked for.

    Args:
        folder: a folder with one of ``WEIGHT_FILES``, or a file: safetensors, or what
            ``torch.save`` wrote.

    Example:
    ```python
    from kerasmodels import models
    from kerasmodels.checkpoints.files import TensorFiles

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    bert.save_to_preset("bert")
    with TensorFiles("bert") as tensors:
        print(tensors.shapes)  # {"embeddings.word_embeddings.weight": (1000, 64), ...}
        array = tensors.read("embeddings.word_embeddings.weight")
    ```

    Raises:
        FileNotFoundError: the folder has no weights, or a shard is missing.
        ValueError: a file is truncated, corrupt or refused by the weights-only reader.
        ImportError: the package that reads the file is not installed.
    """

    def __init__(self, folder):
        folder = Path(folder)
        self._closing = contextlib.ExitStack()
        self._readers = {}  # tensor name -> function without arguments
        self.shapes = {}
        paths = [folder, *(folder / name for name in WEIGHT_FILES)]
        self.path = next((path for path in paths if path.is_file()), None)
        if self.path is None:
            raise FileNotFoundError(
                f"the folder {str(folder)!r} has no weights: one of {', '.join(WEIGHT_FILES)} "
                "is needed"
            )
        try:
            for path in _shards(self.path):
                opener = _open_safetensors if path.suffix == ".safetensors" else _open_torch
                for name, shape, reader in opener(path, self._closing):
                    self.shapes[name] = tuple(shape)
                    self._readers[name] = reader
        except BaseException:
            self._closing.close()
            raise

    def read(self, name):
        """Return one tensor as a numpy array; bfloat16 comes back as ``ml_dtypes.bfloat16``."""
        return self._readers[name]()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._readers.clear()
        self._closing.close()


def _shards(path):
    """Return the files that hold the tensors: the file itself, or those that an index names."""
    if not path.name.endswith(INDEX):
        return [path]
    index = read_json(path).get("weight_map")
    if not isinstance(index, dict) or not index:
        raise ValueError(f"{str(path)!r} has no 'weight_map' that names the shards")
    shards = []
    if not all(isinstance(name, str) for name in index.values()):
        raise ValueError(f"{str(path)!r} must name the shards as strings in its 'weight_map'")
    for name in sorted(set(index.values())):
        # An index comes from strangers: it may name files of its own folder and no others.
        if Path(name).name != name or Path(name).suffix not in (".safetensors", ".bin"):
            raise ValueError(f"{str(path)!r} names {name!r}, which is no shard of its folder")
        if not (path.parent / name).is_file():
            raise FileNotFoundError(f"{name!r} is missing, which {str(path)!r} names")
        shards.append(path.parent / name)
    return shards


def _open_safetensors(path, closing):
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} needs safetensors: pip install 'kerasmodels[hub]'"
        ) from error
    import ml_dtypes  # noqa: F401  comes with keras; teaches numpy bfloat16

    try:
        # Not mapped: what was read of a mapped file stays in memory until it is closed.
        file = closing.enter_context(safe_open(path, framework="numpy", backend="pread"))
    except SafetensorError as error:
        raise ValueError(f"{str(path)!r} is truncated or corrupt: {error}") from error
    for name in file.keys():  # noqa: SIM118  the handle is no dictionary
        yield name, file.get_slice(name).get_shape(), lambda n=name: file.get_tensor(n)


def _open_torch(path, closing):
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"{str(path)!r} can be read with PyTorch alone: pip install 'kerasmodels[torch]', "
            "or use a folder with model.safetensors"
        ) from error
    # Only the zip format can be mapped; files of 2020 and before are in the older one.
    mapped = zipfile.is_zipfile(path)

    def load():
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)

    try:
        tensors = load()
    except Exception as error:  # of a broken file torch raises whatever its bytes lead to
        # Within its advice torch says which class a file would have it run.
        named = re.search(r"GLOBAL \S+", str(error))
        reason = str(error).strip().splitlines()[:1] + ([named[0]] if named else [])
        raise ValueError(
            f"{str(path)!r} is truncated, corrupt, or holds more than weights: {reason}"
        ) from error
    key, prefix = _weights_within(path, tensors, torch.is_tensor)
    tensors = _named(tensors, key, prefix)
    closing.callback(tensors.clear)
    resident = 0  # bytes

    def read(name):
        nonlocal resident
        # What was read of a mapped file stays in memory until it is mapped anew.
        if mapped and resident > RESIDENT_BYTES:
            tensors.update(_named(load(), key, prefix))
            resident = 0
        tensor = tensors[name].detach()
        resident += tensor.nbytes
        # numpy has no bfloat16 of its own; float32 holds every value of it.
        tensor = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        # A copy: JAX would build its array on the memory of the file, which may change.
        return np.array(tensor)

    for name, tensor in tensors.items():
        yield name, tensor.shape, lambda n=name: read(n)


# Where training programs put the weights of a model, beside their optimizer and their counters, and
# what they put before each name.
_WEIGHTS = ("state_dict", "model", "model_state_dict", "model_ema", "state_dict_ema", "ema")
_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and of torch.compile


def _weights_within(path, content, is_tensor):
    """Where the weights are in what ``torch.save`` wrote.

    Returns:
        The key under which they are, or ``None``, and the prefix of all of their names.

    Raises:
        ValueError: there are none, or those of several models, of which only the user can choose.
    """

    def is_weights(value):
        return isinstance(value, dict) and value and all(map(is_tensor, value.values()))

    key = None
    if not is_weights(content):
        content = content if isinstance(content, dict) else {}
        found = [name for name, value in content.items() if is_weights(value)]
        found = [name for name in found if name in _WEIGHTS] or found
        if len(found) != 1:
            others = sorted(str(name) for name, value in content.items() if not is_tensor(value))
            says = (
                f"it has the weights of several models, {found}"
                if found
                else f"of its keys these are no tensors: {others[:10]}"
            )
            raise ValueError(
                f"{str(path)!r} must hold a dictionary of tensors, alone or under one key such as "
                f"{_WEIGHTS[0]!r}; {says}. Write those that you want, for example by "
                "torch.save(torch.load(path)['model_ema'], 'weights.pth')"
            )
        key = found[0]
        content = content[key]
    prefix, again = "", True
    while again:
        again = next((p for p in _PREFIXES if all(n.startswith(prefix + p) for n in content)), "")
        prefix += again
    return key, prefix


def _named(content, key, prefix):
    """The weights by the names that the model has given them."""
    weights = content if key is None else content[key]
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items()}


def write_tensors(path, tensors):
    """Write a dictionary of numpy arrays to a safetensors file that transformers accepts."""
    from safetensors.numpy import save_file

    tensors = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    save_file(tensors, path, metadata={"format": "pt"})


@contextlib.contextmanager
def replacing(folder):
    """Collect a folder's new files beside the old ones, and put them in place all together.

    Yields an empty folder. When the block ends, its files are renamed into ``folder``, where
    files of other names stay; when the block raises, ``folder`` is as it was before.

    Raises:
        ValueError: ``folder``, or a file to be replaced, is not what its name says.
    """
    if not isinstance(folder, str | os.PathLike) or not os.fspath(folder):
        raise ValueError(f"folder must be the path of a folder. Received: folder={folder!r}")
    folder = Path(folder).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"folder={str(folder)!r} is a file; a folder is needed")
    exists = folder.is_dir()
    # On the same file system, so that a rename is all that is left to do.
    parent = folder if exists else folder.parent
    parent.mkdir(parents=True, exist_ok=True)
    staging = parent / f".{folder.name}-{uuid.uuid4().hex}"
    staging.mkdir()
    try:
        yield staging
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        mode = 0o666 & staging.stat().st_mode  # what the umask leaves; safetensors writes 0600
        for file in files:
            file.chmod(mode)
        if not exists:
            os.rename(staging, folder)
            return
        targets = [folder / file.relative_to(staging) for file in files]
        for target in targets:
            if target.is_dir():
                raise ValueError(f"{str(target)!r} is a folder; a file goes there")
            if target.parent.exists() and not target.parent.is_dir():
                raise ValueError(f"{str(target.parent)!r} is a file; a folder goes there")
        for file, target in zip(files, targets, strict=True):
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
