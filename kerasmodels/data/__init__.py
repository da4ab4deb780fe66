"""Arrays and text in, batches out; plain numpy, the same on every backend."""

from kerasmodels.data.batches import BucketedPairs
from kerasmodels.data.images import ImageFolder, load_cifar10, load_cifar100, stratified_split
from kerasmodels.data.pairs import read_parallel, read_tsv
from kerasmodels.data.tokenizers import BytePairTokenizer, WordPieceTokenizer
from kerasmodels.data.vocabulary import Vocabulary

__all__ = [
    "BucketedPairs",
    "BytePairTokenizer",
    "ImageFolder",
    "Vocabulary",
    "WordPieceTokenizer",
    "load_cifar10",
    "load_cifar100",
    "read_parallel",
    "read_tsv",
    "stratified_split",
]
