import itertools
import random

import numpy as np
import pytest
import sacrebleu

from kerasmodels.training import Bleu, ErrorRate


@pytest.mark.parametrize(
    "hypothesis, references, options, expected",
    [
        ("p q r s", ["z", "p q r s t"], {}, 77.88),  # the closest length, not the shortest
        ("a b c d e", ["a b c d e f g"], {}, 67.03),
        ("a a a a", ["a b c d", "a a e f"], {"max_order": 1}, 50.0),  # clipped counts
    ],
)
def test_bleu_cases(hypothesis, references, options, expected):
    for smooth in ("none", "exp"):
        metric = Bleu(smooth_method=smooth, **options)
        metric.update_state([hypothesis], [references])
        np.testing.assert_allclose(metric.result(), expected, atol=5e-3)
        # The same as sequences of tokens, and of ids.
        ids = {word: i for i, word in enumerate("abcdefgpqrstz")}
        for split in (str.split, lambda text, ids=ids: [ids[word] for word in text.split()]):
            metric = Bleu(smooth_method=smooth, **options)
            metric.update_state([split(hypothesis)], [[split(r) for r in references]])
            np.testing.assert_allclose(metric.result(), expected, atol=5e-3)


def test_bleu_equals_sacrebleu_however_the_corpus_is_split():
    rng = random.Random(0)
    words = ["the", "a", "cat", "dog", "sat", "on", "mat,", "and", "it's", "(very)", "big", "."]
    text = [" ".join(rng.choices(words, k=rng.randint(4, 12))) for _ in range(40)]
    hypotheses = text[:20]
    references = [
        [t, " ".join(t.split()[1:] + ["cat"])][: 1 + i % 2] for i, t in enumerate(text[20:])
    ]
    streams = [[r[0] for r in references], [r[1] if len(r) > 1 else None for r in references]]
    expected = sacrebleu.corpus_bleu(hypotheses, streams)
    metric = Bleu()
    for start in range(0, 20, 6):
        rows = slice(start, start + 6)
        metric.update_state(hypotheses[rows], references[rows])
    np.testing.assert_allclose(metric.result(), expected.score, rtol=1e-12)
    assert metric.signature.startswith("nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    metric.reset_state()
    assert metric.result() == 0.0
    metric.update_state(["A B C D"], ["a b c d"])
    assert metric.result() == 0.0
    lower = Bleu(lowercase=True, max_order=2)
    lower.update_state(["A B C D"], ["a b c d"])
    np.testing.assert_allclose(lower.result(), 100)
    assert "case:lc" in lower.signature and lower.signature.endswith("|order:2")


def test_bleu_takes_tokens_as_they_are():
    metric = Bleu(max_order=1)
    metric.update_state(
        [["a b", "", "x"]], [["a b", "", "y"]]
    )  # a token with a space, an empty one
    np.testing.assert_allclose(metric.result(), 200 / 3, rtol=1e-6)
    metric = Bleu()
    metric.update_state(np.array([[5, 6, 7, 8]]), [np.array([5, 6, 7, 8])])
    np.testing.assert_allclose(metric.result(), 100)


def brute_force(a, b):
    """Levenshtein by the recursive definition."""
    if not a or not b:
        return len(a) + len(b)
    return min(
        brute_force(a[1:], b) + 1,
        brute_force(a, b[1:]) + 1,
        brute_force(a[1:], b[1:]) + (a[0] != b[0]),
    )


def test_error_rates_by_brute_force():
    rng = random.Random(0)
    pairs = [
        ([rng.randrange(3) for _ in range(n)], [rng.randrange(3) for _ in range(m)])
        for n, m in itertools.product(range(6), range(1, 6))
    ]
    hypotheses, references = zip(*pairs, strict=True)
    tokens, sequences = ErrorRate("token"), ErrorRate("sequence")
    for metric in (tokens, sequences):
        metric.update_state(hypotheses[:7], references[:7])
        metric.update_state(hypotheses[7:], references[7:])
    errors = sum(brute_force(tuple(a), tuple(b)) for a, b in pairs)
    assert tokens.result() == errors / sum(len(b) for _, b in pairs)
    assert sequences.result() == sum(a != b for a, b in pairs) / len(pairs)


def test_the_nearest_reference_counts_over_its_length():
    per, wer = ErrorRate("token"), ErrorRate("sequence")
    assert (per.name, wer.name) == ("per", "wer")
    hypotheses = [["K", "AE", "T"], ["D", "AO", "G"], ["B", "AH"]]
    references = [[["K", "AH", "T"], ["K", "AE", "T", "S"]], [["D", "AA", "G"], ["D", "AO", "G"]]]
    references += [[["B", "IY", "Z", "UW"]]]
    for metric in (per, wer):
        metric.update_state(hypotheses, references)
    # cat: distance 1 to both, the first has length 3; dog: 0 of 3; b-uh: 3 of 4
    assert per.result() == (1 + 0 + 3) / (3 + 3 + 4)
    assert wer.result() == 2 / 3
    # Words of strings; one reference a row needs no list.
    metric = ErrorRate("token")
    metric.update_state(["a b  c", "x"], ["a c", ["y z", "x"]])
    assert metric.result() == 1 / 3
    metric.reset_state()
    assert metric.result() == 0
    metric.update_state([[1, 2]], [[]])  # an empty reference counts as length 1
    assert metric.result() == 2


@pytest.mark.parametrize("empty", ["", "  ", []])
def test_an_empty_reference_beside_another(empty):
    """It is no shorter reference: exp(1 - 9/4), and not 100."""
    words = "a b c d e f g h i"
    hypothesis = "a b c d" if isinstance(empty, str) else ["a", "b", "c", "d"]
    other = words if isinstance(empty, str) else words.split()
    for group in ([empty, other], [other, empty], [empty, other, empty]):
        metric = Bleu()
        metric.update_state([hypothesis], [group])
        np.testing.assert_allclose(metric.result(), 28.65048, rtol=1e-6)
    # One that is all alone is one: nothing of it can be met.
    metric = Bleu()
    metric.update_state([hypothesis], [[empty] if isinstance(empty, str) else empty])
    assert metric.result() == 0


def test_effective_order_is_that_of_sacrebleu():
    from sacrebleu import sentence_bleu

    for hypothesis, reference in (("a b", "a b c"), ("a b c d e", "a b c d f"), ("x", "y")):
        metric = Bleu(effective_order=True)
        metric.update_state([hypothesis], [reference])
        expected = sentence_bleu(hypothesis, [reference], use_effective_order=True).score
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-9)
        assert "eff:yes" in metric.signature
    assert Bleu().effective_order is False


@pytest.mark.parametrize("metric", [Bleu(), ErrorRate()])
@pytest.mark.parametrize(
    "hypotheses, references",
    [
        (["a"], ["a", "b"]),
        (["a"], [[]]),
        (["a"], [[["a"]]]),
    ],
)
def test_bad_pairs(metric, hypotheses, references):
    with pytest.raises(ValueError, match="references"):
        metric.update_state(hypotheses, references)
    assert metric.result() == 0  # nothing was taken in


def test_bad_input():
    with pytest.raises(ValueError, match="unit"):
        ErrorRate("word")
    with pytest.raises(ValueError, match="max_order"):
        Bleu(max_order=0)
    with pytest.raises(ValueError, match="signature"):
        _ = Bleu().signature
    metric = Bleu()
    metric.update_state(["a"], ["a"])
    with pytest.raises(ValueError, match="hypotheses"):
        metric.update_state([["a"]], [["a"]])
