"""The engine that reads and writes checkpoints, and one key table a model family."""

from kerasmodels.checkpoints import bert, marian, resnet, sentence_transformers
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
    "bert",
    "load_preset",
    "marian",
    "read_weights",
    "resnet",
    "save_preset",
    "sentence_transformers",
    "weights_for_file",
]
