from itertools import combinations

import numpy as np
import pytest

from kerasmodels.data.buckets import assign_buckets, choose_buckets, rows_that_fit


def cells(source, target, cuts, tokens, multiple):
    """The cost from its definition: groups by the longer side, every batch counted as full."""
    longer, total, before = np.maximum(source, target), 0, 0
    for cut in cuts:
        group = (longer > before) & (longer <= cut)
        shape = source[group].max(), target[group].max()
        rows = tokens // max(shape) // multiple * multiple
        total += -(-group.sum() // rows) * rows * sum(shape)
        before = cut
    return total


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("tokens, multiple", [(12, 1), (60, 4), (10_000, 1)])
def test_no_other_cut_is_better(seed, tokens, multiple):
    random = np.random.default_rng(seed)
    source = random.geometric(0.25, 60).clip(max=12)
    target = (source + random.integers(-2, 3, 60)).clip(1, 12)
    lengths = np.unique(np.maximum(source, target))
    tokens = max(tokens, 12 * multiple)
    for number in (1, 2, 3, 20):
        buckets = choose_buckets(source, target, number, tokens, multiple)
        found = cells(source, target, [max(b) for b in buckets], tokens, multiple)
        best = min(
            cells(source, target, [*cuts, lengths[-1]], tokens, multiple)
            for n in range(min(number, 4, len(lengths)))
            for cuts in combinations(lengths[:-1], n)
        )
        assert len(buckets) <= number
        assert found == best if number <= 4 else found <= best
        assert (assign_buckets(source, target, buckets) >= 0).all()


def test_many_lengths_take_no_longer():
    random = np.random.default_rng(0)
    source = np.concatenate([random.integers(1, 20_000, 5000), [20_000]])
    target = source // 2 + 1
    buckets = choose_buckets(source, target, 16, 40_000)
    assert buckets[-1] == (20_000, 10_001) and len(buckets) == 16
    assigned = assign_buckets(source, target, buckets)
    assert (assigned >= 0).all()
    padded = np.array(buckets)[assigned].sum()
    assert (source.sum() + target.sum()) / padded > 0.94  # 16 equal steps: 1 - 1/32 = 0.97 at best


def test_the_smallest_bucket_that_holds_a_pair():
    buckets = [(8, 4), (4, 8), (5, 5), (9, 9)]
    source, target = np.array([4, 8, 1, 5, 9, 10, 1]), np.array([4, 4, 8, 5, 1, 1, 10])
    assert assign_buckets(source, target, buckets).tolist() == [2, 0, 1, 2, 3, -1, -1]


def test_rows():
    assert rows_that_fit(25, 25_000, 1) == 1000
    assert rows_that_fit(26, 25_000, 8) == 960
