"""Subword tokenizers: byte pairs, word pieces and SentencePiece models (the `[text]` extra).

The paper's vocabularies: 37,000 byte pairs shared by English and German, 32,000 word pieces for
English and French (Vaswani et al. 2017, section 5.1). The tokenizers here have the interface of
`Vocabulary`, run on any backend, and hold a keras-nlp layer in `layer`, for those who want it
inside a `tf.data` pipeline.
"""

import functools
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kerasmodels.data.codec import SPECIAL_TOKENS, TextCodec
from kerasmodels.sentencepiece_models import load_model, train_model

__all__ = ["BytePairTokenizer", "SentencePieceTokenizer", "WordPieceTokenizer"]

SUFFIX = "##"


def optional_package(name: str):
    """Imports a package of the `[text]` extra, which takes seconds and may not be there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"This tokenizer needs the package {name}: pip install 'kerasmodels[text]'."
        ) from error


class _SubwordTokenizer(TextCodec):
    """What the two tokenizers share: the special tokens, and the keras-nlp layer at work."""

    def __init__(self, tokens: Sequence[str]):
        super().__init__(tokens)
        if tuple(self.tokens[: len(SPECIAL_TOKENS)]) != SPECIAL_TOKENS:
            raise ValueError(
                f"`tokens` must begin with the special tokens {SPECIAL_TOKENS}. "
                f"Received: {self.tokens[: len(SPECIAL_TOKENS)]}."
            )

    def _encode_batch(self, texts):
        wrong = [text for text in texts if not isinstance(text, str)]
        if wrong:
            raise ValueError(f"A text must be a string. Received: {wrong[0]!r}.")
        return [list(ids) for ids in self.layer.tokenize(texts)]

    def _decode_batch(self, rows):
        return [str(text) for text in self.layer.detokenize(rows)]


class BytePairTokenizer(_SubwordTokenizer):
    """Byte pairs (Sennrich et al. 2016) over the bytes of UTF-8, as in GPT-2.

    The 256 bytes are always in the vocabulary: no text is unknown, and decoding what was encoded
    gives the text back exactly, white space included.

    Args:
        tokens: All tokens in the order of their ids; the first four are the special tokens.
        merges: The merge rules in their order, two tokens joined by a space.

    Attributes:
        tokens: All tokens in the order of their ids.
        merges: The merge rules.
        layer: The `keras_nlp.tokenizers.BytePairTokenizer` that does the work.
        vocabulary_size: The number of tokens.

    Raises:
        ValueError: `tokens` do not begin with the special tokens, or a merge rule names or makes
            a token that is not among them.
        ImportError: keras-nlp is not installed.

    Example:
    ```python
    from kerasmodels import data

    corpus = ["a rose is a rose", "roses are red"] * 10
    tokenizer = data.BytePairTokenizer.train(corpus, vocabulary_size=270)
    tokenizer.decode(tokenizer.encode("rosé  roses"))  # 'rosé  roses'
    ```
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[str]):
        super().__init__(tokens)
        self.merges = list(merges)
        known = set(self.tokens)
        for merge in self.merges:
            left, _, right = merge.partition(" ")
            if not {left, right, left + right} <= known:
                raise ValueError(
                    "A rule in `merges` must be two of `tokens` joined by a space, and their "
                    f"concatenation a token too. Received: {merge!r}."
                )
        self.layer = optional_package("keras_nlp").tokenizers.BytePairTokenizer(
            vocabulary={token: i for i, token in enumerate(self.tokens)}, merges=self.merges
        )

    @classmethod
    def train(cls, corpus: Iterable[str], vocabulary_size: int) -> "BytePairTokenizer":
        """Learns merge rules from a corpus.

        For one vocabulary on both sides, as the paper has it, train on sources and targets
        together.

        Args:
            corpus: Strings.
            vocabulary_size: The largest number of tokens, special tokens and the 256 bytes
                included. A small corpus may have fewer pairs to merge.

        Returns:
            A `BytePairTokenizer`. The same corpus gives the same ids.

        Raises:
            ValueError: `vocabulary_size` is below 260.
            ImportError: keras-nlp or tokenizers is not installed.
        """
        smallest = len(SPECIAL_TOKENS) + 256
        if vocabulary_size < smallest:
            raise ValueError(
                f"`vocabulary_size` must be at least {smallest}: 256 bytes and "
                f"{len(SPECIAL_TOKENS)} special tokens. Received: {vocabulary_size}."
            )
        hf = optional_package("tokenizers")
        trained = hf.Tokenizer(hf.models.BPE())
        trained.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
        trainer = hf.trainers.BpeTrainer(
            vocab_size=vocabulary_size - len(SPECIAL_TOKENS),
            initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        trained.train_from_iterator(strings(corpus), trainer)
        model = json.loads(trained.to_str())["model"]
        # No merge can spell "<s>": bytes of letters and of signs never stand in the same word.
        return cls(
            [*SPECIAL_TOKENS, *_by_id(model["vocab"])], [" ".join(pair) for pair in model["merges"]]
        )

    def _to_json(self):
        return {"tokens": self.tokens, "merges": self.merges}


class WordPieceTokenizer(_SubwordTokenizer):
    """Word pieces, as in BERT: text is split at white space and punctuation, words into pieces.

    A word is cut greedily, the longest piece first; a word that cannot be cut to its end is one
    unknown token. Decoding joins words by a space, so white space is not kept.

    Args:
        tokens: All tokens in the order of their ids; the first four are the special tokens, and
            pieces that continue a word begin with `##`.
        lowercase: Whether text is lower-cased (Unicode case folding) before it is split.

    Attributes:
        tokens: All tokens in the order of their ids.
        layer: The `keras_nlp.tokenizers.WordPieceTokenizer` that does the work.
        vocabulary_size: The number of tokens.

    Raises:
        ValueError: `tokens` do not begin with the special tokens.
        ImportError: keras-nlp is not installed.

    Example:
    ```python
    from kerasmodels import data

    tokenizer = data.WordPieceTokenizer(
        ["<pad>", "<s>", "</s>", "<unk>", "go", "un", "##do", "##ing"]
    )
    tokenizer.encode("undoing go undone")  # [5, 6, 7, 4, 3]
    tokenizer.decode([5, 6, 7, 4])  # 'undoing go'
    ```
    """

    def __init__(self, tokens: Sequence[str], lowercase: bool = False):
        super().__init__(tokens)
        self.lowercase = lowercase
        self.layer = optional_package("keras_nlp").tokenizers.WordPieceTokenizer(
            vocabulary=self.tokens,
            lowercase=lowercase,
            suffix_indicator=SUFFIX,
            oov_token=SPECIAL_TOKENS[self.unknown_id],
        )

    @classmethod
    def train(
        cls, corpus: Iterable[str], vocabulary_size: int, lowercase: bool = False
    ) -> "WordPieceTokenizer":
        """Learns word pieces from a corpus.

        Args:
            corpus: Strings.
            vocabulary_size: The largest number of tokens, special tokens included. A small
                corpus may have fewer pieces.
            lowercase: Whether text is lower-cased, here and in the tokenizer that is returned.

        Returns:
            A `WordPieceTokenizer`. The same corpus gives the same ids.

        Raises:
            ValueError: `vocabulary_size` has no room for the characters of the corpus.
            ImportError: keras-nlp or tokenizers is not installed.
        """
        normalizers = optional_package("tokenizers").normalizers
        clean = normalizers.BertNormalizer(strip_accents=False, lowercase=False)
        texts = [
            clean.normalize_str(text.casefold() if lowercase else text) for text in strings(corpus)
        ]
        return cls(train_word_pieces(texts, vocabulary_size, SPECIAL_TOKENS), lowercase)

    def _to_json(self):
        return {"tokens": self.tokens, "lowercase": self.lowercase}


class SentencePieceTokenizer(TextCodec):
    """Subword units of a SentencePiece model (Kudo and Richardson 2018).

    Text needs no splitting into words: white space is a character like others. A `.model` file of
    any program that uses SentencePiece can be read, and every such program reads what `save`
    writes.

    The model says which ids pad, start and end. What it lacks is added behind its last piece: many
    models have no padding.

    Args:
        model: The content of a `.model` file. `load` reads a file, and `train` learns one.

    Attributes:
        tokens: All pieces in the order of their ids.
        model: The content of the `.model` file.
        processor: The `sentencepiece.SentencePieceProcessor` that does the work.
        vocabulary_size: The number of tokens.

    Raises:
        ValueError: The bytes are no model.
        ImportError: sentencepiece is not installed.

    Example:
    ```python
    from kerasmodels import data

    corpus = ["a rose is a rose", "roses are red"] * 10
    tokenizer = data.SentencePieceTokenizer.train(corpus, vocabulary_size=40)
    tokenizer.decode(tokenizer.encode("roses are roses"))  # 'roses are roses'
    tokenizer.save("roses.model")
    tokenizer = data.SentencePieceTokenizer.load("roses.model")
    ```
    """

    def __init__(self, model: bytes):
        self.model = bytes(model)
        self.processor = load_model(self.model)
        size = self.processor.get_piece_size()
        tokens = [self.processor.id_to_piece(index) for index in range(size)]
        self.unknown_id = self.processor.unk_id()
        for name, token in (("pad_id", "<pad>"), ("start_id", "<s>"), ("end_id", "</s>")):
            index = getattr(self.processor, name.replace("start", "bos").replace("end", "eos"))()
            if index < 0:
                index = len(tokens)
                tokens.append(token)
            setattr(self, name, index)
        super().__init__(tokens)

    @functools.cached_property
    def layer(self):
        """The `keras_nlp.tokenizers.SentencePieceTokenizer` of the model, for `tf.data`."""
        return optional_package("keras_nlp").tokenizers.SentencePieceTokenizer(proto=self.model)

    @classmethod
    def train(
        cls, corpus: Iterable[str], vocabulary_size: int, character_coverage: float = 1.0
    ) -> "SentencePieceTokenizer":
        """Learns a unigram model (Kudo 2018) from a corpus.

        For one vocabulary on both sides of a translation model, train on sources and targets
        together.

        Args:
            corpus: Strings.
            vocabulary_size: The largest number of tokens, special tokens included. A small corpus
                may have fewer.
            character_coverage: The share of the corpus' characters that pieces can spell; 0.9995
                is usual for languages with thousands of characters. The rest are unknown.

        Returns:
            A `SentencePieceTokenizer` with padding 0, start 1, end 2 and unknown 3. The same corpus
            gives the same ids.

        Raises:
            ValueError: The corpus holds no text, or `vocabulary_size` has no room for its
                characters.
            ImportError: sentencepiece is not installed.
        """
        ids = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
        return cls(train_model(strings(corpus), vocabulary_size, character_coverage, **ids))

    @classmethod
    def load(cls, path: str | Path) -> "SentencePieceTokenizer":
        """Reads a `.model` file, which `save`, SentencePiece or another program wrote.

        Args:
            path: The file.

        Returns:
            A `SentencePieceTokenizer`.

        Raises:
            ValueError: The file is no model.
            FileNotFoundError: There is no such file.
        """
        try:
            return cls(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(
                f"`path` must be a SentencePiece model. Received: path={str(path)!r}. {error}"
            ) from error

    def _encode_batch(self, texts):
        for text in strings(texts):
            if "\0" in text:
                raise ValueError(f"SentencePiece takes no text with a zero byte: {text!r}.")
        return self.processor.encode(texts)

    def _decode_batch(self, rows):
        last = self.processor.get_piece_size()
        return [self.processor.decode([i for i in row if i < last]) for row in rows]

    def _to_bytes(self):
        return self.model


def train_word_pieces(
    texts: Sequence[str], vocabulary_size: int, special_tokens: Iterable[str]
) -> list[str]:
    """Learns word pieces from texts that are normalized already: the special tokens come first."""
    hf = optional_package("tokenizers")
    special_tokens = list(special_tokens)
    split = hf.pre_tokenizers.BertPreTokenizer()
    words = {word for text in texts for word, _ in split.pre_tokenize_str(text)}
    if not words:
        raise ValueError("`corpus` must hold text. Received: none (an iterator serves one pass).")
    # A word that was never met may begin with any of these.
    characters = {character for word in words for character in word}
    # The trainer would number these in an order that differs from run to run, and break ties
    # by number: given here, the same corpus gives the same pieces.
    later = sorted({SUFFIX + character for word in words for character in word[1:]})
    smallest = len(special_tokens) + len(characters) + len(later)
    if vocabulary_size < smallest:
        raise ValueError(
            f"`vocabulary_size` must be at least {smallest}, the special tokens and the characters "
            "of the corpus, once where they begin a word and once where they continue one. "
            f"Received: {vocabulary_size}."
        )
    trained = hf.Tokenizer(hf.models.WordPiece())
    trained.pre_tokenizer = split
    trainer = hf.trainers.WordPieceTrainer(
        vocab_size=vocabulary_size - len(special_tokens),
        special_tokens=later,
        initial_alphabet=sorted(characters),
        continuing_subword_prefix=SUFFIX,
        show_progress=False,
    )
    trained.train_from_iterator(texts, trainer)
    return [*special_tokens, *_by_id(trained.get_vocab())]


def strings(corpus: Iterable[str]):
    """Yields the texts of a corpus, and refuses what is none."""
    if isinstance(corpus, str | bytes | Mapping | set | frozenset):
        raise ValueError(f"`corpus` must be a list of strings. Received: {corpus!r}.")
    for text in corpus:
        if not isinstance(text, str):
            raise ValueError(f"`corpus` must hold strings. Received: {text!r}.")
        refuse_surrogates(text)
        yield text


def refuse_surrogates(text: str) -> None:
    """Refuses a text that holds half a character, which no file and no tokenizer can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"A text holds half a character (a surrogate): {text!r}.") from error


def _by_id(ids: dict[str, int]) -> list[str]:
    return sorted(ids, key=ids.get)
