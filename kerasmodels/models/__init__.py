"""Models: one paper a file."""

from kerasmodels.models.dcgan import dcgan_discriminator, dcgan_generator
from kerasmodels.models.gan import GAN
from kerasmodels.models.mlp_gan import maxout_discriminator, mlp_generator
from kerasmodels.models.resnet import ResNet
from kerasmodels.models.transformer import Transformer
from kerasmodels.models.transgan import transgan_discriminator, transgan_generator

__all__ = [
    "GAN",
    "ResNet",
    "Transformer",
    "dcgan_discriminator",
    "dcgan_generator",
    "maxout_discriminator",
    "mlp_generator",
    "transgan_discriminator",
    "transgan_generator",
]
