"""Words with tags: files, what the model gets, and entities that are counted."""

import warnings

import numpy as np
import pytest

from kerasmodels import data

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = ["ad", "##a", "love", "##lace", "wrote", "to", "rome", "."]
CLASSES = ["O", "B-PER", "I-PER", "B-LOC"]
SENTENCES = [
    (["Ada", "Lovelace", "wrote", "."], ["B-PER", "I-PER", "O", "O"]),
    (["\x01", "to", "Rome"], ["O", "O", "B-LOC"]),  # the first word has no piece
]


@pytest.fixture(scope="module")
def tokenizer():
    return data.BertTokenizer([*SPECIAL, *PIECES], max_sequence_length=12)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def one_hot_logits(labels, random):
    """Logits whose largest is that of the label; those of the others are random."""
    logits = random.random((*labels.shape, len(CLASSES)))
    np.put_along_axis(logits, labels[..., None], 2.0, axis=-1)
    return logits


# === Files ===


def test_files(tmp_path):
    spaces = (
        "\ufeff-DOCSTART- -X- -X- O\n\nEU NNP  B-NP B-ORG\r\n. . O O \n \n\nPeter NNP B-NP B-PER"
    )
    tabs = "a b\tO\nc\xa0d\tB-X\n\n#\tO\n-DOCSTART-\ne\tO\n"
    first, second = write(tmp_path / "a", spaces), write(tmp_path / "b", tabs)
    expected = [(["EU", "."], ["B-ORG", "O"]), (["Peter"], ["B-PER"])]
    assert data.read_conll(first) == expected
    others = [(["a b", "c\xa0d"], ["O", "B-X"]), (["#"], ["O"]), (["e"], ["O"])]
    assert data.read_conll([str(first), second]) == expected + others
    assert data.read_conll(first, column=1)[0] == (["EU", "."], ["NNP", "."])


@pytest.mark.parametrize(
    "content, column, message",
    [
        ("a O\n\nb\n", -1, r"bad, line 3: .* columns as in the first line, 2\. Received: 1 in 'b'"),
        ("a O\n# b c O\n", -1, "bad, line 2: .*Received: 4"),
        ("a O\n", 2, r"bad, line 1: .*column=2"),
        ("a O\n", 0, r"bad, line 1: .*column=0"),
        ("a O\n", -2, r"bad, line 1: .*column=-2"),
        ("a\n", -1, r"bad, line 1: .*Received: 1"),
        ("a\tO\n\tO\n", -1, "bad, line 2: .*must not be empty"),
        ("a\tO\nb\t \n", -1, "bad, line 2: .*must not be empty"),
        (b"a O\n\xff O\n", -1, "bad, line 2: files must be UTF-8"),
        ("\n-DOCSTART- O\n", -1, "bad must hold sentences"),
        (b"EU B-ORG\rrejects O\r\rPeter B-PER\r", -1, "bad, line 1: a carriage return must"),
    ],
)
def test_bad_files(tmp_path, content, column, message):
    with pytest.raises(ValueError, match=message):
        data.read_conll(write(tmp_path / "bad", content), column)
    with pytest.raises(ValueError, match="`paths` must name a file"):
        data.read_conll([])


# === What the model gets, and gives ===


def test_labels_and_back(tokenizer):
    inputs, labels, weights, word_ids = data.label_tokens(tokenizer, SENTENCES, CLASSES)
    # [CLS] ad ##a love ##lace wrote . [SEP] and [CLS] to rome [SEP]
    np.testing.assert_array_equal(
        inputs["token_ids"], [[2, 5, 6, 7, 8, 9, 12, 3], [2, 10, 11, 3, 0, 0, 0, 0]]
    )
    np.testing.assert_array_equal(inputs["padding_mask"], inputs["token_ids"] > 0)
    assert set(inputs) == {"token_ids", "segment_ids", "padding_mask"}
    assert not inputs["segment_ids"].any()
    np.testing.assert_array_equal(labels, [[0, 1, 0, 2, 0, 0, 0, 0], [0, 0, 3, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(weights, [[0, 1, 0, 1, 0, 1, 1, 0], [0, 1, 1, 0, 0, 0, 0, 0]])
    assert labels.dtype == "int32" and weights.dtype == "float32"

    # What stands at other pieces changes nothing.
    random = np.random.default_rng(0)
    noise = np.where(weights > 0, labels, random.integers(0, 4, labels.shape))
    logits = one_hot_logits(noise, random)
    tags = data.tags_of_words(logits, word_ids, CLASSES, [4, 3])
    assert tags == [tags for _, tags in SENTENCES]


def test_words_lost_by_truncation(tokenizer):
    expected = [["B-PER", "I-PER", "O", "O"], ["O", "O", "B-LOC"]]
    # Five tokens are [CLS] ad ##a love [SEP]: half of the second word is enough for it.
    with pytest.warns(UserWarning, match="^2 words are lost.* more than 5 tokens") as caught:
        tokens = data.label_tokens(tokenizer, SENTENCES, CLASSES, max_length=5)
    assert len(caught) == 1  # and no other from the tokenizer
    assert tokens.labels.tolist() == [[0, 1, 0, 2, 0], [0, 0, 3, 0, 0]]
    assert tokens.sample_weights.tolist() == [[0, 1, 0, 1, 0], [0, 1, 1, 0, 0]]
    logits = one_hot_logits(tokens.labels, np.random.default_rng(0))
    assert data.tags_of_words(logits, tokens.word_ids, CLASSES, [4, 3]) == expected
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        silent = data.label_tokens(tokenizer, SENTENCES, CLASSES, 5, truncation=True)
        # One of three words is cut away, and it is one without a piece.
        data.label_tokens(tokenizer, [(["ada", "\x01"], ["O", "O"])], CLASSES, max_length=4)
        # A piece is cut away, and its word is not lost.
        data.label_tokens(tokenizer, [(["ada"], ["O"])], CLASSES, max_length=3)
    np.testing.assert_array_equal(silent.labels, tokens.labels)
    with pytest.raises(ValueError, match="Row 0 .* has 8 tokens"):
        data.label_tokens(tokenizer, SENTENCES, CLASSES, max_length=5, truncation=False)


def test_bad_labels(tokenizer):
    def label(sentences=SENTENCES, class_names=CLASSES, **kwargs):
        return data.label_tokens(tokenizer, sentences, class_names, **kwargs)

    with pytest.raises(ValueError, match=r"'I-PER'\].*Received: 'B-LOC' at 'Rome' in sentence 1"):
        label(class_names=CLASSES[:3])
    with pytest.raises(ValueError, match="2 words and 1 tags in sentence 1"):
        label([SENTENCES[0], (["to", "Rome"], ["O"])])
    for names in ([], ["O", "O"]):
        with pytest.raises(ValueError, match="class_names"):
            label(class_names=names)
    with pytest.raises(ValueError, match="truncation"):
        label(truncation="yes")
    with pytest.raises(ValueError, match="max_length"):
        label(max_length=13)

    tokens = label()
    logits = np.zeros((2, 8, 4))
    for wrong, lengths in ((logits[:, 1:], [4, 3]), (logits[..., 1:], [4, 3]), (logits, [4])):
        with pytest.raises(ValueError, match=r"`logits` must have the shape \(2, 8, 4\)"):
            data.tags_of_words(wrong, tokens.word_ids, CLASSES, lengths)
    with pytest.raises(ValueError, match="`logits` must be numbers. Received: NaN"):
        data.tags_of_words(logits * np.nan, tokens.word_ids, CLASSES, [4, 3])
    with pytest.raises(ValueError, match="Received: 2 for row 1, which has at least 3"):
        data.tags_of_words(logits, tokens.word_ids, CLASSES, [4, 2])


# === Entities ===


def written(spans, length, scheme):
    """Tags of entities, as each scheme defines them."""
    tags = ["O"] * length
    for i, (start, end, kind) in enumerate(spans):
        single, inner, last = {"BIOES": "SIE", "BILOU": "UIL"}.get(scheme, "BII")
        first = "B" if end - start > 1 else single
        if scheme == "IOB" and not (i and spans[i - 1][1:] == (start, kind)):
            first = "I"  # B only where an entity follows another of its type
        prefixes = first + inner * (end - start - 2) + (last if end - start > 1 else "")
        tags[start:end] = [f"{prefix}-{kind}" for prefix in prefixes]
    return tags


@pytest.mark.parametrize("scheme", ["BIO", "IOB", "BIOES", "BILOU"])
def test_spans_of_each_scheme(scheme):
    random = np.random.default_rng(0)
    for _ in range(200):
        spans, place = [], 0
        while place < 12:
            end = place + int(random.integers(1, 4))
            if random.random() < 0.6:
                spans.append((place, end, str(random.choice(["PER", "LOC"]))))
            place = end
        assert data.entity_spans(written(spans, place, scheme)) == spans


@pytest.mark.parametrize(
    "tags, spans",
    [
        # As conlleval reads what contradicts itself.
        ("O I-A I-A I-B I-B", [(1, 3, "A"), (3, 5, "B")]),
        ("B-A I-B I-A", [(0, 1, "A"), (1, 2, "B"), (2, 3, "A")]),
        ("E-A E-A I-A", [(0, 1, "A"), (1, 2, "A"), (2, 3, "A")]),
        ("B-A S-A I-A U-A", [(0, 1, "A"), (1, 2, "A"), (2, 3, "A"), (3, 4, "A")]),
        ("B-A O I-A", [(0, 1, "A"), (2, 3, "A")]),
        ("B-A-B I-A-B", [(0, 2, "A-B")]),
        ("", []),
    ],
)
def test_spans_of_contradictions(tags, spans):
    assert data.entity_spans(tags.split()) == spans


@pytest.mark.parametrize("tag", ["PER", "B-", "B", "X-PER", "BI-PER", "BPER", "-PER", "", "o"])
def test_bad_tags(tag):
    with pytest.raises(ValueError, match=f"Received: '{tag}'"):
        data.entity_spans(["O", tag])


def test_scores_counted_by_hand():
    right = ["B-PER I-PER O B-LOC", "B-ORG O B-PER", "O O"]
    said = ["B-PER I-PER O B-ORG", "B-ORG I-ORG B-PER", "B-LOC O"]
    scores = data.entity_scores([s.split() for s in said], [s.split() for s in right])
    # Right: both persons. Wrong: a place called an organisation, one too long, one that is none.
    assert scores == {
        "all": {"precision": 0.4, "recall": 0.5, "f1": 4 / 9, "references": 4, "hypotheses": 5},
        "LOC": {"precision": 0, "recall": 0, "f1": 0, "references": 1, "hypotheses": 1},
        "ORG": {"precision": 0, "recall": 0, "f1": 0, "references": 1, "hypotheses": 2},
        "PER": {"precision": 1, "recall": 1, "f1": 1, "references": 2, "hypotheses": 2},
    }
    nothing = {"precision": 0, "recall": 0, "f1": 0, "references": 0, "hypotheses": 0}
    assert data.entity_scores([["O"]], [["O"]]) == {"all": nothing}


def test_bad_scores():
    for said in ([["O"]], [["O"], ["O", "O"]]):
        with pytest.raises(ValueError, match="sentence by sentence"):
            data.entity_scores(said, [["O", "O"], ["O"]])
    with pytest.raises(ValueError, match="'all' is taken"):
        data.entity_scores([["B-all"]], [["O"]])
