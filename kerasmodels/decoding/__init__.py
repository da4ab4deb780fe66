"""How a sequence is searched: any decoder with `start` and `step`, no model in particular."""

from kerasmodels.decoding.beam import BeamSearch
from kerasmodels.decoding.generate import generate, generate_tensors
from kerasmodels.decoding.search import GreedySearch, Sampling, Search
from kerasmodels.token_rules import TokenRules

__all__ = [
    "BeamSearch",
    "GreedySearch",
    "Sampling",
    "Search",
    "TokenRules",
    "generate",
    "generate_tensors",
]
