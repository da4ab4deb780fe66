"""The special tokens of a model, said once: by the model, or by the tokenizer that numbers them."""

import dataclasses

import keras
import numpy as np


@keras.saving.register_keras_serializable(package="kerasmodels")
@dataclasses.dataclass(frozen=True)
class TokenRules:
    """Which tokens pad, start and end a sequence, and which are forbidden or forced.

    A model that generates and every tokenizer have them as `token_rules`. They are handed over
    whole: batches (`data.BucketedPairs(..., rules=model)`), searches, callbacks and exported files
    take the rules, or the model or tokenizer that has them.

    Log-probabilities are the model's own over its whole vocabulary: a suppressed token gets minus
    infinity and the others keep theirs, unless `renormalize`; a forced end token has probability
    1. That is what transformers does with `bad_words_ids`, `renormalize_logits` and
    `forced_eos_token_id`.

    Args:
        pad_id: The token that fills up rows; it follows the end token in what is generated.
        start_id: The token that the decoder reads first; it is never part of a result.
        end_id: The token that ends a sequence, or several of them. The first is the one that is
            forced, and that batches put behind their targets.
        forced_end: Whether the last possible position holds the end token, where none came before.
        suppress_ids: Tokens that are never generated.
        renormalize: Whether the probabilities of the tokens that are left add up to 1.

    Attributes:
        end_ids: The end tokens, a tuple.

    Raises:
        ValueError: If an id is no integer, `start_id`, `end_id` or `suppress_ids` are negative, or
            there is no end token.

    Example:
    ```python
    from kerasmodels import data, decoding

    vocabulary = data.Vocabulary.build(["banana"])
    vocabulary.token_rules == decoding.TokenRules(pad_id=0, start_id=1, end_id=2)  # True
    rules = decoding.TokenRules(pad_id=9, start_id=9, end_id=[0, 4], suppress_ids=[9])
    rules.end_ids  # (0, 4)
    ```
    """

    pad_id: int = 0
    start_id: int = 1
    end_id: int | tuple[int, ...] = 2
    forced_end: bool = False
    suppress_ids: tuple[int, ...] = ()
    renormalize: bool = False

    def __post_init__(self):
        ends = _ids("end_id", self.end_id)
        if not ends:
            raise ValueError(
                f"`end_id` must name at least one token. Received: end_id={self.end_id}"
            )
        values = {
            "pad_id": _one_id("pad_id", self.pad_id, least=None),
            "start_id": _one_id("start_id", self.start_id),
            "end_id": ends[0] if len(ends) == 1 else ends,
            "forced_end": bool(self.forced_end),
            "suppress_ids": _ids("suppress_ids", self.suppress_ids),
            "renormalize": bool(self.renormalize),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def end_ids(self):
        """The end tokens, a tuple."""
        return self.end_id if isinstance(self.end_id, tuple) else (self.end_id,)

    @classmethod
    def of(cls, owner):
        """The rules of whatever has some.

        Args:
            owner: `TokenRules`, or a model, a tokenizer or batches with `token_rules`.

        Returns:
            `TokenRules`.

        Raises:
            ValueError: If there are none.
        """
        rules = owner if isinstance(owner, cls) else getattr(owner, "token_rules", None)
        if not isinstance(rules, cls):
            raise ValueError(
                "`rules` must be a `decoding.TokenRules`, or a model or a tokenizer that has "
                f"`token_rules`. Received: rules={owner!r}"
            )
        return rules

    def check(self, vocabulary_size, pad=False):
        """Refuses ids outside a vocabulary.

        Args:
            vocabulary_size: The number of tokens.
            pad: Whether the pad id must lie in it too, as something looks it up.

        Raises:
            ValueError: If an id lies outside.
        """
        names = ("start_id", "end_id", "suppress_ids", *(("pad_id",) if pad else ()))
        for name in names:
            ids = getattr(self, name)
            if any(not 0 <= i < vocabulary_size for i in np.atleast_1d(ids)):
                raise ValueError(
                    f"`{name}` must be in [0, {vocabulary_size}), the vocabulary. "
                    f"Received: {name}={ids}"
                )

    def check_same_ids(self, other, what):
        """Refuses other rules that give the pad, start or end token another number.

        Args:
            other: The other `TokenRules`.
            what: Whose they are, for the message.

        Raises:
            ValueError: If the pad or start tokens differ, or one that ends a sequence there does
                not end one here.
        """
        same = (self.pad_id, self.start_id) == (other.pad_id, other.start_id)
        if not same or not set(other.end_ids) <= set(self.end_ids):
            raise ValueError(
                f"{what} must have the pad, start and end tokens of the model, "
                f"{self._special()}: make it with `rules=model` (or `rules=tokenizer`). "
                f"Received: {other._special()}"
            )

    def _special(self):
        return f"pad_id={self.pad_id}, start_id={self.start_id}, end_id={self.end_id}"

    def get_config(self):
        """The constructor's arguments; several ids are a list."""
        values = dataclasses.asdict(self)
        return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}

    @classmethod
    def from_config(cls, config):
        """The rules that `get_config` describes."""
        return cls(**config)


def _one_id(name, value, least=0):
    found = _ids(name, value, least)
    if np.ndim(value) or len(found) != 1:
        raise ValueError(f"`{name}` must be one integer. Received: {name}={value}")
    return found[0]


def _ids(name, ids, least=0):
    array = np.atleast_1d(np.asarray(() if ids is None else ids))
    if array.size and (array.dtype.kind not in "iu" or array.ndim != 1):
        raise ValueError(f"`{name}` must hold integers. Received: {name}={ids}")
    if array.size and least is not None and array.min() < least:
        raise ValueError(f"`{name}` must be >= {least}. Received: {name}={ids}")
    return tuple(array.tolist())
