"""The two-sample test keeps its level, finds what differs, and says where."""

import keras
import numpy as np
import pytest
from keras import ops
from scipy.stats import mannwhitneyu
from sklearn.linear_model import LogisticRegression

from kerasmodels import two_sample_test


def normal(seed, count, *shape, shift=0.0):
    x = np.random.default_rng(seed).normal(size=(count, *shape))
    x[:, 0] += shift
    return x


@pytest.mark.parametrize("arguments", [{}, {"folds": 5}, {"permutations": 19}])
def test_false_alarms_and_power(arguments):
    p_equal, p_shifted = (
        np.array(
            [
                two_sample_test(
                    normal(2 * seed, 100, 5),
                    normal(2 * seed + 1, 100, 5, shift=shift),
                    classifier="linear",
                    seed=seed,
                    **arguments,
                ).p_value
                for seed in range(200)
            ]
        )
        for shift in (0.0, 1.2)
    )
    # At 5 %: more than 17 of 200 would be seen in 1 of 100 tests of a test that is right.
    assert (p_equal <= 0.05).sum() <= 17
    assert (p_shifted <= 0.05).mean() >= 0.95


@pytest.mark.parametrize("sizes", [(10, 10), (30, 100), (200, 60)])
def test_level_with_other_sizes(sizes):
    p = [
        two_sample_test(
            normal(2 * seed, sizes[0], 3), normal(2 * seed + 1, sizes[1], 3), "linear", seed=seed
        ).p_value
        for seed in range(200)
    ]
    assert (np.array(p) <= 0.05).sum() <= 17


def test_p_value_is_that_of_the_rank_sums():
    """Against scipy's Mann-Whitney test on the held-out scores of each fold."""
    x, y = normal(0, 40, 3), normal(1, 60, 3, shift=0.7)
    folds = []

    class Recorder:
        def fit(self, x, y):
            self.direction = x[y == 1].mean(0) - x[y == 0].mean(0)

        def decision_function(self, x):
            folds.append((x, 1 / (1 + np.exp(-(x @ self.direction)))))
            return x @ self.direction

    result = two_sample_test(x, y, classifier=Recorder())
    z = []
    for rows, scores in folds:
        is_sample = (rows[:, None] == y[None]).all(-1).any(-1)
        test = mannwhitneyu(
            scores[is_sample],
            scores[~is_sample],
            method="asymptotic",
            use_continuity=False,
            alternative="greater",
        )
        m, n = is_sample.sum(), (~is_sample).sum()
        z.append((test.statistic - m * n / 2) / np.sqrt(m * n * (m + n + 1) / 12))
    from scipy.stats import norm

    np.testing.assert_allclose(result.p_value, norm.sf(np.mean(z)), rtol=1e-6)
    assert len(folds) == 2 and sum(len(rows) for rows, _ in folds) == 100


def test_accuracy_and_scores_by_hand():
    x, y = np.array([0.0, 1, 2, 3]), np.array([2.5, 4, 5, 6])

    class Itself:
        def fit(self, x, y):
            pass

        def predict_proba(self, x):
            return np.stack([1 - x[:, 0] / 10, x[:, 0] / 10], axis=1)

    result = two_sample_test(x, y, classifier=Itself())
    np.testing.assert_allclose(result.reference_scores, x / 10, rtol=1e-6)
    np.testing.assert_allclose(result.sample_scores, y / 10, rtol=1e-6)
    np.testing.assert_array_equal(result.giveaways(2), [3, 2])
    np.testing.assert_array_equal(result.missed(2), [0, 1])
    # Only 2.5 can be taken for a reference, and 3 for a sample, if they meet in a fold.
    assert result.accuracy in (0.75, 1.0)


def test_equal_scores_tell_nothing():
    p = [
        two_sample_test(np.zeros((20, 1)), np.zeros((20, 1)), "linear", seed=seed).p_value
        for seed in range(100)
    ]
    assert (np.array(p) <= 0.05).sum() <= 12


def images(seed, count, bright):
    x = np.random.default_rng(seed).normal(size=(count, 8, 8, 1)).astype("float32")
    x[:bright, 2:5, 2:5] += 1.5  # a patch that training never had
    return x


def test_a_network_on_images():
    live = images(1, 64, bright=40)
    result = two_sample_test(images(0, 64, bright=0), live, epochs=20, batch_size=32)
    assert result.p_value < 1e-3 and result.accuracy > 0.65
    assert "differ" in str(result) and "rank sums of 2 folds" in str(result)
    # The samples that give it away are the bright ones.
    assert (result.giveaways(10) < 40).mean() >= 0.9
    again = two_sample_test(images(0, 64, 0), images(2, 64, 0), epochs=6, batch_size=32)
    assert again.p_value > 0.05 and "no difference seen" in str(again)


def seconds():
    """Two weeks of time stamps, in seconds since 1970."""
    random = np.random.default_rng(0)
    return 1.7e9 + random.uniform(0, 20, 200), 1.7e9 + 30 + random.uniform(0, 20, 200)


def numbers():
    """Numbers of rows in a large table, int64."""
    return 2**40 + np.arange(200), 2**40 + 200 + np.arange(200)


def large_numbers():
    """Hashes of 63 bits that float64 cannot tell apart, beside a column of another size."""
    random = np.random.default_rng(0)
    x = np.stack([2**62 + random.permutation(200), random.integers(0, 9, 200)], axis=1)
    return x, x + [[400, 0]]


@pytest.mark.parametrize("classifier", ["network", "linear"])
@pytest.mark.parametrize("samples", [seconds, numbers, large_numbers])
def test_numbers_far_from_zero(samples, classifier):
    """Two samples that do not overlap are told apart every time."""
    result = two_sample_test(*samples(), classifier, epochs=10)
    assert result.accuracy == 1 and result.p_value < 1e-10


@pytest.mark.parametrize("classifier", ["network", "linear"])
def test_small_differences_far_from_zero(classifier):
    """40 degrees, measured to a millionth: what the best threshold tells, and no less."""
    random = np.random.default_rng(0)
    x, y = (40 + 1e-6 * random.normal(shift, 1, 200) for shift in (0, 1.5))
    result = two_sample_test(x, y, classifier, epochs=10)
    share = mannwhitneyu(y, x).statistic / len(x) / len(y)  # scipy, in float64
    assert abs(share - 0.856) < 0.03 and result.accuracy > 0.7
    assert result.p_value < 1e-8
    np.testing.assert_allclose(
        result.p_value,
        two_sample_test((x - 40) * 1e6, (y - 40) * 1e6, classifier, epochs=10).p_value,
        rtol=1e-2,
    )


@pytest.mark.parametrize("dtype", ["float16", "uint8", "int32", "bool"])
def test_numbers_of_every_type(dtype):
    x, y = (normal(seed, 60, 3, shift=shift) for seed, shift in ((0, 0), (1, 1.5)))
    x, y = ((10 * part > 5) if dtype == "bool" else 100 + 10 * part for part in (x, y))
    assert two_sample_test(x.astype(dtype), y.astype(dtype), "linear").p_value < 1e-3


def test_images_whatever_the_data_format_of_keras():
    x, y = (np.repeat(images(seed, 24, bright), 3, axis=-1) for seed, bright in ((0, 0), (1, 20)))
    expected = two_sample_test(x, y, epochs=2, batch_size=16)
    keras.config.set_image_data_format("channels_first")
    try:
        found = two_sample_test(x, y, epochs=2, batch_size=16)
    finally:
        keras.config.set_image_data_format("channels_last")
    np.testing.assert_allclose(found.sample_scores, expected.sample_scores, rtol=1e-5)


def test_a_network_on_vectors_sees_what_is_not_linear():
    ring = normal(0, 100, 2)
    ring *= 2.0 / np.linalg.norm(ring, axis=1, keepdims=True)
    arguments = dict(epochs=30, batch_size=32)
    assert two_sample_test(normal(1, 100, 2), ring, **arguments).p_value < 1e-3
    assert two_sample_test(normal(1, 100, 2), ring, "linear").p_value > 0.01


def test_the_same_seed_gives_the_same_answer():
    x, y = normal(0, 30, 4), normal(1, 30, 4)
    a, b = (two_sample_test(x, y, epochs=2, batch_size=16, seed=5) for _ in range(2))
    assert a.p_value == b.p_value
    np.testing.assert_array_equal(a.sample_scores, b.sample_scores)


def test_what_a_model_sees():
    inputs = keras.Input((6, 6, 1))
    maps = keras.layers.Conv2D(3, 3, kernel_initializer="ones")(inputs)
    sums = keras.Model(inputs, maps)  # sees a shift of the mean
    blind = keras.Model(inputs, keras.layers.Lambda(lambda x: x - ops.mean(x, (1, 2), True))(maps))
    x = np.random.default_rng(0).normal(size=(2, 80, 6, 6, 1)).astype("float32")
    x[1] += 0.5
    assert two_sample_test(*x, "linear", features=sums).p_value < 1e-6
    assert two_sample_test(*x, "linear", features=blind).p_value > 1e-3
    assert two_sample_test(*x, "linear", features=lambda x: x[:, 0, 0]).p_value < 0.05


def test_classifiers_of_others():
    x, y = normal(0, 60, 4), normal(1, 60, 4, shift=1.5)
    assert two_sample_test(x, y, LogisticRegression()).p_value < 1e-4

    def discriminator(shape):
        model = keras.Sequential([keras.Input(shape), keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1), loss)
        return model

    assert two_sample_test(x, y, discriminator, epochs=10, batch_size=10).p_value < 1e-3


@pytest.mark.parametrize(
    "x, y, arguments, message",
    [
        (np.zeros((9, 3)), np.zeros((9, 4)), {}, r"one shape.*\(3,\) and \(4,\)"),
        (np.zeros((3, 3)), np.zeros((9, 3)), {}, "`reference` must have at least 4 samples"),
        (np.zeros((9, 3)), np.full((9, 3), np.nan), {}, "`sample` must be finite"),
        (np.zeros((9, 3)), np.zeros((9, 3)), {"folds": 1}, "folds=1"),
        (np.zeros((9, 3)), np.zeros((9, 3)), {"permutations": -1}, "permutations=-1"),
        (np.zeros((9, 3)), np.zeros((9, 3)), {"classifier": "forest"}, "classifier='forest'"),
        (
            np.zeros((9, 3)),
            np.zeros((9, 3)),
            {"classifier": lambda shape: keras.Sequential([keras.layers.Dense(2)])},
            "one logit a sample",
        ),
    ],
)
def test_bad_input(x, y, arguments, message):
    with pytest.raises(ValueError, match=message):
        two_sample_test(x, y, **arguments)


def test_a_model_that_is_there_already_is_refused():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="a function that returns a new model"):
        two_sample_test(np.zeros((9, 3)), np.zeros((9, 3)), model)
