"""Beam search with a set of finished hypotheses and a stop when none can be beaten any more."""

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import integer, number
from kerasmodels.decoding.protocol import SearchState, run_loop
from kerasmodels.decoding.rules import allow, is_end
from kerasmodels.decoding.search import Search
from kerasmodels.decoding.top_k import top_k

_NONE = float("-inf")  # the score of a beam or hypothesis that is not there


@keras.saving.register_keras_serializable(package="kerasmodels")
class BeamSearch(Search):
    """Follows the `num_beams` best beginnings of every source at once.

    At every step the best continuations of all live beams are ranked by their log-probability.
    Those among the best `num_beams` that end are hypotheses: they enter the finished set, which
    keeps the `num_beams` best by score, and are never continued. The `num_beams` best of the others
    live on. At the last position whatever is among the best counts as a hypothesis.

    The score of a hypothesis is its log-probability divided by a penalty of its length, the end
    token counted and the start token not (Wu et al. 2016, equation 14; the Transformer's paper,
    section 6.1, uses alpha 0.6):

    - `"gnmt"`: `((5 + length) / 6) ** length_penalty`
    - `"mean"`: `length ** length_penalty`, as in transformers, whose `_beam_search` counts the
      generated tokens and so the end token, too.

    A source is done when its finished set is full and no live beam can still enter it:

    - `stop_rule="bound"`: judged by the best score a live beam could ever reach, which never stops
      too early: its log-probability can only fall, so that is the penalty of the longest length
      for `length_penalty > 0`, of the next for `length_penalty < 0`.
    - `stop_rule="current"`: judged at the length it has now, as transformers does with
      `early_stopping=False`; for `length_penalty > 0` it stops earlier, and a longer hypothesis
      might have won (transformers' `early_stopping="never"` is `"bound"`).

    With `"mean"` and `"current"`, the default there, results are those of transformers, token for
    token. With one beam the search ends at its first end token and equals `GreedySearch`.

    Args:
        num_beams: Number of beams, at most the size of the vocabulary.
        length_penalty: Exponent alpha; 0 ranks by log-probability, above 0 favours long sequences.
        length_rule: `"gnmt"` or `"mean"`.
        num_return: How many hypotheses are returned for each source, best first; all distinct. If
            there are fewer (a tiny vocabulary, suppressed tokens) the rest is padding with score
            minus infinity.
        stop_rule: `"bound"` or `"current"`; defaults to `"bound"` with `"gnmt"` and to `"current"`
            with `"mean"`.

    Raises:
        ValueError: For arguments out of range.

    Example:
    ```python
    import numpy as np
    from kerasmodels import decoding, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)
    beam = decoding.BeamSearch(num_beams=4, num_return=2)
    sources = np.array([[5, 6, 7]])
    ids, scores = model.generate(sources, search=beam, max_length=20, return_scores=True)
    ids.shape, scores.shape  # (1, 2, 20), (1, 2)
    ```
    """

    def __init__(
        self, num_beams=4, length_penalty=0.6, length_rule="gnmt", num_return=1, stop_rule=None
    ):
        if length_rule not in ("gnmt", "mean"):
            raise ValueError(
                f"`length_rule` must be 'gnmt' or 'mean'. Received: length_rule={length_rule!r}"
            )
        if stop_rule not in (None, "bound", "current"):
            raise ValueError(
                f"`stop_rule` must be None, 'bound' or 'current'. Received: stop_rule={stop_rule!r}"
            )
        self.num_beams = integer("num_beams", num_beams)
        self.length_penalty = number("length_penalty", length_penalty)
        self.length_rule = length_rule
        self.num_return = integer("num_return", num_return, most=self.num_beams)
        self.stop_rule = stop_rule or ("bound" if length_rule == "gnmt" else "current")

    def check(self, vocabulary_size):
        """Refuses a beam wider than the vocabulary."""
        if self.num_beams > vocabulary_size:
            raise ValueError(
                f"`num_beams` must be at most the size of the vocabulary, {vocabulary_size}. "
                f"Received: num_beams={self.num_beams}"
            )

    def run(self, decoder, inputs, rules, max_length, limit, active, noise=None, loop=run_loop):
        """See `Search.run`."""
        beams = self.num_beams
        # Every beam has one continuation for each end token, so that among so many candidates
        # there are `beams` which go on.
        width = (1 + len(rules.end_ids)) * beams
        state = SearchState(decoder, decoder.start(inputs, max_length))
        penalties = ops.convert_to_tensor(self._penalties(max_length))
        positions = ops.arange(max_length, dtype="int32")  # (length,)
        zeros = ops.zeros_like(active, dtype="int32")[:, None]  # (batch, 1)
        first_row = beams * (ops.cumsum(zeros + 1, axis=0) - 1)  # (batch, 1): 0, beams, ...
        ranks = ops.arange(width, dtype="int32")[None]
        nowhere = ops.full((1, width), _NONE, dtype="float32")

        def condition(constants, index, tokens, live, finished, done, leaves):
            return ops.logical_and(index < constants["limit"], ops.logical_not(ops.all(done)))

        def body(constants, index, tokens, live, finished, done, leaves):
            tokens = ops.reshape(tokens, (-1,))  # (batch * beams,)
            logits, leaves = state.step(tokens, leaves, constants["shared"], index)
            self.check(logits.shape[-1])
            limit = constants["limit"]
            is_last = index + 1 >= limit
            live_scores, live_ids = live
            scores, parents, tokens = self._candidates(
                logits, live_scores, rules, width, is_last
            )  # (batch, width), best first
            ids = ops.take_along_axis(live_ids, parents[..., None], axis=1)
            ids = ops.where(positions == index, tokens[..., None], ids)  # (batch, width, length)

            ends = ops.logical_or(is_end(rules, tokens), is_last)
            penalised = scores / ops.take(penalties, index + 1)
            enters = ops.logical_and(ends, ops.logical_not(done[:, None]))[:, :beams]
            entering = ops.where(enters, penalised[:, :beams], _NONE)
            finished = _best(
                beams,
                ops.concatenate([finished[0], entering], axis=1),
                ops.concatenate([finished[1], ids[:, :beams]], axis=1),
            )
            # The first `beams` that go on: candidates are sorted, so this is a matter of order.
            order = ops.where(ends, ranks + width, ranks)
            chosen = ops.cast(ops.top_k(-order, beams)[1], "int32")  # (batch, beams)
            live_scores = ops.take_along_axis(ops.where(ends, nowhere, scores), chosen, axis=1)
            live_ids = ops.take_along_axis(ids, chosen[..., None], axis=1)
            tokens = ops.take_along_axis(tokens, chosen, axis=1)
            rows = first_row + ops.take_along_axis(parents, chosen, axis=1)
            rows = ops.reshape(rows, (-1,))  # (batch * beams,)
            leaves = [ops.take(leaf, rows, axis=0) for leaf in leaves]

            done = ops.logical_or(
                done, self._is_done(live_scores, finished[0], penalties, index, limit)
            )
            return index + 1, tokens, (live_scores, live_ids), finished, done, leaves

        no_ids = ops.repeat((zeros + rules.pad_id)[..., None], beams, axis=1)
        no_ids = ops.repeat(no_ids, max_length, axis=2)  # (batch, beams, length)
        nothing = ops.repeat(ops.cast(zeros, "float32") + _NONE, beams, axis=1)  # (batch, beams)
        # Only one beam lives at first: the others would be its copies.
        one = ops.where(ops.arange(beams) == 0, 0.0, nothing)
        start = (
            ops.zeros((), dtype="int32"),
            ops.repeat(zeros + rules.start_id, beams, axis=1),
            (one, no_ids),
            (nothing, no_ids),
            ops.logical_not(active),
            [ops.repeat(leaf, beams, axis=0) for leaf in state.leaves],
        )
        constants = {"shared": state.shared, "limit": limit}
        _, _, _, (scores, ids), _, _ = loop(condition, body, start, constants)
        ids = ops.where(ops.equal(scores, _NONE)[..., None], rules.pad_id, ids)
        return ids[:, : self.num_return], scores[:, : self.num_return]

    def _candidates(self, logits, live_scores, rules, width, is_last):
        """The best continuations of all live beams of a source, sorted.

        Args:
            logits: `(batch * beams, vocabulary)`.
            live_scores: `(batch, beams)`, the beams' log-probabilities.
            rules: `TokenRules`.
            width: How many.
            is_last: Whether this is the last position, a boolean scalar.

        Returns:
            Log-probabilities, beams they continue and tokens, each `(batch, width)`.
        """
        beams = self.num_beams
        allowed, log_sum = allow(rules, logits)
        each = min(width, logits.shape[-1])
        values, tokens = top_k(allowed, each)  # (batch * beams, each)
        scores = ops.reshape(values - log_sum[:, None], (-1, beams, each))
        scores = ops.reshape(scores + live_scores[..., None], (-1, beams * each))
        tokens = ops.reshape(tokens, (-1, beams * each))
        if beams * each < width:  # a vocabulary smaller than the number of candidates
            missing = width - beams * each
            scores = ops.pad(scores, ((0, 0), (0, missing)), constant_values=_NONE)
            tokens = ops.pad(tokens, ((0, 0), (0, missing)))
        scores, places = ops.top_k(scores, width)
        places = ops.cast(places, "int32")
        parents = ops.minimum(places // each, beams - 1)
        tokens = ops.take_along_axis(tokens, places, axis=1)
        if rules.forced_end:
            # Every live beam goes on with the end token, at no cost; live beams are sorted.
            forced = ops.pad(live_scores, ((0, 0), (0, width - beams)), constant_values=_NONE)
            order = ops.minimum(ops.arange(width, dtype="int32"), beams - 1)
            scores = ops.where(is_last, forced, scores)
            parents = ops.where(is_last, order, parents)
            tokens = ops.where(is_last, rules.end_ids[0], tokens)
        return scores, parents, tokens

    def _is_done(self, live_scores, finished_scores, penalties, index, limit):
        """Whether no live beam of a source can still enter the finished set, `(batch,)`."""
        worst = finished_scores[:, -1]
        if self.num_beams == 1:
            return worst > _NONE
        if self.stop_rule == "current":
            length = index + 1
        elif self.length_penalty > 0:
            length = limit
        else:
            length = index + 2
        best = live_scores[:, 0] / ops.take(penalties, length)
        return ops.logical_not(best > worst)

    def _penalties(self, max_length):
        """The penalty of every length, `(max_length + 2,)` float32."""
        lengths = np.maximum(np.arange(max_length + 2, dtype="float64"), 1)  # 0 never occurs
        base = lengths if self.length_rule == "mean" else (5 + lengths) / 6
        return (base**self.length_penalty).astype("float32")

    def get_config(self):
        """The constructor's arguments."""
        return {
            "num_beams": self.num_beams,
            "length_penalty": self.length_penalty,
            "length_rule": self.length_rule,
            "num_return": self.num_return,
            "stop_rule": self.stop_rule,
        }


def _best(count, scores, ids):
    """The `count` best of `scores` `(batch, n)` with their `ids` `(batch, n, length)`, sorted."""
    scores, places = ops.top_k(scores, count)
    return scores, ops.take_along_axis(ids, places[..., None], axis=1)
