"""Which pieces are chosen for prediction, and what becomes of them."""

import zlib

import numpy as np
import pytest

from kerasmodels.data import MaskedLM

CLS, SEP, PAD, MASK = 1, 2, 0, 3
SPECIAL = [CLS, SEP, PAD]


def rows(batch=500, length=137, vocabulary_size=30_000, seed=0):
    """[CLS] text [SEP], no padding."""
    ids = np.random.default_rng(seed).integers(4, vocabulary_size, (batch, length))
    ids[:, 0], ids[:, -1] = CLS, SEP
    return ids


def restored(hidden):
    """The ids as they were before."""
    ids = hidden["token_ids"].copy()
    row, column = np.nonzero(hidden["mask_weights"])
    ids[row, hidden["mask_positions"][row, column]] = hidden["mask_ids"][row, column]
    return ids


def chosen(hidden):
    """Where predictions stand, boolean, as `token_ids`; each stands once, in ascending order."""
    positions, weights = hidden["mask_positions"], hidden["mask_weights"]
    marks = np.zeros(hidden["token_ids"].shape, int)
    row, column = np.nonzero(weights)
    np.add.at(marks, (row, positions[row, column]), 1)
    assert marks.max(initial=0) <= 1 and set(np.unique(weights)) <= {0, 1}
    assert (np.diff(weights, axis=1) <= 0).all()
    assert (np.diff(positions, axis=1) > 0)[weights[:, 1:] > 0].all()
    assert not positions[weights == 0].any() and not hidden["mask_ids"][weights == 0].any()
    return marks.astype(bool)


def test_specials_and_padding_are_never_chosen():
    ids = np.array([[CLS, 7, 8, 9, SEP, PAD, PAD, PAD], [CLS, MASK, SEP, SEP] + [PAD] * 4])
    everything = MaskedLM(MASK, 30, SPECIAL, mask_probability=1.0)(ids)
    assert everything["mask_positions"].tolist() == [[1, 2, 3] + [0] * 17, [0] * 20]
    assert everything["mask_ids"].tolist() == [[7, 8, 9] + [0] * 17, [0] * 20]
    assert everything["mask_weights"].tolist() == [[1, 1, 1] + [0] * 17, [0] * 20]
    assert (everything["token_ids"][:, [0, 4, 5, 6, 7]] == ids[:, [0, 4, 5, 6, 7]]).all()
    assert (everything["token_ids"][1] == ids[1]).all()
    nothing = MaskedLM(MASK, 30, SPECIAL, mask_probability=0.0)(ids)
    assert (nothing["token_ids"] == ids).all() and not nothing["mask_weights"].any()
    dtypes = {key: value.dtype.name for key, value in nothing.items()}
    assert dtypes == {
        "token_ids": "int32",
        "mask_positions": "int32",
        "mask_ids": "int32",
        "mask_weights": "float32",
    }
    # What the mask calls padding is, whatever the id.
    padding_mask = np.array([[1, 1, 0, 1, 1, 0, 0, 0], [0] * 8])
    some = MaskedLM(MASK, 30, SPECIAL, mask_probability=1.0)(ids, padding_mask)
    assert np.argwhere(chosen(some)).tolist() == [[0, 1], [0, 3]]
    empty = MaskedLM(MASK, 30, SPECIAL)(np.zeros((0, 8), int))
    assert empty["token_ids"].shape == (0, 8) and empty["mask_ids"].shape == (0, 20)
    assert not MaskedLM(MASK, 30, SPECIAL)(np.zeros((2, 0), int))["mask_weights"].any()


@pytest.mark.parametrize(
    "mask, random, expected",
    [(0.8, 0.1, (8000, 1000, 1000)), (1.0, 0.0, (10_000, 0, 0)), (0.0, 0.0, (0, 0, 10_000))],
)
def test_proportions(mask, random, expected):
    ids = rows()  # 135 pieces may be chosen in each of 500, and 20 are
    hidden = MaskedLM(MASK, 30_000, SPECIAL, mask_token_rate=mask, random_token_rate=random)(ids)
    marks = chosen(hidden)
    assert (marks.sum(axis=1) == 20).all() and (restored(hidden) == ids).all()
    assert (hidden["token_ids"][~marks] == ids[~marks]).all()
    before, after = ids[marks], hidden["token_ids"][marks]
    unchanged = (after == before).sum()
    found = (after == MASK).sum(), 10_000 - (after == MASK).sum() - unchanged, unchanged
    for value, mean in zip(found, expected, strict=True):
        assert abs(value - mean) <= 4 * np.sqrt(mean * (1 - mean / 10_000))
    replaced = after[(after != MASK) & (after != before)]
    assert not np.isin(replaced, SPECIAL).any()
    if len(replaced):  # from all of the vocabulary: the mean of a uniform draw, 4 sigma
        assert abs(replaced.mean() - 15_000) < 4 * 30_000 / np.sqrt(12 * len(replaced))


def test_every_ordinary_piece_may_be_a_random_one():
    masking = MaskedLM(
        MASK, 9, SPECIAL, mask_probability=1.0, mask_token_rate=0.0, random_token_rate=1.0
    )
    hidden = masking(np.full((100, 20), 5))
    assert np.unique(hidden["token_ids"]).tolist() == [4, 5, 6, 7, 8]


def test_number_and_places():
    ids = rows(3000, 42)
    hidden = MaskedLM(MASK, 30_000, SPECIAL, max_predictions=8)(ids)
    marks = chosen(hidden)
    assert (marks.sum(axis=1) == 6).all()  # 15 % of 40
    share = marks[:, 1:-1].mean(axis=0)  # each place as often: 4 sigma
    assert abs(share - 0.15).max() < 4 * np.sqrt(0.15 * 0.85 / 3000)
    for length, rate, width, number in [
        (3, 0.15, 20, 1),  # at least one
        (12, 0.15, 20, 2),  # 1.5
        (402, 0.15, 20, 20),  # at most
        (12, 0.5, 3, 3),
        (12, 0.5, 40, 5),  # more room than places
    ]:
        masking = MaskedLM(MASK, 100, SPECIAL, mask_probability=rate, max_predictions=width)
        hidden = masking(rows(4, length, 100))
        assert hidden["mask_ids"].shape == (4, width)
        assert (chosen(hidden).sum(axis=1) == number).all()


def test_whole_words():
    random = np.random.default_rng(0)
    continues = np.zeros(1000, bool)
    continues[700:] = True  # words of 1.4 pieces
    ids = rows(400, 82, 1000)
    lengths = random.integers(10, 82, 400)
    padding_mask = np.arange(82) < lengths[:, None]
    masking = MaskedLM(
        MASK, 1000, SPECIAL, max_predictions=10, whole_word=True, continues=continues
    )
    hidden = masking(ids, padding_mask)
    marks = chosen(hidden)
    assert (restored(hidden) == ids).all() and not marks[~padding_mask].any()
    several = 0
    for row in range(400):
        words = []
        for place in range(82):
            if ids[row, place] in SPECIAL or not padding_mask[row, place]:
                continue
            goes_on = continues[ids[row, place]] and words and words[-1][-1] == place - 1
            words[-1].append(place) if goes_on else words.append([place])
        number = min(10, max(1, round(0.15 * sum(map(len, words)))))
        taken = [word for word in words if marks[row, word].all()]
        left = number - marks[row].sum()
        assert all(marks[row, word].all() or not marks[row, word].any() for word in words)
        assert left >= 0 and all(len(word) > left for word in words if word not in taken)
        several += sum(len(word) > 1 for word in taken)
    assert several > 300
    # The pieces of a word are hidden one by one.
    after = hidden["token_ids"][marks]
    assert abs((after == MASK).mean() - 0.8) < 4 * np.sqrt(0.8 * 0.2 / marks.sum())
    # A word may begin with a piece that continues one: behind a special token or padding.
    masking = MaskedLM(
        MASK, 1000, SPECIAL, mask_probability=1.0, whole_word=True, continues=continues
    )
    hidden = masking(np.array([[CLS, 800, 801, SEP, 802, PAD, 803, 804]]), [[1] * 6 + [0, 1]])
    assert np.flatnonzero(chosen(hidden)).tolist() == [1, 2, 4, 7]


def test_same_seed_same_draw():
    ids = rows(6, 40)
    masking, twin, other = (MaskedLM(MASK, 30_000, SPECIAL, seed=seed) for seed in (5, 5, 6))
    hidden = masking(ids)
    for one in (masking(ids), twin(ids), twin(ids, draws=np.arange(6))):
        assert all((one[key] == hidden[key]).all() for key in hidden)
    # A row does not depend on the others.
    part = masking(ids[2:4], draws=[2, 3])
    assert all((part[key] == hidden[key][2:4]).all() for key in hidden)
    for changed in (other(ids), masking(ids, draws=np.arange(6) + 6)):
        assert (chosen(changed) != chosen(hidden)).any(axis=1).all()
    # Known numbers: the same on every backend and machine.
    digest = zlib.crc32(b"".join(hidden[key].astype("<i4").tobytes() for key in sorted(hidden)))
    assert digest == 867416917


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mask_probability": 1.5}, r"`mask_probability` must lie in \[0, 1\].*1.5"),
        ({"mask_token_rate": float("nan")}, "`mask_token_rate`.*nan"),
        ({"mask_token_rate": 0.8, "random_token_rate": 0.3}, "sum to 1.*0.8 and 0.3"),
        ({"max_predictions": 0}, "`max_predictions`.*0"),
        ({"seed": -1}, "`seed`.*-1"),
        ({"mask_id": 4.7}, "`mask_id` must be.*an integer.*4.7"),
        ({"mask_id": 30}, "vocabulary_size=30.*mask_id=30"),
        ({"special_ids": [-1]}, "`special_ids`.*-1"),
        ({"special_ids": range(30)}, "more than special tokens"),
        ({"whole_word": True}, r"`continues` must be boolean.*\(30,\)"),
        ({"whole_word": True, "continues": [0, 1] * 15}, "boolean.*int64"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        MaskedLM(**{"mask_id": MASK, "vocabulary_size": 30, "special_ids": SPECIAL, **options})


def test_bad_calls():
    masking, ids = MaskedLM(MASK, 30, SPECIAL), np.full((2, 5), 7)
    for arguments, message in [
        ((ids[0],), r"`token_ids` must be integers \(batch, length\)"),
        ((ids * 1.0,), "float64"),
        ((ids + [[0], [23]],), r"\[0, 30\).*30 in row 1"),
        ((ids - 8,), "-1 in row 0"),
        ((ids, np.ones((2, 4))), r"`padding_mask`.*\(2, 5\).*\(2, 4\)"),
        ((ids, None, [1]), r"`draws`.*\(1,\)"),
        ((ids, None, [1, -1]), "`draws`"),
        ((ids, None, [0.5, 1.0]), "`draws`.*float64"),
    ]:
        with pytest.raises(ValueError, match=message):
            masking(*arguments)
