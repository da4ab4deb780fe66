"""Shards of sentence pairs, and batches for pre-training, read back token by token."""

import collections
import itertools
import json
import pathlib
import pickle
import zlib

import numpy as np
import pytest

from kerasmodels import data
from kerasmodels.data import PairArrays, PretrainingData, SentencePair, SentencePairs


class Tokenizer:
    pad_id, cls_id, sep_id, mask_id, vocabulary_size = 9, 1, 2, 3, 500


def documents(number=60, seed=0):
    random = np.random.default_rng(seed)
    return [
        [random.integers(10, 500, random.integers(1, 12)) for _ in range(random.integers(2, 12))]
        for _ in range(number)
    ]


@pytest.fixture(scope="module")
def pairs():
    return PairArrays(SentencePairs(documents(), max_length=32, seed=1))


def plain(pairs):
    """Pairs that can be compared."""
    return [(first.tolist(), second.tolist(), label) for first, second, label in pairs]


def read_back(dataset):
    """The pairs of a pass in their order, their numbers, and where they are masked."""
    found, numbers, masks = [], [], {}
    cls_id, sep_id, pad_id = dataset.cls_id, dataset.sep_id, dataset.pad_id
    for i in range(len(dataset)):
        inputs, targets, weights = dataset[i]
        ids = inputs["token_ids"].copy()
        rows = dataset.rows(i)
        assert inputs["segment_ids"].shape == inputs["padding_mask"].shape == ids.shape
        assert ids.shape == (len(rows), dataset.max_length)
        assert all(value.dtype == np.int32 for value in (*inputs.values(), *targets.values()))
        assert all(value.dtype == np.float32 for value in weights.values())
        assert (weights["mlm"].sum(axis=1) > 0).tolist() == (rows >= 0).tolist()
        for row, number in enumerate(rows):
            valid = weights["mlm"][row] > 0
            places = inputs["mask_positions"][row][valid]
            ids[row, places] = targets["mlm"][row][valid]
            n = inputs["padding_mask"][row].sum()
            assert inputs["padding_mask"][row].tolist() == [1] * n + [0] * (len(ids[row]) - n)
            assert (ids[row, n:] == pad_id).all() and not inputs["segment_ids"][row, n:].any()
            if "nsp" in weights:
                assert weights["nsp"][row] == (number >= 0)
            if number < 0:
                assert n == 0
                continue
            ends = np.flatnonzero(ids[row] == sep_id).tolist()
            assert ids[row, 0] == cls_id and ends[-1] == n - 1
            first, second = ids[row, 1 : ends[0]], ids[row, ends[0] + 1 : n - 1]
            b = len(ids[row, ends[0] + 1 : n])
            assert inputs["segment_ids"][row, :n].tolist() == [0] * (n - b) + [1] * b
            label = int(targets["nsp"][row]) if "nsp" in targets else 0
            found.append((first.tolist(), second.tolist(), label))
            numbers.append(int(number))
            masks[int(number)] = places.tolist(), inputs["token_ids"][row, places].tolist()
    return found, numbers, masks


def test_a_batch_by_hand():
    pair = SentencePair(np.array([20, 21]), np.array([30]), 1)
    inputs, targets, weights = PretrainingData([pair], Tokenizer, max_length=8, batch_size=2)[0]
    place = inputs["mask_positions"][0, 0]
    ids = np.array([1, 20, 21, 2, 30, 2, 9, 9])
    assert place in (1, 2, 4) and targets["mlm"].tolist() == [[ids[place], 0], [0, 0]]
    assert weights["mlm"].tolist() == [[1, 0], [0, 0]] and weights["nsp"].tolist() == [1, 0]
    assert targets["nsp"].tolist() == [1, 0]
    ids[place] = inputs["token_ids"][0, place]
    assert inputs["token_ids"].tolist() == [ids.tolist(), [9] * 8]
    assert inputs["segment_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0], [0] * 8]
    assert inputs["padding_mask"].tolist() == [[1] * 6 + [0] * 2, [0] * 8]
    assert inputs["mask_positions"].tolist() == [[place, 0], [0, 0]]


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pair_once_an_epoch(pairs, shuffle):
    expected = plain(pairs)
    assert len(expected) > 100 and len(expected) % 16
    dataset = PretrainingData(pairs, Tokenizer, max_length=40, batch_size=16, shuffle=shuffle)
    assert f"{len(expected)} pairs in {len(dataset)} batches of 16 x 40" in repr(dataset)
    orders, masks = [], []
    for epoch in range(3):
        found, numbers, mask = read_back(dataset)
        assert dataset.epoch == epoch and sorted(numbers) == list(range(len(expected)))
        assert found == [expected[number] for number in numbers]
        orders.append(tuple(numbers))
        masks.append(mask)
        dataset.on_epoch_end()
    assert len(set(orders)) == (3 if shuffle else 1)
    assert shuffle or orders[0] == tuple(range(len(expected)))
    # Masks are new in each epoch, about 15 % and at most 6 of 40.
    for one, other in itertools.combinations(masks, 2):
        assert sum(one[n] == other[n] for n in one) < 0.1 * len(one)
    for n, (first, second, _) in enumerate(expected):
        number = max(1, round(0.15 * (len(first) + len(second))))
        assert all(len(mask[n][0]) == number for mask in masks)


def test_masks_that_stay(pairs):
    options = {"max_length": 32, "dynamic_masking": False}
    dataset = PretrainingData(pairs, Tokenizer, batch_size=16, **options)
    _, first_order, first = read_back(dataset)
    dataset.on_epoch_end()
    _, order, second = read_back(dataset)
    assert first == second and order != first_order
    # nor do they depend on the batches
    other = PretrainingData(pairs, Tokenizer, batch_size=7, shuffle=False, **options)
    assert read_back(other)[2] == first
    assert read_back(PretrainingData(pairs, Tokenizer, seed=1, **options))[2] != first


def test_dupe_factor_gives_copies_with_other_masks():
    corpus = documents(10)
    options = {"random_next_probability": 0.0, "short_seq_prob": 0.0, "max_length": 32}
    once, thrice = (list(SentencePairs(corpus, dupe_factor=n, **options)) for n in (1, 3))
    assert len(thrice) == 3 * len(once)
    text = [first + second for first, second, _ in plain(thrice)]
    dataset = PretrainingData(thrice, Tokenizer, max_length=32, dynamic_masking=False)
    masks = read_back(dataset)[2]
    copies = collections.defaultdict(set)
    for number, mask in masks.items():
        copies[tuple(text[number])].add(str(mask))
    assert sum(len(copy) > 1 for copy in copies.values()) > 0.5 * len(once)


def test_same_seed_same_batches(pairs):
    one, twin, other = (PretrainingData(pairs, Tokenizer, seed=seed) for seed in (3, 3, 4))
    for dataset in (one, twin):
        dataset.on_epoch_end()
    assert read_back(one) == read_back(twin) == read_back(pickle.loads(pickle.dumps(one)))
    assert read_back(one)[1] != read_back(other)[1]
    assert read_back(one)[1] == np.random.default_rng([3, 1, 1]).permutation(len(pairs)).tolist()
    arrays = [value for i in range(len(one)) for part in one[i] for value in part.values()]
    digest = zlib.crc32(b"".join(value.astype("<i4").tobytes() for value in arrays))
    assert digest == 3353253343  # the same on every backend and machine


def test_a_pass_that_has_begun_is_not_changed(pairs):
    dataset = PretrainingData(pairs, Tokenizer)
    len(dataset)
    before = dataset[1][0]["token_ids"]
    dataset.on_epoch_end()
    assert (dataset[1][0]["token_ids"] == before).all() and (dataset[-1][0]["padding_mask"]).any()
    len(dataset)
    assert (dataset[1][0]["token_ids"] != before).any()
    with pytest.raises(IndexError, match="Received: index=99"):
        dataset[99]


def test_without_next_sentence():
    corpus = documents(12)
    runs = SentencePairs(corpus, max_length=32, next_sentence=False)
    dataset = PretrainingData(runs, Tokenizer, max_length=32, batch_size=8)
    inputs, targets, weights = dataset[0]
    assert set(targets) == set(weights) == {"mlm"} and not inputs["segment_ids"].any()
    found, numbers, _ = read_back(dataset)
    by_number = [first for _, (first, _, _) in sorted(zip(numbers, found, strict=True))]
    assert sum(by_number, []) == np.concatenate([np.concatenate(d) for d in corpus]).tolist()


def test_own_masking(pairs):
    masking = data.MaskedLM(3, 500, [1, 2, 9, 10, 11], mask_probability=1.0, max_predictions=64)
    kept = 0
    for inputs, targets, weights in (dataset := PretrainingData(pairs, Tokenizer, masking)):
        assert targets["mlm"].shape == (32, 64)
        assert not np.isin(targets["mlm"][weights["mlm"] > 0], [1, 2, 3, 9, 10, 11]).any()
        kept += np.isin(inputs["token_ids"], [10, 11]).sum()
    text = [i for first, second, _ in plain(pairs) for i in first + second]
    assert kept == text.count(10) + text.count(11) > 0 and len(dataset) > 1


@pytest.mark.parametrize("num_shards", [1, 3, 8])
def test_shards_round_trip_and_partition(pairs, tmp_path, num_shards):
    expected = plain(pairs)
    data.write_shards(pairs, tmp_path / "new" / "pairs", num_shards)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["pairs"]
    read = data.read_shards(tmp_path / "new" / "pairs")
    assert plain(read) == [p for i in range(num_shards) for p in expected[i::num_shards]]
    assert (read.settings, read.longest, read.next_sentence) == (pairs.settings, 29, True)
    assert read.settings["seed"] == 1 and isinstance(read[0].first, np.memmap)
    assert sum(read.sizes) == len(read) and max(read.sizes) - min(read.sizes) <= 1
    assert plain([read[-1], read[np.int64(0)]]) == plain([read[len(read) - 1], read[0]])
    for parts in {1, 2, num_shards}:
        if parts > num_shards:
            continue
        found = [data.read_shards(tmp_path / "new" / "pairs", (i, parts)) for i in range(parts)]
        assert sorted(sum(map(plain, found), [])) == sorted(expected)
        # A pair keeps its number, and with it its mask.
        for part in found:
            numbers = [part.number(i) for i in range(len(part))]
            assert plain(part) == plain(read[n] for n in numbers)


def test_shuffling_over_shards(pairs, tmp_path):
    data.write_shards(pairs, tmp_path / "pairs", num_shards=5)
    read = data.read_shards(tmp_path / "pairs")
    whole = plain(read)
    shard_of = np.repeat(np.arange(5), read.sizes)
    options = {"max_length": 32, "batch_size": 4, "shuffle_buffer": 7, "dynamic_masking": False}
    dataset = PretrainingData(read, Tokenizer, **options)
    orders = set()
    for _ in range(4):
        found, numbers, masks = read_back(dataset)
        assert sorted(numbers) == list(range(len(whole)))
        assert found == [whole[number] for number in numbers]
        # A buffer of 8 lies in one shard or two, and the shards come one after the other.
        for i in range(0, len(numbers), 8):
            assert len(set(shard_of[numbers[i : i + 8]])) <= 2
        order = list(dict.fromkeys(shard_of[numbers].tolist()))
        changes = (np.diff(shard_of[numbers]) != 0).sum()
        assert len(order) == 5 and changes <= 4 * 8
        orders.add(tuple(order))
        dataset.on_epoch_end()
    assert len(orders) > 1
    # Each buffer is shuffled in its own way.
    dataset = PretrainingData(pairs, Tokenizer, batch_size=16, shuffle_buffer=16)
    draws = [dataset.rows(i).tolist() for i in range(4)]
    assert all(sorted(rows) == list(range(16 * i, 16 * i + 16)) for i, rows in enumerate(draws))
    assert len({tuple(np.array(rows) - 16 * i) for i, rows in enumerate(draws)}) == 4
    part = data.read_shards(tmp_path / "pairs", (1, 2))
    alone = PretrainingData(part, Tokenizer, **options)
    for row, mask in read_back(alone)[2].items():
        assert masks[part.number(row)] == mask


def test_processes_share_batches(pairs):
    whole, *parts = (
        PretrainingData(pairs, Tokenizer, batch_size=8, max_length=32, shard=shard)
        for shard in ((0, 1), (0, 2), (1, 2))
    )
    assert len(whole) == len(parts[0]) == len(parts[1])
    for i in range(len(whole)):
        for kind in range(3):
            for key, value in whole[i][kind].items():
                assert (np.concatenate([part[i][kind][key] for part in parts]) == value).all()


def test_a_failed_write_leaves_what_was_there(pairs, tmp_path, monkeypatch):
    folder = tmp_path / "pairs"
    data.write_shards(pairs, folder, 2)

    def fails():
        yield pairs[0]
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="full"):
        data.write_shards(fails(), folder)
    with pytest.raises(ValueError, match="a pair for each shard. Received: 1 pairs, 2 shards"):
        data.write_shards([pairs[0]], folder, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["pairs"] and len(list(folder.iterdir())) == 5
    assert len(data.read_shards(folder)) == len(pairs)
    rename = pathlib.Path.rename

    def refuses(path, target):
        if path.name == "new":
            raise OSError("no")
        return rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no"):
        patch.setattr(pathlib.Path, "rename", refuses)
        data.write_shards(pairs, folder)
    assert [p.name for p in tmp_path.iterdir()] == ["pairs"] and len(list(folder.iterdir())) == 5
    # The older folder is replaced, even by what is read from it.
    data.write_shards(data.read_shards(folder), folder, 1)
    assert len(list(folder.iterdir())) == 3
    assert sorted(plain(data.read_shards(folder))) == sorted(plain(pairs))
    assert [p.name for p in tmp_path.iterdir()] == ["pairs"]


def test_bad_folders(pairs, tmp_path):
    for name, make in (("file", "write_text"), ("other", "mkdir")):
        getattr(tmp_path / name, make)(*(["x"] if name == "file" else []))
    (tmp_path / "other" / "index.json").write_text("{}")
    for name in ("file", "other"):
        with pytest.raises(ValueError, match="`folder` must be new, empty.*something else"):
            data.write_shards(pairs, tmp_path / name)
        with pytest.raises(ValueError, match="`folder` must be one that `write_shards` wrote"):
            data.read_shards(tmp_path / name)
    with pytest.raises(ValueError, match="`folder` must be one that"):
        data.read_shards(tmp_path / "nothing")
    with pytest.raises(ValueError, match="`num_shards`.*0"):
        data.write_shards(pairs, tmp_path / "new", 0)
    data.write_shards(pairs, tmp_path / "good", 2)
    for shard in ((2, 2), (-1, 2), (0, 3)):
        with pytest.raises(ValueError, match="`shard` must be.*shards, 2"):
            data.read_shards(tmp_path / "good", shard)
    index = json.loads((tmp_path / "good" / "index.json").read_text())
    assert index["settings"]["max_length"] == 32
    with open(tmp_path / "good" / "00001.tokens", "r+b") as file:
        file.truncate(100)
    with pytest.raises(ValueError, match="00001.tokens must have .* bytes. Received: 100"):
        data.read_shards(tmp_path / "good")
    assert len(data.read_shards(tmp_path / "good", (0, 2))) == index["shards"][0][0]
    (tmp_path / "good" / "00001.tokens").unlink()
    with pytest.raises(ValueError, match="Received: None"):
        data.read_shards(tmp_path / "good", (1, 2))


def test_damaged_shards(pairs, tmp_path):
    """Files of the right size with something else in them, as sparse copies have."""
    data.write_shards(pairs, tmp_path / "pairs")
    path = tmp_path / "pairs" / "00000.pairs"
    size = path.stat().st_size
    for content in (bytes(size), b"\x7f" * size):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="shards are damaged: pair 3 of shard 0"):
            data.read_shards(tmp_path / "pairs")[3]
    index = tmp_path / "pairs" / "index.json"
    content = json.loads(index.read_text())
    del content["longest"]
    index.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"index.json is damaged: it lacks \['longest'\]"):
        data.read_shards(tmp_path / "pairs")


def test_settings_of_numpy_and_odd_folders(tmp_path, monkeypatch):
    made = data.SentencePairs(
        documents(), np.int64(16), random_next_probability=np.float32(0.5), seed=np.uint8(3)
    )
    (tmp_path / "empty").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target", target_is_directory=True)
    monkeypatch.chdir(tmp_path / "empty")
    data.write_shards(made, ".")
    data.write_shards(made, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    for name in ("empty", "target"):
        assert data.read_shards(tmp_path / name).settings["max_length"] == 16


@pytest.mark.parametrize(
    "source, options, message",
    [
        ([], {}, "a pair for each shard. Received: 0 pairs"),
        ([[[20, 21], [22]]], {}, r"must be `SentencePair`s.*\[\[20, 21\], \[22\]\]"),
        ([SentencePair([], [20], 0)], {}, "pair 0 with 0 and 1 tokens"),
        ([SentencePair([20], [21], 2)], {}, "label 2"),
        ([SentencePair([20.7], [21], 0)], {}, r"must be integer ids.*pair 0, \[20.7\]"),
        ([SentencePair([20], [-1], 0)], {}, "must be integer ids.*pair 0"),
        ([SentencePair([2**33], [21], 0)], {}, "must be integer ids.*pair 0"),
        ([SentencePair([[20, 21]], [21], 0)], {}, "rank 1.*pair 0"),
        (None, {"batch_size": 4.0}, "`batch_size` must be.*4.0"),
        (None, {"max_length": "32"}, "`max_length` must be.*'32'"),
        ([SentencePair([20], [21], 0), SentencePair([20], [], 0)], {}, "pair 1 with 1 and 0"),
        (None, {"max_length": 31}, "max_length=31. Received: one of 32"),
        (None, {"batch_size": 0}, "`batch_size`.*0"),
        (None, {"shuffle_buffer": 0}, "`shuffle_buffer`.*0"),
        (None, {"seed": -1}, "`seed`.*-1"),
        (None, {"shard": (2, 2)}, r"`shard`.*\(2, 2\)"),
        (None, {"shard": (0, 3)}, "`shard`.*batch_size=32"),
        (None, {"masking": data.MaskedLM(3, 500, [1, 2])}, r"lack \[9\]"),
        (None, {"masking": data.MaskedLM(3, 400, [1, 2, 9])}, "500 ids.*vocabulary_size=400"),
    ],
)
def test_bad_input(pairs, source, options, message):
    with pytest.raises(ValueError, match=message):
        PretrainingData(pairs if source is None else source, Tokenizer, **options)


def test_ids_outside_the_vocabulary():
    dataset = PretrainingData([SentencePair([20], [500], 0)], Tokenizer, max_length=8)
    with pytest.raises(ValueError, match=r"\[0, 500\), the vocabulary. Received: 500"):
        dataset[0]
