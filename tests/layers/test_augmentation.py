"""The pad-crop augmentation against all crops there are, cut with numpy."""

import keras
import numpy as np
import pytest

from kerasmodels.layers.augmentation import RandomPadCrop
from tests.kit import assert_equal, backend, contracts, normal, to_numpy

test_contracts = contracts(
    lambda **kw: RandomPadCrop(2, seed=1, data_format="channels_last", **kw),
    options={"free": (0, 1, 2)},
    images=normal(2, 5, 4, 3),
)


def shifts(before, after, padding):
    """Which crop of its padded image each image is: `(batch, 2)`, each found exactly once."""
    found = []
    for image, shifted in zip(before, after, strict=True):
        padded = np.pad(image, ((padding, padding), (padding, padding), (0, 0)))
        height, width = image.shape[:2]
        places = [
            (y, x)
            for y in range(2 * padding + 1)
            for x in range(2 * padding + 1)
            if np.array_equal(padded[y : y + height, x : x + width], shifted)
        ]
        assert len(places) == 1
        found += places
    return np.array(found)


def test_each_image_its_own_crop():
    """Every shift is equally likely, height and width do not depend on one another."""
    x = normal(1800, 6, 4, 2)
    found = shifts(x, to_numpy(RandomPadCrop(1, seed=3)(x, training=True)), 1)
    counts = np.histogramdd(found, bins=(3, 3), range=((0, 3), (0, 3)))[0]
    assert counts.sum() == 1800
    # 9 shifts, 200 images each: chi-squared with 8 degrees of freedom is above 26.1 in 0.1 %.
    assert ((counts - 200) ** 2 / 200).sum() < 26.1


def test_only_in_training():
    layer, x = RandomPadCrop(2), normal(3, 5, 5, 1)
    assert_equal(layer(x), x)
    assert_equal(layer(x, training=False), x)
    assert not np.array_equal(to_numpy(layer(x, training=True)), x)


def test_channels_first_is_the_same():
    x = normal(4, 5, 6, 2)
    last = RandomPadCrop(2, seed=5)(x, training=True)
    first = RandomPadCrop(2, seed=5, data_format="channels_first")
    found = to_numpy(first(x.transpose(0, 3, 1, 2), training=True))
    assert_equal(found.transpose(0, 2, 3, 1), last)


def test_seed():
    """A seed repeats, and each call draws anew."""
    x = normal(8, 5, 5, 1)
    one, other = (RandomPadCrop(3, seed=7) for _ in range(2))
    calls = [to_numpy(one(x, training=True)) for _ in range(2)]
    assert_equal(other(x, training=True), calls[0])
    assert not np.array_equal(*calls)


def test_integers():
    x = np.random.default_rng(0).integers(0, 256, (4, 5, 5, 3), np.uint8)
    y = RandomPadCrop(1, seed=2)(x, training=True)
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    shifts(x, to_numpy(y), 1)


@keras.saving.register_keras_serializable(package="tests")
class Keep(keras.layers.Layer):
    """Remembers what training last read."""

    def build(self, shape):
        self.seen = self.add_weight(shape=(4, *shape[1:]), initializer="zeros", trainable=False)

    def call(self, x, training=False):
        if training:
            self.seen.assign(x[:4])
        return x


def test_in_fit():
    """In the compiled step, with a last batch of another size; each epoch draws anew."""
    x, y = normal(12, 5, 4, 2), np.zeros((12, 1), "float32")
    keep = Keep()
    model = keras.Sequential(
        [RandomPadCrop(2, seed=1), keep, keras.layers.Flatten(), keras.layers.Dense(1)]
    )
    model.compile("sgd", "mse", jit_compile=backend() != "torch")
    seen = []
    for _ in range(2):
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0)
        seen.append(to_numpy(keep.seen.value))
    first, second = (shifts(x[8:], s, 2) for s in seen)
    assert not np.array_equal(first, second)
    assert len(np.unique(first, axis=0)) > 1


@pytest.mark.parametrize("name,value", [("padding", 0), ("padding", 1.5), ("data_format", "last")])
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name) as error:
        RandomPadCrop(**{name: value})
    assert str(value) in str(error.value)


def test_bad_images():
    with pytest.raises(ValueError, match=r"batch, height, width, channels.*\(5, 4, 3\)"):
        RandomPadCrop()(normal(5, 4, 3))
