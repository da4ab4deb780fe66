"""Adversarial losses against numpy, the gradient penalty against its closed form."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import training
from tests.kit import assert_close, gradients, normal, to_numpy

REAL, FAKE = normal(6, 1, seed=1, scale=2.0), normal(5, 1, seed=2, scale=2.0)


def sigmoid(x):
    return 1 / (1 + np.exp(-x.astype("float64")))


def value():
    return np.log(sigmoid(REAL)).mean() + np.log(1 - sigmoid(FAKE)).mean()


FORMULAS = {
    "value_function": ((REAL, FAKE), value()),
    "binary_discriminator_loss": ((REAL, FAKE), -value()),
    "minimax_generator_loss": ((FAKE,), np.log(1 - sigmoid(FAKE)).mean()),
    "non_saturating_generator_loss": ((FAKE,), -np.log(sigmoid(FAKE)).mean()),
    "least_squares_discriminator_loss": (
        (REAL, FAKE),
        ((REAL - 1) ** 2).mean() / 2 + (FAKE**2).mean() / 2,
    ),
    "least_squares_generator_loss": ((FAKE,), ((FAKE - 1) ** 2).mean() / 2),
    "wasserstein_discriminator_loss": ((REAL, FAKE), FAKE.mean() - REAL.mean()),
    "wasserstein_generator_loss": ((FAKE,), -FAKE.mean()),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_formula(name):
    logits, expected = FORMULAS[name]
    function = getattr(training, name)
    found = function(*map(ops.convert_to_tensor, logits))
    assert keras.backend.standardize_dtype(found.dtype) == "float32" and found.shape == ()
    assert_close(found, np.float32(expected))
    # (batch,) is as good as (batch, 1), and float16 is computed as float32.
    assert_close(function(*(ops.convert_to_tensor(x[:, 0]) for x in logits)), np.float32(expected))
    half = [x.astype("float16") for x in logits]
    exact = function(*(ops.convert_to_tensor(x.astype("float32")) for x in half))
    assert_close(function(*map(ops.convert_to_tensor, half)), to_numpy(exact))


@pytest.mark.parametrize("name", FORMULAS)
def test_extreme_logits_have_finite_losses_and_gradients(name):
    for size in (-1e4, 1e4):
        logits = [keras.Variable(np.full((2, 1), size, "float32")) for _ in FORMULAS[name][0]]
        loss, slopes = gradients(lambda x=logits: getattr(training, name)(*x), logits)
        assert np.isfinite(loss)
        assert all(np.isfinite(s).all() for s in slopes)


def test_jensen_shannon():
    # Data and samples from two densities over three points, and the best discriminator of those.
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    best = np.log(p / q).astype("float32")
    real, fake = np.repeat(best, [2, 1, 1]), np.repeat(best, [1, 1, 2])
    middle = (p + q) / 2
    expected = (p * np.log(p / middle)).sum() / 2 + (q * np.log(q / middle)).sum() / 2
    assert_close(training.jensen_shannon(real, fake), np.float32(expected))
    # A discriminator that is wrong, and one that is sure: the ends of the scale.
    assert_close(training.jensen_shannon(fake - 3, real), np.float32(0.0))
    assert_close(training.jensen_shannon(real + 99, fake - 99), np.float32(np.log(2)))


def test_metrics():
    value_metric, jsd = training.ValueFunction(), training.JensenShannon()
    assert float(value_metric.result()) == 0 and float(jsd.result()) == 0
    batches = [(REAL, FAKE), (REAL[:2] + 3, FAKE[:2] - 3)]
    values = [to_numpy(training.value_function(*batch)) for batch in batches]
    for batch in batches:
        value_metric.update_state(*batch)
        jsd.update_state(*batch)
    mean = np.average(values, weights=[6, 2])
    assert_close(value_metric.result(), np.float32(mean))
    assert_close(jsd.result(), np.float32(np.clip((mean + np.log(4)) / 2, 0, np.log(2))))
    for metric in (value_metric, jsd):
        copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(metric))
        assert copy.name == metric.name and type(copy) is type(metric)
        metric.reset_state()
        assert float(metric.result()) == 0


@pytest.mark.parametrize("shape", [(3,), (2, 2, 1)])
def test_gradient_penalty_of_a_quadratic_critic(shape):
    """`a(x) = sum w x^2 / 2` has the slope `w x`."""
    real, fake = normal(4, *shape, seed=3), normal(4, *shape, seed=4)
    mix = np.array([0.0, 0.3, 0.7, 0.99], "float32")
    weight = keras.Variable(normal(*shape, seed=5))

    def penalty():
        def critic(x):
            return ops.sum(weight * x**2 / 2, axis=tuple(range(1, len(shape) + 1)))

        return training.gradient_penalty(critic, *map(ops.convert_to_tensor, (real, fake, mix)))

    def expected(weight):
        wide = mix.reshape(-1, *[1] * len(shape)).astype("float64")
        slope = weight * (wide * real + (1 - wide) * fake)
        return ((np.sqrt((slope**2).reshape(4, -1).sum(-1)) - 1) ** 2).mean()

    loss, (gradient,) = training.value_and_grad(penalty, [weight])
    w = to_numpy(weight).astype("float64")
    assert_close(loss, np.float32(expected(w)))
    numeric = np.zeros(shape)
    for index in np.ndindex(*shape):
        step = np.zeros(shape)
        step[index] = 1e-5
        numeric[index] = (expected(w + step) - expected(w - step)) / 2e-5
    assert_close(gradient, numeric.astype("float32"), rtol=1e-4, atol=1e-5)


def test_gradient_penalty_where_the_critic_is_flat():
    weight = keras.Variable(np.zeros((3, 1), "float32"))
    real, fake, mix = map(ops.convert_to_tensor, (normal(4, 3), normal(4, 3), np.full(4, 0.5, "f")))

    def penalty():
        return training.gradient_penalty(lambda x: ops.matmul(x, weight), real, fake, mix)

    loss, (gradient,) = training.value_and_grad(penalty, [weight])
    assert_close(loss, np.float32(1.0), atol=1e-4)
    assert np.isfinite(to_numpy(gradient)).all()
