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
from kerasmodels.two_sample import TwoSampleResult, two_sample_test

__version__ = "0.1.0"
__all__ = [
    "TwoSampleResult",
    "checkpoints",
    "data",
    "decoding",
    "distribution",
    "export",
    "layers",
    "models",
    "plots",
    "training",
    "two_sample_test",
]
