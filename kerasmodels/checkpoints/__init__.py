"""The engine that reads and writes checkpoints, and one key table a model family."""

from kerasmodels.checkpoints import marian, resnet
from kerasmodels.checkpoints.image_processor import ImageProcessor
from kerasmodels.checkpoints.keys import Key, KeyTable, read_weights, weights_for_file
from kerasmodels.checkpoints.marian_text import MarianTokenizer
from kerasmodels.checkpoints.presets import Family, Layout, load_preset, save_preset

__all__ = [
    "Family",
    "ImageProcessor",
    "Key",
    "KeyTable",
    "Layout",
    "MarianTokenizer",
    "load_preset",
    "marian",
    "read_weights",
    "resnet",
    "save_preset",
    "weights_for_file",
]
