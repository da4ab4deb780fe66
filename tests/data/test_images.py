"""Images from folders and from CIFAR's files, all written here, read back by PIL and numpy."""

import json

import keras
import numpy as np
import pytest
from PIL import Image
from sklearn.model_selection import train_test_split

from kerasmodels.data.images import ImageFolder, load_cifar10, load_cifar100, stratified_split


def picture(value, height=6, width=8):
    """An image of noise that is recognised by its mean."""
    noise = np.random.default_rng(value).integers(-2, 3, (height, width, 3))
    return (value + noise).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Eleven images in two classes, of several sizes and in a folder more, written out of order."""
    for name, values in (("cats", range(20, 90, 10)), ("dogs", range(130, 170, 10))):
        (tmp_path / name / "more").mkdir(parents=True)
        for i, value in reversed(list(enumerate(values))):
            place = tmp_path / name / ("more" if i == 1 else "") / f"{i}.png"
            Image.fromarray(picture(value, 6 + i, 8 + value % 3)).save(place)
        (tmp_path / name / ".DS_Store").write_text("no image")
    return tmp_path


def seen(dataset):
    """The rounded mean colour of each image of a pass, and its label."""
    found = []
    for images, labels in (dataset[i] for i in range(len(dataset))):
        assert images.dtype == np.uint8 and labels.dtype == np.int32
        assert len(images) == len(labels)
        found += zip((images.mean(axis=(1, 2, 3)) / 10).round(), labels.tolist(), strict=True)
    return found


def test_reads_what_is_there(folder):
    images = ImageFolder(folder, batch_size=4, image_size=(6, 8))
    assert images.class_names == ["cats", "dogs"]
    assert images.labels.tolist() == [0] * 7 + [1] * 4 and images.labels.dtype == np.int32
    names = [str(path.relative_to(folder)) for path in images.paths]
    assert names == [f"cats/{n}.png" for n in ("0", "2", "3", "4", "5", "6", "more/1")] + [
        f"dogs/{n}.png" for n in ("0", "2", "3", "more/1")
    ]
    assert [len(images[i][0]) for i in range(len(images))] == [4, 4, 3]
    first = np.asarray(Image.open(folder / "cats" / "2.png").resize((8, 6), Image.BILINEAR))
    np.testing.assert_array_equal(images[0][0][1], first)
    assert seen(images) == [(m, 0) for m in (2, 4, 5, 6, 7, 8, 3)] + [
        (m, 1) for m in (13, 15, 16, 14)
    ]
    assert "11 images of 2 classes" in repr(images)


def test_order(folder):
    """Every image once an epoch, another order in each, the same for the same seed."""
    one, other = (ImageFolder(folder, 4, (6, 8), shuffle=True, seed=3) for _ in range(2))
    epochs = []
    for _ in range(3):
        epochs.append(seen(one))
        assert seen(other) == epochs[-1] == seen(one)
        rows = np.concatenate([one.rows(i) for i in range(len(one))])
        np.testing.assert_array_equal(one.labels[rows], [label for _, label in epochs[-1]])
        for dataset in (one, other):
            dataset.on_epoch_end()
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({tuple(sorted(epoch)) for epoch in epochs}) == 1
    # Known numbers: the order depends on no backend and no process.
    order = np.random.default_rng([3, 0]).permutation(11)
    assert epochs[0] == [seen(ImageFolder(folder, 4, (6, 8)))[row] for row in order]
    assert seen(ImageFolder(folder, 4, (6, 8), shuffle=True, seed=4)) != epochs[0]


def test_class_names(folder):
    images = ImageFolder(folder, class_names=["dogs", "cats"], image_size=(6, 8))
    assert images.class_names == ["dogs", "cats"] and images.labels.tolist() == [0] * 4 + [1] * 7
    assert ImageFolder(folder, class_names=["dogs"]).labels.tolist() == [0] * 4


def test_processor(folder):
    def processor(images):
        assert all(image.mode == "RGB" for image in images)
        return np.stack([np.asarray(i.resize((5, 4)), np.float32) / 255 for i in images])

    images, labels = ImageFolder(folder, 3, processor=processor)[0]
    assert images.shape == (3, 4, 5, 3) and images.dtype == np.float32
    expected = np.asarray(Image.open(folder / "cats" / "0.png").resize((5, 4)))
    np.testing.assert_array_equal(images[0], expected.astype(np.float32) / 255)


def test_formats_and_modes(tmp_path):
    """Grey, palette, transparent and turned images; lossy formats to a few levels."""
    grey = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    (tmp_path / "a").mkdir()
    image = Image.fromarray(np.stack([grey] * 3, -1))
    with_alpha = image.copy()
    with_alpha.putalpha(Image.fromarray(255 - grey))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned a quarter to the right
    image.save(tmp_path / "a/0.png")
    image.convert("L").save(tmp_path / "a/1.png")
    with_alpha.save(tmp_path / "a/2.png")
    image.transpose(Image.ROTATE_90).save(tmp_path / "a/3.png", exif=exif)
    image.convert("L").convert("P").save(tmp_path / "a/4.gif", transparency=0)
    image.save(tmp_path / "a/5.bmp")
    image.save(tmp_path / "a/6.webp", lossless=True)
    image.save(tmp_path / "a/7.jpeg", quality=100)
    images, _ = ImageFolder(tmp_path, image_size=(6, 8))[0]
    assert images.shape == (8, 6, 8, 3)
    for i in range(7):
        np.testing.assert_array_equal(images[i], np.asarray(image), err_msg=str(i))
    np.testing.assert_allclose(images[7].astype(int), np.asarray(image), atol=3)


def test_split(folder):
    images = ImageFolder(folder, 4, (6, 8), shuffle=True)
    train, test = images.split(3, seed=1)
    assert train.class_names == test.class_names == images.class_names
    assert np.bincount(train.labels).tolist() == [5, 3]
    assert np.bincount(test.labels).tolist() == [2, 1]
    assert sorted(train.paths + test.paths) == sorted(images.paths)
    assert train.shuffle and not test.shuffle and len(images.paths) == 11
    assert sorted(seen(train) + seen(test)) == sorted(seen(images))
    other = images.split(3, seed=2)[1]
    assert images.split(3, seed=1)[1].paths == test.paths != other.paths


@keras.saving.register_keras_serializable(package="tests")
class Read(keras.layers.Layer):
    """Adds up how often training read the image of each mean colour."""

    def build(self, _):
        self.times = self.add_weight(shape=(30,), initializer="zeros", trainable=False)

    def call(self, images, training=False):
        x = keras.ops.cast(images, "float32")
        if training:
            mean = keras.ops.round(keras.ops.mean(x, axis=(1, 2, 3)) / 10)
            self.times.assign_add(keras.ops.sum(keras.ops.one_hot(mean, 30), axis=0))
        return x / 255


def test_in_fit(folder):
    """Eleven images in batches of four: each once an epoch, and the partial batch is no trouble."""
    train = ImageFolder(folder, 4, (6, 8), shuffle=True)
    read = Read()
    inputs = keras.Input((6, 8, 3), dtype="uint8")
    x = keras.layers.GlobalAveragePooling2D(data_format="channels_last")(read(inputs))
    model = keras.Model(inputs, keras.layers.Dense(2)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    model.fit(train, validation_data=ImageFolder(folder, 4, (6, 8)), epochs=3, verbose=0)
    times = keras.ops.convert_to_numpy(read.times.value)
    assert times[[2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16]].tolist() == [3] * 11
    assert times.sum() == 33
    assert model.predict(train, verbose=0).shape == (11, 2)


def test_bad_folders(folder, tmp_path):
    with pytest.raises(ValueError, match="nowhere"):
        ImageFolder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="more.*holds none"):
        ImageFolder(folder / "cats" / "more")
    with pytest.raises(ValueError, match=r"\['birds'\]"):
        ImageFolder(folder, class_names=["cats", "birds"])
    (folder / "birds").mkdir()
    with pytest.raises(ValueError, match="birds.*none"):
        ImageFolder(folder)
    assert len(ImageFolder(folder, class_names=["cats", "dogs"])) == 1


def test_hidden_files_and_folders_are_not_looked_into(folder):
    expected = ImageFolder(folder, image_size=(6, 8)).paths
    for hidden in (".ipynb_checkpoints", "more/.ipynb_checkpoints", ".cache/deep/er"):
        (folder / "cats" / hidden).mkdir(parents=True)
        Image.fromarray(picture(20)).save(folder / "cats" / hidden / "0-checkpoint.png")
    Image.fromarray(picture(20)).save(folder / "cats" / "more" / "._0.png")
    (folder / ".git").mkdir()
    images = ImageFolder(folder, image_size=(6, 8))
    assert images.paths == expected and images.class_names == ["cats", "dogs"]
    # What lies above the folder may be hidden, as in a cache.
    (folder / ".cache").mkdir()
    for name in ("cats", "dogs"):
        (folder / name).rename(folder / ".cache" / name)
    assert len(ImageFolder(folder / ".cache").paths) == len(expected)


def test_channels_first(folder, monkeypatch):
    last = ImageFolder(folder, 4, (6, 8))
    first = ImageFolder(folder, 4, (6, 8), data_format="channels_first")
    np.testing.assert_array_equal(first[0][0], last[0][0].transpose(0, 3, 1, 2))
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    np.testing.assert_array_equal(ImageFolder(folder, 4, (6, 8))[0][0], first[0][0])
    whole = ImageFolder(folder, 4, (6, 8), processor=lambda images: np.zeros((len(images), 2)))
    assert whole[0][0].shape == (4, 2)  # what a processor makes is not touched


def test_what_is_skipped(folder):
    """Broken files are left out with a reason; a class of nothing else is an error."""
    (folder / "dogs" / "x.png").write_text("no image")
    cut = folder / "cats" / "y.png"
    Image.fromarray(picture(99, 60, 60)).save(cut)
    cut.write_bytes(cut.read_bytes()[:-3000])
    images = ImageFolder(folder, 4, (6, 8), on_error="skip")
    assert [path.name for path, _ in images.skipped] == ["y.png", "x.png"]
    assert "truncated" in images.skipped[0][1] and len(images.paths) == len(images.labels) == 11
    assert sum(len(images[i][0]) for i in range(len(images))) == 11
    (folder / "birds").mkdir()
    (folder / "birds" / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match="birds.*none"):
        ImageFolder(folder, on_error="skip")
    with pytest.raises(ValueError, match="`on_error` must be 'raise' or 'skip'"):
        ImageFolder(folder, on_error="ignore")


def test_numbers_and_names_of_numpy(folder):
    names = np.unique(["dogs", "cats"])
    images = ImageFolder(
        folder, np.int64(4), np.array([6, 8]), seed=np.int32(3), shuffle=True, class_names=names
    )
    plain = ImageFolder(folder, 4, (6, 8), seed=3, shuffle=True)
    np.testing.assert_array_equal(images[0][0], plain[0][0])
    assert images.class_names == ["cats", "dogs"] and json.dumps(images.class_names)
    assert [type(n) for n in (images.batch_size, *images.image_size, images.seed)] == [int] * 4
    with pytest.raises(ValueError, match="class_names"):
        ImageFolder(folder, class_names={"cats", "dogs"})


def test_bad_files(folder):
    bad = folder / "dogs" / "x.png"
    bad.write_text("no image")
    with pytest.raises(ValueError, match=r"dogs.x\.png"):
        ImageFolder(folder)
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(bad)
    with pytest.raises(ValueError, match=r"dogs.x\.png.*I;16"):
        ImageFolder(folder)
    Image.fromarray(picture(99, 60, 60)).save(bad)
    bad.write_bytes(bad.read_bytes()[:-3000])  # the header is whole, the pixels are not
    images = ImageFolder(folder)
    with pytest.raises(ValueError, match=r"dogs.x\.png.*truncated"):
        images[0]


@pytest.mark.parametrize(
    "name,value", [("batch_size", 0), ("image_size", 5), ("image_size", (0, 1))]
)
def test_bad_arguments(name, value, folder):
    with pytest.raises(ValueError, match=name):
        ImageFolder(folder, **{name: value})


def test_stratified_split():
    """Per class the counts of scikit-learn where no remainders tie, and the issue's own case."""
    random = np.random.default_rng(0)
    for total, test_size in ((200, 0.25), (331, 77), (50, 13)):
        labels = random.choice(["a", "b", "c", "d"], total, p=[0.5, 0.3, 0.15, 0.05])
        train, test = stratified_split(labels, test_size, seed=1)
        assert train.dtype == test.dtype == np.int64
        assert sorted([*train, *test]) == list(range(total))
        assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()
        _, theirs = train_test_split(labels, test_size=test_size, stratify=labels)
        assert len(theirs) == len(test)
        counts = [np.unique(part, return_counts=True)[1] for part in (labels[test], theirs)]
        share = np.unique(labels, return_counts=True)[1] * len(test) / total
        assert (np.abs(counts[0] - share) < 1).all()
        np.testing.assert_array_equal(counts[0], counts[1])
    labels = np.arange(5000) % 10
    train, test = stratified_split(labels, 1000)
    assert np.bincount(labels[test]).tolist() == [100] * 10 and len(train) == 4000
    assert not np.array_equal(stratified_split(labels, 1000, seed=1)[1], test)
    np.testing.assert_array_equal(stratified_split(labels, 0.2)[1], test)


def test_largest_remainders():
    """By hand: shares 3 * (4, 3, 3) / 10 = 1.2, 0.9, 0.9; then a tie, that the lower label wins."""
    labels = [0] * 4 + [1] * 3 + [2] * 3
    _, test = stratified_split(labels, 3)
    assert np.bincount(np.array(labels)[test]).tolist() == [1, 1, 1]
    _, test = stratified_split([0, 0, 1, 1], 1)
    assert test.tolist() in ([0], [1])


@pytest.mark.parametrize(
    "labels,test_size,named",
    [
        ([0, 1, 1], 0, "test_size"),
        ([0, 1, 1], 3, "test_size"),
        ([0, 1, 1], 1.5, "test_size"),
        ([0] * 9 + [1], 0.01, "test_size"),
        ([0] * 3 + [1], 3, "class 1"),
        ([[0], [1]], 1, "labels"),
        ([0.5, 1.0], 1, "labels"),
        ([], 1, "labels"),
    ],
)
def test_bad_splits(labels, test_size, named):
    with pytest.raises(ValueError, match=named):
        stratified_split(labels, test_size)


def records(number, labels, seed):
    """Images (number, 32, 32, 3), labels (number, len(labels)), and CIFAR's bytes of them."""
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (number, 32, 32, 3), np.uint8)
    values = np.stack([random.integers(0, n, number) for n in labels], 1).astype(np.uint8)
    content = b""
    for image, value in zip(images, values, strict=True):
        content += value.tobytes() + b"".join(image[:, :, c].tobytes() for c in range(3))
    return images, values, content


def test_cifar10(tmp_path):
    parts = [records(3, [10], seed) for seed in range(6)]
    for name, part in zip(
        [f"data_batch_{i + 1}" for i in range(5)] + ["test_batch"], parts, strict=True
    ):
        (tmp_path / f"{name}.bin").write_bytes(part[2])
    names = [f"name{i}" for i in range(10)]
    (tmp_path / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    (x, y), (x_test, y_test), class_names = load_cifar10(tmp_path)
    np.testing.assert_array_equal(x, np.concatenate([part[0] for part in parts[:5]]))
    np.testing.assert_array_equal(y, np.concatenate([part[1][:, 0] for part in parts[:5]]))
    np.testing.assert_array_equal(x_test, parts[5][0])
    np.testing.assert_array_equal(y_test, parts[5][1][:, 0])
    assert x.dtype == np.uint8 and y.dtype == np.int32 and class_names == names

    (tmp_path / "test_batch.bin").write_bytes(parts[5][2][:-1])
    with pytest.raises(ValueError, match="test_batch.bin.*not whole"):
        load_cifar10(tmp_path)
    (tmp_path / "test_batch.bin").write_bytes(bytes([10]) + bytes(3072))
    with pytest.raises(ValueError, match="label 10"):
        load_cifar10(tmp_path)


def test_cifar100(tmp_path):
    parts = [records(4, [20, 100], seed) for seed in (7, 8)]
    for name, part in zip(("train", "test"), parts, strict=True):
        (tmp_path / f"{name}.bin").write_bytes(part[2])
    for label, number in (("coarse", 20), ("fine", 100)):
        names = "".join(f"{label}{i}\n" for i in range(number))
        (tmp_path / f"{label}_label_names.txt").write_text(names)
    for position, label in enumerate(("coarse", "fine")):
        (x, y), (x_test, y_test), names = load_cifar100(tmp_path, label)
        np.testing.assert_array_equal(x, parts[0][0])
        np.testing.assert_array_equal(y, parts[0][1][:, position])
        np.testing.assert_array_equal(x_test, parts[1][0])
        np.testing.assert_array_equal(y_test, parts[1][1][:, position])
        assert len(names) == (20, 100)[position] and names[3] == f"{label}3"
    with pytest.raises(ValueError, match="label.*'both'"):
        load_cifar100(tmp_path, "both")


def test_cifar_python_version(tmp_path):
    with pytest.raises(ValueError, match="lacks.*data_batch_1.bin") as error:
        load_cifar10(tmp_path)
    assert "pickle" not in str(error.value)
    for name in ("data_batch_1", "test_batch", "train"):
        (tmp_path / name).write_bytes(b"a pickle")
    for load in (load_cifar10, load_cifar100):
        with pytest.raises(ValueError, match="pickles are not read.*binary version"):
            load(tmp_path)
