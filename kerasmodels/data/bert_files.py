"""The files of BERT's tokenizer, as Google, transformers and the package tokenizers write them."""

import json
from pathlib import Path

from kerasmodels.data.tokenizers import SUFFIX

VOCABULARY, SETTINGS, DEFINITION = "vocab.txt", "tokenizer_config.json", "tokenizer.json"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
FILES = (VOCABULARY, SETTINGS, DEFINITION, SPECIAL_MAP, ADDED)
SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
LONGEST_WORD = 100  # characters; a longer one is unknown
NO_LIMIT = int(1e30)  # what transformers writes
# transformers' classes that cut text as BERT does, without "Tokenizer" and "TokenizerFast".
GENERIC = ("PreTrained", "TokenizersBackend")  # they do what tokenizer.json says, and no more
CLASSES = ("", "Bert", "DistilBert", "Electra", "MobileBert", *GENERIC)


def read_folder(folder: Path) -> dict | None:
    """Returns the arguments of `BertTokenizer` that a folder holds, or `None`.

    Raises:
        ValueError: A file is not valid JSON, or says what `BertTokenizer` cannot do.
    """
    settings = _read_json(folder / SETTINGS)
    definition = _read_json(folder / DEFINITION)
    kind = (settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer")
    model = _part(definition, "model", folder)
    if kind not in CLASSES or model.get("type", "WordPiece") != "WordPiece":
        return None
    normalizer = {}
    if definition:
        for part, needed in (
            ("normalizer", "BertNormalizer"),
            ("pre_tokenizer", "BertPreTokenizer"),
        ):
            found = _part(definition, part, folder).get("type")
            if found != needed:
                raise ValueError(
                    f"{folder / DEFINITION} has the {part} {found!r}; supported is {needed!r}."
                )
        normalizer = definition["normalizer"]
        ids = model.get("vocab")
        whole = isinstance(ids, dict) and all(type(i) is int for i in ids.values())
        if not whole or sorted(ids.values()) != list(range(len(ids))):
            raise ValueError(f"{folder / DEFINITION} must number its tokens 0, 1, 2, ...")
        tokens = sorted(ids, key=ids.get)
    elif (folder / VOCABULARY).is_file():
        tokens = _read_lines(folder / VOCABULARY)
    else:
        return None
    named = _read_json(folder / SPECIAL_MAP) | settings
    special = {
        name: _content(named[f"{name}_token"])
        for name in SPECIAL_TOKENS
        if named.get(f"{name}_token")
    }
    added = [
        *definition.get("added_tokens", []),
        *settings.get("added_tokens_decoder", {}).values(),
        *(named.get("additional_special_tokens") or named.get("extra_special_tokens") or []),
        *_read_json(folder / ADDED),
    ]
    known = (SPECIAL_TOKENS | special).values()
    if more := [token for token in map(_content, added) if token not in known]:
        raise ValueError(
            f"{folder} adds tokens to the vocabulary, which is not supported: {more[:5]}."
        )
    _check_sides(folder, settings, definition)
    generic = kind in GENERIC
    if definition:
        _check_fixed(folder, normalizer, model, (SPECIAL_TOKENS | special)["unk"])
    if definition and generic:
        _check_template(folder, definition, SPECIAL_TOKENS | special)
    # Google's folders do not say for which text they are. Where the vocabulary is all there is, it
    # tells: a word with a capital letter is never met in lower-cased text ("<S>" is no word).
    words = (token.removeprefix(SUFFIX) for token in tokens)
    is_cased = any(word.isalpha() and word != word.lower() for word in words)
    uncased = bool(settings or definition) or not is_cased
    limit = settings.get("model_max_length") or 512
    if not isinstance(limit, int | float):
        raise ValueError(
            f"{folder / SETTINGS}: `model_max_length` must be a number. Received: {limit!r}"
        )
    # What transformers' classes for any tokenizer.json know of text stands in that file alone.
    said = {} if definition and generic else settings
    return {
        "tokens": tokens,
        "lowercase": said.get("do_lower_case", normalizer.get("lowercase", uncased)),
        "strip_accents": said.get("strip_accents", normalizer.get("strip_accents")),
        "split_chinese": said.get(
            "tokenize_chinese_chars", normalizer.get("handle_chinese_chars", True)
        ),
        "special_tokens": special,
        "special_tokens_in_text": not settings.get("split_special_tokens", False),
        "max_sequence_length": int(limit) if limit < NO_LIMIT else None,
    }


def _check_fixed(folder, normalizer, model, unknown):
    """Refuses what a `tokenizer.json` may say otherwise, and `BertTokenizer` cannot."""
    for part, settings, needed in (
        ("normalizer", normalizer, {"clean_text": True}),
        (
            "model",
            model,
            {
                "continuing_subword_prefix": SUFFIX,
                "max_input_chars_per_word": LONGEST_WORD,
                "unk_token": unknown,
            },
        ),
    ):
        for name, value in needed.items():
            if settings.get(name, value) != value:
                raise ValueError(
                    f"{folder / DEFINITION} has {name}={settings[name]!r} in its {part}; supported "
                    f"is {value!r}."
                )


def _check_sides(folder, settings, definition):
    """Refuses text that is cut at its beginning, and padding that stands before a text."""
    for name, part in (("truncation_side", "truncation"), ("padding_side", "padding")):
        found = {SETTINGS: settings.get(name)}
        found[DEFINITION] = _part(definition, part, folder).get("direction")
        for file, side in found.items():
            if side is not None and str(side).lower() != "right":
                raise ValueError(
                    f"{folder / file} has {name}={side!r}; supported is 'right': texts are cut and "
                    "padded at their end."
                )


def _check_template(folder, definition, special):
    """Refuses other special tokens around a text than BERT's."""
    template = _part(definition, "post_processor", folder)
    cls, sep = special["cls"], special["sep"]
    if template.get("type") == "BertProcessing":
        found = [[template.get(name, [None])[0] for name in ("cls", "sep")]]
        wanted = [[cls, sep]]
    else:
        found = [
            [
                (item.get("SpecialToken") or item.get("Sequence") or {}).get("id")
                for item in template.get(name) or []
            ]
            for name in ("single", "pair")
        ]
        wanted = [[cls, "A", sep], [cls, "A", sep, "B", sep]]
    if found != wanted:
        raise ValueError(
            f"{folder / DEFINITION} has a post_processor that puts {found} around texts; supported "
            f"is {wanted}."
        )


def _part(definition, name, folder):
    """A dictionary in a `tokenizer.json`, empty where there is none."""
    part = definition.get(name) or {}
    if not isinstance(part, dict):
        raise ValueError(f"{folder / DEFINITION}: {name!r} must be a JSON object. Received: {part}")
    return part


def write_files(tokenizer) -> dict[str, bytes]:
    """Returns the content of a folder's files by name, equal in effect to the tokenizer."""
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokenizer.lowercase,
        "strip_accents": tokenizer.strip_accents,
        "tokenize_chinese_chars": tokenizer.split_chinese,
        "split_special_tokens": not tokenizer.special_tokens_in_text,
        "model_max_length": tokenizer.max_sequence_length or NO_LIMIT,
        **{f"{name}_token": token for name, token in tokenizer.special_tokens.items()},
    }
    lines = "".join(token + "\n" for token in tokenizer.tokens)
    return {
        VOCABULARY: lines.encode(),
        SETTINGS: (json.dumps(settings, indent=2, ensure_ascii=False) + "\n").encode(),
        DEFINITION: (json.dumps(definition(tokenizer), ensure_ascii=False) + "\n").encode(),
    }


def definition(tokenizer) -> dict:
    """Returns what stands in a `tokenizer.json`: the tokenizer for the package tokenizers."""
    cls, sep = tokenizer.special_tokens["cls"], tokenizer.special_tokens["sep"]
    matched = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    single = [
        {"SpecialToken": {"id": cls, "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": sep, "type_id": 0}},
    ]
    second = [
        {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": sep, "type_id": 1}},
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": tokenizer.ids[token], "content": token, **matched, "special": True}
            for token in tokenizer.special_tokens.values()
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": tokenizer.split_chinese,
            "strip_accents": tokenizer.strip_accents,
            "lowercase": tokenizer.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single + second,
            "special_tokens": {
                token: {"id": token, "ids": [tokenizer.ids[token]], "tokens": [token]}
                for token in (cls, sep)
            },
        },
        "decoder": {"type": "WordPiece", "prefix": SUFFIX, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": tokenizer.special_tokens["unk"],
            "continuing_subword_prefix": SUFFIX,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": tokenizer.ids,
        },
    }


def _content(token) -> str:
    """A token, as files spell it: a string, or a dictionary that says how it is matched."""
    return token["content"] if isinstance(token, dict) else token


def _read_json(path: Path) -> dict:
    """The dictionary in a JSON file, empty where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, not {type(value).__name__}.")
    return value


def _read_lines(path: Path) -> list[str]:
    """The lines of a `vocab.txt`, which line feeds alone divide: U+2028 is a token of some."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be a text file in UTF-8: {error}") from error
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    # White space alone matches no text, yet it has an id.
    return [line.rstrip(" \t") if line.strip() else line for line in lines]
