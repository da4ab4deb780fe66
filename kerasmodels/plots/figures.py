"""What all the pictures need."""

import functools
import io

import keras
import numpy as np


def to_numpy(values):
    """Numbers or a tensor of any backend as a float32 array."""
    if not isinstance(values, (list, tuple)):
        values = keras.ops.convert_to_numpy(values)
    return np.asarray(values, dtype="float32")


def new_figure(size):
    """A figure that pyplot knows nothing of, and that a notebook shows nevertheless."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=130, layout="constrained")
    figure._repr_png_ = functools.partial(_png, figure)
    return figure


def _png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()
