import importlib

import pytest

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
