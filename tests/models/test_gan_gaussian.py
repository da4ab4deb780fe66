"""The paper's figure 1 in numbers: N(4, 1.5) from uniform noise, as `examples/gan_gaussian.py`."""

import math

import pytest

from tests.examples.scripts import load
from tests.kit import backend

MEAN, STD = 4.0, 1.5
# A run takes 5 to 30 seconds: other seeds on every backend. (`examples/gan_gaussian.py` takes any.)
RUNS = {"tensorflow": ((0, 1), 10), "jax": ((2,), 10), "torch": ((0,), 7)}
SEEDS, EPOCHS = RUNS[backend()]

CRITERIA = {
    "mean": lambda found: abs(found["mean"] - MEAN) < 0.1 * STD,
    "std": lambda found: abs(found["std"] / STD - 1) < 0.1,
    "ks": lambda found: found["ks"] < 0.05,
    "d_real": lambda found: 0.42 < found["d_real"] < 0.58,
    "d_fake": lambda found: 0.42 < found["d_fake"] < 0.58,
    "grid": lambda found: found["d_low"] > 0.42 and found["d_high"] < 0.58,
    "value": lambda found: abs(found["value"] + math.log(4)) < 0.03,
}


@pytest.fixture(scope="module")
def example():
    return load("gan_gaussian")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_generator_learns_the_normal_distribution(example, seed):
    gan = example.build(seed, epochs=EPOCHS)
    history = example.train(gan, example.draw_data(seed=seed), EPOCHS).history
    found = example.measure(gan)
    assert all(criterion(found) for criterion in CRITERIA.values()), found
    # The reported metrics are those of the weights before their average, and say the same.
    assert abs(history["value"][-1] + math.log(4)) < 0.03
    assert abs(history["d_real"][-1] - 0.5) < 0.08 and abs(history["d_fake"][-1] - 0.5) < 0.08
    assert history["jsd"][-1] < 0.02


def test_a_frozen_generator_fails_every_criterion(example):
    gan = example.build(seed=0, frozen=True)
    example.train(gan, example.draw_data(seed=0), epochs=1)
    found = example.measure(gan)
    assert all(map(math.isfinite, found.values())), found
    assert [name for name, criterion in CRITERIA.items() if criterion(found)] == [], found
