"""BLEU and error rates of generated sequences, on the host: hypotheses against references.

Hypotheses and references are either strings or sequences of tokens (words, ids, anything
hashable). A hypothesis has one reference of its own form, or a list of several:

    metric.update_state(["a b c"], ["a b d"])                      # strings, one reference each
    metric.update_state(["a b c"], [["a b d", "a c"]])             # strings, two references
    metric.update_state([[4, 5, 6]], [[4, 5, 7]])                  # tokens, one reference each
    metric.update_state([[4, 5, 6]], [[[4, 5, 7], [4, 6]]])        # tokens, two references
"""

from kerasmodels.arguments import integer


def _pairs(hypotheses, references):
    """Yields every hypothesis with the list of its references, sequences as tuples of tokens."""
    hypotheses, references = list(hypotheses), list(references)
    if len(hypotheses) != len(references):
        raise ValueError(
            "`hypotheses` and `references` must have the same length. Received: "
            f"{len(hypotheses)} hypotheses, {len(references)} references"
        )
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        text = isinstance(hypothesis, str)
        hypothesis = hypothesis if text else _tokens(hypothesis)
        if text and isinstance(reference, str):
            group = [reference]
        elif text:
            group = list(reference)
        else:
            reference = _tokens(reference)
            # A sequence whose items are sequences holds several references.
            several = bool(reference) and all(_is_sequence(item) for item in reference)
            group = [_tokens(item) for item in reference] if several else [reference]
        if not group or any(isinstance(item, str) != text for item in group):
            raise ValueError(
                "`references` must hold one reference of its hypothesis's form (a string, or a "
                "sequence of tokens) or a list of several. Received: "
                f"hypothesis={hypothesis!r}, reference={reference!r}"
            )
        yield hypothesis, group


def _is_sequence(value):
    return hasattr(value, "__len__") and not isinstance(value, (str, bytes))


def _tokens(sequence):
    """A tuple of tokens; of Python numbers, where an array came."""
    return tuple(sequence.tolist() if hasattr(sequence, "tolist") else sequence)


class Bleu:
    """Corpus BLEU of sacrebleu (Papineni et al. 2002; Post 2018), from 0 to 100.

    Counts are pooled over all updates, so the score does not depend on how the corpus is split into
    batches. sacrebleu is imported at the first result (`pip install kerasmodels[metrics]`).

    Args:
        max_order: The longest n-gram that counts.
        smooth_method: sacrebleu's `"exp"` (its default), `"floor"`, `"add-k"` or `"none"`.
        lowercase: Whether case is ignored; for strings only.
        tokenize: sacrebleu's tokenizer for strings (`"13a"`, `"intl"`, `"char"`, `"zh"`, ...).
            Sequences of tokens are taken as they are.
        effective_order: Whether orders without a match are left out, as for scores of single
            sentences, where four matching words in a row are rare.
        name: The key in a callback's logs.

    Raises:
        ValueError: If `max_order` is not positive, if numbers of hypotheses and references differ,
            or if strings and sequences of tokens are mixed.

    Without any hypothesis the result is 0. An empty reference beside others is left out: its
    length 0 would be the nearest to a short hypothesis, which then were never too short.

    Example:
    ```python
    from kerasmodels import training

    metric = training.Bleu()
    metric.update_state(["a b c d e"], ["a b c d e f g"])
    metric.result()  # 67.03
    print(metric.signature)  # nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:...
    ```
    """

    def __init__(
        self,
        max_order=4,
        smooth_method="exp",
        lowercase=False,
        tokenize="13a",
        effective_order=False,
        name="bleu",
    ):
        self.max_order = integer("max_order", max_order)
        self.smooth_method = smooth_method
        self.lowercase = lowercase
        self.tokenize = tokenize
        self.effective_order = bool(effective_order)
        self.name = name
        self.reset_state()

    def reset_state(self):
        """Forgets all hypotheses."""
        self._hypotheses, self._references = [], []
        self._words = {}  # token -> a word for it
        self._is_text = None

    def update_state(self, hypotheses, references):
        """Adds hypotheses and their references; see the module for their forms."""
        pairs = list(_pairs(hypotheses, references))
        is_text = {isinstance(hypothesis, str) for hypothesis, _ in pairs}
        if self._is_text is not None:
            is_text.add(self._is_text)
        if len(is_text) > 1:
            raise ValueError("`hypotheses` must be all strings or all sequences of tokens.")
        for hypothesis, group in pairs:
            self._hypotheses.append(self._as_text(hypothesis))
            group = [self._as_text(reference) for reference in group]
            self._references.append([text for text in group if text.strip()] or group[:1])
            self._is_text = isinstance(hypothesis, str)

    def _as_text(self, sequence):
        if isinstance(sequence, str):
            return sequence
        # BLEU only asks which tokens are equal; a number for each survives any tokenizer, also
        # where a token has spaces or is empty.
        return " ".join(str(self._words.setdefault(t, len(self._words))) for t in sequence)

    def _score(self):
        from sacrebleu.metrics import BLEU

        metric = BLEU(
            max_ngram_order=self.max_order,
            smooth_method=self.smooth_method,
            lowercase=self.lowercase,
            tokenize=self.tokenize if self._is_text else "none",
            effective_order=self.effective_order,
            force=True,  # no warning that the text looks tokenized
        )
        most = max(map(len, self._references))
        # One stream a reference; None where a hypothesis has fewer.
        streams = [[r[i] if i < len(r) else None for r in self._references] for i in range(most)]
        return metric.corpus_score(self._hypotheses, streams).score, metric

    def result(self):
        """The score of all hypotheses so far, a float from 0 to 100; 0 without any."""
        if not self._hypotheses:
            return 0.0
        return float(self._score()[0])

    @property
    def signature(self):
        """The signature of sacrebleu, to be stated beside the score for others to repeat it.

        sacrebleu leaves the order out; one other than 4 is added here.
        """
        if not self._hypotheses:
            raise ValueError("The signature is known after the first `update_state`.")
        signature = str(self._score()[1].get_signature())
        return signature if self.max_order == 4 else f"{signature}|order:{self.max_order}"


class ErrorRate:
    """The phoneme, character or word error rate, by token or by sequence.

    With `unit="token"`: the least number of insertions, deletions and substitutions (Levenshtein)
    that turns hypotheses into references, over the references' length, both summed over all
    updates. With `unit="sequence"`: the share of hypotheses that equal none of their references.
    Of several references the nearest counts, and its length; of equally near ones the first.

    Args:
        unit: `"token"` or `"sequence"`.
        name: The key in a callback's logs; by default `"per"` for tokens and `"wer"` for sequences,
            the phoneme and word error rates of a model that pronounces words.

    Raises:
        ValueError: If `unit` is unknown or numbers of hypotheses and references differ.

    A string is a sequence of the words between its spaces. The result is a fraction, not per cent;
    it may exceed 1. Without any hypothesis it is 0; references without a token count as length 1.

    Example:
    ```python
    from kerasmodels import training

    metric = training.ErrorRate("token")
    metric.update_state([["K", "AE", "T"]], [[["K", "AH", "T"], ["K", "AE", "T", "S"]]])
    metric.result()  # 0.3333
    ```
    """

    def __init__(self, unit="token", name=None):
        if unit not in ("token", "sequence"):
            raise ValueError(f'`unit` must be "token" or "sequence". Received: unit={unit!r}')
        self.unit = unit
        self.name = name or {"token": "per", "sequence": "wer"}[unit]
        self.reset_state()

    def reset_state(self):
        """Forgets all hypotheses."""
        self._errors = self._length = 0

    def update_state(self, hypotheses, references):
        """Adds hypotheses and their references; see the module for their forms."""
        for hypothesis, group in list(_pairs(hypotheses, references)):
            if isinstance(hypothesis, str):
                hypothesis, group = hypothesis.split(), [reference.split() for reference in group]
            hypothesis, group = list(hypothesis), [list(reference) for reference in group]
            if self.unit == "sequence":
                self._errors += hypothesis not in group
                self._length += 1
            else:
                errors = [_edit_distance(hypothesis, reference) for reference in group]
                nearest = errors.index(min(errors))
                self._errors += errors[nearest]
                self._length += len(group[nearest])

    def result(self):
        """Errors over length of all hypotheses so far, a float."""
        return self._errors / max(self._length, 1)


def _edit_distance(a, b):
    """The Levenshtein distance of two lists, one row of its table at a time."""
    if a == b:
        return 0
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        diagonal, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            above = row[j + 1]
            best = diagonal if x == y else 1 + min(diagonal, above, row[j])
            diagonal, row[j + 1] = above, best
    return row[-1]
