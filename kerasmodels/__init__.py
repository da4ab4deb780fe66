"""The architectures everybody learns from, each as its paper trained it, on Keras 3."""

from kerasmodels import (
    checkpoints,
    data,
    decoding,
    distribution,
    export,
    layers,
    models,
    plots,
    training,
)

__version__ = "0.1.0"
__all__ = [
    "checkpoints",
    "data",
    "decoding",
    "distribution",
    "export",
    "layers",
    "models",
    "plots",
    "training",
]
