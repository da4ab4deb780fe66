"""Layers: one concept a file; they know only Keras."""

from kerasmodels.layers.attention import MultiHeadAttention
from kerasmodels.layers.augmentation import RandomPadCrop
from kerasmodels.layers.batch_normalization import BatchNormalization
from kerasmodels.layers.convolution import Conv2D, Conv2DTranspose
from kerasmodels.layers.dense import Dense
from kerasmodels.layers.embeddings import LogitBias, SegmentEmbedding, TokenEmbedding
from kerasmodels.layers.feed_forward import FeedForward, gelu_tanh
from kerasmodels.layers.image_preprocessing import ImagePreprocessing
from kerasmodels.layers.layer_normalization import LayerNormalization
from kerasmodels.layers.masks import causal_mask, combine_masks, window_mask
from kerasmodels.layers.maxout import Maxout
from kerasmodels.layers.patches import ClassToken, PatchEmbedding
from kerasmodels.layers.pixel_shuffle import PixelShuffle
from kerasmodels.layers.pooling import MaskedAveragePooling, SymmetricMaxPooling2D
from kerasmodels.layers.positions import GatherPositions, PositionalEncoding, PositionEmbedding
from kerasmodels.layers.projection import LabelProjection, SpanProjection
from kerasmodels.layers.residual import BasicBlock, BottleneckBlock
from kerasmodels.layers.transformer import TransformerDecoderBlock, TransformerEncoderBlock

__all__ = [
    "BasicBlock",
    "BatchNormalization",
    "BottleneckBlock",
    "ClassToken",
    "Conv2D",
    "Conv2DTranspose",
    "Dense",
    "FeedForward",
    "GatherPositions",
    "ImagePreprocessing",
    "LabelProjection",
    "LayerNormalization",
    "LogitBias",
    "MaskedAveragePooling",
    "Maxout",
    "MultiHeadAttention",
    "PatchEmbedding",
    "PixelShuffle",
    "PositionEmbedding",
    "PositionalEncoding",
    "RandomPadCrop",
    "SegmentEmbedding",
    "SpanProjection",
    "SymmetricMaxPooling2D",
    "TokenEmbedding",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "causal_mask",
    "combine_masks",
    "gelu_tanh",
    "window_mask",
]
