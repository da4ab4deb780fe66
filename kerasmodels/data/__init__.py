"""Arrays and text in, batches out; plain numpy, the same on every backend."""

from kerasmodels.data.batches import BucketedPairs
from kerasmodels.data.pairs import read_parallel, read_tsv
from kerasmodels.data.tokenizers import BytePairTokenizer, WordPieceTokenizer
from kerasmodels.data.vocabulary import Vocabulary

__all__ = [
    "BucketedPairs",
    "BytePairTokenizer",
    "Vocabulary",
    "WordPieceTokenizer",
    "read_parallel",
    "read_tsv",
]
