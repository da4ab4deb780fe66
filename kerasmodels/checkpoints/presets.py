"""From a preset to a model and back: what ``from_preset`` and ``save_to_preset`` of a model call.

A model class needs three lines for each::

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        return checkpoints.load_preset(
            cls, preset, checkpoints.marian.FAMILY, SIZES, load_weights, **kwargs
        )


    def save_to_preset(self, folder):
        checkpoints.save_preset(self, folder, checkpoints.marian.FAMILY)

After loading, ``model.tokenizer`` (of a model of images ``model.preprocessor``) is what the folder
says about inputs, or ``None``; saving writes its files again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kerasmodels.checkpoints import files
from kerasmodels.checkpoints.keys import KeyTable, read_weights, weights_for_file
from kerasmodels.keras_internals import all_layers

TENSORS = "tensors"  # beside the configurations by file name, see `Layout`


@dataclass(frozen=True)
class Layout:
    """How one library writes the models of a family.

    Args:
        field: the field of its ``config.json`` by which it is known.
        values: what can be read of what may stand there.
        read: the configurations by file name, and the constructor arguments that the caller gives
            -> all constructor arguments, and the names of heads that keep their initial weights.
        write: a model -> its configurations by file name.
        key_table: constructor arguments -> `KeyTable`.
        configs: the file names of its configurations; the first has ``field``, and is the one by
            which a folder is known to be of this layout.
        feature_order: constructor arguments -> the order in which hidden features are written,
            or ``None``.
        describe: shapes by the names of the tensors -> the ``config.json`` that they imply, for
            a file of weights alone; ``None`` where names and shapes do not tell enough.
        inspects: whether ``read`` wants to know what the file of weights holds: where weights are
            loaded, the configurations then have the shapes by the names of the tensors, under the
            key ``TENSORS``.
        open_tensors: what opens a folder for its weights: `files.TensorFiles`, or a class that is
            used as it is.
        write_tensors: a folder, and arrays by name -> nothing; writes the weights.
    """

    field: str
    values: tuple[str, ...]
    read: Callable[[dict, dict], tuple[dict, tuple]]
    write: Callable[[object], dict]
    key_table: Callable[[dict], KeyTable]
    configs: tuple[str, ...] = (files.CONFIG,)
    feature_order: Callable = lambda arguments: None
    describe: Callable[[dict], dict] | None = None
    inspects: bool = False
    open_tensors: Callable = files.TensorFiles
    write_tensors: Callable = lambda folder, tensors: files.write_tensors(
        folder / files.SAFETENSORS, tensors
    )


@dataclass(frozen=True)
class Family:
    """What is to be known about a family of checkpoints.

    Args:
        layouts: a `Layout` by the name of each library that writes such models.
        companion: the class of the tokenizer or image processor, with ``FILES``, ``from_folder``
            and ``files``.
        companion_name: the attribute of a model that holds one.
        published: a preset with weights, for error messages.

    Example:
    ```python
    from kerasmodels import models
    from kerasmodels.checkpoints import load_preset, marian

    marian.FAMILY.companion_name  # "tokenizer"
    preset = "hf://Helsinki-NLP/opus-mt-en-de"
    model = load_preset(models.Transformer, preset, marian.FAMILY)  # what `from_preset` does
    ```
    """

    layouts: dict[str, Layout]
    companion: type
    companion_name: str
    published: str


def load_preset(cls, preset, family, sizes=None, load_weights=True, **overrides):
    """Build a model from a folder, a file of weights, or a size named in the paper.

    Args:
        cls: the model class. Its constructor's arguments are those that the family reads.
        preset: a local folder, ``"hf://organisation/name"``, a key of ``sizes``, or, where the
            family can tell a configuration from weights alone, a file of them.
        family: the `Family` of the folder.
        sizes: constructor arguments by the names that the paper gives to sizes.
        load_weights: ``False`` leaves the weights as they are initialised. A size has none, so
            there it must be ``False``.
        **overrides: constructor arguments that replace those of the preset.

    Returns:
        A model with the attribute that the family names, such as ``tokenizer``.

    Raises:
        FileNotFoundError: there is no such folder, or it lacks ``config.json`` or weights.
        ValueError: a size is named with ``load_weights=True``, the configuration is of another
            family, it cannot be represented, or the tensors do not fit the model.
    """
    files.check_preset(preset)
    sizes = sizes or {}
    if preset in sizes:
        if load_weights:
            raise ValueError(
                f"preset={preset!r} is a size without published weights: pass load_weights=False "
                f"for a new model of this size, or name a published folder, such as "
                f"{family.published!r}"
            )
        model = cls(**{**sizes[preset], **overrides})
        setattr(model, family.companion_name, None)
        return model
    path, companion = Path(preset).expanduser(), None
    layout = next((one for one in family.layouts.values() if one.describe), None)
    if layout and path.is_file():
        configs = {files.CONFIG: _describe(path, layout)}
    else:
        path = files.find_folder(preset, load_weights, family.companion.FILES, sizes)
        layout, configs = _read_configs(cls, path, family)
        companion = family.companion.from_folder(path)
    if layout.inspects and load_weights:
        with layout.open_tensors(path) as tensors:
            configs[TENSORS] = dict(tensors.shapes)
    arguments, new_heads = layout.read(configs, overrides)
    model = cls(**arguments)
    if load_weights:
        read_weights(model, path, layout.key_table(arguments), new_heads, layout.open_tensors)
    setattr(model, family.companion_name, companion)
    return model


def _describe(path, layout):
    with files.TensorFiles(path) as tensors:
        try:
            return layout.describe(tensors.shapes)
        except ValueError as error:
            raise ValueError(f"{str(path)!r}: {error}") from error


def _read_configs(cls, folder, family):
    """The layout of a folder, and its configurations by file name."""
    layouts = list(family.layouts.values())
    mains = [one.configs[0] for one in layouts]
    main = next((name for name in mains if (folder / name).is_file()), mains[0])
    config = files.read_json(folder / main)
    layouts = [one for one in layouts if one.configs[0] == main]
    layout = next((one for one in layouts if config.get(one.field) in one.values), None)
    if layout is None:
        found = ", ".join(f"{one.field}={config.get(one.field)!r}" for one in layouts)
        known = ", ".join(repr(value) for one in layouts for value in one.values if value)
        raise ValueError(f"{str(folder / main)!r} has {found}; {cls.__name__} reads {known}")
    others = [name for name in layout.configs if (folder / name).exists()]
    return layout, {name: files.read_json(folder / name) for name in others}


def read_class_names(id2label):
    """Return the names of classes as a list.

    Args:
        id2label: what ``config.json`` says: a dictionary by number, or nothing.

    Returns:
        A list, or ``None``.

    Raises:
        ValueError: the numbers are not those from 0 on.
    """
    try:
        by_number = {int(i): str(name) for i, name in (id2label or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"{files.CONFIG}: id2label must be an object of names by number. Received: {id2label!r}"
        ) from error
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError(f"{files.CONFIG}: id2label must number its names from 0 on, without a gap")
    return [by_number[i] for i in range(len(by_number))] or None


def save_preset(model, folder, family, layout=None):
    """Write a model as a folder that the library of the layout loads.

    The configuration, the weights (``model.safetensors``, or what the layout has for them), and the
    files of the tokenizer or image processor if the model has one. Everything is written beside the
    folder's files first and renamed at the end: after a failure, what was there before is still
    there and nothing new.

    Args:
        model: a model with ``get_config``, and optionally the attribute that the family names.
        folder: where to write; made if need be. Files of other names in it stay.
        family: the `Family` whose format is written.
        layout: the name of one of its layouts. Defaults to the first.

    Raises:
        ValueError: there is no such layout, the model is quantized, the format cannot represent
            it, ``folder`` is a file, or it holds a model of another layout that would be loaded in
            this one's place.
    """
    layout = next(iter(family.layouts)) if layout is None else layout
    if layout not in family.layouts:
        raise ValueError(f"layout={layout!r}; allowed: {list(family.layouts)}")
    layout, arguments = family.layouts[layout], model.get_config()
    quantized = [layer.path for layer in all_layers(model) if layer.quantization_mode]
    if quantized:
        raise ValueError(
            "Quantized weights have no place in the format of a preset: save the preset before "
            "`quantize`, or the quantized model by `model.save`, as a `.keras` file. "
            f"Received: quantized layers {quantized[:3]} and {len(quantized[3:])} more"
        )
    for other in family.layouts.values():
        if other.configs[0] == layout.configs[0]:
            break
        if (Path(folder).expanduser() / other.configs[0]).is_file():
            raise ValueError(
                f"folder={str(folder)!r} has a {other.configs[0]}, which is loaded before the "
                f"{layout.configs[0]} that would be written: choose another folder"
            )
    configs = layout.write(model)
    tensors = weights_for_file(model, layout.key_table(arguments), layout.feature_order(arguments))
    configs[layout.configs[0]]["dtype"] = str(next(iter(tensors.values())).dtype)
    companion = getattr(model, family.companion_name, None)
    with files.replacing(folder) as new:
        for name, config in configs.items():
            (new / name).parent.mkdir(exist_ok=True)
            files.write_json(new / name, config)
        layout.write_tensors(new, tensors)
        for name, content in companion.files.items() if companion else ():
            (new / name).write_bytes(content)
