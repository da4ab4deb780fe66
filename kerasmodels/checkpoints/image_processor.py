"""How a checkpoint wants its images: what the image processors of transformers and timm say."""

import json
import math
import os
from numbers import Integral, Real
from pathlib import Path

import numpy as np

from kerasmodels.checkpoints.files import CONFIG, read_json
from kerasmodels.data_format import standardize_data_format
from kerasmodels.image_files import read_image
from kerasmodels.listing import listed

PREPROCESSOR = "preprocessor_config.json"
# PIL's numbers of filters, which transformers writes, by Keras's names.
RESAMPLE = {"nearest": 0, "lanczos3": 1, "bilinear": 2, "bicubic": 3}
TIMM_INTERPOLATION = {"lanczos": "lanczos3"} | {n: n for n in ("nearest", "bilinear", "bicubic")}
HALF = [0.5, 0.5, 0.5]
IMAGENET_MEAN, IMAGENET_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]
# What transformers assumes where a file is silent, by the beginning of the processor's name.
_ALWAYS = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True}
STYLES = {
    "ConvNext": _ALWAYS
    | {"size": 384, "crop_pct": 224 / 256, "resample": 3, "image_mean": HALF, "image_std": HALF},
    "ViT": _ALWAYS | {"size": 224, "resample": 2, "image_mean": HALF, "image_std": HALF},
    "Bit": _ALWAYS
    | {"size": 224, "crop_size": 224, "do_center_crop": True, "resample": 3}
    | {"image_mean": CLIP_MEAN, "image_std": CLIP_STD},
}
_ENDINGS = ("ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor")
# They say nothing about pixels, or (`do_convert_rgb`) what is always done here.
_IGNORED = {
    "image_processor_type",
    "feature_extractor_type",
    "processor_class",
    "do_convert_rgb",
    "data_format",
    "_valid_processor_keys",
    "return_tensors",
}


class ImageProcessor:
    """Images of any size to one batch of floats, equal to what transformers' processor gives.

    For image models it has the part of a tokenizer: `Family.companion` may name this class. It
    works on the host with PIL and numpy. `arguments` are those of `layers.ImagePreprocessing`,
    which does the same inside a model, with ties between two levels of 255 rounded its own way.

    Read are transformers' `preprocessor_config.json` of the ConvNext processor (that of
    `microsoft/resnet-50`), the ViT and the Bit processor, and where there is none `pretrained_cfg`
    in timm's `config.json`. ConvNext resizes the short side to `int(size / crop_pct)` and cuts the
    middle out; from 384 on it resizes both sides and cuts nothing. timm resizes the short side to
    `floor(size / crop_pct)`. The crop begins at `(size - crop) // 2`, as in transformers; timm
    rounds a half to the even number, so where the difference is odd its crop may lie one pixel on.

    Args:
        image_size: The length of the short side (an integer), height and width (a pair), or `None`
            for images that keep their size.
        crop_size: Height and width of what is cut out of the middle, with zeros around it where
            the image is smaller; an integer stands for a square, `None` for no crop.
        scale: What pixels are multiplied by.
        mean: What is subtracted afterwards, one number a channel, or `None`.
        std: What is divided by, one number a channel, or `None`.
        interpolation: `"nearest"`, `"bilinear"`, `"bicubic"` or `"lanczos3"`.
        data_format: Where the channels of the result stand: `"channels_last"` or
            `"channels_first"`. `None`: where Keras is set to when images are preprocessed. The
            `preprocessor` of a model that was loaded follows the model.

    Attributes:
        arguments: The arguments as a dictionary, but for `data_format`.
        files: The content (bytes) of the folder's files by name, for writing: those that were
            read, or a `preprocessor_config.json` that transformers reads to the same effect.

    Raises:
        ValueError: An argument is not one of those allowed.

    Example:
    ```python
    from kerasmodels import checkpoints, layers

    processor = checkpoints.ImageProcessor(256, 224)
    images = processor(["cat.jpg", "dog.png"])  # (2, 224, 224, 3)
    layer = layers.ImagePreprocessing(**processor.arguments)  # the same inside a model
    ```

    PIL images and uint8 arrays are taken like the names of files.
    """

    FILES = (PREPROCESSOR,)

    def __init__(
        self,
        image_size=None,
        crop_size=None,
        scale=1 / 255,
        mean=None,
        std=None,
        interpolation="bilinear",
        data_format=None,
    ):
        image_size, crop_size = _size("image_size", image_size), _size("crop_size", crop_size)
        for name, values in (("mean", mean), ("std", std)):
            if values is not None and np.shape(values) != (3,):
                raise ValueError(f"{name}={values!r}: three numbers are needed, one a channel")
        if std is not None and min(std) <= 0:
            raise ValueError(f"std={std!r}: the numbers must be positive")
        if not isinstance(scale, Real | np.floating) or not 0 < scale < np.inf:
            raise ValueError(f"scale={scale!r}: a positive number is needed")
        if interpolation not in RESAMPLE:
            raise ValueError(f"interpolation={interpolation!r}: allowed are {list(RESAMPLE)}")
        self.data_format = data_format and standardize_data_format(data_format)
        self.arguments = {
            "image_size": image_size,
            "crop_size": None if crop_size is None else _pair(crop_size),
            "scale": int(scale) if isinstance(scale, Integral) else float(scale),
            "mean": mean if mean is None else [float(v) for v in mean],
            "std": std if std is None else [float(v) for v in std],
            "interpolation": interpolation,
        }
        self.files = {PREPROCESSOR: self._written()}

    @classmethod
    def from_folder(cls, folder):
        """Return the processor that a folder describes, or ``None`` where it describes none.

        A folder of timm for images of other than three channels describes none.

        Raises:
            ValueError: a file is not valid JSON, or says something about pixels that cannot be
                done here; the message names the field.
        """
        folder = Path(folder)
        path = folder / PREPROCESSOR
        if path.is_file():
            processor = cls(**_from_transformers(read_json(path), path))
            processor.files = {PREPROCESSOR: path.read_bytes()}
            return processor
        path = folder / CONFIG
        config = read_json(path) if path.is_file() else {}
        config = config.get("pretrained_cfg") or config  # older files have no inner dictionary
        if "input_size" not in config or config["input_size"][0] != 3:
            return None  # of nets with other channels than red, green and blue nobody knows which
        return cls(**_from_timm(config, path))

    def __call__(self, images):
        """Preprocess images.

        Args:
            images: a list of images, or whatever yields several, of any sizes: PIL images, uint8
                arrays ``(height, width, 3)``, or paths. Other modes become RGB; files are turned as
                their EXIF data say.

        Returns:
            float32 ``(images, height, width, 3)``, or ``(images, 3, height, width)`` with
            ``data_format="channels_first"``.

        Raises:
            ValueError: there are no images, one is not an image, there is one image in place of a
                list, or they come out in several sizes.
        """
        if getattr(images, "ndim", 4) == 3:
            raise ValueError(
                "images: a list of images or an array (images, height, width, 3) is needed, not "
                f"one array of shape {images.shape}"
            )
        images = listed("images", images, "images, such as ['cat.jpg']")
        if not images:
            raise ValueError("images: a list of images is needed, not an empty one")
        arrays = [self._one(image, position) for position, image in enumerate(images)]
        shapes = sorted({array.shape for array in arrays})
        if len(shapes) > 1:
            raise ValueError(
                f"images come out in the sizes {[shape[:2] for shape in shapes]}, which make no "
                f"batch: with image_size={self.arguments['image_size']} they keep their aspect "
                "ratio; give a crop_size, or image_size as a pair"
            )
        if standardize_data_format(self.data_format) == "channels_first":
            arrays = [array.transpose(2, 0, 1) for array in arrays]
        return np.stack(arrays)

    def _one(self, image, position):
        """A preprocessed image, (height, width, 3) float32."""
        from PIL import Image

        arguments = self.arguments
        image = _open(image, position)
        width, height = image.size
        size = arguments["image_size"]
        if isinstance(size, int):
            short = min(height, width)
            size = (size * height // short, size * width // short)
        if size is not None:
            filter_ = Image.Resampling(RESAMPLE[arguments["interpolation"]])
            image = image.resize(size[::-1], filter_)
        pixels = np.asarray(image)
        if arguments["crop_size"] is not None:
            for axis, crop in enumerate(arguments["crop_size"]):
                pixels = _crop(pixels, axis, crop)
        # In the precision of transformers' steps, so that the result is the same to the bit.
        pixels = (pixels.astype(np.float64) * arguments["scale"]).astype(np.float32)
        if arguments["mean"] is not None:
            pixels = pixels - np.array(arguments["mean"], np.float32)
        if arguments["std"] is not None:
            pixels = pixels / np.array(arguments["std"], np.float32)
        return pixels

    def _written(self):
        """`preprocessor_config.json` in the words of the Bit processor, which can say it all."""
        arguments = self.arguments
        size, crop = arguments["image_size"], arguments["crop_size"]
        mean, std = arguments["mean"], arguments["std"]
        config = {
            "image_processor_type": "BitImageProcessor",
            "do_convert_rgb": True,
            "do_resize": size is not None,
            "resample": RESAMPLE[arguments["interpolation"]],
            "do_center_crop": crop is not None,
            "do_rescale": arguments["scale"] != 1,
            "rescale_factor": arguments["scale"],
            "do_normalize": mean is not None or std is not None,
            "image_mean": mean or [0.0, 0.0, 0.0],
            "image_std": std or [1.0, 1.0, 1.0],
        }
        if size is not None:
            pair = not isinstance(size, int)
            config["size"] = _height_and_width(size) if pair else {"shortest_edge": size}
        if crop is not None:
            config["crop_size"] = _height_and_width(crop)
        return (json.dumps(config, indent=2, sort_keys=True) + "\n").encode()


def _size(name, size):
    """A size in Python's integers, a number or a pair."""
    pair = isinstance(size, list | tuple | np.ndarray) and np.shape(size) == (2,)
    for n in size if pair else [size]:
        if size is not None and (isinstance(n, bool) or not isinstance(n, Integral) or n < 1):
            raise ValueError(
                f"{name}={size!r}: a positive integer or a pair (height, width) is needed"
            )
    return None if size is None else tuple(map(int, size)) if pair else int(size)


def _pair(size):
    return (size, size) if isinstance(size, int) else tuple(size)


def _height_and_width(pair):
    return {"height": pair[0], "width": pair[1]}


def _open(image, position):
    """An image in RGB as a PIL image."""
    from PIL import Image

    if isinstance(image, str | os.PathLike):
        try:
            return read_image(image)
        except ValueError as error:
            raise ValueError(
                f"images[{position}]={str(image)!r} cannot be read: {error}"
            ) from error
    if isinstance(image, Image.Image) and not image.mode.startswith(("I", "F")):
        return image.convert("RGB")
    if isinstance(image, Image.Image):
        received = f"an image of more than 8 bits a channel, mode {image.mode!r}"
    elif hasattr(image, "__array__"):
        image = np.asarray(image)
        if image.dtype == np.uint8 and image.ndim == 3 and image.shape[-1] == 3 and image.size:
            return Image.fromarray(image)
        received = f"{image.dtype} {image.shape}"
    else:
        received = type(image)
    raise ValueError(
        f"images[{position}] must be a PIL image, a path, or a uint8 array (height, width, 3). "
        f"Received: {received}"
    )


def _crop(pixels, axis, crop):
    """The middle of an axis, with zeros around it where it is shorter."""
    start = (pixels.shape[axis] - crop) // 2
    if start < 0:
        around = [(0, 0)] * pixels.ndim
        around[axis] = (-start, crop - pixels.shape[axis] + start)
        return np.pad(pixels, around)
    return np.take(pixels, range(start, start + crop), axis)


def _from_transformers(config, path):
    """The arguments in a dictionary that an image processor of transformers wrote."""

    def refuse(reason):
        return ValueError(f"{str(path)!r}: {reason}")

    name = config.get("image_processor_type") or config.get("feature_extractor_type")
    style = next((s for s in STYLES if name in [s + ending for ending in _ENDINGS]), None)
    if style is None:
        raise refuse(
            f"image_processor_type={name!r} is not known here; known are "
            f"{[s + _ENDINGS[0] for s in STYLES]}"
        )
    known = {*STYLES[style], *_IGNORED, "do_center_crop", "crop_size", "default_to_square"}
    unknown = sorted(k for k, v in config.items() if k not in known and v not in (None, False))
    if unknown:
        raise refuse(
            f"the fields {unknown} may change the pixels and cannot be done here: "
            f"{ {k: config[k] for k in unknown} }"
        )
    config = STYLES[style] | {k: v for k, v in config.items() if v is not None}
    arguments = {"scale": config["rescale_factor"] if config["do_rescale"] else 1}
    if config["do_normalize"]:
        arguments |= {"mean": config["image_mean"], "std": config["image_std"]}
    by_number = {number: filter_ for filter_, number in RESAMPLE.items()}
    if config["resample"] not in by_number:
        raise refuse(f"resample={config['resample']} is not one of {by_number}")
    arguments["interpolation"] = by_number[config["resample"]]
    crop = None
    if config.get("do_center_crop"):
        crop = config.get("crop_size")
        if isinstance(crop, dict) and set(crop) == {"height", "width"}:
            crop = (crop["height"], crop["width"])
        elif not isinstance(crop, int):
            raise refuse(f"crop_size={crop!r} is neither a number nor a height and a width")
    size = config["size"]
    if isinstance(size, int):
        square = config.get("default_to_square", style == "ViT")
        size = {"height": size, "width": size} if square else {"shortest_edge": size}
    if not isinstance(size, dict) or set(size) not in ({"shortest_edge"}, {"height", "width"}):
        raise refuse(f"size={size!r} is neither a shortest_edge nor a height and a width")
    if not config["do_resize"]:
        return arguments | {"image_size": None, "crop_size": crop}
    short = size.get("shortest_edge")
    if style != "ConvNext":
        exact = short is None
        image_size = (size["height"], size["width"]) if exact else short
        return arguments | {"image_size": image_size, "crop_size": crop}
    if short is None:
        raise refuse(f"size={size!r} has no shortest_edge, which {name} needs")
    if short >= 384:
        return arguments | {"image_size": (short, short), "crop_size": crop}
    if crop is not None and _pair(crop) != (short, short):
        raise refuse(f"crop_size={crop} crops what is cropped to {short} already")
    image_size = int(short / config["crop_pct"])
    return arguments | {"image_size": image_size, "crop_size": short}


def _from_timm(config, path):
    """The arguments in timm's description of a model's images."""
    _, height, width = config["input_size"]
    if height != width:
        raise ValueError(
            f"{str(path)!r}: input_size={config['input_size']} cannot be done here; squares can"
        )
    interpolation = config.get("interpolation", "bicubic")
    if interpolation not in TIMM_INTERPOLATION:
        raise ValueError(
            f"{str(path)!r}: interpolation={interpolation!r} is not one of "
            f"{list(TIMM_INTERPOLATION)}"
        )
    mode = config.get("crop_mode", "center")
    if mode not in ("center", "squash"):
        raise ValueError(f"{str(path)!r}: crop_mode={mode!r} is neither 'center' nor 'squash'")
    size = math.floor(height / config.get("crop_pct", 0.875))
    return {
        "image_size": size if mode == "center" else (size, size),
        "crop_size": height,
        "mean": config.get("mean", IMAGENET_MEAN),
        "std": config.get("std", IMAGENET_STD),
        "interpolation": TIMM_INTERPOLATION[interpolation],
    }
