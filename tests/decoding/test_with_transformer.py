"""The searches with the encoder-decoder Transformer."""

import gc
import weakref

import keras
import numpy as np

from kerasmodels import decoding, models
from kerasmodels.decoding import compiled
from tests.decoding import toys

LENGTH = 6


def build(seed=7, **config):
    keras.utils.set_random_seed(seed)
    model = models.Transformer(
        13, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, **config
    )
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(0, 0.7, w.shape) for w in model.get_weights()])
    return model


def uncached(model, inputs, ids):
    """Log-probabilities of all tokens at every place of `ids`, by the whole model at once."""
    before = np.concatenate([np.ones((len(ids), 1), int), ids[:, :-1]], axis=1)
    inputs = {**inputs, "decoder_token_ids": before, "decoder_padding_mask": None}
    logits = keras.ops.convert_to_numpy(model(inputs)).astype("float64")
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_c16_batch():
    model = build()  # as many sources as beams; tests/models has other numbers
    ids = np.array([[4, 7, 3, 9, 11], [5, 12, 6, 0, 0]])
    inputs = {"encoder_token_ids": ids, "encoder_padding_mask": ids > 0}
    search = decoding.BeamSearch(2, num_return=2)
    found, scores = decoding.generate(model, inputs, search, LENGTH, return_scores=True)
    assert (found[0] != found[1]).any()
    for row, tokens in enumerate(ids):
        alone = {"encoder_token_ids": tokens[None, tokens > 0], "encoder_padding_mask": None}
        one, score = decoding.generate(model, alone, search, LENGTH, return_scores=True)
        np.testing.assert_array_equal(found[row], one[0])
        np.testing.assert_allclose(scores[row], score[0], atol=1e-5)
    for rank in (0, 1):
        log_probabilities = uncached(model, inputs, found[:, rank])
        for row, hypothesis in enumerate(found[:, rank]):
            tokens = toys.tokens_of(hypothesis)
            total = log_probabilities[row, np.arange(len(tokens)), tokens].sum()
            penalty = toys.penalty(len(tokens), 0.6, "gnmt")
            np.testing.assert_allclose(scores[row, rank], total / penalty, atol=1e-4)


def test_life_of_a_program():
    model = build()
    ids = np.array([[4, 7, 3, 9, 11], [5, 12, 6, 8, 10]])
    inputs = {"encoder_token_ids": ids, "encoder_padding_mask": ids > 0}

    def check(model):
        found = decoding.generate(model, inputs, max_length=LENGTH)
        best = uncached(model, inputs, found).argmax(axis=-1)
        for row, expected in zip(found, best, strict=True):
            tokens = toys.tokens_of(row)
            np.testing.assert_array_equal(tokens, expected[: len(tokens)])

    check(model)
    model.set_weights(build(seed=8).get_weights())
    check(model)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = {**inputs, "decoder_token_ids": ids, "decoder_padding_mask": ids > 0}
    model.fit(data, ids, verbose=0)
    check(model)
    assert len(compiled._programs[id(model)]) == 1
    # It goes with its model.
    number, gone = id(model), weakref.ref(model)
    del model
    gc.collect(2)
    assert gone() is None and number not in compiled._programs


def test_half_precision():
    model = build(dtype="mixed_bfloat16")
    ids = np.array([[4, 7, 3, 9], [5, 12, 6, 8]])
    inputs = {"encoder_token_ids": ids, "encoder_padding_mask": ids > 0}
    found, scores = decoding.generate(model, inputs, max_length=3, return_scores=True)
    log_probabilities = uncached(build(), inputs, found)
    for row, score, expected in zip(found, scores, log_probabilities, strict=True):
        tokens = toys.tokens_of(row)
        total = expected[np.arange(len(tokens)), tokens].sum()
        np.testing.assert_allclose(score, total, atol=0.1)
