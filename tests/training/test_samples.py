"""Pictures of what a generator draws, and the end of a run that is lost."""

import keras
import numpy as np
import pytest
from keras import ops
from PIL import Image

from kerasmodels.training import NonFiniteGuard, PortableModel, SampleGrid, tile_images


class Painter(PortableModel):
    """Generates images whose grey is what its one weight says; a step adds 0.25 to it."""

    def __init__(self):
        super().__init__()
        self.grey = self.add_weight(shape=(), initializer="zeros", name="grey")
        self.built = True

    def training_step(self, data):
        self.minimize(lambda: -0.25 * self.grey + 0.0 * ops.sum(data), [self.grey])
        return {"g_loss": ops.log(1.1 - self.grey), "grey": ops.convert_to_tensor(self.grey)}

    def generate(self, count, seed=None, labels=None):
        assert seed == 3
        grey = float(ops.convert_to_numpy(self.grey.value))
        images = np.full((count, 4, 5, 1), grey, "float32")
        return images if labels is None else images * np.asarray(labels)[:, None, None, None]


def painter(**kwargs):
    model = Painter()
    model.compile(keras.optimizers.SGD(1.0), **kwargs)
    return model


X = np.ones((4, 1), "float32")


def test_tiles():
    images = np.arange(3 * 2 * 2).reshape(3, 2, 2).astype("uint8")
    expected = [
        [0, 1, 255, 4, 5],
        [2, 3, 255, 6, 7],
        [255] * 5,
        [8, 9, 255, 255, 255],
        [10, 11, 255, 255, 255],
    ]
    np.testing.assert_array_equal(tile_images(images), expected)
    assert tile_images(images, columns=3).shape == (2, 8)
    assert tile_images(np.zeros((4, 2, 3, 3)), gap=0).shape == (4, 6, 3)


@pytest.mark.parametrize(
    "images, value_range, expected",
    [
        ([[[-1.0, 0.0, 1.0]]], None, [0, 128, 255]),
        ([[[0.0, 0.5, 1.0]]], None, [0, 128, 255]),
        ([[[0.0, 0.5, 1.0]]], (-1, 1), [128, 191, 255]),
        ([[[0, 7, 255]]], None, [0, 7, 255]),
        ([[[-3.0, 0.0, 2.0]]], (-1, 1), [0, 128, 255]),
    ],
)
def test_grey_values(images, value_range, expected):
    np.testing.assert_array_equal(tile_images(np.array(images), 1, value_range)[0], expected)


@pytest.mark.parametrize("shape", [(4,), (2, 3, 3, 2), (0, 3, 3), (1, 1, 3, 3, 3)])
def test_no_images(shape):
    with pytest.raises(ValueError, match="`images` must be"):
        tile_images(np.zeros(shape))


def test_grid_files(tmp_path):
    grid = SampleGrid(tmp_path / "grid", every=2, shape=(2, 3), seed=3, zoom=3)
    painter().fit(X, batch_size=4, epochs=5, callbacks=[grid], verbose=0)
    names = sorted(p.name for p in (tmp_path / "grid").iterdir())
    assert names == ["epoch-0002.png", "epoch-0004.png", "samples.gif"]
    picture = np.asarray(Image.open(tmp_path / "grid" / "epoch-0002.png"))
    assert picture.shape == (3 * (2 * 4 + 1), 3 * (3 * 5 + 2))
    assert picture[0, 0] == 191  # grey 0.5 of -1..1, after two steps
    with Image.open(grid.animation) as animation:
        assert animation.n_frames == 2
        assert animation.size == picture.shape[::-1]


def test_grid_of_labels(tmp_path):
    grid = SampleGrid(tmp_path, shape=(1, 2), labels=[1, -1], seed=3, zoom=1)
    painter().fit(X, batch_size=4, callbacks=[grid], verbose=0)
    picture = np.asarray(Image.open(tmp_path / "epoch-0001.png"))
    assert (picture[0, 0], picture[0, 6]) == (159, 96)  # 0.25 and -0.25


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"every": 0}, "every=0"),
        ({"shape": (0, 3)}, "shape=0"),
        ({"zoom": 0}, "zoom=0"),
        ({"shape": (2, 2), "labels": [1]}, "grid of 2 x 2. Received: 1"),
    ],
)
def test_bad_grid(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        SampleGrid(tmp_path, **arguments)


def test_a_lost_run_is_stopped():
    guard = NonFiniteGuard(every=2)
    # The logarithm of 1.1 - grey is lost with the fifth step.
    with pytest.warns(UserWarning, match="`g_loss` is nan at epoch 1, batch 6: training was stop"):
        history = painter().fit(
            np.ones((40, 1)), batch_size=4, epochs=3, callbacks=[guard], verbose=0
        )
    assert guard.stopped.startswith("`g_loss` is nan at epoch 1, batch 6")
    np.testing.assert_allclose(history.history["grey"], [1.5])  # six steps, one epoch


def test_the_end_of_an_epoch_is_looked_at():
    guard = NonFiniteGuard(every=100)
    with pytest.warns(UserWarning, match="the end of epoch 2"):
        painter().fit(np.ones((12, 1)), batch_size=4, epochs=9, callbacks=[guard], verbose=0)


def test_a_sound_run_is_left_alone():
    guard = NonFiniteGuard(every=1)
    painter().fit(X, batch_size=4, epochs=4, callbacks=[guard], verbose=0)
    assert guard.stopped is None
    with pytest.raises(ValueError, match="every=0"):
        NonFiniteGuard(every=0)


def test_the_animation_is_in_the_order_of_epochs(tmp_path):
    """Beyond four digits names are longer, and 10000 stands before 9500 in a dictionary."""
    for epoch, grey in ((10500, 200), (9500, 0), (10000, 100)):
        Image.fromarray(np.full((2, 2), grey, "uint8")).save(tmp_path / f"epoch-{epoch:04d}.png")
    (tmp_path / "epoch-best.png").write_bytes(b"somebody's own")
    grid = SampleGrid(tmp_path)
    grid.on_train_end()
    with Image.open(grid.animation) as animation:
        shades = []
        for frame in range(animation.n_frames):
            animation.seek(frame)
            shades.append(int(np.asarray(animation.convert("L")).mean()))
    assert shades == [0, 100, 200]
