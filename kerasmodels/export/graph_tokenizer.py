"""BERT's tokenizer as operations of TensorFlow: the ids that `data.BertTokenizer` gives.

tensorflow-text cuts words into pieces exactly as BERT does, but its normalization of text differs
in case and accents of rare characters, in what is punctuation, and around control characters. Here
that part is a table of what the tokenizer's own engine makes of each character. Nothing that BERT
does to text looks at neighbours, but for the order of combining marks, and of these all but a dozen
are taken away with the accents.
"""

import re

import numpy as np

_KEPT, _ALONE = 0, 1  # a character stays as it is; or becomes a word of its own
_PAGE = 256
# Splits parts of a text. The engine drops it like any control character, so another of them can
# stand for it in texts.
_MARK, _DROPPED = "\x01", "\x02"


def graph_tokenizer(tokenizer):
    """A function that turns texts into ids inside a TensorFlow graph.

    Args:
        tokenizer: A `data.BertTokenizer`.

    Returns:
        A function of a string tensor `(batch,)`, UTF-8, to an int32 `tf.RaggedTensor`
        `(batch, pieces)`, without special tokens around a text and of any length.

    Raises:
        ImportError: If tensorflow-text is not installed.
    """
    try:
        import tensorflow_text as tf_text
    except ImportError as error:
        raise ImportError(
            "Text inside a TensorFlow graph needs the package tensorflow-text: "
            "pip install 'kerasmodels[text]'"
        ) from error
    import tensorflow as tf

    pages, numbers, strings = (tf.constant(part) for part in character_table(tokenizer.engine))
    longest_word = tokenizer.engine.model.max_input_chars_per_word
    unknown = tokenizer.special_tokens["unk"]
    special = sorted(tokenizer.special_tokens.values(), key=len, reverse=True)  # longest first
    pattern = "|".join(map(re.escape, special))
    pieces = tf_text.FastWordpieceTokenizer(
        tokenizer.tokens,
        max_bytes_per_word=4 * longest_word,
        token_out_type=tf.int32,
        unknown_token=unknown,
        no_pretokenization=True,
    )

    def words_of(texts):  # (texts,) -> ragged (texts, words)
        codes = tf.strings.unicode_decode(texts, "UTF-8")  # ragged (texts, characters)
        code = codes.flat_values
        character = tf.strings.unicode_encode(code[:, None], "UTF-8")
        number = tf.gather_nd(numbers, tf.stack([tf.gather(pages, code // _PAGE), code % _PAGE], 1))
        text = tf.where(number == _KEPT, character, tf.gather(strings, number))
        text = tf.where(number == _ALONE, " " + character + " ", text)
        words = tf.strings.split(tf.strings.reduce_join(codes.with_flat_values(text), axis=1))
        word = words.flat_values
        too_long = tf.strings.length(word, "UTF8_CHAR") > longest_word
        return words.with_flat_values(tf.where(too_long, unknown, word))

    def words_and_special_tokens_of(texts):
        texts = tf.strings.regex_replace(texts, _MARK, _DROPPED)
        texts = tf.strings.regex_replace(texts, f"({pattern})", rf"{_MARK}\1{_MARK}")
        parts = tf.strings.split(texts, _MARK)  # ragged (texts, parts)
        part = parts.flat_values
        is_special = tf.reduce_any(part[:, None] == tf.constant(special), axis=1)
        # One of the two has nothing in each row.
        words = words_of(tf.where(is_special, "", part))
        tokens = tf.RaggedTensor.from_row_lengths(part[is_special], tf.cast(is_special, tf.int64))
        words = tf.concat([words, tokens], axis=1)
        return parts.with_flat_values(words).merge_dims(1, 2)

    def tokenize(texts):
        split = words_and_special_tokens_of if tokenizer.special_tokens_in_text else words_of
        return pieces.tokenize(split(texts)).merge_dims(1, 2)

    return tokenize


def character_table(engine):
    """What each character becomes before text is split at spaces.

    Args:
        engine: A `tokenizers.Tokenizer` with BERT's normalizer and pre-tokenizer.

    Returns:
        `(pages, numbers, strings)`: the number of a character is
        `numbers[pages[code // 256], code % 256]`; 0 says that it stays, 1 that it becomes a word of
        its own, and others that it becomes `strings[number]`.
    """
    # Between all characters stands one that nothing changes and nothing changes into; a call each
    # would take seconds. Planes 4 to 13 have no characters: what is there stays.
    fence = "°"
    codes = [*range(0xD800), *range(0xE000, 0x40000), *range(0xE0000, 0x110000)]
    codes.remove(ord(fence))
    normalized = engine.normalizer.normalize_str(fence.join(map(chr, codes)))
    rest = "a".join(character for character in set(normalized) if not character.isalnum())
    words = {word for word, _ in engine.pre_tokenizer.pre_tokenize_str(f"a{rest}a")}
    punctuation = {word for word in words if len(word) == 1} - {"a"}
    normalized = normalized.translate({ord(mark): f" {mark} " for mark in punctuation})
    table, known = np.zeros(0x110000, "int32"), {}
    for code, text in zip(codes, normalized.split(fence), strict=True):
        character = chr(code)
        if text == f" {character} ":
            table[code] = _ALONE
        elif text != character:
            table[code] = known.setdefault(text, len(known) + 2)
    numbers, pages = np.unique(table.reshape(-1, _PAGE), axis=0, return_inverse=True)
    return pages.reshape(-1).astype("int32"), numbers, ["", "", *known]
