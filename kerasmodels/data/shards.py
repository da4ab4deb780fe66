"""Sentence pairs in arrays: in memory, or in files that are mapped into it.

A folder of shards holds `index.json` and, for each shard, two files of plain little-endian
integers, without headers:

- `00000.tokens`: int32, the tokens of all its pairs on end, of each A and then B;
- `00000.pairs`: int64 (pairs, 4): where its tokens begin in the other file, the length of A, the
  length of B, the label.

`index.json` says how many pairs and tokens each shard has, the length of the longest pair without
special tokens, whether there is a segment B, and the settings the pairs were made with.
"""

import contextlib
import io
import json
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data.sentence_pairs import SentencePair

__all__ = ["PairArrays", "read_shards", "write_shards"]

INDEX = "index.json"
FORMAT = "kerasmodels sentence pairs 1"


class PairArrays:
    """A sequence of `SentencePair`s in flat arrays, 32 bytes a pair beside its tokens.

    Args:
        pairs: An iterable of `SentencePair`s, such as `SentencePairs`; they are kept in memory.
            `read_shards` gives those of files instead.

    Attributes:
        settings: What the pairs were made with, a dictionary; empty if unknown.
        next_sentence: Whether the pairs have a segment B.
        longest: The tokens of the longest pair, without special tokens.
        sizes: The number of pairs of each shard; one in memory.

    Raises:
        ValueError: There are no pairs, or they are not all of one kind.

    Example:
    ```python
    from kerasmodels import data

    documents = [[[5, 6], [7], [8, 9]], [[15, 16, 17], [18]]]
    pairs = data.PairArrays(data.SentencePairs(documents, max_length=8))
    len(pairs), pairs[0]
    ```
    """

    def __init__(self, pairs: Iterable[SentencePair]):
        tokens, table = io.BytesIO(), io.BytesIO()
        index = _write(pairs, [(tokens, table)])
        tokens = np.frombuffer(tokens.getbuffer(), "<i4")
        self._open(index, [(0, tokens, np.frombuffer(table.getbuffer(), "<i8").reshape(-1, 4))])

    def _open(self, index, shards):
        """Takes shards, each as the number of its first pair, its tokens and its table."""
        self.settings = index["settings"]
        self.next_sentence = index["next_sentence"]
        self.longest = index["longest"]
        self.sizes = [len(table) for _, _, table in shards]
        self._shards = shards
        self._ends = np.cumsum(self.sizes)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, position: int) -> SentencePair:
        """The pair at a position: views of the arrays."""
        return self._pair(*self._find(position))

    def number(self, position: int) -> int:
        """The number of a pair among those of all shards, those that were not read counted."""
        shard, row = self._find(position)
        return self._shards[shard][0] + row

    def _find(self, position):
        if not -len(self) <= position < len(self):
            raise IndexError(f"There are {len(self)} pairs. Received: position={position}.")
        position = int(position) % len(self)
        shard = int(self._ends.searchsorted(position, side="right"))
        return shard, position - int(self._ends[shard]) + self.sizes[shard]

    def _pair(self, shard, row):
        _, tokens, table = self._shards[shard]
        start, first, second, label = table[row].tolist()
        last = start + first + second
        if label not in (0, 1) or start < 0 or first < 1 or second < 0 or last > len(tokens):
            raise ValueError(
                f"The shards are damaged: pair {row} of shard {shard} says {table[row].tolist()}. "
                "They were not copied whole; write them again."
            )
        middle = start + first
        return SentencePair(tokens[start:middle], tokens[middle : middle + second], label)

    def __repr__(self) -> str:
        return f"<PairArrays: {len(self)} pairs in {len(self.sizes)} shards>"


def write_shards(pairs: Iterable[SentencePair], folder: str | Path, num_shards: int = 1) -> None:
    """Writes sentence pairs to a folder of shards, so that they need not be made again.

    Pairs are dealt out to the shards in turn, so these differ by one pair at most, and each is a
    sample of the whole corpus. They are written as they come; none is kept in memory. The folder
    appears whole or not at all: what stood there before a failed call still does.

    Args:
        pairs: An iterable of `SentencePair`s, such as `SentencePairs` or `PairArrays`. Its
            `settings`, if it has any, are written to the index.
        folder: A folder that is new, empty, or an older one of shards, which is replaced.
        num_shards: The number of shards; for a cluster, a multiple of its processes.

    Raises:
        ValueError: `folder` holds something else, there are fewer pairs than shards, the pairs are
            not all of one kind, or as `SentencePairs`.

    Example:
    ```python
    from kerasmodels import data

    documents = [[[5, 6], [7], [8, 9]], [[15, 16, 17], [18]]]
    data.write_shards(data.SentencePairs(documents, max_length=8), "pairs", num_shards=2)
    print(data.read_shards("pairs"))
    ```
    """
    folder = Path(folder).resolve()  # "." has no name, and a link stays one
    num_shards = whole_number("num_shards", num_shards, 1)
    if folder.exists():
        empty = folder.is_dir() and not any(folder.iterdir())
        if not empty and _index(folder) is None:
            raise ValueError(
                "`folder` must be new, empty or an older folder of shards, which is replaced. "
                f"Received: {str(folder)!r}, which is something else."
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside `folder`, so that a rename is all that is left to do.
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        new, old = work / "new", work / "old"
        new.mkdir()
        with contextlib.ExitStack() as stack:
            files = [
                tuple(stack.enter_context(open(path, "wb")) for path in _paths(new, shard))
                for shard in range(num_shards)
            ]
            index = _write(pairs, files)
        (new / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def read_shards(folder: str | Path, shard: tuple[int, int] = (0, 1)) -> PairArrays:
    """Opens what `write_shards` wrote; the files are mapped into memory and read when needed.

    Args:
        folder: A folder of shards.
        shard: `(index, count)`: take only the files index, index + count, ..., for one of `count`
            processes that has no others. The parts may differ by a few pairs, and with them the
            number of batches: pass `fit(steps_per_epoch=...)`. Where every process sees all
            files, `PretrainingData(shard=...)` gives each the same number.

    Returns:
        A `PairArrays`.

    Raises:
        ValueError: `folder` is no folder of shards, a file is not whole, or there are fewer shards
            than `count`.

    Example:
    ```python
    from kerasmodels import data

    pairs = data.read_shards("pairs")
    first, second, label = pairs[0]
    ```
    """
    folder = Path(folder)
    index = _index(folder)
    if index is None:
        raise ValueError(
            f"`folder` must be one that `write_shards` wrote. Received: {str(folder)!r}."
        )
    sizes = index["shards"]
    part, parts = shard
    if not 0 <= part < parts <= len(sizes):
        raise ValueError(
            "`shard` must be (index, count) with 0 <= index < count and at most as many parts as "
            f"there are shards, {len(sizes)}. Received: {shard}."
        )
    shards, first = [], 0
    for number, (num_pairs, num_tokens) in enumerate(sizes):
        if number % parts == part:
            arrays = []
            shapes = ((num_tokens,), (num_pairs, 4))
            paths = _paths(folder, number)
            for path, dtype, shape in zip(paths, ("<i4", "<i8"), shapes, strict=True):
                expected = int(np.prod(shape)) * np.dtype(dtype).itemsize
                found = path.stat().st_size if path.is_file() else None
                if found != expected:
                    raise ValueError(
                        f"{path} must have {expected} bytes. Received: {found}. It was not "
                        "copied whole; write the shards again."
                    )
                arrays.append(np.memmap(path, dtype, "r", shape=shape))
            shards.append((first, *arrays))
        first += num_pairs
    pairs = PairArrays.__new__(PairArrays)
    pairs._open(index, shards)
    return pairs


def _paths(folder, number):
    return folder / f"{number:05}.tokens", folder / f"{number:05}.pairs"


def _index(folder):
    """What the index says, or None if there is none of ours."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        return None
    if missing := {"shards", "longest", "next_sentence", "settings"} - set(index):
        raise ValueError(f"{folder / INDEX} is damaged: it lacks {sorted(missing)}.")
    return index


def _ids(number, segment):
    """A segment as an array of int32, which is what is written."""
    ids = np.asarray(segment)
    ids = ids.astype("<i4") if ids.shape == (0,) else ids  # of an empty list they are floats
    whole = ids.ndim == 1 and ids.dtype.kind in "iu"
    if not whole or (ids.size and (ids.min() < 0 or ids.max() > np.iinfo("<i4").max)):
        raise ValueError(
            "The segments of `pairs` must be integer ids, 0 or more, of rank 1. Received: pair "
            f"{number}, {str(segment)[:80]}."
        )
    return ids.astype("<i4")


def _write(pairs, files):
    """Deals pairs out to (tokens, table) files in turn; returns the index."""
    sizes = [[0, 0] for _ in files]
    longest, kinds = 0, set()
    for number, pair in enumerate(pairs):
        if not isinstance(pair, SentencePair):
            raise ValueError(
                "`pairs` must be `SentencePair`s, such as `SentencePairs` makes of documents. "
                f"Received: {str(pair)[:80]}."
            )
        first, second = (_ids(number, segment) for segment in pair[:2])
        label = pair.label
        kinds.add(len(second) > 0)
        if not len(first) or label not in (0, 1) or len(kinds) > 1:
            raise ValueError(
                "`pairs` must have a segment A, a label of 0 or 1, and a segment B in all of them "
                f"or in none. Received: pair {number} with {len(first)} and {len(second)} tokens, "
                f"label {label}."
            )
        tokens, table = files[number % len(files)]
        size = sizes[number % len(files)]
        row = np.array([size[1], len(first), len(second), label], "<i8")
        tokens.write(np.concatenate([first, second]).tobytes())
        table.write(row.tobytes())
        size[0] += 1
        size[1] += len(first) + len(second)
        longest = max(longest, len(first) + len(second))
    if not sizes[-1][0]:
        raise ValueError(
            f"There must be a pair for each shard. Received: {sum(n for n, _ in sizes)} pairs, "
            f"{len(files)} shards."
        )
    return {
        "format": FORMAT,
        "shards": sizes,
        "longest": longest,
        "next_sentence": True in kinds,
        "settings": getattr(pairs, "settings", {}),
    }
