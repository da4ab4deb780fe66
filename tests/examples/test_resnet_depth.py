"""`examples/resnet_depth.py`: what it prints and leaves behind, and what it learns from."""

import json
import re

import keras
import numpy as np
import pytest

from tests.examples.scripts import assert_is_a_picture, load, run
from tests.kit import once


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling six nets takes half a minute; their parts have tests on every backend",
)
def test_what_the_user_gets(tmp_path):
    small = ("--depths", 8, 14, "--images", 50, "--steps", 100, "--size", 14, "--seeds", 1)
    printed = run("resnet_depth", *small, "--output", tmp_path)
    names = ["plain-8", "plain-14", "ResNet-8", "ResNet-14", "ResNet-8, B", "ResNet-8, C"]
    lines = re.findall(r"^(.+), seed 0: training loss (\S+), test error (\S+) %, ", printed, re.M)
    assert [name for name, _, _ in lines] == names
    table = re.findall(r"^((?:plain|ResNet)\S*(?:, [BC])?) +(\S+) +(\S+) +(\S+) %$", printed, re.M)
    assert [(name, loss, error) for name, loss, _, error in table] == lines
    assert {spread for _, _, spread, _ in table} == {"0.0000"}

    found = json.loads((tmp_path / "results.json").read_text())
    for name, loss, error in lines:
        assert f"{found[name]['training_loss'][0]:.4f}" == loss
        assert f"{found[name]['test_error'][0]:.2f}" == error
        assert float(loss) < np.log(10)  # a guess
    for picture in ("depth.png", "shortcuts.png", "responses.png"):
        assert_is_a_picture(tmp_path / picture)


@once
@pytest.mark.parametrize("size", [14, 28])
def test_digits(size):
    example = load("resnet_depth")
    (x_train, y_train), (x_test, y_test) = example.read_digits(size)
    assert x_train.shape == (4000, size, size, 1) and x_test.shape == (1000, size, size, 1)
    np.testing.assert_array_equal(np.bincount(y_train), [400] * 10)
    np.testing.assert_array_equal(np.bincount(y_test), [100] * 10)
    np.testing.assert_allclose([x_train.min(), x_train.std()], [0, 1], atol=1e-5)
    if size == 14:  # the mean of each 2x2 pixels
        (whole, _), _ = example.read_digits(28)
        halved = whole.reshape(-1, 14, 2, 14, 2, 1).mean(axis=(2, 4))
        np.testing.assert_allclose(x_train, halved / halved.std(), atol=1e-4)


def test_batches_are_full_and_see_every_image_equally_often():
    example = load("resnet_depth")
    batches = example.Batches(np.arange(50), np.arange(50), seed=0)
    seen = np.concatenate([batches[i][0] for i in range(len(batches))])
    assert len(seen) == 100 * 50
    np.testing.assert_array_equal(np.bincount(seen), 100)
    first = seen[:50].copy()
    batches.on_epoch_end()
    assert not np.array_equal(first, batches[0][0])
