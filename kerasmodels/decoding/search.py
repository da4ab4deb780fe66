"""What the searches have in common, and the two that follow a single sequence."""

import keras
from keras import ops

from kerasmodels.arguments import integer, number, positive_number
from kerasmodels.decoding.protocol import SearchState, run_loop
from kerasmodels.decoding.rules import allow, is_end
from kerasmodels.decoding.top_k import argmax, top_k


class Search:
    """Base of the searches: how the next tokens are chosen.

    A search is called with a decoder and its inputs, and is what `generate` takes as `search`;
    both return the same. Subclasses implement `run`.
    """

    num_return = 1

    def __call__(self, decoder, inputs, max_length=None, **kwargs):
        """Generates; see `kerasmodels.decoding.generate` for arguments, result and errors."""
        from kerasmodels.decoding.generate import generate

        return generate(decoder, inputs, search=self, max_length=max_length, **kwargs)

    def run(self, decoder, inputs, rules, max_length, limit, active, noise=None, loop=run_loop):
        """The search itself, in tensors: may be traced by `tf.function` or `jax.jit`.

        Args:
            decoder: An object with `start` and `step`.
            inputs: What its `start` takes, tensors.
            rules: `TokenRules`.
            max_length: Number of positions there is room for, an integer.
            limit: Number of tokens after which the search ends, a scalar int32 tensor, at most
                `max_length`.
            active: `(batch,)` boolean; the search does not wait for rows that are False.
            noise: `(batch, max_length)` float32 in [0, 1), only for `Sampling`.
            loop: What runs the loop, see `run_loop`.

        Returns:
            Token ids `(batch, num_return, max_length)` int32 and scores `(batch, num_return)`
            float32.
        """
        raise NotImplementedError

    def noise(self, batch_size, max_length):
        """The random numbers that `run` needs, or None."""
        return None

    def check(self, vocabulary_size):
        """Raises ValueError if the search does not fit the size of the vocabulary."""

    def get_config(self):
        """The constructor's arguments."""
        return {}

    @classmethod
    def from_config(cls, config):
        """The search that `get_config` describes."""
        return cls(**config)


class SingleSearch(Search):
    """Base of the searches that follow one sequence a row; subclasses choose its next token."""

    def choose(self, logits, noise):
        """The next token, `(batch,)` int32.

        Args:
            logits: `(batch, vocabulary)` float32.
            noise: `(batch,)` float32 in [0, 1), or None.
        """
        raise NotImplementedError

    def run(self, decoder, inputs, rules, max_length, limit, active, noise=None, loop=run_loop):
        """See `Search.run`."""
        state = SearchState(decoder, decoder.start(inputs, max_length))
        positions = ops.arange(max_length, dtype="int32")[None]  # (1, length)
        zeros = ops.zeros_like(active, dtype="int32")  # (batch,)

        def condition(constants, index, tokens, ids, scores, done, leaves):
            return ops.logical_and(index < constants["limit"], ops.logical_not(ops.all(done)))

        def body(constants, index, tokens, ids, scores, done, leaves):
            logits, leaves = state.step(tokens, leaves, constants["shared"], index)
            self.check(logits.shape[-1])
            allowed, log_sum = allow(rules, logits)
            noise = constants["noise"]
            tokens = self.choose(allowed, None if noise is None else ops.take(noise, index, axis=1))
            gained = ops.take_along_axis(allowed, tokens[:, None], axis=-1)[:, 0] - log_sum
            if rules.forced_end:
                last = index + 1 >= constants["limit"]
                tokens = ops.where(last, rules.end_ids[0], tokens)
                gained = ops.where(last, 0.0, gained)
            scores = scores + ops.where(done, 0.0, gained)
            here = ops.logical_and(positions == index, ops.logical_not(done)[:, None])
            ids = ops.where(here, tokens[:, None], ids)
            done = ops.logical_or(done, is_end(rules, tokens))
            return index + 1, tokens, ids, scores, done, leaves

        start = (
            ops.zeros((), dtype="int32"),
            zeros + rules.start_id,
            ops.repeat((zeros + rules.pad_id)[:, None], max_length, axis=1),
            ops.cast(zeros, "float32"),
            ops.logical_not(active),
            state.leaves,
        )
        constants = {"shared": state.shared, "limit": limit, "noise": noise}
        _, _, ids, scores, _, _ = loop(condition, body, start, constants)
        return ids[:, None], scores[:, None]


@keras.saving.register_keras_serializable(package="kerasmodels")
class GreedySearch(SingleSearch):
    """Takes the most probable token at every step.

    The score of a result is the sum of the log-probabilities of its tokens, the end token
    included. Of equally probable tokens the first is taken.

    Example:
    ```python
    import numpy as np
    from kerasmodels import decoding, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)
    greedy = decoding.GreedySearch()
    ids = model.generate(np.array([[5, 6, 7]]), search=greedy, max_length=20)  # (1, 20)
    ```
    """

    def choose(self, logits, noise):
        """The first of the largest logits."""
        return argmax(logits)


@keras.saving.register_keras_serializable(package="kerasmodels")
class Sampling(SingleSearch):
    """Draws every token from the model's distribution, or from the likely part of it.

    In this order: the logits are divided by `temperature`; all but the `top_k` largest are
    dropped; of the rest the smallest set of the most probable tokens whose probabilities add up to
    at least `top_p` is kept (nucleus sampling, Holtzman et al. 2020, section 3.1). The score of a
    result is the sum of its tokens' log-probabilities under the model itself, at temperature 1.

    Args:
        temperature: Above 1 flattens the distribution, below 1 sharpens it.
        top_k: How many tokens may be drawn from; `None`, or more than there are: all.
        top_p: Probability that these tokens hold together, in (0, 1]; `None`: 1.
        seed: An integer; the same seed repeats the same sample, whatever was drawn before. `None`
            draws from NumPy's global generator, which `keras.utils.set_random_seed` seeds.

    Raises:
        ValueError: For arguments out of range.

    Example:
    ```python
    import numpy as np
    from kerasmodels import decoding, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)
    sampling = decoding.Sampling(temperature=0.8, top_k=40, seed=1)
    ids = model.generate(np.array([[5, 6, 7]]), search=sampling, max_length=20)  # (1, 20)
    ```
    """

    def __init__(self, temperature=1.0, top_k=None, top_p=None, seed=None):
        self.temperature = positive_number("temperature", temperature)
        self.top_k = None if top_k is None else integer("top_k", top_k)
        self.top_p = None
        if top_p is not None:
            self.top_p = number("top_p", top_p, "a number in (0, 1]", lambda x: 0 < x <= 1)
        self.seed = None if seed is None else integer("seed", seed, least=0)

    def noise(self, batch_size, max_length):
        """One uniform number for every token, so that all backends draw alike."""
        import numpy as np

        random = np.random if self.seed is None else np.random.default_rng(self.seed)
        uniform = random.random((batch_size, max_length)).astype("float32")
        return np.minimum(uniform, np.float32(1 - 2**-24))  # rounding may have made it 1

    def choose(self, logits, noise):
        """Inverts the cumulative distribution at `noise`."""
        size = logits.shape[-1]
        logits = logits / self.temperature
        if self.top_k is None and self.top_p is None:
            return _draw(_weights(logits), noise)
        count = size if self.top_k is None else min(self.top_k, size)
        values, places = top_k(logits, count)  # (batch, count), largest first
        weights = _weights(values)
        if self.top_p is not None:
            before = ops.cumsum(weights, axis=-1) - weights
            enough = self.top_p * ops.sum(weights, axis=-1, keepdims=True)
            weights = ops.where(before < enough, weights, 0.0)
        drawn = _draw(weights, noise)
        return ops.take_along_axis(places, drawn[:, None], axis=-1)[:, 0]

    def get_config(self):
        """The constructor's arguments."""
        return {
            "temperature": self.temperature,
            "top_k": self.top_k,
            "top_p": self.top_p,
            "seed": self.seed,
        }


def _weights(logits):
    """Proportional to the probabilities, the largest being 1; no NaN where every logit is -inf."""
    top = ops.max(logits, axis=-1, keepdims=True)
    return ops.exp(logits - ops.where(ops.equal(top, float("-inf")), 0.0, top))


def _draw(weights, noise):
    """Index drawn in proportion to `weights` `(batch, size)`, at `noise` `(batch,)` in [0, 1).

    Never one of weight 0 where any weight is positive: the target lies below the total, and the
    index found is the first whose cumulated weight exceeds it.
    """
    cumulated = ops.cumsum(weights, axis=-1)
    target = noise * cumulated[:, -1]
    # The product may round up to the total, or a compiled sum differ in its last bit.
    last = ops.max(ops.where(weights > 0, ops.arange(weights.shape[-1]), 0), axis=-1)
    found = ops.sum(ops.cast(cumulated <= target[:, None], "int32"), axis=-1)
    return ops.minimum(found, ops.cast(last, "int32"))
