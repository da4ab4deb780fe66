"""The tokenizer of BERT (Devlin et al. 2018, sections 3 and A.2): text or pairs to word pieces.

The work is done by the package tokenizers, as in transformers 5: the same ids and offsets. The
tokenizers of tensorflow-text and keras-nlp agree with it on plain English, and differ elsewhere:
they fold case and compatibility forms where BERT takes single characters to lower case ("ß" to
"ss", "ς" to "σ", "№" to "no", "½" to "1⁄2"), leave a space where a control character was, keep
private-use characters, follow another version of Unicode in what is punctuation or an accent, and
know no special tokens in a text.
"""

import functools
import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data.bert_files import (
    FILES,
    SPECIAL_TOKENS,
    definition,
    read_folder,
    write_files,
)
from kerasmodels.data.codec import TextCodec
from kerasmodels.data.tokenizers import (
    optional_package,
    refuse_surrogates,
    strings,
    train_word_pieces,
)
from kerasmodels.listing import listed, strings_of
from kerasmodels.nested_ids import decode_nested, rows_of_ids
from kerasmodels.token_rules import TokenRules

__all__ = ["BertTokenizer"]


class BertTokenizer:
    """Text and pairs of texts to BERT's inputs, equal to transformers' `BertTokenizer`.

    Control characters go, Chinese characters stand alone, text is lower-cased and loses its
    accents (uncased models), is split at white space and punctuation, and every word is cut
    greedily into the longest pieces of the vocabulary. A word that cannot be cut to its end, or
    has more than 100 characters, is one unknown token.

    Args:
        tokens: All word pieces in the order of their ids; those that continue a word begin with
            `##`.
        lowercase: Whether text is lower-cased.
        strip_accents: Whether accents are removed. `None`: where text is lower-cased.
        split_chinese: Whether each Chinese character is a word of its own.
        special_tokens: The special tokens that are not called `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`
            and `[MASK]`, by the names `"pad"`, `"unk"`, `"cls"`, `"sep"` and `"mask"`.
        special_tokens_in_text: Whether a text that spells a special token exactly, such as
            `"[MASK]"`, means it, as in transformers. With `False` it is plain text.
        max_sequence_length: The longest input of the model, special tokens included; `None` for
            no limit.

    Attributes:
        tokens: All word pieces in the order of their ids.
        ids: The id of each token, a dictionary.
        pad_id, unknown_id, cls_id, sep_id, mask_id: The ids of the special tokens.
        special_ids: These five.
        vocabulary_size: The number of tokens.
        token_rules: The `TokenRules` of sequences written with it: `[PAD]`, `[CLS]`, `[SEP]`.
        engine: The `tokenizers.Tokenizer` that does the work, made when it is needed first.
        files: The content (bytes) of `vocab.txt`, `tokenizer_config.json` and `tokenizer.json`
            by name; transformers reads them to the same effect.

    Call arguments:
        texts: A list of strings.
        pairs: `None`, or a list of as many strings: the second text of each input.
        max_length: The longest row, special tokens included; `max_sequence_length` by default.
        truncation: What happens to a longer row. `True`: its end is cut off, with pairs that of
            the longer text first, as transformers' `"longest_first"` does. `False`: an error.
            `None`: it is cut, and the first time a warning is given.
        padding: `"longest"` pads to the longest row, `"max_length"` to `max_length`.
        return_offsets: Whether `offsets` are returned too.

    Returns:
        A dictionary of arrays of shape `(batch, length)`: `token_ids` (int32), `[CLS] text [SEP]`
        or `[CLS] text [SEP] pair [SEP]` and padding; `segment_ids` (int32), 1 at the pair and the
        separator behind it, 0 elsewhere; `padding_mask` (bool), true where a token is real. And
        `offsets` (int32) of shape `(batch, length, 2)`: where each piece begins and ends in its
        own text, in characters; 0 and 0 for special tokens and padding. No texts give arrays of
        length 0 (or `max_length`).

    Raises:
        ValueError: `tokens` lack a special token, hold one twice, or one that is empty or has a
            line break; a name in `special_tokens` is none of the five; the limit is below 3. In
            a call: `texts` or `pairs` are no list of strings or not equally many, `max_length` is
            above `max_sequence_length` or has no room for the special tokens, or a row is too
            long and `truncation=False`.
        ImportError: The package tokenizers is not installed (when it is needed first).

    Example:
    ```python
    from kerasmodels import data

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = data.BertTokenizer([*special, "go", "un", "##do", "##ing", "!"])
    tokenizer.tokenize("Undoing, [MASK]!")  # ['un', '##do', '##ing', '[UNK]', '[MASK]', '!']
    inputs = tokenizer(["go", "undoing"], pairs=["go!", "go"])
    inputs["token_ids"]  # [[2, 5, 3, 5, 9, 3, 0], [2, 6, 7, 8, 3, 5, 3]]
    inputs["segment_ids"]  # [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 0, 0, 1, 1]]
    ```
    """

    FILES = FILES  # looked for in a folder

    def __init__(
        self,
        tokens: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
        special_tokens: Mapping[str, str] | None = None,
        special_tokens_in_text: bool = True,
        max_sequence_length: int | None = 512,
    ):
        self.tokens = TextCodec(tokens).tokens  # for its checks
        refuse_surrogates("".join(self.tokens))
        broken = [token for token in self.tokens if "\n" in token]
        if broken:
            raise ValueError(f"`tokens` must have no line break. Received: {broken[0]!r}.")
        if unnamed := sorted(set(special_tokens or ()) - set(SPECIAL_TOKENS)):
            raise ValueError(
                f"`special_tokens` must be named {list(SPECIAL_TOKENS)}. Received: {unnamed}."
            )
        if max_sequence_length is not None:
            max_sequence_length = whole_number("max_sequence_length", max_sequence_length, 3)
        for name, value, kinds in (
            ("lowercase", lowercase, (True, False)),
            ("strip_accents", strip_accents, (True, False, None)),
            ("split_chinese", split_chinese, (True, False)),
            ("special_tokens_in_text", special_tokens_in_text, (True, False)),
        ):
            if not any(value is kind for kind in kinds):
                raise ValueError(f"`{name}` must be one of {kinds}. Received: {value!r}.")
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_chinese = split_chinese
        self.special_tokens = SPECIAL_TOKENS | dict(special_tokens or {})
        self.special_tokens_in_text = special_tokens_in_text
        self.max_sequence_length = max_sequence_length
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        missing = [token for token in self.special_tokens.values() if token not in self.ids]
        if missing:
            raise ValueError(f"`tokens` must hold the special tokens. Missing: {missing}.")
        self.special_ids = tuple(self.ids[token] for token in self.special_tokens.values())
        self.pad_id, self.unknown_id, self.cls_id, self.sep_id, self.mask_id = self.special_ids
        self._warned = False

    @classmethod
    def train(
        cls, corpus: Iterable[str], vocabulary_size: int, lowercase: bool = True
    ) -> "BertTokenizer":
        """Learns word pieces from a corpus.

        Args:
            corpus: Strings.
            vocabulary_size: The largest number of tokens, the five special tokens included. A
                small corpus may have fewer pieces.
            lowercase: Whether text is lower-cased and loses its accents, here and in the
                tokenizer that is returned.

        Returns:
            A `BertTokenizer`. The same corpus gives the same ids; the special tokens are the
            first five.

        Raises:
            ValueError: `vocabulary_size` has no room for the characters of the corpus, or
                `corpus` does not hold strings.
            ImportError: The package tokenizers is not installed.
        """
        normalizers = optional_package("tokenizers").normalizers
        clean = normalizers.BertNormalizer(lowercase=lowercase)
        texts = [clean.normalize_str(text) for text in strings(corpus)]
        return cls(
            train_word_pieces(texts, vocabulary_size, SPECIAL_TOKENS.values()), lowercase=lowercase
        )

    @classmethod
    def from_folder(cls, folder: str | Path) -> "BertTokenizer | None":
        """Reads what transformers or Google's BERT wrote.

        The vocabulary is that of `tokenizer.json` or `vocab.txt`, in this order. The settings are
        those of `tokenizer_config.json`; where it is silent, those of `tokenizer.json` (which
        transformers 5 does not look at), and then the defaults. Where `vocab.txt` is all there is,
        as in Google's folders, text is lower-cased unless words of it have capital letters
        (transformers lower-cases always).

        Args:
            folder: A folder.

        Returns:
            A `BertTokenizer`, or `None` where the folder has no vocabulary of word pieces or one
            for another tokenizer than BERT's.

        Raises:
            ValueError: A file is not valid JSON; the vocabulary lacks a special token, holds a
                token twice or has gaps; or the folder adds tokens to the vocabulary or normalizes
                text in its own way, which is not supported.
        """
        arguments = read_folder(Path(folder))
        if arguments is None:
            return None
        try:
            return cls(**arguments)
        except ValueError as error:
            raise ValueError(f"The vocabulary in {folder} is not BERT's: {error}") from error

    @property
    def token_rules(self) -> TokenRules:
        """Which tokens pad, start and end a sequence that is written with this vocabulary."""
        return TokenRules(self.pad_id, self.cls_id, self.sep_id)

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, special tokens included."""
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"BertTokenizer(vocabulary_size={len(self)}, lowercase={self.lowercase})"

    @functools.cached_property
    def engine(self):
        """The `tokenizers.Tokenizer` that does the work."""
        engine = optional_package("tokenizers").Tokenizer.from_str(json.dumps(definition(self)))
        engine.encode_special_tokens = not self.special_tokens_in_text
        return engine

    @property
    def files(self) -> dict[str, bytes]:
        """The content of the files that `from_folder` and transformers read, by name."""
        return write_files(self)

    def tokenize(self, text: str) -> list[str]:
        """Returns the word pieces of a text, without special tokens around it."""
        return [self.tokens[i] for i in self.encode(text)]

    def encode(self, text: str) -> list[int]:
        """Turns a text into ids, without special tokens around it and of any length."""
        return self._encode(strings_of("text", [text]))[0].ids

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Turns many texts into ids, each as `encode` does."""
        return [encoding.ids for encoding in self._encode(strings_of("texts", texts))]

    def decode(self, ids, skip_special_tokens: bool = False) -> str | list:
        """Turns ids into text: pieces are joined, words set apart by spaces.

        As in transformers, the space before `.`, `,`, `?`, `!` and in `don't` is taken out again.

        Args:
            ids: Integers of any rank: lists, tuples or an array, such as what `generate` returns.
            skip_special_tokens: Whether special tokens (the unknown one too) are left out.

        Returns:
            A string; for ids of rank 2 a list of strings, and so on.

        Raises:
            ValueError: An id lies outside the vocabulary, or `ids` are not integers.
        """

        def decode_rows(rows):
            rows = [_checked_ids(row, len(self)) for row in rows]
            return self.engine.decode_batch(rows, skip_special_tokens=skip_special_tokens)

        return decode_nested(ids, decode_rows)

    def decode_batch(
        self, ids: Iterable[Sequence[int]], skip_special_tokens: bool = False
    ) -> list[str]:
        """Turns many rows of ids, or many such batches, into texts, each as `decode` does."""
        return self.decode(rows_of_ids(ids), skip_special_tokens)

    def __call__(
        self,
        texts: Iterable[str],
        pairs: Iterable[str] | None = None,
        max_length: int | None = None,
        truncation: bool | None = None,
        padding: str = "longest",
        return_offsets: bool = False,
    ) -> dict[str, np.ndarray]:
        """Turns texts, or pairs of texts, into the inputs of a model. See the class."""
        sides = [self._encode(strings_of("texts", texts), return_offsets)]
        if pairs is not None:
            sides.append(self._encode(strings_of("pairs", pairs), return_offsets))
            if len(sides[0]) != len(sides[1]):
                raise ValueError(
                    "`pairs` must be as many as `texts`. "
                    f"Received: {len(sides[1])} and {len(sides[0])}."
                )
        starts, kept, width = self._layout(sides, max_length, truncation, padding)
        inputs = self._inputs(sides, starts, kept, width)
        if return_offsets:
            offsets = np.zeros((*inputs["token_ids"].shape, 2), "int32")
            for side, start, count in zip(sides, starts, kept, strict=True):
                _place(offsets, [encoding.offsets for encoding in side], start, count)
            inputs["offsets"] = offsets
        return inputs

    def encode_words(
        self,
        words: Iterable[Sequence[str]],
        max_length: int | None = None,
        truncation: bool | None = None,
        padding: str = "longest",
    ) -> dict[str, np.ndarray]:
        """Turns texts that are split into words already, as in CoNLL files, into inputs.

        Args:
            words: A list of lists of strings. A word may become several pieces, or none (one of
                control characters alone).
            max_length: As in a call.
            truncation: As in a call.
            padding: As in a call.

        Returns:
            The dictionary that a call returns, and `word_ids` (int32) of shape `(batch, length)`:
            the number of the word that a piece is cut from, -1 for special tokens and padding.

        Raises:
            ValueError: `words` are no list of lists of strings; and as a call.
        """
        rows = [strings_of("words", row) for row in listed("words", words, "lists of strings")]
        sides = [self._encode(rows, offsets=True, split=True)]
        starts, kept, width = self._layout(sides, max_length, truncation, padding)
        inputs = self._inputs(sides, starts, kept, width)
        word_ids = np.full(inputs["token_ids"].shape, -1, "int32")
        _place(word_ids, [encoding.word_ids for encoding in sides[0]], starts[0], kept[0])
        return inputs | {"word_ids": word_ids}

    def _encode(self, texts, offsets=False, split=False):
        """What the engine makes of texts, or of lists of words, without special tokens."""
        encode = self.engine.encode_batch if offsets else self.engine.encode_batch_fast
        try:
            return encode(texts, is_pretokenized=split, add_special_tokens=False)
        except TypeError:  # they are strings, so there is one reason left
            for text in texts:
                refuse_surrogates("".join(text))
            raise

    def _layout(self, sides, max_length, truncation, padding):
        """Where the pieces of each side begin, how many are kept, and how wide the arrays are."""
        special = 1 + len(sides)
        limit = self._limit(max_length, special)
        if truncation not in (True, False, None):
            raise ValueError(f"`truncation` must be True, False or None. Received: {truncation!r}.")
        if padding not in ("longest", "max_length") or (padding == "max_length" and limit is None):
            raise ValueError(
                "`padding` must be 'longest', or 'max_length' where there is a limit. "
                f"Received: {padding!r}, with max_length={max_length}."
            )
        counts = np.array([[len(encoding) for encoding in side] for side in sides], "int64")
        lengths = counts.sum(0) + special  # (batch,)
        long = lengths > limit if limit is not None else np.zeros(lengths.shape, bool)
        if long.any():
            row, most = int(long.argmax()), int(lengths.max())
            if truncation is False:
                raise ValueError(
                    f"Row {row} of `texts` has {int(lengths[row])} tokens, special ones included; "
                    f"at most {limit} are allowed. `truncation=True` cuts it."
                )
            if truncation is None and not self._warned:
                self._warned = True
                warnings.warn(
                    f"{int(long.sum())} of {len(long)} texts are cut to {limit} tokens; the "
                    f"longest has {most}. `truncation=True` cuts without this warning, which is "
                    "not repeated; `truncation=False` makes it an error.",
                    stacklevel=3,
                )
            counts[:, long] = _longest_first(counts[:, long], limit - special)
        # [CLS] a [SEP] b [SEP]
        starts = 1 + np.concatenate([np.zeros_like(counts[:1]), counts[:-1] + 1])
        width = limit if padding == "max_length" else int((counts.sum(0) + special).max(initial=0))
        return starts, counts, width

    def _limit(self, max_length, special):
        if max_length is None:
            return self.max_sequence_length
        max_length = whole_number("max_length", max_length, 0)
        most = self.max_sequence_length or max_length
        if not special <= max_length <= most:
            raise ValueError(
                f"`max_length` must be at least {special}, for the special tokens, and at most "
                f"max_sequence_length={self.max_sequence_length}. Received: {max_length}."
            )
        return max_length

    def _inputs(self, sides, starts, counts, width):
        """The arrays, filled."""
        shape = (len(sides[0]), width)
        token_ids = np.full(shape, self.pad_id, "int32")
        token_ids[:, :1] = self.cls_id
        for side, start, count in zip(sides, starts, counts, strict=True):
            _place(token_ids, [encoding.ids for encoding in side], start, count)
            token_ids[np.arange(shape[0]), start + count] = self.sep_id
        position = np.arange(width)
        padding_mask = position <= (starts[-1] + counts[-1])[:, None]  # (batch, length)
        second = (position >= starts[1][:, None]) & padding_mask if len(sides) > 1 else 0
        segment_ids = np.zeros(shape, "int32") + second
        return {
            "token_ids": token_ids,
            "segment_ids": segment_ids.astype("int32"),
            "padding_mask": padding_mask,
        }


def _checked_ids(ids, size: int) -> list[int]:
    ids = np.asarray(ids)
    ids = ids.astype("int32") if ids.shape == (0,) else ids  # of an empty list they are floats
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise ValueError(
            f"Ids must be integers of rank 1. Received: shape {ids.shape}, dtype {ids.dtype}."
        )
    outside = (ids < 0) | (ids >= size)
    if outside.any():
        raise ValueError(
            f"Ids must lie in [0, {size}), the vocabulary. Received: {int(ids[outside.argmax()])}."
        )
    return ids.tolist()


def _longest_first(counts, room: int):
    """How many pieces are kept of one or two texts that have more than `room` in all.

    They are taken from the end of the longer one until both are equally long, and then in turn.
    """
    if len(counts) == 1:
        return np.full_like(counts, room)
    short = np.minimum(counts.min(0), room // 2)  # of two equal ones, the first
    return np.where(counts[0] <= counts[1], [short, room - short], [room - short, short])


def _place(out, rows, starts, counts):
    for row, values, start, count in zip(out, rows, starts, counts, strict=True):
        if count:
            row[start : start + count] = values[:count]
