"""Batches for the pre-training of BERT (Devlin et al. 2018, sections 3.1 and A.2)."""

from collections.abc import Iterable

import keras
import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data.masking import MaskedLM
from kerasmodels.data.sentence_pairs import SentencePair
from kerasmodels.data.shards import PairArrays

__all__ = ["PretrainingData"]


class PretrainingData(keras.utils.PyDataset):
    """Batches of sentence pairs with hidden pieces, all of one shape.

    A batch is `(inputs, targets, sample_weight)`, each a dictionary. A row reads [CLS] A [SEP] B
    [SEP] and then padding; without segment B, [CLS] A [SEP].

    - `inputs`: `token_ids`, `segment_ids` (1 for B and the [SEP] behind it) and `padding_mask` (1
      at real tokens), all int32 (batch_size, max_length), and `mask_positions` int32 (batch_size,
      predictions).
    - `targets`: `mlm` int32 (batch_size, predictions), the pieces that stood there; `nsp` int32
      (batch_size,), 0 where B is what follows A and 1 where it comes from another document.
    - `sample_weight`: `mlm` float32 (batch_size, predictions), 1 for a prediction and 0 for none;
      `nsp` float32 (batch_size,).

    Where the pairs have no segment B (`SentencePairs(next_sentence=False)`), `nsp` is left out.

    **Masks.** They are drawn anew in each epoch; with `dynamic_masking=False` each example keeps
    its mask, as in the files of Google's program, which holds `dupe_factor` copies of each document
    for that. The draw depends on the seed of `masking`, the epoch and the number of the example,
    and not on the batch.

    **Every pair once.** An epoch holds each pair exactly once. Where they do not come out even, the
    last batch is filled up with rows that are padding only: mask 0 and weight 0 throughout. So a
    step is compiled once. With `shuffle`, each epoch draws from `seed` and the number of the epoch
    the order of the shards and, within each `shuffle_buffer` pairs of that order, that of the
    pairs: the same batches on every backend, and a file is read about where it was read last.
    Keras's `fit` also shuffles the order of a `PyDataset`'s batches, by Python's `random`: pass
    `fit(..., shuffle=False)` for the order drawn from `seed`. The next epoch's draw takes effect
    when a pass begins, that is when `len` or `iter` is called after `on_epoch_end`.

    **Several devices and processes.** All batches have `batch_size` rows; the devices must divide
    it. With `shard`, each process gets its own rows of the same batches.

    Args:
        pairs: The sentence pairs: what `read_shards` gives, or an iterable of `SentencePair`s, such
            as `SentencePairs`, which is read once and kept in memory.
        tokenizer: Anything with `pad_id`, `cls_id`, `sep_id`, `mask_id` and `vocabulary_size`.
        masking: A `MaskedLM`. Defaults to one of the paper's rates that never chooses the four
            special tokens, has 15 % of `max_length` predictions, rounded up, and this `seed`.
        max_length: The tokens of a row.
        batch_size: The rows of a batch, of all shards together.
        dynamic_masking: Whether masks are drawn anew in each epoch; `False` for validation.
        shuffle: Whether each epoch draws a new order; `False` for validation.
        shuffle_buffer: The number of pairs within which they are shuffled; rounded up to whole
            batches.
        seed: An integer, 0 or more.
        shard: `(index, count)`: keep only part `index` of `count` equal parts of each batch's
            rows; `batch_size` must be a multiple of `count`.

    Attributes:
        pairs: The pairs, a `PairArrays`.
        epoch: The number of the present draw.

    Raises:
        ValueError: A pair is longer than `max_length`; an argument is not one of those allowed; or
            as `SentencePairs`. While iterating: as `MaskedLM`, such as for an id outside the
            vocabulary.

    Example:
    ```python
    from kerasmodels import data, models, training

    tokenizer = data.BertTokenizer.train(open("text.txt"), vocabulary_size=1000)
    documents = data.read_documents("text.txt", tokenizer)
    pairs = data.SentencePairs(documents, max_length=128)
    train = data.PretrainingData(pairs, tokenizer, max_length=128, batch_size=32)
    inputs, targets, sample_weight = train[0]

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    model = models.BertPretraining(bert)
    loss = training.SmoothedCrossEntropy(0.0, ignore_id=None)
    model.compile("adam", {"mlm": loss, "nsp": loss})
    model.fit(train, epochs=40)
    ```
    """

    def __init__(
        self,
        pairs: PairArrays | Iterable[SentencePair],
        tokenizer,
        masking: MaskedLM | None = None,
        max_length: int = 128,
        batch_size: int = 32,
        dynamic_masking: bool = True,
        shuffle: bool = True,
        shuffle_buffer: int = 1_000_000,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        # No workers: with them Keras 3.15 trains once more on what it had queued while building
        # the model (JAX and PyTorch).
        super().__init__()
        batch_size = whole_number("batch_size", batch_size, 1)
        shuffle_buffer = whole_number("shuffle_buffer", shuffle_buffer, 1)
        max_length = whole_number("max_length", max_length, 3)
        seed = whole_number("seed", seed, 0)
        part, parts = shard
        if not 0 <= part < parts or batch_size % parts:
            raise ValueError(
                "`shard` must be (index, count) with 0 <= index < count, and `batch_size` a "
                f"multiple of count. Received: shard={shard}, batch_size={batch_size}."
            )
        self.pairs = pairs if isinstance(pairs, PairArrays) else PairArrays(pairs)
        longest = self.pairs.longest + (3 if self.pairs.next_sentence else 2)
        if longest > max_length:
            raise ValueError(
                f"Every pair must fit into max_length={max_length}. Received: one of {longest} "
                "tokens, the special ones counted. Make the pairs with the same `max_length`."
            )
        self.pad_id, self.cls_id = tokenizer.pad_id, tokenizer.cls_id
        self.sep_id = tokenizer.sep_id
        if masking is None:
            masking = MaskedLM(
                tokenizer.mask_id,
                tokenizer.vocabulary_size,
                special_ids=[self.pad_id, self.cls_id, self.sep_id],
                max_predictions=-(-max_length * 15 // 100),
                seed=seed,
            )
        missing = {self.pad_id, self.cls_id, self.sep_id} - set(masking.special_ids)
        if missing or masking.vocabulary_size != tokenizer.vocabulary_size:
            raise ValueError(
                f"`masking` must be for the {tokenizer.vocabulary_size} ids of `tokenizer` and "
                "never choose its special tokens. Received: vocabulary_size="
                f"{masking.vocabulary_size}, special_ids={masking.special_ids}, which lack "
                f"{sorted(missing)}."
            )
        self.masking = masking
        self.max_length = max_length
        self.batch_size = batch_size
        self.dynamic_masking = dynamic_masking
        self.shuffle = shuffle
        self.seed = seed
        self.shard = tuple(shard)
        # Whole batches, so that each lies in one buffer.
        self._buffer = -(-min(shuffle_buffer, len(self.pairs)) // batch_size) * batch_size
        self._epochs_ended = 0
        self.epoch = 0
        self._drawn = (None, None)

    def __len__(self) -> int:
        """The number of batches in an epoch; asking for it begins a pass."""
        # As in `BucketedPairs`: Keras asks whenever it starts to iterate, and not in between.
        self.epoch = self._epochs_ended
        return self._num_batches()

    def _num_batches(self):
        return -(-len(self.pairs) // self.batch_size)

    def on_epoch_end(self):
        """Makes the next pass draw a new order and new masks, if there are any to draw."""
        self._epochs_ended += 1

    def rows(self, index: int) -> np.ndarray:
        """Says which pairs stand in a batch of the present epoch.

        Args:
            index: The position of the batch.

        Returns:
            int64 (rows,): positions in `pairs`; -1 for a row that is padding only.
        """
        number = self._num_batches()
        if not -number <= index < number:
            raise IndexError(f"There are {number} batches. Received: index={index}.")
        begin = index % number * self.batch_size
        buffer, begin = divmod(begin, self._buffer)
        rows = self._order(buffer)[begin : begin + self.batch_size]
        rows = np.pad(rows, (0, self.batch_size - len(rows)), constant_values=-1)
        part, parts = self.shard
        return rows.reshape(parts, -1)[part]

    def _order(self, buffer):
        """The pairs of a buffer of the present epoch in their order."""
        # Threads may draw at the same time; they draw the same, and assignment is atomic.
        key, order = self._drawn
        if key != (self.epoch, buffer):
            key = (self.epoch, buffer)
            order = np.arange(
                buffer * self._buffer, min((buffer + 1) * self._buffer, len(self.pairs))
            )
            if self.shuffle:
                order = self._shuffled(order, *key)
            self._drawn = (key, order)
        return order

    def _shuffled(self, order, epoch, buffer):
        sizes = np.array(self.pairs.sizes)
        shards = np.random.default_rng([self.seed, epoch, 0]).permutation(len(sizes))
        ends = np.cumsum(sizes[shards])  # where the shards end, one behind the other as drawn
        place = ends.searchsorted(order, side="right")
        order = order - ends[place] + np.cumsum(sizes)[shards[place]]
        return np.random.default_rng([self.seed, epoch, buffer + 1]).permutation(order)

    def __getitem__(self, index: int):
        """The batch at `index`: `(inputs, targets, sample_weight)`."""
        rows = self.rows(index)
        real = rows >= 0
        token_ids = np.full((len(rows), self.max_length), self.pad_id, np.int32)
        segment_ids, padding_mask = np.zeros_like(token_ids), np.zeros_like(token_ids)
        labels = np.zeros(len(rows), np.int32)
        draws = np.zeros((len(rows), 2), np.int64)
        if self.dynamic_masking:
            draws[:, 0] = self.epoch
        for i, row in enumerate(rows[real]):
            first, second, labels[i] = self.pairs[row]
            end = len(first) + 2
            token_ids[i, 0] = self.cls_id
            token_ids[i, 1 : end - 1] = first
            token_ids[i, end - 1] = self.sep_id
            if self.pairs.next_sentence:
                start, end = end, end + len(second) + 1
                token_ids[i, start : end - 1] = second
                token_ids[i, end - 1] = self.sep_id
                segment_ids[i, start:end] = 1
            padding_mask[i, :end] = 1
            draws[i, 1] = self.pairs.number(row)
        hidden = self.masking(token_ids, padding_mask, draws)
        inputs = {
            "token_ids": hidden["token_ids"],
            "segment_ids": segment_ids,
            "padding_mask": padding_mask,
            "mask_positions": hidden["mask_positions"],
        }
        targets, weights = {"mlm": hidden["mask_ids"]}, {"mlm": hidden["mask_weights"]}
        if self.pairs.next_sentence:
            targets["nsp"], weights["nsp"] = labels, real.astype(np.float32)
        return inputs, targets, weights

    def __repr__(self) -> str:
        return (
            f"<PretrainingData: {len(self.pairs)} pairs in {self._num_batches()} batches of "
            f"{self.batch_size} x {self.max_length}>"
        )
