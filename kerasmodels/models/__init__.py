"""Models: one paper a file."""

from kerasmodels.models.bert import Bert
from kerasmodels.models.bert_heads import (
    BertClassifier,
    BertPretraining,
    BertSpanClassifier,
    BertTokenClassifier,
)
from kerasmodels.models.dcgan import dcgan_discriminator, dcgan_generator
from kerasmodels.models.gan import GAN
from kerasmodels.models.mlp_gan import maxout_discriminator, mlp_generator
from kerasmodels.models.resnet import ResNet
from kerasmodels.models.sentence_encoder import BertSentenceEncoder
from kerasmodels.models.transformer import Transformer
from kerasmodels.models.transgan import transgan_discriminator, transgan_generator

__all__ = [
    "GAN",
    "Bert",
    "BertClassifier",
    "BertPretraining",
    "BertSentenceEncoder",
    "BertSpanClassifier",
    "BertTokenClassifier",
    "ResNet",
    "Transformer",
    "dcgan_discriminator",
    "dcgan_generator",
    "maxout_discriminator",
    "mlp_generator",
    "transgan_discriminator",
    "transgan_generator",
]
