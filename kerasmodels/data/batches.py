"""Batches of sentence pairs of similar length (Vaswani et al. 2017, section 5.1).

"Sentence pairs were batched together by approximate sequence length. Each training batch contained
a set of sentence pairs containing approximately 25000 source tokens and 25000 target tokens."
"""

from collections.abc import Sequence
from itertools import chain

import keras
import numpy as np

from kerasmodels.data.buckets import assign_buckets, choose_buckets, rows_that_fit
from kerasmodels.token_rules import TokenRules

__all__ = ["BucketedPairs"]


class BucketedPairs(keras.utils.PyDataset):
    """Batches of source and target sequences for teacher forcing, of similar length.

    A batch is `(inputs, targets, sample_weight)`. `inputs` holds `encoder_token_ids` and
    `encoder_padding_mask`, both (rows, source length), `decoder_token_ids` and
    `decoder_padding_mask`, both (rows, target length); `targets` and `sample_weight` are (rows,
    target length). All are int32, but for the weights, which are float32: 1 at real tokens, 0 on
    padding. A mask is 1 at real tokens. The decoder reads the start token and the target, and is
    to say the target and the end token. Sources are taken as they are.

    **Few shapes.** Pairs are put into buckets, and each bucket has one shape (rows, source length,
    target length), so there are at most `num_buckets` shapes and a compiled step is compiled that
    often. The lengths are chosen so that little is padding (`padding_share` says how much). Rows
    are as many as fit into `tokens_per_batch` cells, padding included, on the longer side; a
    bucket's pairs are spread evenly over its batches. Where they do not come out even, a batch is
    filled up with rows that are padding only, of mask 0 and weight 0 throughout. `rows(i)`
    says which rows these are.

    **Every pair once.** An epoch holds each pair exactly once. With `shuffle`, each epoch draws
    anew, from `seed` and the number of the epoch, which pairs of a bucket share a batch and the
    order of the batches: the same batches on every backend. Without, both stay as they are.
    Keras's `fit` also shuffles the order of a `PyDataset`'s batches, by Python's `random`: pass
    `fit(..., shuffle=False)` for the order drawn from `seed`. The next epoch's draw takes effect
    when a pass begins, that is when `len` or `iter` is called after `on_epoch_end`. So a pass is
    whole under `fit(steps_per_epoch=...)` too, where an epoch may end in the middle of one.

    **TensorFlow.** Keras takes the static shape of a `PyDataset` from its first two batches and
    fails later when another length comes. Here the first two batches of every epoch differ in
    every length that varies at all.

    **Several devices and processes.** `batch_multiple` makes the rows of every batch divisible by
    the number of devices, as JAX `DataParallel` demands. With `shard`, each process gets its own
    rows of the same batches. For a TPU, one shape for everything is `num_buckets=1`, or given
    lengths `buckets=[(128, 128)]`.

    Args:
        source: Source sequences: a list of lists or arrays of integer ids, none empty.
        target: Target sequences, as many, without start token; may be empty. The end token is
            put behind each of them, unless all of them end with one already.
        rules: Which tokens pad, start and end a sequence: the model (`rules=model`) or the
            tokenizer that is to read the batches, or their `token_rules`. By default those of
            `Vocabulary` and of a `Transformer` that was told nothing else: 0, 1 and 2.
        tokens_per_batch: The most cells a batch may have on either side.
        num_buckets: The largest number of shapes.
        buckets: The lengths to pad to, as pairs (source, target), the end token counted, in
            place of a choice; for example `train.buckets` for validation data. Each pair goes
            into the smallest that holds it.
        max_length: Leave out pairs with more ids than this, a number or a pair (source, target);
            `num_left_out` counts them. `None`: nothing is left out, and what does not fit is an
            error.
        batch_multiple: A number that divides the rows of every batch.
        shuffle: Whether each epoch draws new batches in a new order; `False` for validation.
        seed: An integer.
        vocabulary_size: If given, a number or a pair (source, target): ids from there on are an
            error.
        shard: `(index, count)`: keep only part `index` of `count` equal parts of each batch's
            rows; `batch_multiple` must be a multiple of `count`.

    Attributes:
        token_rules: The `TokenRules`; `fit` compares them with the model's.
        buckets: The pairs of lengths that are padded to.
        epoch: The number of the present draw.
        num_pairs: The number of pairs in an epoch.
        num_left_out: The number of pairs left out by `max_length`.
        padding_share: The share of the cells of an epoch that hold padding.

    Raises:
        ValueError: There is nothing to batch, the two sides differ in number, an id is no integer,
            negative, outside the vocabulary, or reserved; a source is empty; a pair does not fit;
            or an argument is not one of those allowed.

    Example:
    ```python
    from kerasmodels import data

    letters = data.Vocabulary.build(["cat", "hat", "that"])
    sounds = data.Vocabulary.build(["K AE T", "HH AE T", "DH AE T"], unit="word")
    train = data.BucketedPairs(
        letters.encode_batch(["cat", "hat", "that"]),
        sounds.encode_batch(["K AE T", "HH AE T", "DH AE T"]),
    )
    inputs, targets, sample_weight = train[0]
    inputs["encoder_token_ids"].shape, targets.shape  # (3, 4), (3, 4)
    print(train.summary())
    ```
    """

    def __init__(
        self,
        source: Sequence[Sequence[int]],
        target: Sequence[Sequence[int]],
        tokens_per_batch: int = 25_000,
        num_buckets: int = 8,
        buckets: Sequence[tuple[int, int]] | None = None,
        max_length: int | tuple[int, int] | None = None,
        batch_multiple: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        vocabulary_size: int | tuple[int, int] | None = None,
        shard: tuple[int, int] = (0, 1),
        rules=None,
    ):
        # No workers: a batch takes a millisecond, and with workers Keras 3.15 trains once more
        # on what it had queued while building the model (JAX and PyTorch).
        super().__init__()
        for name, value in (
            ("tokens_per_batch", tokens_per_batch),
            ("num_buckets", num_buckets),
            ("batch_multiple", batch_multiple),
        ):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {value}.")
        shard_index, shard_count = shard
        if not 0 <= shard_index < shard_count or batch_multiple % shard_count:
            raise ValueError(
                "`shard` must be (index, count) with 0 <= index < count, and `batch_multiple` a "
                f"multiple of count. Received: shard={shard}, batch_multiple={batch_multiple}."
            )
        self.tokens_per_batch = tokens_per_batch
        self.batch_multiple = batch_multiple
        self.shuffle = shuffle
        self.seed = seed
        self.token_rules = rules = TokenRules() if rules is None else TokenRules.of(rules)
        self.shard = shard

        source_size, target_size = _pair(vocabulary_size)
        rules.check(np.iinfo(np.int32).max if target_size is None else target_size, pad=True)
        # What ends a row may have the number of the pad id: masks and weights tell them apart.
        reserved = {} if rules.pad_id in rules.end_ids else {"pad_id": [rules.pad_id]}
        source, source_lengths = _flatten("source", source, source_size, reserved)
        target, ends = _without_ends(target, rules)
        reserved = {**reserved, "start_id": [rules.start_id], "end_id": rules.end_ids}
        target, target_lengths = _flatten("target", target, target_size, reserved)
        if len(source_lengths) != len(target_lengths):
            raise ValueError(
                "`source` and `target` must have the same number of sequences. Received: "
                f"{len(source_lengths)} and {len(target_lengths)}."
            )
        if not source_lengths.all():
            raise ValueError(
                f"`source` must have no empty sequence. Received: one at {source_lengths.argmin()}."
            )
        # Each target stands as start, ids, end: one step on is what the decoder is to say.
        self._source, self._source_lengths = source, source_lengths
        self._source_starts = np.cumsum(source_lengths) - source_lengths
        self._target_lengths = target_lengths + 1
        stops = np.cumsum(target_lengths + 2)
        self._target_starts = stops - target_lengths - 2
        self._target = np.empty(stops[-1] if len(stops) else 0, np.int32)
        self._target[self._target_starts] = rules.start_id
        self._target[stops - 1] = ends
        inside = np.ones(len(self._target), bool)
        inside[self._target_starts] = inside[stops - 1] = False
        self._target[inside] = target

        source_limit, target_limit = _pair(max_length)
        kept = np.ones(len(source_lengths), bool)
        if max_length is not None:
            kept = (source_lengths <= source_limit) & (target_lengths <= target_limit)
        self.num_pairs = int(kept.sum())
        self.num_left_out = len(kept) - self.num_pairs
        if not self.num_pairs:
            raise ValueError(
                f"There is no pair to batch. Received: {len(kept)} pairs, max_length={max_length}."
            )
        self._lay_out(np.flatnonzero(kept), num_buckets, buckets)

        self._epochs_ended = 0
        self.epoch = 0
        self._drawn = (None, None)

    def _lay_out(self, kept, num_buckets, buckets):
        """Fixes what all epochs share: the buckets, their members and the shape of the batches."""
        source, target = self._source_lengths[kept], self._target_lengths[kept]
        limit = self.tokens_per_batch // self.batch_multiple
        longest = max(source.max(), target.max())
        if longest > limit:
            raise ValueError(
                f"Every pair must fit into a batch: with tokens_per_batch={self.tokens_per_batch} "
                f"and batch_multiple={self.batch_multiple} a sequence may have {limit} tokens. "
                f"Received: {longest} (the end token counted). Leave longer pairs out with "
                "`max_length`."
            )
        if buckets is None:
            buckets = choose_buckets(
                source, target, num_buckets, self.tokens_per_batch, self.batch_multiple
            )
        self.buckets = [(int(s), int(t)) for s, t in buckets]
        if not all(0 < length <= limit for bucket in self.buckets for length in bucket):
            raise ValueError(
                f"`buckets` must be pairs of lengths from 1 to {limit} (with tokens_per_batch="
                f"{self.tokens_per_batch}, batch_multiple={self.batch_multiple}). Received: "
                f"{buckets}."
            )
        assigned = assign_buckets(source, target, self.buckets)
        if (assigned < 0).any():
            first = (assigned < 0).argmax()
            raise ValueError(
                f"Every pair must fit into one of buckets={self.buckets}. Received: "
                f"{(assigned < 0).sum()} that do not, the first with {source[first]} source and "
                f"{target[first]} target tokens (the end token counted). Leave longer pairs out "
                "with `max_length`."
            )
        self._members, self._shapes = [], []
        for k, (source_length, target_length) in enumerate(self.buckets):
            members = kept[assigned == k]
            if not len(members):
                continue
            fit = rows_that_fit(
                max(source_length, target_length), self.tokens_per_batch, self.batch_multiple
            )
            rows = -(-len(members) // -(-len(members) // fit))  # spread evenly
            rows = -(-rows // self.batch_multiple) * self.batch_multiple
            self._members.append(members)
            self._shapes.append((rows, source_length, target_length))
        self._num_batches = [
            -(-len(m) // rows) for m, (rows, _, _) in zip(self._members, self._shapes, strict=True)
        ]
        cells = sum(n * r * (s + t) for n, (r, s, t) in self._batch_counts())
        self.padding_share = 1.0 - float(source.sum() + target.sum()) / cells

    def _batch_counts(self):
        return zip(self._num_batches, self._shapes, strict=True)

    def __len__(self) -> int:
        """The number of batches in an epoch; asking for it begins a pass."""
        # Keras asks whenever it starts to iterate, and not in between. `on_epoch_end` alone is no
        # sign of it: fit(steps_per_epoch=...) calls it in the middle of a pass, and TensorFlow
        # prefetches from the next pass before it.
        self.epoch = self._epochs_ended
        return sum(self._num_batches)

    def on_epoch_end(self):
        """Makes the next pass draw new batches, if they are shuffled."""
        self._epochs_ended += 1

    def __getitem__(self, index: int):
        """The batch at `index`: `(inputs, targets, sample_weight)`."""
        _, source_length, target_length = self._shapes[self._batches()[index][0]]
        rows = self.rows(index)
        source, source_mask = self._gather(
            self._source, self._source_starts, self._source_lengths, rows, source_length
        )
        decoder, decoder_mask = self._gather(
            self._target, self._target_starts, self._target_lengths, rows, target_length
        )
        targets, _ = self._gather(
            self._target, self._target_starts + 1, self._target_lengths, rows, target_length
        )
        inputs = {
            "encoder_token_ids": source,
            "encoder_padding_mask": source_mask,
            "decoder_token_ids": decoder,
            "decoder_padding_mask": decoder_mask,
        }
        return inputs, targets, decoder_mask.astype(np.float32)

    def rows(self, index: int) -> np.ndarray:
        """Says which pairs stand in a batch of the present epoch.

        Args:
            index: The position of the batch.

        Returns:
            int64 (rows,): positions in `source` and `target` as they were given; -1 for a row
            that is padding only.
        """
        rows = self._batches()[index][1]
        part, parts = self.shard
        size = len(rows) // parts
        return rows[part * size : (part + 1) * size]

    def _batches(self) -> list[tuple[int, np.ndarray]]:
        """The batches of the present epoch in their order: bucket and pairs (-1: none)."""
        # Threads may draw at the same time; they draw the same, and assignment is atomic.
        epoch, batches = self._drawn
        if epoch != self.epoch:
            epoch = self.epoch
            batches = self._draw(epoch)
            self._drawn = (epoch, batches)
        return batches

    def _draw(self, epoch: int) -> list[tuple[int, np.ndarray]]:
        random = np.random.default_rng([self.seed, epoch])
        batches = []
        for k, (number, (rows, _, _)) in enumerate(self._batch_counts()):
            members = random.permutation(self._members[k]) if self.shuffle else self._members[k]
            sizes = len(members) // number + (np.arange(number) < len(members) % number)
            pairs = np.full((number, rows), -1)
            pairs[np.arange(rows) < sizes[:, None]] = members
            batches += [(k, row) for row in pairs]
        if self.shuffle:
            batches = [batches[i] for i in random.permutation(len(batches))]
        return self._varied_first(batches)

    def _varied_first(self, batches):
        """Moves two batches to the front that differ in every length that varies."""
        lengths = np.array([shape[1:] for shape in self._shapes])  # (buckets, 2)
        varies = (lengths != lengths[0]).any(axis=0)
        where = {}
        for position, (k, _) in enumerate(batches):
            where.setdefault(k, position)
        candidates = [
            (max(where[j], where[k]), min(where[j], where[k]))
            for j in where
            for k in where
            if j != k and (lengths[j] != lengths[k])[varies].all()
        ]
        if not candidates:  # a single bucket
            return batches
        second, first = min(candidates)  # the pair that comes first
        rest = [b for i, b in enumerate(batches) if i not in (first, second)]
        return [batches[first], batches[second], *rest]

    def _gather(self, flat, starts, lengths, rows, width):
        """Cuts the given pairs out of a flat array: ids and mask, both (rows, width) int32."""
        real = rows >= 0
        mask = np.arange(width) < np.where(real, lengths[rows], 0)[:, None]
        ids = np.full((len(rows), width), self.token_rules.pad_id, np.int32)
        ids[mask] = flat[(starts[rows][:, None] + np.arange(width))[mask]]
        return ids, mask.astype(np.int32)

    def summary(self) -> str:
        """Describes the epoch: a line for each shape, and how much is padding."""
        filled = sum(n * rows for n, (rows, _, _) in self._batch_counts()) - self.num_pairs
        lines = [
            f"{self.num_pairs} pairs ({self.num_left_out} left out) in {sum(self._num_batches)} "
            f"batches of {len(self._shapes)} shapes, {self.padding_share:.1%} padding, "
            f"{filled} rows of nothing else",
            f"{'batches':>8} {'rows':>7} {'source':>7} {'target':>7}",
        ]
        lines += [f"{n:8} {r:7} {s:7} {t:7}" for n, (r, s, t) in self._batch_counts()]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<BucketedPairs: {self.summary().splitlines()[0]}>"


def _pair(value):
    """A number or a pair as a pair."""
    return tuple(value) if isinstance(value, tuple | list) else (value, value)


def _flatten(name, sequences, vocabulary_size, reserved):
    """Joins sequences of ids into one int32 array, after checking them; also their lengths."""
    sequences = list(sequences)
    lengths = np.fromiter(map(len, sequences), np.int64, len(sequences))
    if sequences and all(isinstance(sequence, np.ndarray) for sequence in sequences):
        flat = np.concatenate(sequences)
    else:
        flat = np.array(list(chain.from_iterable(sequences)))
    if not flat.size:
        return np.zeros(0, np.int32), lengths
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        raise ValueError(
            f"`{name}` must be a list of sequences of integer ids. Received: sequences like "
            f"{sequences[0]!r}, together of shape {flat.shape} and dtype {flat.dtype}."
        )
    limit = np.iinfo(np.int32).max if vocabulary_size is None else vocabulary_size
    outside = (flat < 0) | (flat >= limit)
    if outside.any():
        position = outside.argmax()
        raise ValueError(
            f"Ids in `{name}` must lie in [0, {limit}), the vocabulary. Received: {flat[position]} "
            f"in sequence {np.searchsorted(np.cumsum(lengths), position, side='right')}."
        )
    for role, reserved_ids in reserved.items():
        found = np.isin(flat, reserved_ids)
        if found.any():
            number = np.searchsorted(np.cumsum(lengths), found.argmax(), side="right")
            raise ValueError(
                f"Sequences in `{name}` must not hold {role}={flat[found.argmax()]}: padding, "
                "start and end of targets are added here (an end token may stand at the end of all "
                f"targets or of none). Received: sequence {number}, "
                f"{np.asarray(sequences[number]).tolist()}."
            )
    return flat.astype(np.int32), lengths


def _without_ends(target, rules):
    """The targets without end token, and the one that each of them shall have."""
    target = list(target)
    if not target or not all(len(t) and t[-1] in rules.end_ids for t in target):
        return target, rules.end_ids[0]
    return [t[:-1] for t in target], np.array([t[-1] for t in target], np.int32)
