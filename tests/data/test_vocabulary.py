import json
import os

import numpy as np
import pytest

from kerasmodels import data


def test_build_orders_by_count_then_code_point():
    corpus = ["bab", "abc", "zü"]  # a 2, b 3, c 1, z 1, ü 1
    vocabulary = data.Vocabulary.build(corpus)
    assert vocabulary.tokens == ["<pad>", "<s>", "</s>", "<unk>", "b", "a", "c", "z", "ü"]
    assert data.Vocabulary.build(reversed(corpus)).tokens == vocabulary.tokens
    assert vocabulary.vocabulary_size == len(vocabulary) == 9
    assert data.Vocabulary.build(corpus, min_count=2).tokens[4:] == ["b", "a"]
    assert data.Vocabulary.build(corpus, max_size=7).tokens[4:] == ["b", "a", "c"]
    assert (vocabulary.pad_id, vocabulary.start_id, vocabulary.end_id, vocabulary.unknown_id) == (
        0,
        1,
        2,
        3,
    )


def test_encode_and_decode():
    letters = data.Vocabulary.build(["banana"])  # a 4, n 5, b 6
    assert letters.encode("ban") == [6, 4, 5]
    assert letters.encode("bänn", add_end=True) == [6, 3, 5, 5, 2]
    assert letters.encode("") == []
    assert letters.encode_batch(["ba", "n"], add_end=True) == [[6, 4, 2], [5, 2]]
    assert letters.encode_batch([]) == []
    assert letters.decode([1, 6, 4, 3, 5, 0, 2, 4, 4]) == "ba<unk>n"
    assert letters.decode([]) == letters.decode([2]) == ""
    assert letters.decode_batch(np.array([[6, 4, 2, 0], [5, 5, 5, 5]], "int32")) == ["ba", "nnnn"]
    assert letters.decode_batch([[6], []]) == ["b", ""]


def test_words_and_token_lists():
    sounds = data.Vocabulary.build([["K", "AE", "T"], "HH AE  T"], unit="word")
    assert sounds.tokens[4:] == ["AE", "T", "HH", "K"]
    assert sounds.encode("K AE\tT") == sounds.encode(("K", "AE", "T")) == [7, 4, 5]
    assert sounds.decode([7, 4, 5, 2]) == "K AE T"
    assert sounds.decode_tokens([7, 4, 5, 2]) == ["K", "AE", "T"]


def test_text_never_reaches_the_special_tokens():
    words = data.Vocabulary.build(["<s> go </s> <pad> <unk> <s>"], unit="word")
    assert words.tokens[4:] == ["go"]
    assert words.encode("<s> go </s> <pad> <unk>") == [3, 4, 3, 3, 3]


def test_bad_input():
    letters = data.Vocabulary.build(["ab"])
    for ids, message in (
        ([4, 6], r"\[0, 6\).*Received: 6"),
        ([2, -1], r"\[0, 6\).*Received: -1"),
        ([4.0], "float64"),
        (4, "rank 1"),
    ):
        with pytest.raises(ValueError, match=message):
            letters.decode(ids)
    with pytest.raises(ValueError, match="list of texts"):
        letters.encode_batch("ab")
    with pytest.raises(ValueError, match="corpus"):
        data.Vocabulary.build("ab")
    with pytest.raises(ValueError, match="unit"):
        data.Vocabulary.build(["ab"], unit="letter")
    with pytest.raises(ValueError, match="min_count"):
        data.Vocabulary.build(["ab"], min_count=0)
    with pytest.raises(ValueError, match="max_size"):
        data.Vocabulary.build(["ab"], max_size=4)
    with pytest.raises(ValueError, match="twice: 'a'"):
        data.Vocabulary(["a", "b", "a"])
    with pytest.raises(ValueError, match="special"):
        data.Vocabulary(["a", "</s>"])
    for bad in ("", 7):
        with pytest.raises(ValueError, match="non-empty strings"):
            data.Vocabulary(["a", bad])


def test_save_and_load(tmp_path, monkeypatch):
    path = tmp_path / "vocabulary.json"
    words = data.Vocabulary.build(["ein schöner tag", 'ein "zitat"'], unit="word")
    words.save(path)
    loaded = data.Vocabulary.load(path)
    assert loaded.tokens == words.tokens and loaded.unit == "word"
    assert "schöner" in path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["class"] == "Vocabulary"
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode  # others may read it, too
    (tmp_path / "other").unlink()

    # What was there before a failed save still is, and nothing else.
    before = path.read_bytes()

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        data.Vocabulary(["a"]).save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["vocabulary.json"]


@pytest.mark.parametrize(
    "content, message",
    [
        ("not json", "must be a JSON file"),
        ("[1]", "must be a JSON file"),
        ('{"tokens": []}', "must be a JSON file"),
        ('{"class": "WordPieceTokenizer", "tokens": []}', "written by `WordPieceTokenizer`"),
        ('{"class": "Vocabulary", "words": []}', "does not hold a Vocabulary"),
        ('{"class": "Vocabulary", "tokens": ["a", "a"]}', "twice"),
    ],
)
def test_load_of_a_bad_file(tmp_path, content, message):
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        data.Vocabulary.load(path)
