"""A label for each word: CoNLL files, BERT's inputs, and entities.

As in section 5.3 of Devlin et al. 2018, the label of a word belongs to its first piece; its
other pieces are read, but neither trained on nor asked. Entities are counted as in the shared task
of CoNLL-2003 (Tjong Kim Sang and De Meulder, "Introduction to the CoNLL-2003 shared task"): right
is what has the same words and the same type.
"""

import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kerasmodels.data.bert_tokenizer import BertTokenizer
from kerasmodels.data.pairs import read_lines

__all__ = [
    "LabeledTokens",
    "entity_scores",
    "entity_spans",
    "label_tokens",
    "read_conll",
    "tags_of_words",
]

OUTSIDE = "O"
# BIO and IOB; BIOES, where E ends an entity and S is a single word; BILOU, where L and U do so.
PREFIXES, BEGIN, END = "BIESLU", "BSU", "ESLU"


def read_conll(
    paths: str | Path | Iterable[str | Path], column: int = -1
) -> list[tuple[list[str], list[str]]]:
    r"""Reads words and their tags from files in CoNLL's format.

    A line holds a word, the first column, and its tag. Columns are set apart by tabs where the line
    has one, else by spaces, and all lines of a file have equally many. A blank line, or one that
    begins with `-DOCSTART-`, ends a sentence. Files are UTF-8.

    Args:
        paths: A file, or several, which are read one after the other.
        column: The column of the tag, counted from 0, or from -1, the last. In the files of
            CoNLL-2003 the last holds names, 1 parts of speech and 2 chunks.

    Returns:
        A list of sentences, each a list of words and a list of as many tags.

    Raises:
        ValueError: A line has no such column, an empty one, or not as many as the first line, or is
            not UTF-8 (each with file and line); a file holds no sentence.
        FileNotFoundError: There is no such file.

    Example:
    ```python
    from pathlib import Path
    from kerasmodels import data

    Path("names.conll").write_text("Ada B-PER\nLovelace I-PER\nwrote O\n\nYes O\n")
    data.read_conll("names.conll")
    # [(['Ada', 'Lovelace', 'wrote'], ['B-PER', 'I-PER', 'O']), (['Yes'], ['O'])]
    ```
    """
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not paths:
        raise ValueError("`paths` must name a file at least. Received: none.")
    return [sentence for path in paths for sentence in _sentences(path, column)]


def _sentences(path, column):
    sentences, words, tags, width = [], [], [], None
    for number, line in enumerate(read_lines(path), start=1):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if words:
                sentences.append((words, tags))
                words, tags = [], []
            continue
        # Other white space, such as a no-break space, may be a part of a word.
        tabs = "\t" in line
        fields = [f.strip(" ") for f in line.split("\t" if tabs else " ") if tabs or f]
        width = len(fields) if width is None else width
        if len(fields) != width or column == 0 or not -width < column < width:
            raise ValueError(
                f"{path}, line {number}: expected a word, its tag in column={column}, and as many "
                f"columns as in the first line, {width}. Received: {len(fields)} in {line!r}."
            )
        if not (fields[0] and fields[column]):
            raise ValueError(
                f"{path}, line {number}: the word and its tag must not be empty. Received: "
                f"{line!r}."
            )
        words.append(fields[0])
        tags.append(fields[column])
    if words:
        sentences.append((words, tags))
    if not sentences:
        raise ValueError(f"{path} must hold sentences. Received: a file without one.")
    return sentences


class LabeledTokens(NamedTuple):
    """What `label_tokens` returns.

    Attributes:
        inputs: Those of `models.BertTokenClassifier`, a dictionary of arrays (batch, length).
        labels: int32 (batch, length): the classes; 0 where the weight is 0.
        sample_weights: float32 (batch, length): 1 at the first piece of each word, else 0.
        word_ids: int32 (batch, length): the word that a piece is cut from; -1 for special tokens
            and padding.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray
    sample_weights: np.ndarray
    word_ids: np.ndarray


def label_tokens(
    tokenizer: BertTokenizer,
    sentences: Iterable[tuple[Sequence[str], Sequence[str]]],
    class_names: Sequence[str],
    max_length: int | None = None,
    truncation: bool | None = None,
) -> LabeledTokens:
    """Turns words and their tags into what `models.BertTokenClassifier` is trained with.

    Only the first piece of a word has a weight (section 5.3). `training.SmoothedCrossEntropy(0.0)`
    then is the mean over words, whatever the padding.

    Args:
        tokenizer: A `BertTokenizer`.
        sentences: Pairs of words and as many tags, as `read_conll` returns.
        class_names: The tags in the order of their labels.
        max_length: The longest row, special tokens included; the tokenizer's
            `max_sequence_length` by default.
        truncation: What happens to a longer one. `True`: its last words are lost. `None`: so they
            are, and a warning says how many. `False`: an error.

    Returns:
        `LabeledTokens`: inputs, labels, weights and the words that the pieces are cut from. A word
        without a piece (one of control characters alone) has no label.

    Raises:
        ValueError: A tag is not in `class_names`, which holds each once; a sentence has not as many
            tags as words; or as `BertTokenizer.encode_words`.

    Example:
    ```python
    from kerasmodels import data

    tokenizer = data.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ad", "##a"])
    tokens = data.label_tokens(tokenizer, [(["Ada"], ["B-PER"])], ["O", "B-PER"])
    tokens.inputs["token_ids"]  # [[2, 5, 6, 3]]
    tokens.labels, tokens.sample_weights  # [[0, 1, 0, 0]], [[0, 1, 0, 0]]
    # They are for `fit(tokens.inputs, tokens.labels, sample_weight=tokens.sample_weights)`.
    ```
    """
    sentences, classes = list(sentences), _classes(class_names)
    if truncation not in (True, False, None):
        raise ValueError(f"`truncation` must be True, False or None. Received: {truncation!r}.")
    for row, (words, tags) in enumerate(sentences):
        if len(words) != len(tags):
            raise ValueError(
                "`sentences` must have a tag for each word. "
                f"Received: {len(words)} words and {len(tags)} tags in sentence {row}."
            )
        for word, tag in zip(words, tags, strict=True):
            if tag not in classes:
                raise ValueError(
                    f"Tags must be in `class_names`, {list(classes)}. "
                    f"Received: {tag!r} at {word!r} in sentence {row}."
                )
    encoded = tokenizer.encode_words(
        [words for words, _ in sentences], max_length, truncation=truncation is not False
    )
    word_ids = encoded.pop("word_ids")
    first = _first_pieces(word_ids)
    labels = np.zeros(word_ids.shape, "int32")
    lost = 0
    for row, (words, tags) in enumerate(sentences):
        kept = word_ids[row, first[row]]
        labels[row, first[row]] = [classes[tags[i]] for i in kept]
        if truncation is None and len(kept) < len(words):
            behind = words[kept.max(initial=-1) + 1 :]  # not all: some may have no piece at all
            lost += sum(map(bool, tokenizer.encode_batch(behind)))
    if lost:
        warnings.warn(
            f"{lost} words are lost, since their sentences have more than {word_ids.shape[1]} "
            "tokens. `truncation=True` cuts without this warning; `truncation=False` makes it an "
            "error.",
            stacklevel=2,
        )
    return LabeledTokens(encoded, labels, first.astype("float32"), word_ids)


def tags_of_words(
    logits: np.ndarray,
    word_ids: np.ndarray,
    class_names: Sequence[str],
    lengths: Sequence[int],
) -> list[list[str]]:
    """Reads the tag of each word from the logits at its first piece.

    Args:
        logits: (batch, length, classes): what `models.BertTokenClassifier` predicts.
        word_ids: (batch, length): as in `LabeledTokens`, or from `BertTokenizer.encode_words`.
        class_names: The tags in the order of the classes.
        lengths: How many words each sentence has.

    Returns:
        A list of tags for each sentence. Words that truncation lost, or that have no piece, are
        `"O"`.

    Raises:
        ValueError: The shapes do not belong together, a length is below the words found, or a logit
            is NaN.

    Example:
    ```python
    import numpy as np
    from kerasmodels import data

    tokenizer = data.BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "ad", "##a"])
    encoded = tokenizer.encode_words([["Ada", "wrote"]])
    word_ids = encoded.pop("word_ids")
    logits = np.eye(2)[[[0, 1, 1, 0, 0]]]  # (1, 5, 2), what a `BertTokenClassifier` predicts
    data.tags_of_words(logits, word_ids, ["O", "B-PER"], [2])  # [['B-PER', 'O']]
    ```
    """
    logits, word_ids, class_names = np.asarray(logits), np.asarray(word_ids), list(class_names)
    expected = (*word_ids.shape, len(class_names))
    if logits.shape != expected or len(lengths) != len(word_ids):
        raise ValueError(
            f"`logits` must have the shape {expected}, that of `word_ids` and one for each class, "
            f"and `lengths` a number for each row. Received: {logits.shape} and {len(lengths)} "
            "lengths."
        )
    first, best = _first_pieces(word_ids), logits.argmax(-1)
    if np.isnan(logits[first]).any():
        raise ValueError("`logits` must be numbers. Received: NaN, from a model that has failed.")
    sentences = []
    for row, length in enumerate(lengths):
        words = word_ids[row, first[row]]
        if words.max(initial=-1) >= length:
            raise ValueError(
                f"`lengths` must count all words. Received: {length} for row {row}, which has at "
                f"least {words.max() + 1}."
            )
        tags = [OUTSIDE] * length
        for word, label in zip(words, best[row, first[row]], strict=True):
            tags[word] = class_names[label]
        sentences.append(tags)
    return sentences


def entity_spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Finds the entities of a sentence.

    Tags are `"O"` or a prefix, a hyphen and a type. BIO, its older form IOB, BIOES and BILOU are
    understood at once, and tags that contradict one another as CoNLL's `conlleval` reads them: an
    entity begins at B (or S, U), and at any other tag that has no tag of its type before it, or one
    that ends an entity.

    Args:
        tags: The tags of the words.

    Returns:
        A list of `(start, end, type)`, the words `start` to `end - 1`, in their order.

    Raises:
        ValueError: A tag is of another form.

    Example:
    ```python
    from kerasmodels import data

    data.entity_spans(["B-PER", "I-PER", "O", "B-LOC", "B-LOC"])
    # [(0, 2, 'PER'), (3, 4, 'LOC'), (4, 5, 'LOC')]
    ```
    """
    spans, before = [], OUTSIDE
    for i, tag in enumerate(tags):
        prefix, kind = tag[:1], tag[2:]
        if tag != OUTSIDE and not (prefix in PREFIXES and tag[1:2] == "-" and kind):
            raise ValueError(
                f"Tags must be 'O', or one of {list(PREFIXES)}, a hyphen and a type. "
                f"Received: {tag!r}."
            )
        if tag != OUTSIDE:
            goes_on = before[2:] == kind and before[0] not in END  # "O" has no type
            if goes_on and prefix not in BEGIN:
                spans[-1] = (spans[-1][0], i + 1, kind)
            else:
                spans.append((i, i + 1, kind))
        before = tag
    return spans


def entity_scores(
    hypotheses: Iterable[Sequence[str]], references: Iterable[Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Precision, recall and F1 of entities: same words and same type, as CoNLL counts.

    Args:
        hypotheses: The tags that a model gave, a list for each sentence.
        references: The right ones.

    Returns:
        For each type that occurs, and for `"all"` of them together, a dictionary of `precision`,
        `recall` and `f1`, from 0 to 1, and the number of entities, `references` and `hypotheses`.
        A share of nothing is 0.

    Raises:
        ValueError: The two have not as many sentences, or a sentence not as many tags; a tag has
            another form than `entity_spans` knows, or the type `"all"`.

    Example:
    ```python
    from kerasmodels import data

    said, right = [["B-PER", "O", "B-LOC"]], [["B-PER", "I-PER", "B-LOC"]]
    data.entity_scores(said, right)["all"]["f1"]  # 0.5
    ```
    """
    hypotheses, references = list(hypotheses), list(references)
    if [len(tags) for tags in hypotheses] != [len(tags) for tags in references]:
        raise ValueError(
            "`hypotheses` must have a tag for each tag of `references`, sentence by sentence. "
            f"Received: {len(hypotheses)} and {len(references)} sentences of "
            f"{sum(map(len, hypotheses))} and {sum(map(len, references))} tags."
        )
    said, right, both = Counter(), Counter(), Counter()
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        found, true = set(entity_spans(hypothesis)), set(entity_spans(reference))
        for counter, spans in ((said, found), (right, true), (both, found & true)):
            counter.update(kind for _, _, kind in spans)
    kinds = sorted(said.keys() | right.keys())
    if "all" in kinds:
        raise ValueError("The type 'all' is taken: it stands for all types together.")
    scores = {kind: _scores(both[kind], said[kind], right[kind]) for kind in kinds}
    return {"all": _scores(both.total(), said.total(), right.total()), **scores}


def _scores(both, said, right):
    return {
        "precision": both / said if said else 0.0,
        "recall": both / right if right else 0.0,
        "f1": 2 * both / (said + right) if said + right else 0.0,
        "references": right,
        "hypotheses": said,
    }


def _classes(class_names):
    class_names = list(class_names)
    twice = sorted(name for name, count in Counter(class_names).items() if count > 1)
    if twice or not class_names:
        raise ValueError(f"`class_names` must hold each tag once. Received: {class_names}.")
    return {name: i for i, name in enumerate(class_names)}


def _first_pieces(word_ids):
    """Whether a token is the first piece of a word, (batch, length)."""
    before = np.concatenate([np.full_like(word_ids[:, :1], -1), word_ids[:, :-1]], axis=1)
    return (word_ids >= 0) & (word_ids != before)
