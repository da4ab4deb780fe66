"""Models: one paper a file."""

from kerasmodels.models.transformer import Transformer

__all__ = ["Transformer"]
