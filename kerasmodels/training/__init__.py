"""How a model learns: losses, schedules, metrics, callbacks. Knows no model."""

from kerasmodels.training.accumulation import GradientAccumulation
from kerasmodels.training.adversarial import (
    JensenShannon,
    ValueFunction,
    binary_discriminator_loss,
    gradient_penalty,
    jensen_shannon,
    least_squares_discriminator_loss,
    least_squares_generator_loss,
    minimax_generator_loss,
    non_saturating_generator_loss,
    value_function,
    wasserstein_discriminator_loss,
    wasserstein_generator_loss,
)
from kerasmodels.training.averaging import KeepLastCheckpoints, average_checkpoints
from kerasmodels.training.callbacks import GenerationCallback
from kerasmodels.training.fit_on_replicas import FitOnReplicas
from kerasmodels.training.gradients import value_and_grad
from kerasmodels.training.losses import SmoothedCrossEntropy
from kerasmodels.training.metrics import MaskedAccuracy, Perplexity, TokenLoss
from kerasmodels.training.non_finite import NonFiniteGuard
from kerasmodels.training.optimizers import SGD, AdamW
from kerasmodels.training.portable import PortableModel
from kerasmodels.training.samples import SampleGrid, tile_images
from kerasmodels.training.schedules import LinearCooldown, WarmupInverseSqrt, WarmupLinear
from kerasmodels.training.text_metrics import Bleu, ErrorRate

__all__ = [
    "SGD",
    "AdamW",
    "Bleu",
    "ErrorRate",
    "FitOnReplicas",
    "GenerationCallback",
    "GradientAccumulation",
    "JensenShannon",
    "KeepLastCheckpoints",
    "LinearCooldown",
    "MaskedAccuracy",
    "NonFiniteGuard",
    "Perplexity",
    "PortableModel",
    "SampleGrid",
    "SmoothedCrossEntropy",
    "TokenLoss",
    "ValueFunction",
    "WarmupInverseSqrt",
    "WarmupLinear",
    "average_checkpoints",
    "binary_discriminator_loss",
    "gradient_penalty",
    "jensen_shannon",
    "least_squares_discriminator_loss",
    "least_squares_generator_loss",
    "minimax_generator_loss",
    "non_saturating_generator_loss",
    "tile_images",
    "value_and_grad",
    "value_function",
    "wasserstein_discriminator_loss",
    "wasserstein_generator_loss",
]
