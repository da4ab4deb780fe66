"""Masked language modelling (Devlin et al. 2018, sections 3.1 and A.1): which pieces are predicted.

"The training data generator chooses 15% of the token positions at random for prediction. If the
i-th token is chosen, we replace the i-th token with (1) the [MASK] token 80% of the time (2) a
random token 10% of the time (3) the unchanged i-th token 10% of the time."
"""

from collections.abc import Sequence

import numpy as np

from kerasmodels.data.arguments import whole_number

__all__ = ["MaskedLM"]


class MaskedLM:
    """Chooses word pieces for prediction and hides most of them.

    Of n pieces in a row that may be chosen, `round(n * mask_probability)` are, at least one and at
    most `max_predictions`; a rate of 0 chooses none. Never chosen are special tokens and padding,
    so a row of nothing else has no predictions. Of the chosen pieces, each for itself,
    `mask_token_rate` become [MASK], `random_token_rate` another piece, and the rest stay as they
    are. A random piece is any of the vocabulary but the special ones: Google's program also draws
    from those, 5 of 30,522, but a stray [SEP] would say that a segment ends here.

    **Whole words.** With `whole_word` the pieces of a word are chosen together or not at all: words
    are taken in random order, and one with more pieces than are still to be chosen is passed over,
    as in Google's program. So there may be fewer predictions, and none in a row whose words are
    all longer than that. Each piece is then hidden, replaced or kept for itself.

    **The same everywhere.** The draw of a row depends on `seed` and on what is passed as `draws`
    for it, not on the other rows, the backend or the machine.

    Args:
        mask_id: The id of [MASK].
        vocabulary_size: The number of ids; larger ones are an error.
        special_ids: The ids that are never chosen: [CLS], [SEP], padding, ...; [MASK] always is
            one of them.
        mask_probability: The share of pieces to choose.
        mask_token_rate: The share of those that become [MASK].
        random_token_rate: The share of those that become a random piece.
        max_predictions: The most pieces to choose in a row, and the width of what is returned.
        whole_word: Whether the pieces of a word are chosen together.
        continues: (vocabulary_size,), boolean: which pieces continue a word, for example
            `[token.startswith("##") for token in tokenizer.tokens]`; `whole_word` needs it.
        seed: An integer, 0 or more.

    Call arguments:
        token_ids: Integers (batch, length).
        padding_mask: (batch, length), boolean or 0/1, 1 at real tokens. `None`: all are.
        draws: Integers of 0 or more, (batch,) or (batch, n), that name the draw of each row, such
            as the number of the epoch and of the example. Defaults to the positions in the batch,
            so that a second call repeats the first.

    Returns:
        A dictionary: `token_ids` int32 (batch, length), some of them hidden; `mask_positions` int32
        (batch, max_predictions), ascending, where the predictions stand; `mask_ids` int32 (batch,
        max_predictions), the pieces that stood there; `mask_weights` float32 (batch,
        max_predictions), 1 for a prediction, 0 behind the last one, where positions and ids are 0.

    Raises:
        ValueError: A rate lies outside [0, 1], the rates sum to more than 1, an id outside the
            vocabulary, or an argument is not one of those allowed.

    Example:
    ```python
    import numpy as np
    from kerasmodels import data

    masking = data.MaskedLM(mask_id=4, vocabulary_size=100, special_ids=[0, 2, 3])
    hidden = masking(np.array([[2, 50, 60, 70, 3, 0]]))
    hidden["mask_positions"].shape, hidden["mask_weights"].sum()  # (1, 20), 1.0
    ```
    """

    def __init__(
        self,
        mask_id: int,
        vocabulary_size: int,
        special_ids: Sequence[int],
        mask_probability: float = 0.15,
        mask_token_rate: float = 0.8,
        random_token_rate: float = 0.1,
        max_predictions: int = 20,
        whole_word: bool = False,
        continues: Sequence[bool] | None = None,
        seed: int = 0,
    ):
        for name, value in (
            ("mask_probability", mask_probability),
            ("mask_token_rate", mask_token_rate),
            ("random_token_rate", random_token_rate),
        ):
            if not 0 <= value <= 1:
                raise ValueError(f"`{name}` must lie in [0, 1]. Received: {value}.")
        if mask_token_rate + random_token_rate > 1 + 1e-9:
            raise ValueError(
                "`mask_token_rate` and `random_token_rate` must sum to 1 at most. Received: "
                f"{mask_token_rate} and {random_token_rate}."
            )
        max_predictions = whole_number("max_predictions", max_predictions, 1)
        seed = whole_number("seed", seed, 0)
        vocabulary_size = whole_number("vocabulary_size", vocabulary_size, 1)
        mask_id = whole_number("mask_id", mask_id, 0)
        special_ids = sorted({whole_number("special_ids", i, 0) for i in (mask_id, *special_ids)})
        if special_ids[-1] >= vocabulary_size:
            raise ValueError(
                "`mask_id` and `special_ids` must be ids of the vocabulary (vocabulary_size="
                f"{vocabulary_size}). Received: mask_id={mask_id}, special_ids={special_ids}."
            )
        if len(special_ids) == vocabulary_size:
            raise ValueError(
                "The vocabulary must hold more than special tokens. Received: vocabulary_size="
                f"{vocabulary_size}, special_ids={special_ids}."
            )
        self._continues = None
        if whole_word:
            continues = np.asarray(continues)
            if continues.shape != (vocabulary_size,) or continues.dtype != bool:
                raise ValueError(
                    "With `whole_word`, `continues` must be boolean, one for each id: "
                    f"({vocabulary_size},). Received: shape {continues.shape}, dtype "
                    f"{continues.dtype}."
                )
            self._continues = continues
        self.mask_id = mask_id
        self.vocabulary_size = vocabulary_size
        self.special_ids = special_ids
        self.mask_probability = mask_probability
        self.mask_token_rate = mask_token_rate
        self.random_token_rate = random_token_rate
        self.max_predictions = max_predictions
        self.seed = seed
        self._special = np.zeros(vocabulary_size, bool)
        self._special[special_ids] = True
        self._ordinary = np.flatnonzero(~self._special).astype(np.int32)

    def __call__(self, token_ids, padding_mask=None, draws=None) -> dict[str, np.ndarray]:
        """Chooses and hides, as the class says."""
        token_ids, candidates, draws = self._check(token_ids, padding_mask, draws)
        batch, length = token_ids.shape
        width = self.max_predictions
        # A generator for each row: 10 microseconds, and no row depends on another.
        uniform = np.empty((batch, length + 2 * width))
        for row, draw in zip(uniform, draws.tolist(), strict=True):
            np.random.default_rng([self.seed, *draw]).random(out=row)
        priority, action, replacement = np.split(uniform, [length, length + width], axis=1)

        number = np.rint(candidates.sum(axis=1) * self.mask_probability).astype(int)  # (batch,)
        if self.mask_probability > 0:
            number = np.maximum(number, 1)
        number = np.minimum(number, width)
        if self._continues is None:
            chosen = _first(np.where(candidates, priority, 2.0), number) & candidates
        else:
            chosen = self._whole_words(token_ids, candidates, priority, number)

        # The chosen positions in ascending order, then others, which weigh nothing.
        positions = np.argsort(~chosen, axis=1, kind="stable")[:, :width]
        positions = np.pad(positions, ((0, 0), (0, width - positions.shape[1])))
        valid = np.arange(width) < chosen.sum(axis=1)[:, None]
        positions = np.where(valid, positions, 0)
        rows = np.arange(batch)[:, None]
        labels = np.where(valid, token_ids[rows, positions] if length else 0, 0)

        pieces = self._ordinary[(replacement * len(self._ordinary)).astype(int)]
        pieces = np.where(action < self.mask_token_rate + self.random_token_rate, pieces, labels)
        pieces = np.where(action < self.mask_token_rate, self.mask_id, pieces)
        hidden = token_ids.astype(np.int32)
        hidden[chosen] = pieces[valid]  # both row by row, ascending
        return {
            "token_ids": hidden,
            "mask_positions": positions.astype(np.int32),
            "mask_ids": labels.astype(np.int32),
            "mask_weights": valid.astype(np.float32),
        }

    def _check(self, token_ids, padding_mask, draws):
        """The ids, which of them may be chosen, and a list of numbers for each row."""
        token_ids = np.asarray(token_ids)
        if token_ids.ndim != 2 or token_ids.dtype.kind not in "iu":
            raise ValueError(
                "`token_ids` must be integers (batch, length). Received: shape "
                f"{token_ids.shape}, dtype {token_ids.dtype}."
            )
        outside = (token_ids < 0) | (token_ids >= self.vocabulary_size)
        if outside.any():
            raise ValueError(
                f"`token_ids` must lie in [0, {self.vocabulary_size}), the vocabulary. Received: "
                f"{token_ids[outside][0]} in row {outside.any(axis=1).argmax()}."
            )
        candidates = ~self._special[token_ids]
        if padding_mask is not None:
            padding_mask = np.asarray(padding_mask)
            if padding_mask.shape != token_ids.shape:
                raise ValueError(
                    f"`padding_mask` must have the shape of `token_ids`, {token_ids.shape}. "
                    f"Received: {padding_mask.shape}."
                )
            candidates &= padding_mask.astype(bool)
        draws = np.arange(len(token_ids)) if draws is None else np.asarray(draws)
        good = draws.ndim in (1, 2) and len(draws) == len(token_ids) and draws.dtype.kind in "iu"
        if not good or (draws < 0).any():
            raise ValueError(
                f"`draws` must be integers of 0 or more, ({len(token_ids)},) or "
                f"({len(token_ids)}, n). Received: shape {draws.shape}, dtype {draws.dtype}."
            )
        return token_ids, candidates, draws.reshape(len(draws), -1 if draws.size else 1)

    def _whole_words(self, token_ids, candidates, priority, number):
        """Words in random order, while they fit into the number: (batch, length) boolean."""
        batch, length = token_ids.shape
        before = np.pad(candidates, ((0, 0), (1, 0)))[:, :length]  # a piece may stand to the left
        starts = candidates & ~(self._continues[token_ids] & before)
        word = np.cumsum(starts, axis=1) - 1  # (batch, length): the word of each piece
        rows = np.broadcast_to(np.arange(batch)[:, None], word.shape)
        sizes = np.zeros((batch, length), int)  # (batch, words)
        np.add.at(sizes, (rows[candidates], word[candidates]), 1)
        order = np.full((batch, length), 2.0)
        order[rows[starts], word[starts]] = priority[starts]
        order = np.argsort(order, axis=1, kind="stable")
        taken = np.zeros((batch, length), bool)
        count = np.zeros(batch, int)
        every = np.arange(batch)
        for candidate in order.T[: sizes.astype(bool).sum(axis=1).max(initial=0)]:
            size = sizes[every, candidate]
            fits = (size > 0) & (count + size <= number)
            taken[every, candidate] = fits
            count += size * fits
        chosen = np.zeros((batch, length), bool)
        chosen[candidates] = taken[rows[candidates], word[candidates]]
        return chosen


def _first(priority, number):
    """Marks in each row as many of the smallest as `number` says: (batch, length) boolean."""
    order = np.argsort(priority, axis=1, kind="stable")
    marks = np.zeros(priority.shape, bool)
    np.put_along_axis(marks, order, np.arange(priority.shape[1]) < number[:, None], axis=1)
    return marks
