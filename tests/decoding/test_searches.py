import json

import keras
import numpy as np
import pytest

from kerasmodels import decoding
from kerasmodels.decoding.top_k import argmax, top_k
from tests.decoding import toys

# Case C15: ids PAD 0, BOS 1, EOS 2, A 3, B 4.
C15 = np.zeros((5, 5), "float32")
C15[1, 3:] = 0.6, 0.4
C15[3, 2:] = 0.3, 0.5, 0.2
C15[4, 2:] = 0.9, 0.05, 0.05


def generate(*args, **kwargs):
    # Compiling takes longer than these searches do; JAX has no loop without.
    kwargs.setdefault("jit_compile", keras.backend.backend() == "jax")
    return decoding.generate(*args, **kwargs)


def sources(count):
    return {"source": np.arange(count)}


@pytest.mark.parametrize("search", [None, decoding.BeamSearch(1)])
def test_c15_greedy(search):
    ids, scores = generate(
        toys.TableDecoder(C15), np.zeros((2, 1), int), search, max_length=3, return_scores=True
    )
    assert ids.dtype == np.int32 and scores.dtype == np.float32
    np.testing.assert_array_equal(ids, [[3, 3, 3]] * 2)
    penalty = 1 if search is None else (8 / 6) ** 0.6
    np.testing.assert_allclose(scores, -1.897120 / penalty, atol=1e-5)


def test_c15_two_beams():
    beam = decoding.BeamSearch(2, length_penalty=0.0, num_return=2)
    ids, scores = beam(toys.TableDecoder(C15), np.zeros((3, 1), int), 3, return_scores=True)
    np.testing.assert_array_equal(ids, [[[4, 2, 0], [3, 3, 3]]] * 3)
    np.testing.assert_allclose(scores, [[-1.021651, -1.897120]] * 3, atol=1e-5)


@pytest.mark.parametrize(
    ("rule", "alpha"), [("gnmt", 0.6), ("gnmt", -1.0), ("mean", 0.0), ("mean", 2.0)]
)
def test_stop_changes_nothing(rule, alpha):
    # Against a search that never stops early.
    decoder = toys.HistoryDecoder(6, vocabulary=6, seed=3, shared=True)
    beam = decoding.BeamSearch(3, alpha, rule, num_return=3, stop_rule="bound")
    ids, scores = generate(decoder, sources(6), beam, max_length=9, return_scores=True)
    for row in range(6):
        expected = toys.beam_search(decoder, row, 3, 9, alpha, rule)
        assert [toys.tokens_of(i) for i in ids[row]] == [tokens for _, tokens in expected]
        np.testing.assert_allclose(scores[row], [s for s, _ in expected], atol=1e-5)
        assert len({tuple(i) for i in ids[row]}) == 3


@pytest.mark.parametrize("rule", ["gnmt", "mean"])
def test_finished_searches_stop(rule):
    # Every source ends at once, with certainty: no live beam can win however long it gets.
    class Counter(toys.TableDecoder):
        def step(self, token_ids, state, index):
            if keras.backend.backend() == "torch":
                self.steps += 1
            return super().step(token_ids, state, index)

    table = np.full((5, 5), 1e-9)
    table[:, 2], table[:, 3] = 0.6, 0.4
    decoder = Counter(table)
    decoder.steps = 0
    beam = decoding.BeamSearch(2, 0.0, rule, num_return=2)
    ids = generate(decoder, np.zeros((2, 1), int), beam, max_length=400)
    np.testing.assert_array_equal(ids[:, :, :4], [[[2, 0, 0, 0], [3, 2, 0, 0]]] * 2)
    assert decoder.steps <= 3


@pytest.mark.parametrize("shared", [False, True])
def test_rules(shared):
    # Two end tokens, suppressed ids, a forced end.
    decoder = toys.HistoryDecoder(5, vocabulary=9, seed=1, shared=shared)
    rules = decoding.TokenRules(end_id=[5, 2], suppress_ids=[0, 7], forced_end=True)
    beam = decoding.BeamSearch(4, 1.0, "mean", num_return=4, stop_rule="bound")
    ids, scores = generate(decoder, sources(5), beam, max_length=4, return_scores=True, rules=rules)
    assert ids.shape == (5, 4, 4) and scores.shape == (5, 4)
    for row in range(5):
        expected = toys.beam_search(decoder, row, 4, 4, 1.0, "mean", (5, 2), (0, 7), True)
        found = [toys.tokens_of(i, (5, 2)) for i in ids[row]]
        assert found == [tokens for _, tokens in expected]
        np.testing.assert_allclose(scores[row], [s for s, _ in expected], atol=1e-5)


def test_rules_greedy():
    decoder = toys.HistoryDecoder(6, vocabulary=9, seed=1)
    rules = decoding.TokenRules(end_id=[5, 2], suppress_ids=[0, 7], forced_end=True)
    ids, scores = generate(decoder, sources(6), max_length=3, return_scores=True, rules=rules)
    for row in range(6):
        tokens, total = [], 0.0
        while not tokens or (tokens[-1] not in (5, 2) and len(tokens) < 2):
            log_probabilities = decoder.log_probabilities(row, tokens)
            log_probabilities[[0, 7]] = -np.inf
            tokens.append(int(log_probabilities.argmax()))
            total += log_probabilities[tokens[-1]]
        tokens += [] if tokens[-1] in (5, 2) else [5]  # the forced end costs nothing
        assert toys.tokens_of(ids[row], (5, 2)) == tokens
        np.testing.assert_allclose(scores[row], total, atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 1.5])
def test_best_of_all_sequences(alpha):
    # With as many beams as tokens, two steps lose nothing.
    decoder = toys.HistoryDecoder(4, vocabulary=5, seed=5)
    ids, scores = generate(
        decoder, sources(4), decoding.BeamSearch(5, alpha), max_length=2, return_scores=True
    )
    for row in range(4):
        best = max(
            (toys.score(decoder, row, tokens) / toys.penalty(len(tokens), alpha, "gnmt"), tokens)
            for tokens in toys.all_sequences(5, 2)
        )
        assert toys.tokens_of(ids[row]) == best[1]
        np.testing.assert_allclose(scores[row], best[0], atol=1e-5)


def test_greedy_scores():
    decoder = toys.HistoryDecoder(7, vocabulary=11, seed=2)
    ids, scores = generate(decoder, sources(7), max_length=12, return_scores=True)
    assert ids.shape == (7, 12)
    for row in range(7):
        tokens = toys.tokens_of(ids[row])
        for place, token in enumerate(tokens):
            assert token == decoder.log_probabilities(row, tokens[:place]).argmax()
        np.testing.assert_allclose(scores[row], toys.score(decoder, row, tokens), atol=1e-5)


def test_batch_changes_nothing():
    decoder = toys.HistoryDecoder(7, vocabulary=11, seed=2)
    beam = decoding.BeamSearch(3)
    together = generate(decoder, sources(7), beam, max_length=12)
    alone = generate(decoder, {"source": np.array([5])}, beam, max_length=12)
    np.testing.assert_array_equal(together[5:6], alone)


def test_renormalize():
    decoder = toys.HistoryDecoder(1, vocabulary=6)
    log_probabilities = decoder.log_probabilities(0, [])
    for renormalize, total in ((False, 0.0), (True, np.log(np.exp(log_probabilities[3:]).sum()))):
        ids, scores = generate(
            decoder,
            sources(1),
            max_length=1,
            return_scores=True,
            rules=decoding.TokenRules(suppress_ids=(0, 1, 2), renormalize=renormalize),
        )
        assert ids[0, 0] == 3 + log_probabilities[3:].argmax()
        np.testing.assert_allclose(scores, log_probabilities[ids[0, 0]] - total, atol=1e-5)


def test_fewer_hypotheses_than_asked_for():
    # Everything but token 3 is suppressed: there is only one sequence.
    decoder = toys.HistoryDecoder(2, vocabulary=4)
    beam = decoding.BeamSearch(3, num_return=3)
    rules = decoding.TokenRules(suppress_ids=[0, 1, 2])
    ids, scores = generate(decoder, sources(2), beam, 4, return_scores=True, rules=rules)
    np.testing.assert_array_equal(ids, [[[3] * 4, [0] * 4, [0] * 4]] * 2)
    assert np.isfinite(scores[:, 0]).all() and np.isneginf(scores[:, 1:]).all()


@pytest.mark.parametrize(
    "search", [decoding.GreedySearch(), decoding.BeamSearch(4), decoding.Sampling(seed=0)]
)
def test_impossible_tokens_give_no_nan(search):
    # After token 4 nothing has any probability.
    table = np.full((5, 5), 0.25)
    table[:, 2], table[4] = 0.0, 0.0
    scores = generate(
        toys.TableDecoder(table), np.zeros((2, 1)), search, max_length=5, return_scores=True
    )[1]
    assert not np.isnan(scores).any()


PROBABILITIES = np.array([0.05, 0.1, 0.15, 0.3, 0.4])


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, PROBABILITIES),
        ({"temperature": 0.5, "top_k": 50}, PROBABILITIES**2 / (PROBABILITIES**2).sum()),
        ({"top_p": 0.75}, np.array([0, 0, 0.15, 0.3, 0.4]) / 0.85),
        ({"top_k": 3, "top_p": 0.5}, [0, 0, 0, 3 / 7, 4 / 7]),
    ],
)
def test_sampling_distribution(config, expected):
    decoder = toys.TableDecoder(np.tile(PROBABILITIES, (5, 1)))
    ids, scores = generate(
        decoder,
        np.zeros((4000, 1), int),
        decoding.Sampling(seed=7, **config),
        max_length=1,
        return_scores=True,
    )
    # Scores are the model's own; frequencies within four standard deviations, 0.5 / sqrt(4000) * 4.
    np.testing.assert_allclose(scores, np.log(PROBABILITIES)[ids[:, 0]], atol=1e-5)
    np.testing.assert_allclose(np.bincount(ids[:, 0], minlength=5) / 4000, expected, atol=0.032)


def test_sampling_seed():
    decoder = toys.HistoryDecoder(3, vocabulary=12)

    def sample(seed):
        return generate(decoder, sources(3), decoding.Sampling(seed=seed), max_length=9)

    np.testing.assert_array_equal(sample(4), sample(4))
    assert (sample(4) != sample(5)).any()
    keras.utils.set_random_seed(1)
    first, second = sample(None), sample(None)
    keras.utils.set_random_seed(1)
    np.testing.assert_array_equal(first, sample(None))
    assert (first != second).any()


@pytest.mark.parametrize("size", [50, 2048, 5001])
def test_top_k(size):
    x = np.random.default_rng(0).normal(size=(3, 2, size)).astype("float32")
    x[0, 0, 7:] = -np.inf
    order = np.argsort(-x, axis=-1, kind="stable")[..., :6]
    values, places = (keras.ops.convert_to_numpy(part) for part in top_k(x, 6))
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis=-1))
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(argmax(x)), order[..., 0])
    assert (keras.ops.convert_to_numpy(argmax(np.zeros((1, size), "float32"))) == 0).all()


@pytest.mark.parametrize(
    "search",
    [
        decoding.GreedySearch(),
        decoding.BeamSearch(7, 1.1, "mean", 3, "bound"),
        decoding.Sampling(0.7, 5, 0.9, 3),
    ],
)
def test_config(search):
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(search)))
    copy = keras.saving.deserialize_keras_object(config)
    assert type(copy) is type(search) and copy.get_config() == search.get_config()


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("BeamSearch", {"num_beams": 0}, "num_beams"),
        ("BeamSearch", {"num_beams": 2.5}, "num_beams"),
        ("BeamSearch", {"num_beams": 2, "num_return": 3}, "num_return"),
        ("BeamSearch", {"num_return": 0}, "num_return"),
        ("BeamSearch", {"length_penalty": float("nan")}, "length_penalty"),
        ("BeamSearch", {"length_rule": "wu"}, "length_rule.*'gnmt' or 'mean'.*'wu'"),
        ("BeamSearch", {"stop_rule": "never"}, "stop_rule"),
        ("Sampling", {"temperature": 0}, "temperature"),
        ("Sampling", {"temperature": -1.0}, "temperature"),
        ("Sampling", {"temperature": float("nan")}, "temperature"),
        ("Sampling", {"top_k": 0}, "top_k"),
        ("Sampling", {"top_k": 1.5}, "top_k"),
        ("Sampling", {"top_p": 0.0}, "top_p"),
        ("Sampling", {"top_p": 1.1}, "top_p"),
        ("Sampling", {"seed": -1}, "seed"),
    ],
)
def test_bad_arguments(kind, config, message):
    with pytest.raises(ValueError, match=message):
        getattr(decoding, kind)(**config)
