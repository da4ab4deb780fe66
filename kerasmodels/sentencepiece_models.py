"""SentencePiece (Kudo and Richardson 2018): models of subword units, learned and read.

This file stands on the ground floor since two tokenizers share it that do not know one another:
`data.SentencePieceTokenizer`, and `checkpoints.MarianTokenizer`, which has a model for each side.
"""

from collections.abc import Iterable


def train_model(
    corpus: Iterable[str], vocabulary_size: int, character_coverage: float = 1.0, **special_ids: int
) -> bytes:
    """Learns a unigram model (Kudo 2018) from a corpus.

    Args:
        corpus: Strings, read once.
        vocabulary_size: The largest number of pieces. A small corpus may have fewer.
        character_coverage: The share of the corpus' characters that pieces can spell. The rest are
            unknown.
        **special_ids: The trainer's `pad_id`, `bos_id`, `eos_id` and `unk_id`.

    Returns:
        The content of a `.model` file. The same corpus gives the same bytes.

    Raises:
        ValueError: The corpus is a string, holds something else than strings, or no text at all,
            or `vocabulary_size` has no room for its characters.
        ImportError: sentencepiece is not installed.
    """
    if isinstance(corpus, str | bytes):
        raise ValueError(f"`corpus` must be a list of strings. Received: corpus={corpus!r}")
    texts = list(corpus)
    wrong = next((text for text in texts if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(f"`corpus` must hold strings. Received: {wrong!r}")
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError("`corpus` must hold text. Received: none (an iterator serves one pass)")
    if not 0 < character_coverage <= 1:
        raise ValueError(
            "`character_coverage` must be in (0, 1]. "
            f"Received: character_coverage={character_coverage}"
        )
    import io

    model = io.BytesIO()
    try:
        _package().SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=int(vocabulary_size),
            hard_vocab_limit=False,
            character_coverage=float(character_coverage),
            # The trainer would leave out longer texts without a word.
            max_sentence_length=max(4192, *(len(text.encode()) for text in texts)),
            num_threads=1,  # sums in another order would give other pieces
            minloglevel=2,
            **special_ids,
        )
    except RuntimeError as error:
        raise ValueError(
            "SentencePiece learned nothing from `corpus`; `vocabulary_size` must have room for its "
            f"characters. Received: vocabulary_size={vocabulary_size}. SentencePiece says: {error}"
        ) from error
    return model.getvalue()


def load_model(content: bytes):
    """Makes a `SentencePieceProcessor` of the content of a `.model` file.

    Args:
        content: Bytes.

    Returns:
        A `sentencepiece.SentencePieceProcessor`.

    Raises:
        ValueError: The bytes are no model.
        ImportError: sentencepiece is not installed.
    """
    processor = _package().SentencePieceProcessor()
    try:
        processor.load_from_serialized_proto(content)  # the constructor takes b"" for no model
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"A SentencePiece model must be the content of a `.model` file. Received: {error}"
        ) from error
    return processor


def _package():
    try:
        import sentencepiece
    except ImportError as error:
        raise ImportError(
            "This tokenizer needs sentencepiece: pip install 'kerasmodels[text]'."
        ) from error
    return sentencepiece
