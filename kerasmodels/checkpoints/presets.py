"""From a preset to a model and back: what ``from_preset`` and ``save_to_preset`` of a model call.

A model class needs three lines for each::

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        return checkpoints.load_preset(
            cls, preset, checkpoints.marian.FAMILY, SIZES, load_weights, **kwargs
        )

    def save_to_preset(self, folder):
        checkpoints.save_preset(self, folder, checkpoints.marian.FAMILY)

After loading, ``model.tokenizer`` is the folder's tokenizer, or ``None``; saving writes its files
again. It is a plain attribute: a ``.keras`` file does not hold it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kerasmodels.checkpoints import files
from kerasmodels.checkpoints.keys import KeyTable, read_weights, weights_for_file


@dataclass(frozen=True)
class Family:
    """What is to be known about a family of checkpoints.

    Args:
        model_type: ``model_type`` in its ``config.json``.
        read_config: ``config.json`` -> constructor arguments.
        read_generation: ``config.json`` and ``generation_config.json`` (or ``None``) -> the
            constructor's argument ``generation``.
        write_config: constructor arguments -> ``config.json``.
        write_generation: constructor arguments -> ``generation_config.json``.
        key_table: constructor arguments -> `KeyTable`.
        tokenizer: a class with ``FILES``, ``from_folder`` and ``files``.
        published: a preset with weights, for error messages.
        feature_order: constructor arguments -> the order in which hidden features are written,
            or ``None``.

    Example:
    ```python
    family = kerasmodels.checkpoints.marian.FAMILY
    family.model_type  # "marian"
    model = load_preset(Transformer, "opus-mt-en-de", family)  # what `from_preset` does
    ```
    """

    model_type: str
    read_config: Callable[[dict], dict]
    read_generation: Callable[[dict, dict | None], dict]
    write_config: Callable[[dict], dict]
    write_generation: Callable[[dict], dict]
    key_table: Callable[[dict], KeyTable]
    tokenizer: type
    published: str
    feature_order: Callable = lambda arguments: None


def load_preset(cls, preset, family, sizes=None, load_weights=True, new_heads=(), **overrides):
    """Build a model from a folder or from a size named in the paper.

    Args:
        cls: the model class. Its constructor's arguments are those that the family reads.
        preset: a local folder, ``"hf://organisation/name"``, or a key of ``sizes``.
        family: the `Family` of the folder.
        sizes: constructor arguments by the names that the paper gives to sizes.
        load_weights: ``False`` leaves the weights as they are initialised. A size has none, so
            there it must be ``False``.
        new_heads: names of heads that keep their initial weights whatever the file holds.
        **overrides: constructor arguments that replace those of the preset.

    Returns:
        A model with the attribute ``tokenizer``.

    Raises:
        FileNotFoundError: there is no such folder, or it lacks ``config.json`` or weights.
        ValueError: a size is named with ``load_weights=True``, the configuration is of another
            family, it cannot be represented, or the tensors do not fit the model.
    """
    sizes = sizes or {}
    if preset in sizes:
        if load_weights:
            raise ValueError(
                f"preset={preset!r} is a size without published weights: pass load_weights=False "
                f"for a new model of this size, or name a published folder, such as "
                f"{family.published!r}"
            )
        model = cls(**{**sizes[preset], **overrides})
        model.tokenizer = None
        return model
    folder = files.find_folder(preset, load_weights, family.tokenizer.FILES, sizes)
    config = files.read_json(folder / files.CONFIG)
    if config.get("model_type") != family.model_type:
        raise ValueError(
            f"{str(folder / files.CONFIG)!r} has model_type={config.get('model_type')!r}; "
            f"{cls.__name__} reads {family.model_type!r}"
        )
    arguments = {**family.read_config(config), **overrides}
    if "generation" not in overrides:
        path = folder / files.GENERATION_CONFIG
        generation = files.read_json(path) if path.exists() else None
        arguments["generation"] = family.read_generation(config, generation)
    tokenizer = family.tokenizer.from_folder(folder)
    model = cls(**arguments)
    if load_weights:
        read_weights(model, folder, family.key_table(arguments), new_heads)
    model.tokenizer = tokenizer
    return model


def save_preset(model, folder, family):
    """Write a model as a folder that transformers loads.

    The configuration, the weights as ``model.safetensors``, and the files of ``model.tokenizer``
    if there is one. Everything is written beside the folder's files first and renamed at the
    end: after a failure, what was there before is still there and nothing new.

    Args:
        model: a model with ``get_config``, and optionally ``tokenizer``.
        folder: where to write; made if need be. Files of other names in it stay.
        family: the `Family` whose format is written.

    Raises:
        ValueError: the format cannot represent the model, or ``folder`` is a file.
    """
    arguments = model.get_config()
    config, generation = family.write_config(arguments), family.write_generation(arguments)
    order = family.feature_order(arguments)
    tensors = weights_for_file(model, family.key_table(arguments), order)
    config["dtype"] = str(next(iter(tensors.values())).dtype)
    tokenizer = getattr(model, "tokenizer", None)
    with files.replacing(folder) as new:
        files.write_json(new / files.CONFIG, config)
        files.write_json(new / files.GENERATION_CONFIG, generation)
        files.write_tensors(new / files.SAFETENSORS, tensors)
        for name, content in tokenizer.files.items() if tokenizer else ():
            (new / name).write_bytes(content)
