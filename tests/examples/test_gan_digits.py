"""`examples/gan_digits.py`: what it prints and leaves behind, and the distance it reports."""

import re

import keras
import numpy as np
import pytest
from PIL import Image

from tests.examples.scripts import assert_is_a_picture, load, run
from tests.kit import once

# One run of each kind: DCGAN on TensorFlow, the MLP pair with labels on PyTorch. JAX compiles for
# half a minute what `tests/models` has there.
RUN = [] if keras.backend.backend() == "tensorflow" else ["--networks", "mlp", "--labels"]


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="compiles for half a minute")
def test_what_the_user_gets(tmp_path):
    printed = run("gan_digits", "--images", 100, "--epochs", 2, *RUN, "--output", tmp_path)
    assert re.search(r"The judge is right on \d+\.\d% of 20 test images\.", printed)
    shares = [float(x) for x in re.findall(r"\d (\d+\.\d)%(?:  |\n)", printed)]
    assert len(shares) == 10 and abs(sum(shares) - 100) < 0.6
    assert 0.1 <= float(re.search(r"Mean confidence (\d\.\d+)", printed)[1]) <= 1
    assert ("Written as asked for" in printed) == ("--labels" in RUN)
    assert re.search(r"Frechet distance to the test images \d+\.\d, of as many", printed)
    assert "Two-sample test on the judge's features: " in printed
    assert_is_a_picture(tmp_path / "learning_curves.png")
    with Image.open(tmp_path / "samples.png") as samples:  # two steps leave it grey
        assert samples.format == "PNG" and min(samples.size) >= 300
    names = {path.name for path in tmp_path.iterdir()}
    assert {"epoch-0001.png", "epoch-0002.png", "samples.gif", "gan.keras"} <= names
    load("gan_digits")  # imports what the file holds
    gan = keras.saving.load_model(tmp_path / "gan.keras")
    images = gan.generate(3, seed=0)
    assert images.shape == (3, 28, 28, 1) and np.abs(images).max() <= 1


@once
def test_digits_are_split_evenly():
    x_train, y_train, x_test, y_test = load("gan_digits").read_digits()
    assert x_train.shape == (4000, 28, 28, 1) and x_test.shape == (1000, 28, 28, 1)
    assert (x_train.min(), x_train.max()) == (-1, 1)
    np.testing.assert_array_equal(np.bincount(y_train), [400] * 10)
    np.testing.assert_array_equal(np.bincount(y_test), [100] * 10)


def test_frechet_distance():
    example = load("gan_digits")
    random = np.random.default_rng(0)
    x = random.normal(size=(500, 4))
    np.testing.assert_allclose(example.frechet_distance(x, x), 0, atol=1e-9)
    np.testing.assert_allclose(example.frechet_distance(x, x + [1, 2, 0, 0]), 5, rtol=1e-9)
    # Covariances that commute: (sqrt a - sqrt b)^2 for each eigenvalue.
    variances = np.linalg.eigvalsh(np.cov(x, rowvar=False))
    np.testing.assert_allclose(
        example.frechet_distance(x, 3 * x - 2 * x.mean(0)), 4 * variances.sum()
    )
    from scipy.linalg import sqrtm

    y = random.normal(size=(500, 4)) * [1.0, 2.0, 0.5, 3.0]
    a, b = np.cov(x, rowvar=False), np.cov(y, rowvar=False)
    expected = ((x.mean(0) - y.mean(0)) ** 2).sum() + np.trace(a + b - 2 * sqrtm(a @ b).real)
    np.testing.assert_allclose(example.frechet_distance(x, y), expected, rtol=1e-8)
