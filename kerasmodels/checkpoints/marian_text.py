"""The tokenizer of Marian's folders: two SentencePiece models and a vocabulary."""

import json
import re
from pathlib import Path

import numpy as np

from kerasmodels.checkpoints.files import read_json
from kerasmodels.listing import strings_of
from kerasmodels.nested_ids import decode_nested
from kerasmodels.sentencepiece_models import load_model, train_model
from kerasmodels.token_rules import TokenRules

SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
TARGET_VOCABULARY = "target_vocab.json"
SETTINGS = "tokenizer_config.json"
SPECIAL_MAP, ADDED = "special_tokens_map.json", "added_tokens.json"
# Settings that change ids in transformers, with the values for which they are those made here.
_FIXED = {
    "truncation_side": ("right",),
    "padding_side": ("right",),
    "split_special_tokens": (False,),
    "sp_model_kwargs": ({},),
}


class MarianTokenizer:
    """Text to token ids and back, equal to transformers' tokenizer of the same name.

    Sentences are split by SentencePiece (one model a side), and the pieces are numbered by
    ``vocab.json``, or by one vocabulary a side. The end token is appended. A source that begins
    with a language code such as ``>>fra<<`` keeps it as one token: multilingual models read the
    target language there.

    Where transformers, given two vocabularies, drops pieces of the target that have the number of
    a special token of the source, they are kept here.

    Args:
        files: the content (bytes) of the folder's files by name: ``source.spm``,
            ``target.spm``, ``vocab.json``, and where there are any ``target_vocab.json``,
            ``tokenizer_config.json`` and others that shall be kept with them.

    Raises:
        FileNotFoundError: one of the first three is missing.
        ValueError: a vocabulary lacks the unknown, end or padding token.

    Example:
    ```python
    from kerasmodels import models

    model = models.Transformer.from_preset("hf://Helsinki-NLP/opus-mt-en-de")
    inputs = model.tokenizer(["The house is wonderful."])
    print(model.tokenizer.decode(model.generate(inputs)))  # ['Das Haus ist wunderbar.']
    ```
    """

    # Looked for in a folder, kept, and written back as they were.
    FILES = (
        SOURCE,
        TARGET,
        VOCABULARY,
        TARGET_VOCABULARY,
        SETTINGS,
        SPECIAL_MAP,
        ADDED,
    )

    def __init__(self, files):
        self.files = dict(files)
        missing = [name for name in (SOURCE, TARGET, VOCABULARY) if name not in self.files]
        if missing:
            raise FileNotFoundError(f"the tokenizer's files {missing} are missing")
        settings = json.loads(self.files.get(SPECIAL_MAP, b"{}"))
        settings |= json.loads(self.files.get(SETTINGS, b"{}"))
        separate = settings.get("separate_vocabs", False)
        if separate and TARGET_VOCABULARY not in self.files:
            raise FileNotFoundError(f"the tokenizer's file {TARGET_VOCABULARY!r} is missing")
        self.vocabulary = json.loads(self.files[VOCABULARY])
        self.target_vocabulary = (
            json.loads(self.files[TARGET_VOCABULARY]) if separate else self.vocabulary
        )
        self._pieces = {index: piece for piece, index in self.target_vocabulary.items()}
        # A side's SentencePiece model is parsed when it is needed first. Without a vocabulary of
        # its own, the target is decoded by the source's, as transformers does.
        self._models = {}
        self._decoding_side = TARGET if separate else SOURCE
        special = {}
        for name, default in (("unk", "<unk>"), ("eos", "</s>"), ("pad", "<pad>")):
            token = settings.get(f"{name}_token", default)
            special[name] = token["content"] if isinstance(token, dict) else token
            for vocabulary in (self.vocabulary, self.target_vocabulary):
                if special[name] not in vocabulary:
                    raise ValueError(f"the vocabulary lacks the {name} token {special[name]!r}")
        self._unknown, self._end, padding = special.values()
        added = _added_tokens(settings, json.loads(self.files.get(ADDED, b"{}")), self.vocabulary)
        self._special = tuple(dict.fromkeys([*special.values(), *added]))
        self.pad_id = self.vocabulary[padding]
        # As in Marian's own configurations: decoding starts from the pad id and never writes it.
        self.token_rules = TokenRules(
            pad_id=self.pad_id,
            start_id=self.pad_id,
            end_id=self.target_vocabulary[self._end],
            suppress_ids=[self.pad_id],
        )

    @classmethod
    def from_folder(cls, folder):
        """Return the tokenizer of a folder, or ``None`` where it has none.

        Raises:
            ValueError: a vocabulary is not valid JSON, or lacks a special token.
        """
        folder = Path(folder)
        files = {n: (folder / n).read_bytes() for n in cls.FILES if (folder / n).is_file()}
        if SOURCE not in files or TARGET not in files:
            return None
        for name in files:
            if name.endswith(".json"):
                read_json(folder / name)  # for its error, which names the file
        return cls(files)

    @classmethod
    def train(cls, sources, targets, vocabulary_size=32000, character_coverage=1.0):
        """Learns the tokenizer of a translation model from a parallel corpus.

        As in the published folders, each language has a SentencePiece model, both have one
        vocabulary, 0 is the end token and the last id pads. `Transformer.save_to_preset` writes the
        files beside a model that has this tokenizer, and transformers reads them.

        Args:
            sources: strings in the source language.
            targets: strings in the target language.
            vocabulary_size: the largest number of pieces in each language.
            character_coverage: the share of the characters of each language that pieces can spell;
                0.9995 is usual for languages with thousands of them.

        Returns:
            A `MarianTokenizer`. The same corpus gives the same ids.

        Raises:
            ValueError: a corpus holds no text, or ``vocabulary_size`` has no room for its
                characters.
            ImportError: sentencepiece is not installed.

        Example:
        ```python
        from kerasmodels import checkpoints

        sources, targets = ["one", "two", "three"] * 9, ["eins", "zwei", "drei"] * 9
        tokenizer = checkpoints.MarianTokenizer.train(sources, targets, vocabulary_size=40)
        tokenizer.decode(tokenizer.encode(["zwei"], target=True))  # ['zwei']
        ```
        """
        settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": False}
        files, pieces = {SETTINGS: _json(settings)}, ["</s>", "<unk>"]
        for side, corpus in ((SOURCE, sources), (TARGET, targets)):
            files[side] = train_model(corpus, vocabulary_size, character_coverage)
            model = load_model(files[side])
            pieces += [model.id_to_piece(index) for index in range(model.get_piece_size())]
        pieces = [piece for piece in dict.fromkeys(pieces) if piece not in ("<s>", "<pad>")]
        files[VOCABULARY] = _json({piece: index for index, piece in enumerate([*pieces, "<pad>"])})
        return cls(files)

    @property
    def vocabulary_size(self):
        """The number of ids: of both sides, or the pair (source, target) where each has its own."""
        source, target = (
            max(vocabulary.values()) + 1 for vocabulary in (self.vocabulary, self.target_vocabulary)
        )
        return source if self.vocabulary is self.target_vocabulary else (source, target)

    def _model(self, side):
        if side not in self._models:
            self._models[side] = load_model(self.files[side])
        return self._models[side]

    def encode(self, texts, target=False):
        """Turn texts into token ids with the end token at the end.

        Args:
            texts: a list of strings.
            target: whether they are in the target language.

        Returns:
            A list of lists of integers, not padded.

        Raises:
            ValueError: ``texts`` is not a list of strings.
        """
        texts = strings_of("texts", texts)
        vocabulary = self.target_vocabulary if target else self.vocabulary
        unknown, end = vocabulary[self._unknown], vocabulary[self._end]
        model = self._model(TARGET if target else SOURCE)
        # Where a text spells a special token out, that is what it means.
        special = "(" + "|".join(map(re.escape, self._special)) + ")"
        result = []
        for text in texts:
            pieces = []
            for part in re.split(special, text):
                if re.fullmatch(special, part):
                    pieces.append(part)
                    continue
                if part.startswith(">>") and "<<" in part:
                    code, part = part.split("<<", 1)
                    pieces.append(code + "<<")
                pieces += model.encode(part, out_type=str)
            result.append([vocabulary.get(piece, unknown) for piece in pieces] + [end])
        return result

    def __call__(self, texts):
        """Turn source texts into what `generate` takes, padded on the right.

        Args:
            texts: a list of strings, not empty.

        Returns:
            A dictionary with ``encoder_token_ids`` (int32) and ``encoder_padding_mask`` (bool,
            true where a token is real), both of shape ``(texts, longest)``.

        Raises:
            ValueError: ``texts`` is empty or not a list of strings.
        """
        rows = self.encode(texts)  # lists of ids
        if not rows:
            raise ValueError("texts is empty; at least one text is needed")
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(lengths.max()) < lengths[:, None]  # (texts, longest)
        token_ids = np.full(mask.shape, self.pad_id, "int32")
        token_ids[mask] = np.concatenate(rows)
        return {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}

    def decode(self, token_ids):
        """Turn token ids of the target language into texts, without special tokens.

        Args:
            token_ids: nested lists or an array of shape ``(length,)``, ``(texts, length)``, or
                ``(texts, hypotheses, length)``, as `generate` returns them.

        Returns:
            A string, a list of strings, or a list of lists of strings.

        Raises:
            ValueError: an id is in no vocabulary.
        """
        return decode_nested(token_ids, self._decode_rows)

    def _decode_rows(self, rows):
        model = self._model(self._decoding_side)
        texts = []
        for row in rows:
            pieces = []
            for index in map(int, row):
                piece = self._pieces.get(index)
                if piece is None:
                    # transformers falls back on SentencePiece's own numbers
                    if not 0 <= index < model.get_piece_size():
                        raise ValueError(f"token id {index} is in no vocabulary")
                    piece = model.id_to_piece(index)
                if piece not in self._special:
                    pieces.append(piece)
            texts.append(model.decode_pieces(pieces).replace("\u2581", " ").strip())
        return texts


def _json(content):
    return json.dumps(content, ensure_ascii=False).encode()


def _added_tokens(settings, added, vocabulary):
    """Return the tokens at which a text is split besides the special ones.

    Args:
        settings: the content of ``tokenizer_config.json`` and ``special_tokens_map.json``.
        added: the content of ``added_tokens.json``.
        vocabulary: the ids of the tokens.

    Raises:
        ValueError: the vocabulary has no such token, or another setting is not obeyed here.
    """
    for name, allowed in _FIXED.items():
        if settings.get(name) is not None and settings[name] not in allowed:
            raise ValueError(
                f"{SETTINGS} has {name}={settings[name]!r}; supported is {allowed[0]!r}"
            )
    tokens = []
    for field in ("additional_special_tokens", "extra_special_tokens", "added_tokens_decoder"):
        found = settings.get(field) or []
        tokens += found.values() if isinstance(found, dict) else found
    tokens = [token["content"] if isinstance(token, dict) else token for token in [*tokens, *added]]
    if more := [token for token in tokens if token not in vocabulary]:
        raise ValueError(
            f"{SETTINGS}, {SPECIAL_MAP} or {ADDED} adds tokens that {VOCABULARY} has not, which is "
            f"not supported: {more[:5]}"
        )
    return tokens
