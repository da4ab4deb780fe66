"""What the token rules do to the logits and tokens of a search."""

import numpy as np
from keras import ops


def allow(rules, logits):
    """Takes the suppressed tokens out.

    Args:
        rules: `TokenRules`.
        logits: `(rows, vocabulary)` float32.

    Returns:
        Logits of the tokens that may come, and `(rows,)` what must be subtracted from them to make
        them log-probabilities.

    Raises:
        ValueError: If a suppressed token lies outside the vocabulary.
    """
    allowed = logits
    if rules.suppress_ids:
        size = logits.shape[-1]
        if max(rules.suppress_ids) >= size:
            raise ValueError(
                f"`suppress_ids` must lie in [0, {size}), the vocabulary. "
                f"Received: suppress_ids={rules.suppress_ids}"
            )
        mask = np.zeros((size,), "float32")
        mask[list(rules.suppress_ids)] = -np.inf
        allowed = logits + ops.convert_to_tensor(mask)
    return allowed, log_sum_exp(allowed if rules.renormalize else logits)


def is_end(rules, token_ids):
    """Whether each token is an end token, boolean."""
    found = ops.equal(token_ids, rules.end_ids[0])
    for end in rules.end_ids[1:]:
        found = ops.logical_or(found, ops.equal(token_ids, end))
    return found


def log_sum_exp(logits):
    """Over the last axis; 0 where every logit is -inf, so that no NaN comes of subtracting it."""
    top = ops.max(logits, axis=-1, keepdims=True)
    top = ops.where(ops.equal(top, float("-inf")), 0.0, top)
    total = ops.sum(ops.exp(logits - top), axis=-1)
    return ops.where(ops.equal(total, 0.0), 0.0, ops.log(total)) + top[..., 0]
