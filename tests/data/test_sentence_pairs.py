"""Documents from files, and pairs from documents; token ids say where they come from."""

import itertools
import zlib

import numpy as np
import pytest

from kerasmodels import data
from kerasmodels.data import SentencePairs, sentence_pairs

STEP = 100_000  # document d holds the ids d * STEP, d * STEP + 1, ...


def corpus(lengths):
    """Documents whose sentences have the given lengths."""
    documents = []
    for number, sentences in enumerate(lengths):
        ends = np.cumsum(sentences)
        ids = np.arange(ends[-1]) + number * STEP
        documents.append(np.split(ids, ends[:-1]))
    return documents


def random_corpus(number=60, seed=0, longest=12, sentences=15):
    random = np.random.default_rng(seed)
    return corpus(
        [random.integers(1, longest, random.integers(1, sentences)).tolist() for _ in range(number)]
    )


def make(documents, **options):
    """All pairs; each is checked for what holds of all."""
    limit = options.get("max_length", 128) - (3 if options.get("next_sentence", True) else 2)
    pairs = list(SentencePairs(documents, **options))
    for first, second, label in pairs:
        assert first.dtype == second.dtype == np.int32 and label in (0, 1)
        assert len(first) > 0 and len(first) + len(second) <= limit
        assert (np.diff(first) == 1).all() and (np.diff(second) == 1).all()
        if len(second):
            other = second[0] // STEP != first[0] // STEP
            assert other == label  # a label of 0: the same document, of 1: another one
            assert label or second[0] > first[-1]
    return pairs


def within(count, number, share):
    return abs(count - number * share) <= 4 * np.sqrt(number * share * (1 - share))


def test_two_documents_of_two_sentences():
    documents = corpus([[2, 3], [4, 1]])
    for pairs, labels in (
        (make(documents, random_next_probability=1.0, dupe_factor=50), {1}),
        (make(documents, random_next_probability=0.0, dupe_factor=50), {0}),
        (make(documents, dupe_factor=50), {0, 1}),
    ):
        assert {pair.label for pair in pairs} == labels and len(pairs) == 100
        for first, second, label in pairs:
            assert label or second[0] == first[-1] + 1
    # One document: there is no other for B.
    with pytest.raises(ValueError, match="two at least.*Received: 1.*next_sentence=False"):
        list(SentencePairs(documents[:1]))
    alone = make(documents[:1], random_next_probability=0.0)
    assert [p.first.tolist() + p.second.tolist() for p in alone] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_share_of_random_pairs(share):
    # short documents and long sentences do not change it
    for documents in (random_corpus(300, sentences=5), random_corpus(200, longest=60)):
        options = {"random_next_probability": share, "max_length": 40, "dupe_factor": 6}
        pairs = make(documents, **options)
        assert len(pairs) > 1000
        assert within(sum(pair.label for pair in pairs), len(pairs), share)


def test_every_other_document_and_sentence_as_often():
    documents = corpus([[1, 1]] * 5)
    pairs = make(documents, random_next_probability=1.0, dupe_factor=400, max_length=5)
    for number in range(5):
        found = [int(p.second[0]) for p in pairs if p.first[0] // STEP == number]
        for sentence in (d * STEP + s for d in range(5) if d != number for s in range(2)):
            assert within(found.count(sentence), 400, 1 / 8)


def test_nothing_is_lost_and_sentences_are_whole():
    documents = random_corpus()
    pairs = make(documents, max_length=1000, short_seq_prob=1.0, seed=4)
    starts = {int(s[0]) for d in documents for s in d}
    ends = {int(s[-1]) for d in documents for s in d}
    read = {}
    for first, second, label in pairs:
        read.setdefault(first[0] // STEP, []).extend([first] if label else [first, second])
        for segment in (first, second):
            assert int(segment[0]) in starts and int(segment[-1]) in ends
    for number, document in enumerate(documents):
        # but a last sentence that stands alone
        found = np.concatenate(read.get(number, [np.zeros(0, int)]))
        text = np.concatenate(document)
        assert len(found) in (len(text), len(text) - len(document[-1]))
        assert (found == text[: len(found)]).all()


def test_lengths():
    # sentences of one token: a pair is as long as was aimed at
    documents = corpus([[1] * 6000] * 10)
    options = {"max_length": 35, "random_next_probability": 0.0}
    pairs = make(documents, **options)
    lengths = np.array([len(p.first) + len(p.second) for p in pairs])
    assert within((lengths < 32).sum(), len(pairs), 0.1 * 30 / 31)  # of 2 to 32, but 32
    assert lengths.min() == 2 and lengths.max() == 32
    short = lengths[lengths < 32]
    assert abs(short.mean() - 16.5) < 4 * np.sqrt((30**2 - 1) / 12 / len(short))
    # the place of the cut is uniform too
    share = np.array([len(p.first) for p in pairs if len(p.first) + len(p.second) == 32])
    assert set(share) == set(range(1, 32))
    assert abs(share.mean() - 16) < 4 * np.sqrt((31**2 - 1) / 12 / len(share))
    full = make(documents, short_seq_prob=0.0, **options)
    assert {len(p.first) + len(p.second) for p in full[:-1]} <= {32, 6000 % 32}
    # a B from another document fills the length as far as that goes
    for first, second, label in make(documents, max_length=35, short_seq_prob=0.0):
        left = 6000 - second[0] % STEP if label else 6000 - first[0] % STEP - len(first)
        assert len(second) == min(32 - len(first), left)


def test_truncation():
    """As if the longer segment, of two equals B, lost one token after the other."""
    sizes = list(itertools.product(range(1, 15), repeat=2))
    fronts = total = 0
    options = {"random_next_probability": 0.0, "max_length": 13, "dupe_factor": 20}
    pairs = make(corpus(sizes), buffer_size=1000, **options)
    assert len(pairs) == 20 * len(sizes)
    for first, second, _ in pairs:
        number, at = divmod(int(first[0]), STEP)
        before = sizes[number]
        a, b = before
        while a + b > 10:
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert (len(first), len(second)) == (a, b)
        fronts += at + int(second[0]) % STEP - before[0]
        total += sum(before) - a - b
    assert within(fronts, total, 0.5)


def test_bound_on_documents_held():
    documents = random_corpus(100, sentences=8)
    documents = [document * 2 for document in documents]  # two sentences at least
    for size, number in [(3, 100), (10, 100), (10, 10), (10, 11), (10, 12), (100, 100), (3, 2)]:
        read = 0

        def stream(number=number):
            nonlocal read
            for document in documents[:number]:
                read += 1
                yield document

        seen = set()
        for first, second, label in SentencePairs(stream(), buffer_size=size, max_length=30):
            a, b = int(first[0]) // STEP, int(second[0]) // STEP
            seen.add(a)
            assert (a != b) == bool(label) and abs(a - b) < size
            assert read <= a + size  # documents before A's were let go
        assert read == number and seen == set(range(number))


def test_without_next_sentence():
    documents = random_corpus(20)
    pairs = make(documents, next_sentence=False, max_length=18, short_seq_prob=0.0)
    for number, document in enumerate(documents):
        runs = [p.first for p in pairs if p.first[0] // STEP == number]
        assert (np.concatenate(runs) == np.concatenate(document)).all()
        assert all(len(run) == 16 for run in runs[:-1])
    assert all(p.label == 0 and not len(p.second) for p in pairs)
    lengths = [len(p.first) for p in make(documents, next_sentence=False, max_length=18)]
    assert min(lengths[:-1]) >= 2 and len(lengths) > len(pairs)
    assert len(make(documents[:1], next_sentence=False)) == 1


def test_same_seed_same_pairs():
    documents = random_corpus()

    def digest(**options):
        flat = [x for p in make(documents, max_length=40, **options) for x in (*p[0], *p[1], p[2])]
        return zlib.crc32(np.array(flat, "<i4").tobytes())

    assert digest(seed=3) == digest(seed=3) != digest(seed=4)
    assert digest() == 1235509198  # the same on every backend and machine


def test_settings():
    pairs = SentencePairs([], max_length=64, seed=5)
    assert pairs.settings == {
        "max_length": 64,
        "next_sentence": True,
        "random_next_probability": 0.5,
        "short_seq_prob": 0.1,
        "dupe_factor": 1,
        "buffer_size": 10_000,
        "seed": 5,
    }


@pytest.mark.parametrize(
    "documents, message",
    [
        ([], "must hold sentences"),
        ([[], [[]], [[], []]], "must hold sentences"),
        ([[], [[5], [6]], [[]]], "two at least.*Received: 1"),
        ([[[5]], [[6]], [[7], []]], "two sentences or more.*blank line"),
        ([[5, 6], [7]], r"list of sentences.*document 0, \[5, 6\]"),
        ([[[5], [6]], ["go", "on"]], "integer ids.*document 1"),
        ([[[5.0], [6]]], "integer ids.*document 0"),
        ([[[5], [-1]]], "0 or more.*document 0"),
        ([[[5], [2**31]]], "document 0"),
        ([[[5], [[6, 7], [8]]]], "document 0"),
        ([3], "document 0, 3"),
    ],
)
def test_bad_documents(documents, message):
    with pytest.raises(ValueError, match=message):
        list(SentencePairs(documents))


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_length": 4}, "`max_length` must be at least 5.*4"),
        ({"max_length": 16.5}, "`max_length` must be.*an integer.*16.5"),
        ({"dupe_factor": 0}, "`dupe_factor`.*0"),
        ({"buffer_size": 2}, "`buffer_size` must be at least 3.*2"),
        ({"seed": -1}, "`seed`.*-1"),
        ({"random_next_probability": 1.1}, "`random_next_probability`.*1.1"),
        ({"short_seq_prob": -0.1}, "`short_seq_prob`.*-0.1"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        SentencePairs(corpus([[1, 1]] * 2), **options)


class Letters:
    """A tokenizer that keeps what it was asked; "-" has no tokens."""

    def __init__(self):
        self.calls = []

    def encode_batch(self, texts):
        assert all(texts)
        self.calls.append(texts)
        return [[ord(letter) for letter in text if letter != "-"] for text in texts]


def read(*args):
    documents = list(data.read_documents(*args))
    assert all(s.dtype == np.int32 for document in documents for s in document)
    return [["".join(map(chr, s)) for s in document] for document in documents]


def test_read_documents(tmp_path, monkeypatch):
    one, two, blank = (tmp_path / name for name in ("one.txt", "two.txt", "blank.txt"))
    one.write_bytes("\ufeff\n a b \r\nc\n\n \t\n-\nd\ne".encode())
    two.write_bytes("f\u4f60\n\n\n-\n\ng\n".encode())
    blank.write_bytes(b"\n \n\r\n")
    first = [["a b", "c"], ["d", "e"]]
    assert read(one, Letters()) == first
    assert read(str(one), Letters()) == first
    expected = first + [["f\u4f60"], ["g"]]
    assert read([one, blank, two], Letters()) == expected
    for lines in (1, 2, 3, 7):  # wherever the batches of lines end
        monkeypatch.setattr(sentence_pairs, "LINES_AT_ONCE", lines)
        tokenizer = Letters()
        assert read([one, blank, two], tokenizer) == expected
        assert max(map(len, tokenizer.calls)) <= lines
    documents = data.read_documents(one, tokenizer := Letters())
    assert [s.tolist() for s in next(documents)] == [[97, 32, 98], [99]]
    assert len(tokenizer.calls) == 1  # the rest of the file is not read yet
    with pytest.raises(ValueError, match="must hold sentences"):
        list(SentencePairs(data.read_documents(blank, Letters())))


def test_read_documents_malformed(tmp_path):
    path = tmp_path / "bad.txt"
    path.write_bytes(b"a\nd\xe9\n")
    with pytest.raises(ValueError, match="bad.txt, line 2: files must be UTF-8"):
        read(path, Letters())
    with pytest.raises(ValueError, match="`paths` must name"):
        data.read_documents([], Letters())
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "nothing", Letters())
