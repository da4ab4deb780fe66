"""Which tokens start and end a sequence, and which are forbidden or forced."""

import dataclasses

import numpy as np
from keras import ops


@dataclasses.dataclass(frozen=True)
class TokenRules:
    """The special tokens of a generation.

    Log-probabilities are the model's own over its whole vocabulary: a suppressed token gets minus
    infinity and the others keep theirs, unless `renormalize`; a forced end token has probability
    1. That is what transformers does with `bad_words_ids`, `renormalize_logits` and
    `forced_eos_token_id`.

    Attributes:
        start_id: The token that is fed first; never part of the result.
        end_ids: Each of these ends a sequence.
        pad_id: What follows the end token in the result.
        forced_end: Whether the last possible position holds an end token (the first of `end_ids`).
        suppress_ids: Tokens that are never generated.
        renormalize: Whether the probabilities of the tokens that are left add up to 1.
    """

    start_id: int = 1
    end_ids: tuple = (2,)
    pad_id: int = 0
    forced_end: bool = False
    suppress_ids: tuple = ()
    renormalize: bool = False

    @classmethod
    def create(
        cls, start_id, end_id, pad_id, forced_end, suppress_ids, renormalize, vocabulary_size=None
    ):
        """Checks the arguments of `generate` and makes the rules of them.

        Raises:
            ValueError: For ids that are no integers or, where the size of the vocabulary is known,
                lie outside it.
        """
        ends = _ids("end_id", end_id, vocabulary_size)
        if not ends:
            raise ValueError(f"`end_id` must name at least one token. Received: end_id={end_id}")
        (start,) = _ids("start_id", [start_id], vocabulary_size)
        (pad,) = _ids("pad_id", [pad_id], None, least=None)
        suppressed = _ids("suppress_ids", suppress_ids, vocabulary_size)
        return cls(start, ends, pad, bool(forced_end), suppressed, bool(renormalize))

    def allowed(self, logits):
        """Takes the suppressed tokens out.

        Args:
            logits: `(rows, vocabulary)` float32.

        Returns:
            Logits of the tokens that may come, and `(rows,)` what must be subtracted from them to
            make them log-probabilities.
        """
        allowed = logits
        if self.suppress_ids:
            size = logits.shape[-1]
            if max(self.suppress_ids) >= size:
                raise ValueError(
                    f"`suppress_ids` must lie in [0, {size}), the vocabulary. "
                    f"Received: suppress_ids={self.suppress_ids}"
                )
            mask = np.zeros((size,), "float32")
            mask[list(self.suppress_ids)] = -np.inf
            allowed = logits + ops.convert_to_tensor(mask)
        return allowed, log_sum_exp(allowed if self.renormalize else logits)

    def is_end(self, token_ids):
        """Whether each token is an end token, boolean."""
        found = ops.equal(token_ids, self.end_ids[0])
        for end in self.end_ids[1:]:
            found = ops.logical_or(found, ops.equal(token_ids, end))
        return found


def log_sum_exp(logits):
    """Over the last axis; 0 where every logit is -inf, so that no NaN comes of subtracting it."""
    top = ops.max(logits, axis=-1, keepdims=True)
    top = ops.where(ops.equal(top, float("-inf")), 0.0, top)
    total = ops.sum(ops.exp(logits - top), axis=-1)
    return ops.where(ops.equal(total, 0.0), 0.0, ops.log(total)) + top[..., 0]


def _ids(name, ids, vocabulary_size, least=0):
    ids = np.atleast_1d(np.asarray(() if ids is None else ids))
    if ids.size and (ids.dtype.kind not in "iu" or ids.ndim != 1):
        raise ValueError(f"`{name}` must hold integers. Received: {name}={ids.tolist()}")
    beyond = np.inf if vocabulary_size is None else vocabulary_size
    if least is not None and any(not least <= i < beyond for i in ids):
        allowed = (
            ">= 0" if vocabulary_size is None else f"in [0, {vocabulary_size}), the vocabulary"
        )
        raise ValueError(f"`{name}` must be {allowed}. Received: {name}={ids.tolist()}")
    return tuple(int(i) for i in ids)
