"""Layers: one concept a file; they know only Keras."""

from kerasmodels.layers.attention import MultiHeadAttention
from kerasmodels.layers.embeddings import LogitBias, TokenEmbedding
from kerasmodels.layers.feed_forward import FeedForward
from kerasmodels.layers.masks import causal_mask, combine_masks, window_mask
from kerasmodels.layers.positions import PositionalEncoding, PositionEmbedding
from kerasmodels.layers.transformer import TransformerDecoderBlock, TransformerEncoderBlock

__all__ = [
    "FeedForward",
    "LogitBias",
    "MultiHeadAttention",
    "PositionEmbedding",
    "PositionalEncoding",
    "TokenEmbedding",
    "TransformerDecoderBlock",
    "TransformerEncoderBlock",
    "causal_mask",
    "combine_masks",
    "window_mask",
]
