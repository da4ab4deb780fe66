"""Documents to pairs for next sentence prediction (Devlin et al. 2018, sections 3.1 and A.2)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data.pairs import read_lines

__all__ = ["SentencePair", "SentencePairs", "read_documents"]

LINES_AT_ONCE = 4096  # what a tokenizer gets in one call


class SentencePair(NamedTuple):
    """An example for pre-training, without special tokens.

    Attributes:
        first: Integers (length,): segment A.
        second: Integers (length,): segment B; empty where there is no next sentence prediction.
        label: 0: B is what follows A; 1: B comes from another document. 0 without B.
    """

    first: np.ndarray
    second: np.ndarray
    label: int


class SentencePairs:
    """Pairs of segments from documents, half of them consecutive, half from two documents.

    Iterating gives one `SentencePair` after the other, in the order of the documents. A segment is
    a run of whole sentences. From where the last pair ended, sentences are taken until both
    segments together fill the length aimed at, two at least. They are cut in two at random. Segment
    B is the second part (label 0), or, with `random_next_probability` (label 1), sentences of
    another document from a random one on, until the length is filled; the sentences of the second
    part are then used again. What is too long loses tokens of the longer segment, each at random
    from its front or its back. The length aimed at is `max_length` less [CLS] and two [SEP]; with
    `short_seq_prob` it is a random one of at least 2.

    This is what Google's `create_pretraining_data` does, with three differences. The other document
    is another one for certain (there, after ten tries, it may be the same). The last sentence of
    a document is left out where it stands alone: nothing follows it (there its B is always
    random, so that a corpus of short documents is mostly label 1). The length is drawn for each
    pair (there, for each document).

    With `next_sentence=False`, the ablation of section 5.1, the documents' texts are cut into runs
    of the length aimed at, `max_length` less [CLS] and [SEP]; B is empty.

    **Memory.** `documents` are read as they are needed, and at most `buffer_size` are held. B comes
    from one of those.

    Args:
        documents: An iterable of documents; a document is a list of sentences, and a sentence a
            list or array of token ids without special tokens. Empty ones are passed over. It is
            read anew by each iteration, so an iterator such as `read_documents` serves one.
        max_length: The most tokens of a pair, the special ones counted.
        next_sentence: Whether there is a segment B.
        random_next_probability: The share of pairs whose B comes from another document.
        short_seq_prob: The share of pairs that are shorter than they could be.
        dupe_factor: How often each document is gone through, each time with other draws.
        buffer_size: The number of documents held in memory, at least 3.
        seed: An integer, 0 or more: the same pairs on every machine.

    Attributes:
        settings: A dictionary of all arguments but the documents.

    Raises:
        ValueError: An argument is not one of those allowed; while iterating: a document is not made
            of lists of ids, there are no sentences, or no pair can be made: of one document only,
            or of documents of one sentence.

    Example:
    ```python
    from kerasmodels import data

    documents = [[[5, 6], [7], [8, 9]], [[15, 16, 17], [18]]]
    for first, second, label in data.SentencePairs(documents, max_length=8):
        print(first, second, label)
    ```
    """

    def __init__(
        self,
        documents: Iterable[Sequence[Sequence[int]]],
        max_length: int = 128,
        next_sentence: bool = True,
        random_next_probability: float = 0.5,
        short_seq_prob: float = 0.1,
        dupe_factor: int = 1,
        buffer_size: int = 10_000,
        seed: int = 0,
    ):
        max_length = whole_number("max_length", max_length, 5)
        for name, value in (
            ("random_next_probability", random_next_probability),
            ("short_seq_prob", short_seq_prob),
        ):
            if not 0 <= value <= 1:
                raise ValueError(f"`{name}` must lie in [0, 1]. Received: {value}.")
        self.documents = documents
        self.settings = {
            "max_length": max_length,
            "next_sentence": bool(next_sentence),
            "random_next_probability": float(random_next_probability),
            "short_seq_prob": float(short_seq_prob),
            "dupe_factor": whole_number("dupe_factor", dupe_factor, 1),
            "buffer_size": whole_number("buffer_size", buffer_size, 3),
            "seed": whole_number("seed", seed, 0),
        }
        self._room = max_length - (3 if next_sentence else 2)

    def __iter__(self) -> Iterator[SentencePair]:
        random = np.random.default_rng(self.settings["seed"])
        make = self._make_pairs if self.settings["next_sentence"] else self._make_runs
        documents = (_flatten(n, d) for n, d in enumerate(self.documents))
        documents = (document for document in documents if len(document[0]))
        size = self.settings["buffer_size"]
        number_made, held = 0, list(islice(documents, size))
        self._check_number(len(held))
        while held:
            # The last two of a full buffer wait for the documents that may follow, so that the last
            # document of all never stands alone.
            ready = len(held) - 2 if len(held) == size else len(held)
            for _ in range(self.settings["dupe_factor"]):
                for index in range(ready):
                    for pair in make(index, held, random):
                        number_made += 1
                        yield pair
            held = held[ready:]
            held += islice(documents, size - len(held))
        if not number_made:
            raise ValueError(
                "`documents` must hold documents of two sentences or more: segment B is what "
                "follows A. Received: none. In a text file a blank line stands between documents, "
                "not between sentences. Without next sentence prediction pass next_sentence=False."
            )

    def _check_number(self, number):
        if not number:
            raise ValueError(
                "`documents` must hold sentences. Received: no document that is not empty (an "
                "iterator serves one pass)."
            )
        wanted = self.settings["next_sentence"] and self.settings["random_next_probability"] > 0
        if number == 1 and wanted:
            raise ValueError(
                "`documents` must be two at least: half of the segments B come from another "
                "document. Received: 1. Separate the documents of a text file by blank lines, or "
                "pass next_sentence=False to go without next sentence prediction."
            )

    def _target(self, random):
        """The length aimed at."""
        if random.random() < self.settings["short_seq_prob"]:
            return int(random.integers(2, self._room, endpoint=True))
        return self._room

    def _make_pairs(self, index, documents, random):
        """All pairs whose segment A stands in one document."""
        ids, bounds = documents[index]  # sentence i is ids[bounds[i] : bounds[i + 1]]
        begin = 0
        while begin + 2 < len(bounds):
            target = self._target(random)
            # The fewest sentences that fill the length: begin .. end.
            end = bounds.searchsorted(bounds[begin] + target)
            end = min(max(int(end), begin + 2), len(bounds) - 1)
            middle = int(random.integers(begin + 1, end))
            first = ids[bounds[begin] : bounds[middle]]
            label = int(random.random() < self.settings["random_next_probability"])
            if label:
                other = int(random.integers(len(documents) - 1))
                other += other >= index
                second = self._piece(*documents[other], target - len(first), random)
                begin = middle
            else:
                second = ids[bounds[middle] : bounds[end]]
                begin = end
            yield SentencePair(*self._truncate(first, second, random), label)

    def _piece(self, ids, bounds, wanted, random):
        """Whole sentences of a document, from a random one on, until there are enough tokens."""
        begin = int(random.integers(len(bounds) - 1))
        end = bounds.searchsorted(bounds[begin] + max(wanted, 1))
        return ids[bounds[begin] : bounds[min(int(end), len(bounds) - 1)]]

    def _truncate(self, first, second, random):
        """Takes tokens from the longer segment, of two equals from B, until both fit."""
        room = self._room
        if len(first) + len(second) <= room:
            return first, second
        # Where it ends if one token after the other is taken.
        keep = min(len(first), max(-(-room // 2), room - len(second)))
        return _cut(first, keep, random), _cut(second, room - keep, random)

    def _make_runs(self, index, documents, random):
        """One document's text in runs of the length aimed at."""
        ids, _ = documents[index]
        begin = 0
        while begin < len(ids):
            end = begin + self._target(random)
            yield SentencePair(ids[begin:end], ids[:0], 0)
            begin = end


def _cut(segment, keep, random):
    """Keeps a part of a segment; each token that goes is at random the first or the last."""
    # Coins rather than `binomial`, whose logarithms may round otherwise on another machine.
    front = int((random.random(len(segment) - keep) < 0.5).sum())
    return segment[front : front + keep]


def _flatten(number, document):
    """A document as one array of ids and the bounds of its sentences, after checking it."""
    try:
        sentences = [np.asarray(sentence) for sentence in document]
    except (TypeError, ValueError):
        sentences = [np.zeros(0, object)]
    sentences = [s for s in sentences if s.shape != (0,) or s.dtype == object]
    good = all(s.ndim == 1 and s.dtype.kind in "iu" for s in sentences)
    ids = np.concatenate(sentences) if good and sentences else np.zeros(0, np.int32)
    if not good or (ids.size and (ids.min() < 0 or ids.max() > np.iinfo(np.int32).max)):
        raise ValueError(
            "Each of `documents` must be a list of sentences, and a sentence a list of integer "
            f"ids, 0 or more. Received: document {number}, {str(document)[:80]}."
        )
    bounds = np.cumsum([0, *map(len, sentences)])
    return ids.astype(np.int32), bounds


def read_documents(
    paths: str | Path | Iterable[str | Path], tokenizer
) -> Iterator[list[np.ndarray]]:
    r"""Reads documents from text files in BERT's own format, one after the other.

    One sentence stands on a line, and a blank line between two documents. The end of a file also
    ends a document. Files are UTF-8, with or without a byte order mark. At most one document and a
    few thousand lines are held in memory.

    Args:
        paths: A file, or files in their order.
        tokenizer: Anything with `encode_batch(texts)` that returns a list of ids for each text,
            without special tokens.

    Returns:
        An iterator of documents: lists of int32 arrays (length,), one for each sentence that has
        tokens.

    Raises:
        ValueError: There is no path, or (while reading) a line is not UTF-8.
        FileNotFoundError: There is no such file (while reading).

    Example:
    ```python
    from pathlib import Path
    from kerasmodels import data

    Path("text.txt").write_text("go\nthank you\n\nno\n", encoding="utf-8")
    words = data.Vocabulary.build(["go", "thank you", "no"], unit="word")
    [len(document) for document in data.read_documents("text.txt", words)]  # [2, 1]
    ```
    """
    paths = [paths] if isinstance(paths, str | Path) else list(paths)
    if not paths:
        raise ValueError("`paths` must name a file at least. Received: none.")
    return _read_documents(paths, tokenizer)


def _read_documents(paths, tokenizer):
    for path in paths:
        document = []
        lines = (line.strip() for line in read_lines(path))
        while texts := list(islice(lines, LINES_AT_ONCE)):
            sentences = [text for text in texts if text]
            encoded = iter(tokenizer.encode_batch(sentences) if sentences else [])
            for text in texts:
                if text:
                    ids = np.asarray(next(encoded), np.int32)
                    document += [ids] if len(ids) else []
                elif document:
                    yield document
                    document = []
        if document:
            yield document
