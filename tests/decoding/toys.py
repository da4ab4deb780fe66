"""Toy decoders, and searches over them written down plainly in Python."""

import itertools

import numpy as np
from keras import ops

STATES = 101


class TableDecoder:
    """Logits looked up by the last token alone, the same for every source: no weights, no state."""

    def __init__(self, probabilities):
        with np.errstate(divide="ignore"):
            self.table = np.log(np.asarray(probabilities, "float32"))

    def start(self, inputs, max_length):
        return {}

    def step(self, token_ids, state, index):
        return ops.take(ops.convert_to_tensor(self.table), token_ids, axis=0), state


class HistoryDecoder:
    """Logits that depend on the source and on all tokens so far, through a hash of them.

    The source stands in the shared part of the state when `shared`, and so has a row a source
    while the tokens have a row a beam.
    """

    def __init__(self, sources, vocabulary, seed=0, spread=2.0, shared=False):
        random = np.random.default_rng(seed)
        self.table = (spread * random.normal(size=(sources, STATES, vocabulary))).astype("float32")
        if shared:
            self.shared_state = ("source",)

    def start(self, inputs, max_length):
        source = ops.cast(inputs["source"], "int32")
        return {"source": source, "hash": [ops.zeros_like(source), None]}

    def step(self, token_ids, state, index):
        source = state["source"]
        hashed = (state["hash"][0] * 31 + token_ids * 7 + index) % STATES
        # (batch, 1) against (batch, beams), whether or not the source has been repeated
        groups = ops.reshape(hashed, (source.shape[0], -1))
        table = ops.convert_to_tensor(self.table.reshape(-1, self.table.shape[-1]))
        places = ops.reshape(source[:, None] * STATES + groups, (-1,))
        return ops.take(table, places, axis=0), {"source": source, "hash": [hashed, None]}

    def log_probabilities(self, source, tokens, start_id=1):
        """Of the token after `tokens`, float64."""
        hashed = 0
        for index, token in enumerate([start_id, *tokens]):
            hashed = (hashed * 31 + token * 7 + index) % STATES
        logits = self.table[source, hashed].astype("float64")
        return logits - np.log(np.exp(logits).sum())


def score(decoder, source, tokens):
    """Log-probability of `tokens`, one by one."""
    return sum(decoder.log_probabilities(source, tokens[:i])[t] for i, t in enumerate(tokens))


def all_sequences(vocabulary, max_length, end=2):
    """Every sequence that ends with `end` or has `max_length` tokens."""
    others = [token for token in range(vocabulary) if token != end]
    for length in range(max_length):
        for head in itertools.product(others, repeat=length):
            yield [*head, end]
    yield from (list(full) for full in itertools.product(others, repeat=max_length))


def penalty(length, alpha, rule):
    return (length if rule == "mean" else (5 + length) / 6) ** alpha


def beam_search(
    decoder, source, beams, max_length, alpha, rule, ends=(2,), suppress=(), forced=False
):
    """Beam search without any early stop: `[(score, tokens), ...]`, best first."""
    live, finished = [(0.0, [])], []
    for position in range(max_length):
        last = position == max_length - 1
        candidates = []
        for total, tokens in live:
            log_probabilities = decoder.log_probabilities(source, tokens)
            log_probabilities[list(suppress)] = -np.inf
            if forced and last:
                candidates.append((total, [*tokens, ends[0]]))
                continue
            candidates.extend(
                (total + gained, [*tokens, token]) for token, gained in enumerate(log_probabilities)
            )
        candidates = sorted((c for c in candidates if c[0] > -np.inf), key=lambda c: -c[0])
        for total, tokens in candidates[:beams]:
            if tokens[-1] in ends or last:
                finished.append((total / penalty(len(tokens), alpha, rule), tokens))
        finished = sorted(finished, key=lambda c: -c[0])[:beams]
        live = [c for c in candidates if c[1][-1] not in ends][:beams]
    return finished


def tokens_of(ids, ends=(2,)):
    """The tokens of a result up to its end token, which must be followed by padding only."""
    ids = [int(i) for i in ids]
    for place, token in enumerate(ids):
        if token in ends:
            assert not any(ids[place + 1 :]), ids
            return ids[: place + 1]
    return ids
