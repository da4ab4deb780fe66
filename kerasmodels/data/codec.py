"""Text to ids and back: what `Vocabulary` and the tokenizers have in common."""

import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np

from kerasmodels.listing import listed
from kerasmodels.nested_ids import decode_nested, rows_of_ids
from kerasmodels.token_rules import TokenRules

SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")


class TextCodec:
    """Text to ids and back, with four special tokens at the front of every vocabulary.

    Padding is 0, the start token 1, the end token 2 and the unknown token 3. Text never turns
    into one of the first three, not even text that spells them.

    Subclasses write `_encode_batch`, `_join` and `_to_json`, and their constructor takes what
    `_to_json` returns.
    """

    pad_id = 0
    start_id = 1
    end_id = 2
    unknown_id = 3

    def __init__(self, tokens: Sequence[str]):
        if isinstance(tokens, str | bytes | Path | Mapping | Set):
            raise ValueError(
                "`tokens` must be a list of strings in the order of their ids; of a dictionary of "
                "ids that is `sorted(ids, key=ids.get)`. Received: "
                f"{type(tokens).__name__} {str(tokens)[:80]!r}."
            )
        tokens = list(tokens)
        if not all(isinstance(token, str) and token for token in tokens):
            bad = next(token for token in tokens if not (isinstance(token, str) and token))
            raise ValueError(f"`tokens` must be non-empty strings. Received: {bad!r}.")
        if len(set(tokens)) != len(tokens):
            twice = next(token for token in tokens if tokens.count(token) > 1)
            raise ValueError(f"`tokens` must differ from one another. Received twice: {twice!r}.")
        self.tokens = tokens

    @property
    def token_rules(self) -> TokenRules:
        """Which tokens pad, start and end a sequence, for batches, searches and models."""
        return TokenRules(self.pad_id, self.start_id, self.end_id)

    @property
    def vocabulary_size(self) -> int:
        """The number of ids, special tokens included."""
        return len(self.tokens)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(vocabulary_size={self.vocabulary_size})"

    def encode(self, text, add_end: bool = False) -> list[int]:
        """Turns a text into ids.

        Args:
            text: A string (`Vocabulary` also takes a sequence of tokens).
            add_end: Whether the end token is appended, as published translation models expect
                of their source. Targets need none: `BucketedPairs` adds it where it is missing.

        Returns:
            A list of ids, without start token. The empty text has none.
        """
        return self.encode_batch([text], add_end)[0]

    def encode_batch(self, texts: Iterable, add_end: bool = False) -> list[list[int]]:
        """Turns many texts into ids, each as `encode` does."""
        texts = listed("texts", texts, "texts")
        encoded = self._encode_batch(texts) if texts else []
        return [ids + [self.end_id] for ids in encoded] if add_end else encoded

    def decode(self, ids) -> str | list:
        """Turns ids into text, up to the first end token.

        Padding and start tokens are left out; an unknown token reads `<unk>`.

        Args:
            ids: Integers of any rank: lists, tuples or an array, such as what `generate` returns.

        Returns:
            A string; for ids of rank 2 a list of strings, and for rank 3 a list of lists.

        Raises:
            ValueError: An id lies outside the vocabulary (behind the end token too), or `ids`
                are not integers.
        """

        def decode_rows(rows):
            rows = [self._text_ids(row) for row in rows]
            return self._decode_batch(rows) if rows else []

        return decode_nested(ids, decode_rows)

    def decode_batch(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Turns many rows of ids into texts, each as `decode` does.

        Args:
            ids: Integers of rank 2, or a list of rows of any length; of rank 3 when a search gave
                several results a row.

        Returns:
            A list of strings, or a list of lists of strings.

        Raises:
            ValueError: As `decode`.
        """
        return self.decode(rows_of_ids(ids))

    def _text_ids(self, ids) -> list[int]:
        """The ids of a row that stand for text, after checking all of them."""
        ids = np.asarray(ids if len(np.shape(ids)) != 1 or len(ids) else np.zeros(0, "int32"))
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(
                f"Ids must be integers of rank 1. Received: shape {ids.shape}, dtype {ids.dtype}."
            )
        outside = (ids < 0) | (ids >= self.vocabulary_size)
        if outside.any():
            raise ValueError(
                f"Ids must lie in [0, {self.vocabulary_size}), the vocabulary. "
                f"Received: {int(ids[outside.argmax()])}."
            )
        ends = np.flatnonzero(ids == self.end_id)
        ids = ids[: ends[0]] if len(ends) else ids
        return ids[(ids != self.pad_id) & (ids != self.start_id)].tolist()

    def save(self, path: str | Path) -> None:
        """Writes everything `load` needs to one file.

        The file appears whole or not at all: what stood there before a failed save still does.

        Args:
            path: The file to write.
        """
        path = Path(path)
        scratch = path.with_name(f".{path.name}-{uuid.uuid4().hex}")  # tempfile's are private
        try:
            scratch.write_bytes(self._to_bytes())
            os.replace(scratch, path)
        finally:
            scratch.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path):
        """Reads what `save` wrote.

        Args:
            path: A JSON file.

        Returns:
            An instance of this class, equal to the one that was saved.

        Raises:
            ValueError: The file is not JSON, was written by another class, or lacks an entry.
            FileNotFoundError: There is no such file.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            written_by = content.pop("class")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"`path` must be a JSON file written by `{cls.__name__}.save`. Received: {path}."
            ) from error
        if written_by != cls.__name__:
            raise ValueError(
                f"`path` must be written by `{cls.__name__}.save`. Received: {path}, written by "
                f"`{written_by}`."
            )
        try:
            return cls(**content)
        except TypeError as error:
            raise ValueError(f"{path} does not hold a {cls.__name__}: {error}.") from error

    def _encode_batch(self, texts: list) -> list[list[int]]:
        raise NotImplementedError

    def _decode_batch(self, rows: list[list[int]]) -> list[str]:
        raise NotImplementedError

    def _to_bytes(self) -> bytes:
        content = {"class": type(self).__name__, **self._to_json()}
        return (json.dumps(content, ensure_ascii=False) + "\n").encode()

    def _to_json(self) -> dict:
        raise NotImplementedError
