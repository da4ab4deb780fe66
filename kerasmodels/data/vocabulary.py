"""A vocabulary of characters or words, built from a corpus."""

from collections import Counter
from collections.abc import Iterable, Sequence

from kerasmodels.data.codec import SPECIAL_TOKENS, TextCodec

__all__ = ["Vocabulary"]


class Vocabulary(TextCodec):
    """A vocabulary of characters or words.

    Ids 0 to 3 are padding, start, end and unknown; the tokens follow in their order. Where a text
    holds a token that is not in the vocabulary, the unknown token stands for it. Text is taken as
    it is: lower-casing and Unicode normalization are the caller's.

    Args:
        tokens: The tokens that get the ids from 4 on.
        unit: What a string is split into: `"character"` (Unicode code points) or `"word"` (what
            stands between white space). Decoding joins characters directly, words by a space.

    Attributes:
        tokens: All tokens in the order of their ids, special tokens included.
        vocabulary_size: Their number.

    Raises:
        ValueError: A token is empty, not a string, there twice or a special token; `unit` is
            not one of those allowed.

    Example:
    ```python
    from kerasmodels import data

    letters = data.Vocabulary.build(["banana", "bandana"])
    letters.tokens  # ['<pad>', '<s>', '</s>', '<unk>', 'a', 'n', 'b', 'd']
    letters.encode("band")  # [6, 4, 5, 7]
    letters.decode([6, 4, 5, 7, 2, 0, 0])  # 'band'

    sounds = data.Vocabulary.build([["B", "AH", "N"], "B AE N D"], unit="word")
    sounds.encode(["B", "AE"]) == sounds.encode("B AE")  # True
    ```
    """

    def __init__(self, tokens: Sequence[str], unit: str = "character"):
        if unit not in ("character", "word"):
            raise ValueError(f'`unit` must be "character" or "word". Received: {unit!r}.')
        taken = [token for token in tokens if token in SPECIAL_TOKENS]
        if taken:
            raise ValueError(
                f"`tokens` must not hold the special tokens {SPECIAL_TOKENS}, which are added. "
                f"Received: {taken[0]!r}."
            )
        super().__init__([*SPECIAL_TOKENS, *tokens])
        self.unit = unit
        # Only what stands in text: "<s>" in a sentence is an unknown word, not the start token.
        self._ids = {t: i for i, t in enumerate(self.tokens) if i >= len(SPECIAL_TOKENS)}

    @classmethod
    def build(
        cls,
        corpus: Iterable[str | Sequence[str]],
        unit: str = "character",
        min_count: int = 1,
        max_size: int | None = None,
    ) -> "Vocabulary":
        """Counts the tokens of a corpus and keeps the most frequent.

        Tokens are ordered by falling count, equal counts by code points, so that the same corpus
        in any order gives the same ids.

        Args:
            corpus: Strings, split by `unit`, or sequences of tokens, taken as they are.
            unit: `"character"` or `"word"`.
            min_count: Tokens seen less often are left out.
            max_size: The largest `vocabulary_size`, special tokens included. `None`: no limit.

        Returns:
            A `Vocabulary`.

        Raises:
            ValueError: `min_count` is below 1, or `max_size` leaves no room for a token.
        """
        if min_count < 1:
            raise ValueError(f"`min_count` must be at least 1. Received: {min_count}.")
        if max_size is not None and max_size <= len(SPECIAL_TOKENS):
            raise ValueError(
                f"`max_size` must be above {len(SPECIAL_TOKENS)}, the number of special tokens. "
                f"Received: {max_size}."
            )
        if isinstance(corpus, str):
            raise ValueError(f"`corpus` must be a list of texts. Received: {corpus!r}.")
        empty = cls([], unit)
        counts = Counter()
        for text in corpus:
            counts.update(empty.split(text))
        kept = [t for t, n in counts.items() if n >= min_count and t not in SPECIAL_TOKENS]
        kept.sort(key=lambda token: (-counts[token], token))
        room = None if max_size is None else max_size - len(SPECIAL_TOKENS)
        return cls(kept[:room], unit)

    def split(self, text: str | Sequence[str]) -> list[str]:
        """Splits a string into tokens; a sequence of tokens is returned as a list."""
        if not isinstance(text, str) or self.unit == "character":
            return list(text)
        return text.split()

    def decode_tokens(self, ids: Sequence[int]) -> list[str]:
        """Turns ids into tokens, by the rules of `decode`.

        Args:
            ids: Integers of rank 1.

        Returns:
            A list of strings.

        Raises:
            ValueError: As `decode`.
        """
        return [self.tokens[i] for i in self._text_ids(ids)]

    def _encode_batch(self, texts):
        ids, unknown = self._ids, self.unknown_id
        return [[ids.get(token, unknown) for token in self.split(text)] for text in texts]

    def _decode_batch(self, rows):
        joint = "" if self.unit == "character" else " "
        return [joint.join(self.tokens[i] for i in row) for row in rows]

    def _to_json(self):
        return {"unit": self.unit, "tokens": self.tokens[len(SPECIAL_TOKENS) :]}
