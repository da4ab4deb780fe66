"""The tokenizer of Marian's folders: two SentencePiece models and a vocabulary."""

import json
import re
from pathlib import Path

import numpy as np

from kerasmodels.checkpoints.files import read_json

SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
TARGET_VOCABULARY = "target_vocab.json"
SETTINGS = "tokenizer_config.json"


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
        >>> tokenizer = MarianTokenizer.from_folder("opus-mt-en-de")
        >>> tokenizer.encode(["Hello world"])
        [[21, 48, 15, 0]]
        >>> tokenizer.decode(model.generate(tokenizer(["Hello world"])))
        ['Hallo Welt']
    """

    # Looked for in a folder, kept, and written back as they were.
    FILES = (
        SOURCE,
        TARGET,
        VOCABULARY,
        TARGET_VOCABULARY,
        SETTINGS,
        "special_tokens_map.json",
        "added_tokens.json",
    )

    def __init__(self, files):
        self.files = dict(files)
        missing = [name for name in (SOURCE, TARGET, VOCABULARY) if name not in self.files]
        if missing:
            raise FileNotFoundError(f"the tokenizer's files {missing} are missing")
        settings = json.loads(self.files.get(SETTINGS, b"{}"))
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
        self._special = tuple(special.values())
        self._unknown, self._end, padding = self._special
        self.pad_id = self.vocabulary[padding]

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

    def _model(self, side):
        if side not in self._models:
            try:
                from sentencepiece import SentencePieceProcessor
            except ImportError as error:
                raise ImportError(
                    "Marian's tokenizer needs sentencepiece: pip install 'kerasmodels[text]'"
                ) from error
            self._models[side] = SentencePieceProcessor(model_proto=self.files[side])
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
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"texts must be a list of strings, got {texts!r}")
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
            token_ids: rows of ids: nested lists or an array of shape ``(texts, length)``, or
                ``(texts, hypotheses, length)``, as `generate` returns them.

        Returns:
            A list of strings, or a list of lists of strings.

        Raises:
            ValueError: an id is in no vocabulary.
        """
        if np.ndim(token_ids[0]) == 2:
            return [self.decode(rows) for rows in token_ids]
        model = self._model(self._decoding_side)
        texts = []
        for row in token_ids:
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
