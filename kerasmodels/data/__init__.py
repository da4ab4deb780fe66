"""Arrays and text in, batches out; plain numpy, the same on every backend."""

from kerasmodels.data.batches import BucketedPairs
from kerasmodels.data.bert_tokenizer import BertTokenizer
from kerasmodels.data.images import ImageFolder, load_cifar10, load_cifar100, stratified_split
from kerasmodels.data.masking import MaskedLM
from kerasmodels.data.pairs import read_parallel, read_tsv
from kerasmodels.data.pretraining import PretrainingData
from kerasmodels.data.question_windows import (
    FoundAnswer,
    QuestionWindows,
    encode_questions,
    find_answers,
)
from kerasmodels.data.questions import Answer, Question, answer_scores, read_squad
from kerasmodels.data.sentence_pairs import SentencePair, SentencePairs, read_documents
from kerasmodels.data.shards import PairArrays, read_shards, write_shards
from kerasmodels.data.token_labels import (
    LabeledTokens,
    entity_scores,
    entity_spans,
    label_tokens,
    read_conll,
    tags_of_words,
)
from kerasmodels.data.tokenizers import (
    BytePairTokenizer,
    SentencePieceTokenizer,
    WordPieceTokenizer,
)
from kerasmodels.data.vocabulary import Vocabulary

__all__ = [
    "Answer",
    "BertTokenizer",
    "BucketedPairs",
    "BytePairTokenizer",
    "FoundAnswer",
    "ImageFolder",
    "LabeledTokens",
    "MaskedLM",
    "PairArrays",
    "PretrainingData",
    "Question",
    "QuestionWindows",
    "SentencePair",
    "SentencePairs",
    "SentencePieceTokenizer",
    "Vocabulary",
    "WordPieceTokenizer",
    "answer_scores",
    "encode_questions",
    "entity_scores",
    "entity_spans",
    "find_answers",
    "label_tokens",
    "load_cifar10",
    "load_cifar100",
    "read_conll",
    "read_documents",
    "read_parallel",
    "read_shards",
    "read_squad",
    "read_tsv",
    "stratified_split",
    "tags_of_words",
    "write_shards",
]
