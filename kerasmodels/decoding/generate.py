"""Generation: a decoder, a search, and arrays in and out."""

import keras
import numpy as np
from keras import ops

from kerasmodels.decoding.compiled import run_search
from kerasmodels.decoding.inputs import (
    align_left,
    prepare_inputs,
    round_inputs,
    round_up,
    source_length,
)
from kerasmodels.decoding.search import GreedySearch, Search
from kerasmodels.token_rules import TokenRules

# "We set the maximum output length during inference to input length + 50" (Vaswani et al. 2017,
# section 6.1).
_MORE_THAN_SOURCE = 50


def generate(
    decoder,
    inputs,
    search=None,
    max_length=None,
    return_scores=False,
    *,
    rules=None,
    jit_compile=True,
):
    """Generates token ids.

    On TensorFlow and JAX the whole search is one compiled program, on PyTorch a step is traced once
    and then runs without Keras. That is done for a source length, a number of rows and a
    `max_length`, each rounded up to few values (8, 12, 16, 24, 32, 48, ...), and kept for as long
    as the decoder lives. Weights may change meanwhile.

    Several threads may call this at the same time, also with one decoder, as long as none of them
    trains it.

    Args:
        decoder: An object with `start` and `step`, see `kerasmodels.decoding.protocol`.
        inputs: What its `start` takes: a tree of arrays or tensors whose first axis is the batch.
            Sources `encoder_token_ids` `(batch, length)` may be padded on the left or the right,
            as `encoder_padding_mask` says (True or 1 = keep; None: everything).
        search: `GreedySearch` (the default), `BeamSearch` or `Sampling`.
        max_length: The largest number of tokens, the end token counted. Defaults to the length of
            the longest source plus 50.
        return_scores: Whether to return the scores, too.
        rules: `TokenRules`, or a model or tokenizer that has some: which tokens start, end and pad
            the result, which are suppressed, and whether the last position is an end token.
            Defaults to the decoder's own `token_rules`; where it has none, to `TokenRules()`.
        jit_compile: `False` turns off XLA on TensorFlow, compilation on JAX, tracing on PyTorch.

    Returns:
        int32 array `(batch, max_length)`, or `(batch, num_return, max_length)` if the search
        returns several; with `return_scores` also float32 `(batch,)` or `(batch, num_return)`.

    Raises:
        ValueError: For inputs or arguments out of range; see the message.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import decoding


    class Table:  # P(next | last), the same for every source
        def __init__(self, probabilities):
            self.logits = keras.ops.log(probabilities)

        def start(self, inputs, max_length):
            return {}

        def step(self, token_ids, state, index):
            return keras.ops.take(self.logits, token_ids, axis=0), state


    table = Table(np.full((5, 5), 0.2, "float32"))
    ids = decoding.generate(table, np.zeros((3, 1)), max_length=4)  # (3, 4)
    ```
    """
    search = GreedySearch() if search is None else search
    if not isinstance(search, Search):
        raise ValueError(
            "`search` must be a GreedySearch, BeamSearch, Sampling or another Search. "
            f"Received: {search!r}"
        )
    rules = _rules(decoder, search, rules)
    inputs, batch = prepare_inputs(decoder, inputs)
    most = getattr(decoder, "max_sequence_length", None)
    max_length = _check_max_length(max_length, most, source_length(inputs))

    inputs = round_inputs(decoder, inputs, batch)
    rows = round_up(batch)
    length = int(min(round_up(max_length, least=8), most or np.inf))
    noise = search.noise(batch, max_length)  # the same whatever is rounded up
    if noise is not None:
        noise = np.pad(noise, ((0, rows - batch), (0, length - max_length)))
    active = np.arange(rows) < batch
    ids, scores = run_search(
        decoder, search, rules, inputs, length, max_length, active, noise, jit_compile
    )
    ids, scores = ids[:batch, :, :max_length], scores[:batch]
    if np.isnan(scores).any():
        raise ValueError(
            "The decoder's logits are not finite numbers: the scores of rows "
            f"{np.flatnonzero(np.isnan(scores).any(axis=1))[:10].tolist()} are NaN"
        )
    if search.num_return == 1:
        ids, scores = ids[:, 0], scores[:, 0]
    return (ids, scores) if return_scores else ids


def generate_tensors(
    decoder,
    inputs,
    search=None,
    max_length=None,
    *,
    rules=None,
    noise=None,
):
    """`generate` as a pure function of tensors, for `tf.function`, `jax.jit` and exported models.

    Batch and source length may be unknown when it is traced; nothing is compiled, rounded or
    checked by value here. On JAX the decoder's weights become constants of the traced program
    unless the caller gives them in a `keras.StatelessScope`.

    Args:
        decoder: As in `generate`.
        inputs: As in `generate`, tensors.
        search: As in `generate`.
        max_length: The number of positions, an integer. Required.
        rules: As in `generate`.
        noise: `(batch, max_length)` float32 in [0, 1): the random numbers for `Sampling`, which
            needs them; one column a token.

    Returns:
        Tensors: ids `(batch, max_length)` int32 and scores `(batch,)` float32, with another axis
        after the batch if the search returns several.

    Raises:
        ValueError: For arguments out of range.

    Example:
    ```python
    import tensorflow as tf
    from kerasmodels import decoding, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)


    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32)])
    def serve(token_ids):
        inputs = {"encoder_token_ids": token_ids, "encoder_padding_mask": token_ids != 0}
        return decoding.generate_tensors(model, inputs, max_length=20)[0]


    serve(tf.constant([[5, 6, 7]])).shape  # (1, 20)
    ```
    """
    search = GreedySearch() if search is None else search
    rules = _rules(decoder, search, rules)
    most = getattr(decoder, "max_sequence_length", None)
    max_length = _check_max_length(max_length, most, None)
    if noise is None and search.noise(1, 1) is not None:
        raise ValueError(
            "`noise` must be given with a search that draws tokens: "
            f"(batch, {max_length}) numbers in [0, 1). Received: noise=None"
        )
    inputs = align_left(inputs)
    leaf = next(leaf for leaf in keras.tree.flatten(inputs) if leaf is not None)
    active = ops.ones((ops.shape(leaf)[0],), dtype="bool")
    limit = ops.convert_to_tensor(max_length, dtype="int32")
    ids, scores = search.run(decoder, inputs, rules, max_length, limit, active, noise)
    return (ids[:, 0], scores[:, 0]) if search.num_return == 1 else (ids, scores)


def _rules(decoder, search, rules):
    if rules is None:
        rules = getattr(decoder, "token_rules", None)
    rules = TokenRules() if rules is None else TokenRules.of(rules)
    size = getattr(decoder, "vocabulary_size", None)
    size = size[1] if isinstance(size, list | tuple) else size
    if size is not None:
        search.check(size)
        rules.check(size)
    return rules


def _check_max_length(max_length, most, source):
    if max_length is None:
        if source is None:
            raise ValueError("`max_length` must be given: the inputs tell no source length")
        max_length = source + _MORE_THAN_SOURCE
        return max_length if most is None else min(max_length, most)
    if isinstance(max_length, bool) or int(max_length) != max_length or max_length < 1:
        raise ValueError(f"`max_length` must be an integer >= 1. Received: max_length={max_length}")
    if most is not None and max_length > most:
        raise ValueError(
            f"`max_length` must be at most {most}, the positions the decoder has. "
            f"Received: max_length={max_length}"
        )
    return int(max_length)
