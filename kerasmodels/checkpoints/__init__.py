"""The engine that reads and writes checkpoints, and one key table a model family."""

from kerasmodels.checkpoints import marian
from kerasmodels.checkpoints.keys import Key, KeyTable, read_weights, weights_for_file
from kerasmodels.checkpoints.marian_text import MarianTokenizer
from kerasmodels.checkpoints.presets import Family, load_preset, save_preset

__all__ = [
    "Family",
    "Key",
    "KeyTable",
    "MarianTokenizer",
    "load_preset",
    "marian",
    "read_weights",
    "save_preset",
    "weights_for_file",
]
