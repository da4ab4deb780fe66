import copy
import importlib
import io
import pickle

import numpy as np
import pytest
import sentencepiece

from kerasmodels import data

CORPUS = [
    "the lower house lowered the newest rates",
    "newer widths are the widest, wider than the lowest!",
    "low, lower, lowest; new, newer, newest; wide, wider, widest",
] * 5
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]


@pytest.fixture(scope="module")
def byte_pairs():
    return data.BytePairTokenizer.train(CORPUS, vocabulary_size=300)


@pytest.fixture(scope="module")
def word_pieces():
    return data.WordPieceTokenizer.train(CORPUS, vocabulary_size=60)


def apply_merges(word, merges):
    """Byte pairs straight from the paper: the earliest rule first, at every place."""
    pieces = list(word)
    for left, right in (merge.split(" ") for merge in merges):
        i = 0
        while i < len(pieces) - 1:
            if (pieces[i], pieces[i + 1]) == (left, right):
                pieces[i : i + 2] = [left + right]
            i += 1
    return pieces


def longest_first(word, tokens):
    """Word pieces straight from BERT: greedy, one uncovered rest makes the word unknown."""
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in tokens:
                break
        else:
            return ["<unk>"]
        pieces.append(piece)
        start = end
    return pieces


def test_byte_pairs_follow_their_merges(byte_pairs):
    assert byte_pairs.tokens[:4] == SPECIAL
    assert byte_pairs.vocabulary_size == len(byte_pairs.tokens) == 300
    assert len(byte_pairs.merges) == 300 - 260
    for text in ("lower", "widest", "newlowest", "thenewer", "zebra"):
        expected = apply_merges(text, byte_pairs.merges)
        assert [byte_pairs.tokens[i] for i in byte_pairs.encode(text)] == expected


def test_byte_pairs_give_any_text_back(byte_pairs):
    texts = [*CORPUS, "  two  spaces\tand\nlines ", "ça va ? 你好 🙂", "<s> </s><pad><unk>", ""]
    ids = byte_pairs.encode_batch(texts, add_end=True)
    assert byte_pairs.decode_batch(ids) == texts
    assert all(row[-1] == 2 and min(row[:-1], default=4) >= 4 for row in ids)
    assert byte_pairs.decode([1, *ids[0], 0, 0]) == texts[0]


def test_word_pieces_are_greedy(word_pieces):
    assert word_pieces.tokens[:4] == SPECIAL and word_pieces.vocabulary_size <= 60
    for word in ("lower", "widest", "newlowest", "thenewer", "zebra", ",", "hhhh"):
        expected = longest_first(word, word_pieces.tokens)
        assert [word_pieces.tokens[i] for i in word_pieces.encode(word)] == expected
    assert word_pieces.encode("lower house") == [
        *word_pieces.encode("lower"),
        *word_pieces.encode("house"),
    ]
    assert word_pieces.decode(word_pieces.encode("the lowest  house", add_end=True)) == (
        "the lowest house"
    )
    assert all(i >= 3 for i in word_pieces.encode("<s> low </s> <pad>"))


def test_one_bad_piece_makes_the_whole_word_unknown():
    # case C21
    tokenizer = data.WordPieceTokenizer([*SPECIAL, "go", "un", "##do", "##ing", "te", "x", "##a"])
    texts = ["undoing", "undoingx", "texa", "te xa", "", "   "]
    expected = [[5, 6, 7], [3], [3], [8, 9, 10], [], []]
    assert tokenizer.encode_batch(texts) == expected
    assert tokenizer.decode([5, 6, 7, 3, 4]) == "undoing <unk> go"


@pytest.fixture(scope="module")
def sentence_pieces():
    return data.SentencePieceTokenizer.train(CORPUS, vocabulary_size=60)


def test_sentence_pieces_are_those_of_the_package(sentence_pieces, tmp_path):
    assert sentence_pieces.tokens[:4] == SPECIAL and 30 < len(sentence_pieces) <= 60
    sentence_pieces.save(tmp_path / "pieces.model")
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "pieces.model"))
    texts = [*CORPUS, "", "  two  spaces ", "zebra", "</s> low <pad>"]
    ids = sentence_pieces.encode_batch(texts)
    assert ids == theirs.encode(texts)
    assert [int(i) for i in sentence_pieces.layer(CORPUS[0])] == ids[0]
    assert sentence_pieces.decode_batch(ids) == theirs.decode(ids)
    assert sentence_pieces.decode([1, *ids[0], 2, 0, 5]) == CORPUS[0]
    assert all(min(row, default=3) >= 3 for row in ids), "text never spells a special token"
    loaded = data.SentencePieceTokenizer.load(tmp_path / "pieces.model")
    for twin in (loaded, copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert twin.tokens == sentence_pieces.tokens and twin.encode_batch(texts) == ids
    assert data.SentencePieceTokenizer.train(CORPUS, 60).model == sentence_pieces.model


def test_a_model_of_another_program_keeps_its_ids():
    """Its trainer's defaults: unknown 0, start 1, end 2, and no padding."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=60, hard_vocab_limit=False
    )
    tokenizer = data.SentencePieceTokenizer(model.getvalue())
    size = tokenizer.processor.get_piece_size()
    ids = tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
    assert ids == (0, 1, 2, size) and tokenizer.vocabulary_size == size + 1
    row = tokenizer.encode(CORPUS[0], add_end=True)
    assert row == [*tokenizer.processor.encode(CORPUS[0]), 2]
    assert tokenizer.decode([1, *row, size, size]) == CORPUS[0]


def test_a_long_text_and_rare_characters_are_learned():
    """SentencePiece's trainer would leave out both without a word."""
    tokenizer = data.SentencePieceTokenizer.train(["low " * 2000 + "q"], vocabulary_size=20)
    assert tokenizer.unknown_id not in tokenizer.encode("q")


def test_ids_of_every_rank_are_decoded(byte_pairs, word_pieces, sentence_pieces):
    characters = data.Vocabulary.build(CORPUS)
    for tokenizer in (byte_pairs, word_pieces, sentence_pieces, characters):
        rows = tokenizer.encode_batch(["low", "lower", "newer", ""], add_end=True)
        ids = np.full((4, max(map(len, rows))), tokenizer.pad_id)
        for row, found in zip(ids, rows, strict=True):
            row[: len(found)] = found
        texts = ["low", "lower", "newer", ""]
        assert [tokenizer.decode(row) for row in ids] == texts
        for batch in (ids, rows):
            assert tokenizer.decode(batch) == tokenizer.decode_batch(batch) == texts
        assert tokenizer.decode_batch(iter(rows)) == texts
        nested = [texts[:2], texts[2:]]
        for hypotheses in (ids.reshape(2, 2, -1), [rows[:2], rows[2:]]):
            assert tokenizer.decode(hypotheses) == tokenizer.decode_batch(hypotheses) == nested
        assert tokenizer.decode([]) == "" and tokenizer.decode_batch([]) == []
        for numbers in ([1, 2], 3):
            with pytest.raises(ValueError, match="rows of integers"):
                tokenizer.decode_batch(numbers)


def test_lowercase(word_pieces):
    folded = data.WordPieceTokenizer.train(
        [t.upper() for t in CORPUS], vocabulary_size=60, lowercase=True
    )
    assert folded.tokens == word_pieces.tokens
    assert folded.encode("LOWER") == word_pieces.encode("lower")
    assert word_pieces.encode("LOWER") == [3]


def test_training_repeats(byte_pairs, word_pieces):
    assert data.BytePairTokenizer.train(CORPUS, 300).tokens == byte_pairs.tokens
    assert data.WordPieceTokenizer.train(CORPUS, 60).tokens == word_pieces.tokens


def test_save_and_load(tmp_path, byte_pairs, word_pieces):
    byte_pairs.save(tmp_path / "pairs.json")
    loaded = data.BytePairTokenizer.load(tmp_path / "pairs.json")
    assert loaded.encode_batch(CORPUS) == byte_pairs.encode_batch(CORPUS)
    folded = data.WordPieceTokenizer(word_pieces.tokens, lowercase=True)
    folded.save(tmp_path / "pieces.json")
    loaded = data.WordPieceTokenizer.load(tmp_path / "pieces.json")
    assert loaded.encode("The LOWEST") == word_pieces.encode("the lowest")
    with pytest.raises(ValueError, match="written by `WordPieceTokenizer`"):
        data.BytePairTokenizer.load(tmp_path / "pieces.json")


@pytest.mark.parametrize("corpus", ["text", [7], [" "], []])
def test_a_corpus_of_sentence_pieces_is_a_list_of_texts(corpus):
    with pytest.raises(ValueError, match="`corpus` must"):
        data.SentencePieceTokenizer.train(corpus, 60)


def test_bad_sentence_pieces(sentence_pieces, tmp_path):
    with pytest.raises(ValueError, match="vocabulary_size=5"):
        data.SentencePieceTokenizer.train(CORPUS, 5)
    with pytest.raises(ValueError, match="character_coverage=2"):
        data.SentencePieceTokenizer.train(CORPUS, 60, character_coverage=2)
    for content in (b"", b"no model"):
        (tmp_path / "broken.model").write_bytes(content)
        with pytest.raises(ValueError, match="broken.model"):
            data.SentencePieceTokenizer.load(tmp_path / "broken.model")
    with pytest.raises(FileNotFoundError):
        data.SentencePieceTokenizer.load(tmp_path / "none.model")
    with pytest.raises(ValueError, match="hold strings.*7"):
        sentence_pieces.encode(7)


def test_bad_input(byte_pairs, word_pieces):
    for tokenizer in (byte_pairs, word_pieces):
        with pytest.raises(ValueError, match=rf"\[0, {len(tokenizer)}\)"):
            tokenizer.decode([4, len(tokenizer)])
        with pytest.raises(ValueError, match="must be a string.*7"):
            tokenizer.encode(7)
    with pytest.raises(ValueError, match="at least 260"):
        data.BytePairTokenizer.train(CORPUS, 259)
    with pytest.raises(ValueError, match="characters of the corpus"):
        data.WordPieceTokenizer.train(CORPUS, 10)
    with pytest.raises(ValueError, match="corpus"):
        data.BytePairTokenizer.train("text", 300)
    with pytest.raises(ValueError, match="hold strings.*7"):
        data.WordPieceTokenizer.train([7], 60)
    with pytest.raises(ValueError, match="special tokens"):
        data.WordPieceTokenizer(["go", *SPECIAL])
    for merge in ("a b", "a c", "ab"):
        with pytest.raises(ValueError, match=f"merges.*{merge}"):
            data.BytePairTokenizer([*SPECIAL, "a", "b"], [merge])


def test_a_missing_package_says_what_to_install(monkeypatch):
    def missing(name, *_):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(ImportError, match=r"keras_nlp: pip install 'kerasmodels\[text\]'"):
        data.WordPieceTokenizer(SPECIAL)
