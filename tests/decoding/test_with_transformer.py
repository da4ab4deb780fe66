"""The searches with the encoder-decoder Transformer."""

import gc
import weakref

import keras
import numpy as np
import pytest

from kerasmodels import decoding, models
from kerasmodels.decoding import compiled

LENGTH = 6


def build(seed=3, **config):
    keras.utils.set_random_seed(seed)
    model = models.Transformer(
        13, num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16, **config
    )
    random = np.random.default_rng(seed)
    model.set_weights([random.normal(0, 0.7, w.shape) for w in model.get_weights()])
    return model


def uncached(model, source, tokens):
    """Log-probabilities after `tokens`, by the whole model."""
    inputs = {
        "encoder_token_ids": np.array([source]),
        "encoder_padding_mask": None,
        "decoder_token_ids": np.array([[1, *tokens]]),
        "decoder_padding_mask": None,
    }
    logits = keras.ops.convert_to_numpy(model(inputs))[0, -1].astype("float64")
    return logits - np.log(np.exp(logits).sum())


@pytest.mark.parametrize("beams", [2, 3])
def test_c16_batch(beams):
    model = build()
    sources = [[4, 7, 3, 9, 11], [5, 12, 6]]
    ids = np.array([sources[0], [*sources[1], 0, 0]])
    search = decoding.BeamSearch(beams, num_return=2)
    inputs = {"encoder_token_ids": ids, "encoder_padding_mask": ids > 0}
    found, scores = decoding.generate(model, inputs, search, LENGTH, return_scores=True)
    assert (found[0] != found[1]).any()
    for row, source in enumerate(sources):
        alone = {"encoder_token_ids": np.array([source]), "encoder_padding_mask": None}
        one, score = decoding.generate(model, alone, search, LENGTH, return_scores=True)
        np.testing.assert_array_equal(found[row], one[0])
        np.testing.assert_allclose(scores[row], score[0], atol=1e-5)
        for hypothesis, value in zip(found[row], scores[row], strict=True):
            tokens = hypothesis[: np.argmax(hypothesis == 2) + 1 or LENGTH].tolist()
            total = sum(uncached(model, source, tokens[:i])[t] for i, t in enumerate(tokens))
            np.testing.assert_allclose(value, total / ((5 + len(tokens)) / 6) ** 0.6, atol=1e-4)


def test_weights_may_change():
    model = build()
    inputs = {"encoder_token_ids": np.array([[4, 7, 3], [5, 12, 6]])}
    for seed in (3, 4):
        model.set_weights(build(seed).get_weights())
        found = decoding.generate(model, inputs, max_length=LENGTH)
        for source, row in zip(inputs["encoder_token_ids"], found, strict=True):
            for place, token in enumerate(row[: np.argmax(row == 2) + 1 or LENGTH]):
                assert token == uncached(model, source, row[:place]).argmax()
    assert len(compiled._programs[id(model)]) == 1


def test_program_goes_with_the_model():
    model = build()
    decoding.generate(model, {"encoder_token_ids": np.array([[4, 7]])}, max_length=3)
    number, gone = id(model), weakref.ref(model)
    assert number in compiled._programs
    del model
    gc.collect()
    assert gone() is None and number not in compiled._programs


def test_training_goes_on_after_generating():
    model = build()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    ids, mask = np.array([[4, 7, 3], [5, 12, 6]]), np.ones((2, 3), bool)
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": mask,
        "decoder_token_ids": ids,
        "decoder_padding_mask": mask,
    }
    for search in (decoding.GreedySearch(), decoding.BeamSearch(2)):
        model.generate(inputs, search, max_length=4)
        model.fit(inputs, ids, verbose=0)


def test_half_precision():
    model, exact = build(dtype="mixed_bfloat16"), build()
    inputs = {"encoder_token_ids": np.array([[4, 7, 3, 9], [5, 12, 6, 8]])}
    search = decoding.BeamSearch(2)
    scores = decoding.generate(model, inputs, search, 3, return_scores=True)[1]
    expected = decoding.generate(exact, inputs, search, 3, return_scores=True)[1]
    np.testing.assert_allclose(scores, expected, atol=0.1)
