"""Image processors against transformers' own, read and written."""

import json

import keras
import numpy as np
import pandas
import pytest
import transformers
from PIL import Image
from transformers.image_processing_backends import PilBackend

from kerasmodels.checkpoints.image_processor import PREPROCESSOR, ImageProcessor
from kerasmodels.data import ImageFolder

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
RESNET_50 = {  # microsoft/resnet-50, to the letter
    "crop_pct": 0.875,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "ConvNextFeatureExtractor",
    "image_mean": MEAN,
    "image_std": STD,
    "resample": 3,
    "size": 224,
}
VIT = {"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 28}}
BIT = {"image_processor_type": "BitImageProcessor"}
CONFIGS = {
    "resnet-50": RESNET_50,
    "384": RESNET_50 | {"size": {"shortest_edge": 384}, "resample": 2},
    "96": RESNET_50 | {"size": 96, "crop_pct": 0.95},
    "convnext": {"image_processor_type": "ConvNextImageProcessor"},
    "vit": VIT | {"do_convert_rgb": None, "do_center_crop": False},
    "vit-int": VIT | {"size": 32, "resample": 1, "rescale_factor": 1 / 127.5},
    "bit": BIT,
    "bit-crop": BIT | {"size": 40, "crop_size": {"height": 48, "width": 31}, "resample": 0},
    "bit-raw": BIT | {"do_rescale": False, "do_normalize": False},
    "no-resize": BIT | {"do_resize": False, "do_rescale": True, "crop_size": 45},
}
TIMM = {
    "architecture": "resnet50",
    "pretrained_cfg": {
        "input_size": [3, 64, 64],
        "test_input_size": [3, 96, 96],
        "interpolation": "bilinear",
        "crop_pct": 0.95,
        "crop_mode": "center",
        "mean": MEAN,
        "std": STD,
    },
}


def images():
    random = np.random.default_rng(0)
    shapes = ((60, 81), (77, 50), (33, 33))
    return [random.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]


def write(folder, config, name=PREPROCESSOR):
    (folder / name).write_text(json.dumps(config))
    return folder


def by_transformers(folder):
    processor = transformers.AutoImageProcessor.from_pretrained(folder)
    assert isinstance(processor, PilBackend)
    found = processor(images(), return_tensors="np", input_data_format="channels_last")
    return found["pixel_values"].transpose(0, 2, 3, 1)


@pytest.mark.parametrize("name", CONFIGS)
def test_equals_transformers(name, tmp_path):
    """To the bit: what transformers makes of a file, and of the file that is written anew."""
    processor = ImageProcessor.from_folder(write(tmp_path, CONFIGS[name]))
    expected = by_transformers(tmp_path)
    found = processor(images())
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    assert processor.files[PREPROCESSOR] == (tmp_path / PREPROCESSOR).read_bytes()
    written = ImageProcessor(**processor.arguments).files
    for file, content in written.items():
        (tmp_path / file).write_bytes(content)
    np.testing.assert_array_equal(by_transformers(tmp_path), expected)
    assert ImageProcessor.from_folder(tmp_path).arguments == processor.arguments


def test_arguments_of_resnet_50(tmp_path):
    assert ImageProcessor.from_folder(write(tmp_path, RESNET_50)).arguments == {
        "image_size": 256,
        "crop_size": (224, 224),
        "scale": 1 / 255,
        "mean": MEAN,
        "std": STD,
        "interpolation": "bicubic",
    }


@pytest.mark.parametrize("inner", [True, False])
def test_timm(inner, tmp_path):
    """The short side to floor(64 / 0.95) = 67, then the middle, by PIL and numpy."""
    write(tmp_path, TIMM if inner else TIMM["pretrained_cfg"], "config.json")
    processor = ImageProcessor.from_folder(tmp_path)
    for image, found in zip(images(), processor(images()), strict=True):
        height, width = (67 * n // min(image.shape[:2]) for n in image.shape[:2])
        resized = np.asarray(Image.fromarray(image).resize((width, height), Image.BILINEAR))
        top, left = (height - 64) // 2, (width - 64) // 2
        crop = resized[top : top + 64, left : left + 64]
        np.testing.assert_allclose(found, (crop / 255 - MEAN) / STD, rtol=1e-5, atol=1e-6)
    # What is written is read by transformers to the same effect.
    (tmp_path / "config.json").unlink()  # which sends transformers to timm
    (tmp_path / PREPROCESSOR).write_bytes(processor.files[PREPROCESSOR])
    np.testing.assert_array_equal(by_transformers(tmp_path), processor(images()))


def test_timm_squash(tmp_path):
    config = TIMM["pretrained_cfg"] | {"crop_mode": "squash", "interpolation": "lanczos"}
    processor = ImageProcessor.from_folder(write(tmp_path, config, "config.json"))
    assert processor.arguments["image_size"] == (67, 67)
    assert processor.arguments["interpolation"] == "lanczos3"


def test_no_processor(tmp_path):
    assert ImageProcessor.from_folder(tmp_path) is None
    assert (
        ImageProcessor.from_folder(write(tmp_path, {"model_type": "bert"}, "config.json")) is None
    )


def test_files_and_modes(tmp_path):
    """A path, an image in another mode, and an array of the same picture."""
    processor = ImageProcessor(20, 16)
    pixels = images()[0]
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "a.png")
    # Stored a quarter turn to the left, with the note that says so.
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.transpose(Image.ROTATE_90).save(tmp_path / "turned.png", exif=exif)
    with_alpha = picture.copy()
    with_alpha.putalpha(128)
    paths = [tmp_path / "a.png", str(tmp_path / "turned.png")]
    batch = processor([pixels, picture, with_alpha, *paths])
    for image in batch[1:]:
        np.testing.assert_array_equal(image, batch[0])
    grey = processor([picture.convert("L")])
    np.testing.assert_array_equal(grey[..., 0], grey[..., 2])


@pytest.mark.parametrize(
    "config,named",
    [
        ({"size": 224}, "image_processor_type=None"),
        ({"image_processor_type": "CLIPImageProcessor"}, "CLIPImageProcessor"),
        (VIT | {"do_pad": True, "pad_size": 3}, "do_pad.*pad_size"),
        (VIT | {"resample": 4}, "resample=4"),
        (VIT | {"size": {"longest_edge": 9}}, "longest_edge"),
        (BIT | {"crop_size": {"width": 9}}, "crop_size"),
        (RESNET_50 | {"size": {"height": 9, "width": 9}}, "shortest_edge"),
        (RESNET_50 | {"do_center_crop": True, "crop_size": 200}, "200"),
        (VIT | {"image_mean": [0.5]}, r"mean=\[0.5\]"),
    ],
)
def test_what_cannot_be_done(config, named, tmp_path):
    with pytest.raises(ValueError, match=named):
        ImageProcessor.from_folder(write(tmp_path, config))


@pytest.mark.parametrize(
    "name,value",
    [("input_size", [3, 28, 32]), ("interpolation", "random")] + [("crop_mode", "border")],
)
def test_what_cannot_be_done_of_timm(name, value, tmp_path):
    config = TIMM["pretrained_cfg"] | {name: value}
    with pytest.raises(ValueError, match=name):
        ImageProcessor.from_folder(write(tmp_path, config, "config.json"))


def test_bad_images(tmp_path):
    processor, picture = ImageProcessor(20), images()[0]
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(ValueError, match=r"images\[1\].*a.png"):
        processor([picture, tmp_path / "a.png"])
    with pytest.raises(ValueError, match=r"images\[0\].*float64 \(4, 4, 3\)"):
        processor([np.zeros((4, 4, 3))])
    with pytest.raises(ValueError, match="I;16"):
        processor([Image.fromarray(np.zeros((4, 4), np.uint16))])
    with pytest.raises(ValueError, match="crop_size"):
        processor(images())
    with pytest.raises(ValueError, match="empty"):
        processor([])
    with pytest.raises(ValueError, match=r"one array of shape \(60, 81, 3\)"):
        processor(picture)


@pytest.mark.parametrize(
    "name,value",
    [("image_size", 0), ("image_size", (1, 2, 3)), ("crop_size", 1.5), ("scale", 0)]
    + [("mean", 0.5), ("std", [1, 0, 1]), ("interpolation", "box")],
)
def test_bad_arguments(name, value):
    with pytest.raises(ValueError, match=name):
        ImageProcessor(**{name: value})


def test_several_images_however_they_come(tmp_path):
    processor = ImageProcessor((20, 24), mean=[0.5] * 3)
    paths = []
    for i, image in enumerate(images()):
        paths.append(tmp_path / f"{i}.png")
        Image.fromarray(image).save(paths[-1])
    expected = processor([str(path) for path in paths])
    by_name = {str(path): path for path in paths}
    for several in (
        (path for path in paths),
        tuple(paths),
        np.array([str(path) for path in paths]),
        pandas.Series([str(path) for path in paths]),
        by_name.keys(),
        by_name.values(),
        map(np.asarray, images()),
        (keras.ops.convert_to_tensor(image) for image in images()),
    ):
        np.testing.assert_array_equal(processor(several), expected)
    for one in (str(paths[0]), paths[0], Image.open(paths[0]), b"cat.jpg", set(paths), by_name, 3):
        with pytest.raises(ValueError, match="`images` must be a list of images"):
            processor(one)


def broken(path, how):
    """A file that PIL refuses in one of its own ways."""
    Image.fromarray(np.arange(3 * 64 * 64, dtype="uint8").reshape(64, 64, 3)).save(path)
    content = bytearray(path.read_bytes())
    if how == "chunk":  # a length and a name that no chunk has
        place = content.index(b"IDAT")
        content[place - 4 : place + 4] = b"\xff\xff\xff\xff\x00\x01\x02\x03"
    elif how == "header":
        content[8:20] = bytes(12)
    elif how == "cut":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = b""
    elif how == "sum":
        place = content.index(b"IDAT")
        content[place + 8] ^= 255
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("how", ["chunk", "header", "cut", "empty", "sum", "pixels"])
def test_files_that_pil_refuses(how, tmp_path, monkeypatch):
    (tmp_path / "rose").mkdir()
    path = broken(tmp_path / "rose" / "photo.png", how)
    if how == "pixels":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"images\[0\].*photo\.png"):
        ImageProcessor(20, 16)([path])
    with pytest.raises(ValueError, match=r"photo\.png"):
        ImageFolder(tmp_path, image_size=(8, 8))[0]
    monkeypatch.undo()
    Image.new("RGB", (9, 9)).save(tmp_path / "rose" / "good.png")
    if how == "pixels":
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    folder = ImageFolder(tmp_path, image_size=(8, 8), on_error="skip")
    assert [path.name for path in folder.paths] == ["good.png"] and len(folder[0][0]) == 1
    ((skipped, reason),) = folder.skipped
    assert skipped == path and "photo.png" in reason


@pytest.mark.parametrize("by", ["argument", "setting"])
def test_channels_first(by, monkeypatch):
    expected = ImageProcessor((20, 24))(images())
    if by == "setting":
        processor = ImageProcessor((20, 24))
        monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    else:
        processor = ImageProcessor((20, 24), data_format="channels_first")
    np.testing.assert_array_equal(processor(images()), expected.transpose(0, 3, 1, 2))
    with pytest.raises(ValueError, match="data_format='first'"):
        ImageProcessor(data_format="first")


def test_numbers_of_numpy():
    processor = ImageProcessor(
        np.int64(20), np.array([16, 16]), np.float32(0.5), np.ones(3), np.ones(3, "float32")
    )
    assert processor.arguments == ImageProcessor(20, 16, 0.5, [1] * 3, [1.0] * 3).arguments
    config = json.loads(processor.files["preprocessor_config.json"])
    assert config["size"] == {"shortest_edge": 20} and config["rescale_factor"] == 0.5
    for name, value in (("image_size", True), ("crop_size", np.float32(2)), ("scale", "1")):
        with pytest.raises(ValueError, match=name):
            ImageProcessor(**{name: value})
