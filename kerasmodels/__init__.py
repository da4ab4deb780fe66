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
from kerasmodels.cost import LayerCost, ModelCost, model_cost
from kerasmodels.two_sample import TwoSampleResult, two_sample_test

__version__ = "0.1.0"
__all__ = [
    "LayerCost",
    "ModelCost",
    "TwoSampleResult",
    "checkpoints",
    "data",
    "decoding",
    "distribution",
    "export",
    "layers",
    "model_cost",
    "models",
    "plots",
    "training",
    "two_sample_test",
]
