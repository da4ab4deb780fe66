"""Which lengths to pad to: a few shapes, chosen so that little of a batch is padding."""

import numpy as np

# The choice looks at every pair of cuts between this many distinct lengths, no more.
MAX_CANDIDATES = 512


def rows_that_fit(longest, tokens_per_batch: int, batch_multiple: int):
    """The rows of a full batch whose longer side is `longest`; works on arrays too."""
    return tokens_per_batch // longest // batch_multiple * batch_multiple


def choose_buckets(
    source_lengths: np.ndarray,
    target_lengths: np.ndarray,
    num_buckets: int,
    tokens_per_batch: int,
    batch_multiple: int = 1,
) -> list[tuple[int, int]]:
    """Chooses the shapes that pad a corpus least.

    Pairs are grouped by their longer side, and each group is padded to the longest source and the
    longest target in it. Of all ways to cut the lengths into at most `num_buckets` groups this
    takes the one with the fewest cells (source and target), every batch counted as if it were
    full: a group too small to fill a batch is only worth having if it saves more than that.

    Args:
        source_lengths: Integers, (pairs,).
        target_lengths: Integers, (pairs,), as long as they stand in a batch.
        num_buckets: The largest number of groups.
        tokens_per_batch: The most cells a batch may have on either side.
        batch_multiple: The number that divides the rows of every batch.

    Returns:
        At most `num_buckets` pairs (source length, target length), the shorter first.
    """
    longer = np.maximum(source_lengths, target_lengths)
    lengths, counts = np.unique(longer, return_counts=True)
    if len(lengths) > MAX_CANDIDATES:
        # Neighbouring lengths move together, the rarer the more of them.
        share = np.cumsum(counts) / counts.sum()
        keep = np.unique(np.searchsorted(share, np.linspace(0, 1, MAX_CANDIDATES)[1:] - 1e-9))
        lengths = lengths[np.union1d(keep, len(lengths) - 1)]
    group = np.searchsorted(lengths, longer)
    number = len(lengths)
    pairs = np.bincount(group, minlength=number)
    source = np.zeros(number, np.int64)
    target = np.zeros(number, np.int64)
    np.maximum.at(source, group, source_lengths)
    np.maximum.at(target, group, target_lengths)

    # cost[i, j]: the cells of one group that holds the lengths i to j-1
    before = np.concatenate([[0], np.cumsum(pairs)])
    rows = rows_that_fit(lengths, tokens_per_batch, batch_multiple)
    cost = np.full((number + 1, number + 1), np.inf)
    for i in range(number):
        width = np.maximum.accumulate(source[i:]) + np.maximum.accumulate(target[i:])
        batches = -(-(before[i + 1 :] - before[i]) // rows[i:])
        cost[i, i + 1 :] = batches * rows[i:] * width

    # best[j]: the fewest cells for the lengths before j, with one more group in each round
    best, last_cuts = cost[0], []
    for _ in range(min(num_buckets, number) - 1):
        with_cut = best[:, None] + cost
        better = with_cut.min(axis=0)
        last_cuts.append(np.where(better < best, with_cut.argmin(axis=0), -1))
        best = np.minimum(best, better)
    cuts, end = [number], number
    for last in reversed(last_cuts):
        if last[end] > 0:
            end = int(last[end])
            cuts.append(end)
    cuts = [0, *reversed(cuts)]
    return [
        (int(source[i:j].max()), int(target[i:j].max()))
        for i, j in zip(cuts, cuts[1:], strict=False)
    ]


def assign_buckets(
    source_lengths: np.ndarray, target_lengths: np.ndarray, buckets: list[tuple[int, int]]
) -> np.ndarray:
    """Finds the smallest bucket that holds each pair.

    Args:
        source_lengths: Integers, (pairs,).
        target_lengths: Integers, (pairs,), as long as they stand in a batch.
        buckets: Pairs (source length, target length).

    Returns:
        Indices into `buckets`, (pairs,); -1 where no bucket is long enough.
    """
    order = sorted(range(len(buckets)), key=lambda k: sum(buckets[k]), reverse=True)
    assigned = np.full(len(source_lengths), -1)
    for k in order:  # the smaller overwrite the larger
        source, target = buckets[k]
        assigned[(source_lengths <= source) & (target_lengths <= target)] = k
    return assigned
