"""Folders of sentence-transformers: what is done with the vectors of a sentence's tokens.

Beside what transformers writes there is ``modules.json``, the steps from text to vector, with a
folder for each: the encoder itself at the top (in old folders in ``0_Transformer``), pooling in
``1_Pooling``, and normalization. ``sentence_bert_config.json`` says where texts are cut.
"""

from pathlib import Path

from kerasmodels.checkpoints import files

MODULES = "modules.json"
TEXT = "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
POOLING_CONFIG = f"1_Pooling/{files.CONFIG}"
# Of a repository, beside those of transformers and of the tokenizer.
FILES = (MODULES, TEXT, SETTINGS, "*_Pooling/*.json", "0_Transformer/*")
# What is written again as it was read, and what stands there otherwise.
KEPT = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
# Our names, their names, and what older versions call them.
POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def read_folder(preset, load_weights=True, tokenizer_files=()):
    """Read what a preset says besides the encoder.

    Args:
        preset: a folder of sentence-transformers, ``"hf://organisation/name"``, or a preset with
            an encoder alone. For that they take the mean of the tokens and do not normalize it.
        load_weights: whether a download includes the weights.
        tokenizer_files: names of the tokenizer's files, fetched where the repository has them.

    Returns:
        The folder of the encoder and its tokenizer; ``pooling`` and ``normalize``, constructor
        arguments, in a dictionary; how text is read, in another: ``max_length``, the most tokens or
        ``None``, and ``lowercase``, whether all text is, whatever the tokenizer does; and what else
        the folder says of the vectors' use: prompts and similarity.

    Raises:
        FileNotFoundError: the repository cannot be fetched, or a file is missing that
            ``modules.json`` leads to.
        ValueError: a file does not hold what it should, or sentence-transformers would do
            something else with a text than encode it, pool and normalize.
    """
    folder = files.check_preset(preset)
    if folder.startswith(files.HUB):
        folder = files.find_folder(preset, load_weights, (*tokenizer_files, *FILES))
    folder = Path(folder).expanduser()
    if not (folder / MODULES).is_file():
        return folder, {"pooling": "mean", "normalize": False}, _text(folder), {}
    modules = files.read_json(folder / MODULES, list)
    if not all(isinstance(one, dict) and {"type", "path"} <= set(one) for one in modules):
        raise ValueError(f"{str(folder / MODULES)!r} must say the type and the path of each module")
    kinds = [str(module["type"]).rpartition(".")[-1] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise ValueError(
            f"{str(folder / MODULES)!r} has the modules {kinds}; only Transformer, Pooling and "
            "Normalize can be read, in this order, the last one or not"
        )
    paths = [_inside(folder, module["path"]) for module in modules]
    settings = _json(folder / SETTINGS)
    name = settings.get("default_prompt_name")
    prompt = (settings.get("prompts") or {}).get(name)
    if prompt:
        raise ValueError(
            f"{str(folder / SETTINGS)!r} has default_prompt_name={name!r}, which puts {prompt!r} "
            "before every text; only None can be read"
        )
    pooling = _pooling(paths[1] / files.CONFIG)
    arguments = {"pooling": pooling, "normalize": kinds[2:] == ["Normalize"]}
    kept = {name: settings[name] for name in KEPT if settings.get(name) is not None}
    return paths[0], arguments, _text(paths[0]), kept


def write(model):
    """Return the files that make a folder with a BERT one of sentence-transformers.

    Args:
        model: a model with ``pooling``, ``normalize``, ``settings``, ``backbone`` and
            ``tokenizer``.

    Returns:
        The contents of JSON files by their names.
    """
    modules = ["Transformer", "Pooling", *(["Normalize"] if model.normalize else [])]
    limits = model.backbone.max_sequence_length, getattr(model.tokenizer, "max_sequence_length", 0)
    return {
        MODULES: [
            {
                "idx": i,
                "name": str(i),
                "path": f"{i}_{module}" if i else "",
                "type": f"sentence_transformers.models.{module}",  # known to old versions, too
            }
            for i, module in enumerate(modules)
        ],
        POOLING_CONFIG: {
            "word_embedding_dimension": model.backbone.hidden_dim,
            **{name: pooling == model.pooling for pooling, name in POOLINGS.items()},
        },
        TEXT: {"max_seq_length": min(filter(None, limits)), "do_lower_case": False},
        SETTINGS: {**KEPT, **model.settings},
    }


def _inside(folder, path):
    """A folder that ``modules.json`` names, which may come from strangers."""
    if not isinstance(path, str) or Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError(
            f"{str(folder / MODULES)!r} names {path!r}, which does not lie in its folder"
        )
    return folder / path


def _pooling(path):
    config = files.read_json(path)
    # Of old: a truth value for each mode. None at all meant the mean.
    prefix, names = "pooling_mode_", {name: pooling for pooling, name in POOLINGS.items()}
    old = [name for name, on in config.items() if name.startswith(prefix) and on]
    modes = config.get("pooling_mode", [names.get(n, n.removeprefix(prefix)) for n in old])
    modes = modes if isinstance(modes, list) else [modes]
    modes = modes or ["mean"]
    if len(modes) > 1 or modes[0] not in POOLINGS:
        raise ValueError(f"{str(path)!r} has the pooling {modes}; allowed: one of {list(POOLINGS)}")
    return modes[0]


def _text(folder):
    config = _json(folder / TEXT)
    length = config.get("max_seq_length")
    if length is not None and (not isinstance(length, int) or length < 3):
        raise ValueError(
            f"{str(folder / TEXT)!r} has max_seq_length={length!r}; allowed: an integer from 3 on, "
            "since two tokens are special"
        )
    return {"max_length": length, "lowercase": bool(config.get("do_lower_case"))}


def _json(path):
    """The content of a file that may be missing."""
    return files.read_json(path) if path.is_file() else {}
