"""Questions about texts in BERT's inputs, and answers out of its logits.

Devlin et al. 2018, sections 4.2 (SQuAD 1.1) and 4.3 (SQuAD 2.0).
"""

import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kerasmodels.data.arguments import whole_number
from kerasmodels.data.bert_tokenizer import BertTokenizer
from kerasmodels.data.questions import Question, check_answers

__all__ = ["FoundAnswer", "QuestionWindows", "encode_questions", "find_answers"]


class QuestionWindows(NamedTuple):
    """What `encode_questions` returns: a row for each window of each context.

    Attributes:
        inputs: Those of `models.BertSpanClassifier`, a dictionary of arrays (windows, length).
        targets: `start` and `end`, int32 (windows,): the first and last token of the first answer;
            both 0, the place of [CLS], where the window does not hold all of it.
        offsets: int32 (windows, length, 2): where a token of the context begins and ends in it, in
            characters; 0 and 0 for all other tokens.
        question_index: int32 (windows,): the position of the question in the list.
    """

    inputs: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    offsets: np.ndarray
    question_index: np.ndarray


class FoundAnswer(NamedTuple):
    """An answer that a model gives.

    Attributes:
        text: The words; empty where the text does not say.
        start: Where they begin in the context, in characters.
        end: Where they end.
        score: The sum of the logits of the best span's two ends; -inf where there is none.
        null_score: That of [CLS], the lowest of all windows.
    """

    text: str
    start: int
    end: int
    score: float
    null_score: float


# === Into the model ===


def encode_questions(
    tokenizer: BertTokenizer,
    questions: Iterable[Question],
    max_length: int = 384,
    doc_stride: int = 128,
) -> QuestionWindows:
    """Turns questions into what `models.BertSpanClassifier` is trained with.

    A row is `[CLS] question [SEP] context [SEP]`, the question as segment 0 and the context as
    segment 1 (section 4.2). A context that is too long gives several rows, windows that begin
    `doc_stride` tokens after one another. A window that does not hold the answer from end to end
    has the target [CLS], like a question without an answer (section 4.3).

    Args:
        tokenizer: A `BertTokenizer`.
        questions: `Question`s, as `read_squad` returns.
        max_length: The longest row, special tokens included.
        doc_stride: The tokens from the beginning of a window to that of the next; fewer where a
            window has no room for so many, so that nothing is left out.

    Returns:
        `QuestionWindows`: inputs, targets, offsets and the questions that the rows belong to. A
        warning says how many answers no window holds.

    Raises:
        ValueError: An argument is out of its range; a question leaves no room for the context; an
            answer does not stand in the context where its start says, or has no token.

    Example:
    ```python
    from kerasmodels import data

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = data.BertTokenizer([*special, "ada", "london", "where"])
    answer = data.Answer("London", 4)
    question = data.Question("1", "Where?", "Ada London", [answer])
    windows = data.encode_questions(tokenizer, [question])
    windows.inputs["token_ids"]  # [[2, 7, 1, 3, 5, 6, 3]]
    windows.targets  # {"start": [5], "end": [5]}, for `BertSpanClassifier.fit`
    ```
    """
    questions = list(questions)
    for number, question in enumerate(questions):
        texts = question[:3] if isinstance(question, Question) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(
                "`questions` must be `Question`s with strings in them. "
                f"Received: number {number}, {str(question)[:200]}."
            )
    limit = tokenizer.max_sequence_length
    max_length = whole_number("max_length", max_length, 4)
    doc_stride = whole_number("doc_stride", doc_stride, 1)
    if limit is not None and max_length > limit:
        raise ValueError(
            f"`max_length` must be at most max_sequence_length={limit}. Received: {max_length}."
        )
    asked = tokenizer.encode_batch(question.question for question in questions)
    # Several questions are about one context: it is cut into pieces once.
    contexts = list(dict.fromkeys(question.context for question in questions))
    contexts = dict(zip(contexts, tokenizer._encode(contexts, offsets=True), strict=True))
    rows, targets, question_index, unheld = [], [], [], 0
    for index, (question, question_ids) in enumerate(zip(questions, asked, strict=True)):
        check_answers(question, f"Question {question.id!r}")
        context = contexts[question.context]
        room = max_length - len(question_ids) - 3  # for tokens of the context
        if room < 1:
            raise ValueError(
                f"`max_length` must have room for a question and some of its context. Received: "
                f"{max_length}; question {question.id!r} alone has {len(question_ids)} tokens."
            )
        offsets = np.array(context.offsets, "int32").reshape(-1, 2)
        span = _answer_tokens(question, offsets)
        held = False
        for start in _window_starts(len(offsets), room, doc_stride):
            window = slice(start, start + room)
            rows.append((question_ids, context.ids[window], offsets[window]))
            inside = span is not None and start <= span[0] and span[1] < start + room
            # [CLS] question [SEP] stand before the context.
            shift = len(question_ids) + 2 - start
            targets.append((span[0] + shift, span[1] + shift) if inside else (0, 0))
            question_index.append(index)
            held |= inside
        unheld += span is not None and not held
    if unheld:
        warnings.warn(
            f"The answers to {unheld} of {len(questions)} questions lie in no window as a whole, "
            "and are trained on as none. A larger `max_length` or a smaller `doc_stride` helps.",
            stacklevel=2,
        )
    inputs, offsets = _arrays(tokenizer, rows)
    targets = np.array(targets, "int32").reshape(-1, 2)
    targets = {"start": targets[:, 0].copy(), "end": targets[:, 1].copy()}
    return QuestionWindows(inputs, targets, offsets, np.array(question_index, "int32"))


def _window_starts(count, room, stride):
    """Where windows of `room` tokens begin, until one reaches the end of `count` tokens."""
    step = min(room, stride)
    return range(0, max(count - room, 0) + step, step)


def _answer_tokens(question, offsets):
    """The first and last token of the first answer, or `None` where there is no answer."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    # An answer may begin or end within a token.
    touched = np.flatnonzero((offsets[:, 0] < start + len(text)) & (offsets[:, 1] > start))
    if not len(touched):
        raise ValueError(f"Question {question.id!r}: its answer {text!r} has no token.")
    return int(touched[0]), int(touched[-1])


def _arrays(tokenizer, rows):
    """The inputs and offsets of rows of a question's ids, and a window's ids and offsets."""
    length = max((len(asked) + len(ids) + 3 for asked, ids, _ in rows), default=0)
    token_ids = np.full((len(rows), length), tokenizer.pad_id, "int32")
    segment_ids = np.zeros_like(token_ids)
    padding_mask = np.zeros(token_ids.shape, bool)
    offsets = np.zeros((*token_ids.shape, 2), "int32")
    for row, (asked, ids, places) in enumerate(rows):
        tokens = [tokenizer.cls_id, *asked, tokenizer.sep_id, *ids, tokenizer.sep_id]
        start = len(asked) + 2
        token_ids[row, : len(tokens)] = tokens
        segment_ids[row, start : len(tokens)] = 1
        padding_mask[row, : len(tokens)] = True
        offsets[row, start : start + len(ids)] = places
    inputs = {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": padding_mask}
    return inputs, offsets


# === Out of the model ===


def find_answers(
    logits: Mapping[str, np.ndarray],
    windows: QuestionWindows,
    questions: Sequence[Question],
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> list[FoundAnswer]:
    """Reads the best answer to each question from the logits of all its windows.

    Of all spans of the context that are short enough and end no earlier than they begin, it is the
    one with the largest sum of start and end logit (section 4.2). All spans are looked at, not only
    those of the 20 best starts and ends as in the authors' program.

    Args:
        logits: `start` and `end`, (windows, length): what `models.BertSpanClassifier` predicts.
        windows: What `encode_questions` returned.
        questions: The questions it was given.
        max_answer_length: The most tokens of an answer.
        null_threshold: `None`: every question has an answer (SQuAD 1.1). A number: a question has
            none if [CLS], the lowest of all its windows, is better than the best span by more than
            this (section 4.3); 0 is a start, and the best value on held-out data is better.

    Returns:
        A `FoundAnswer` for each question, whose `text` is cut from its context.

    Raises:
        ValueError: The shapes do not belong together; a logit is NaN; there are more or fewer
            questions than the windows were made of; `max_answer_length` is below 1.

    Example:
    ```python
    from kerasmodels import data, models

    model = models.BertSpanClassifier.from_preset(
        "hf://google-bert/bert-base-uncased", new_head=True
    )
    questions = [data.Question("1", "Where was Ada born?", "Ada was born in London.")]
    windows = data.encode_questions(model.tokenizer, questions)
    found = data.find_answers(model.predict(windows.inputs), windows, questions)
    print(found[0].text)  # "London", once the head has learned it
    ```
    """
    starts, ends = (np.asarray(logits[name], "float64") for name in ("start", "end"))
    inside = windows.offsets[:, :, 1] > 0  # a token of the context; (windows, length)
    if not starts.shape == ends.shape == inside.shape:
        raise ValueError(
            f"`logits` must have the shape of the windows, {inside.shape}. "
            f"Received: start {starts.shape}, end {ends.shape}."
        )
    max_answer_length = whole_number("max_answer_length", max_answer_length, 1)
    for name, array in (("start", starts), ("end", ends)):
        if np.isnan(array).any():
            raise ValueError(f"`logits` must be numbers. Received: NaN in {name!r}.")
    if null_threshold is not None and np.isnan(null_threshold):
        raise ValueError(f"`null_threshold` must be a number. Received: {null_threshold}.")
    if windows.question_index.max(initial=-1) + 1 != len(questions):
        raise ValueError(
            "`questions` must be those that the windows were made of. Received: "
            f"{len(questions)} questions for windows of "
            f"{windows.question_index.max(initial=-1) + 1}."
        )
    nulls = starts[:, 0] + ends[:, 0] if len(starts) else np.zeros(0)  # [CLS]
    scores, firsts, lasts = _best_spans(starts, ends, inside, max_answer_length)
    found = [FoundAnswer("", 0, 0, -np.inf, np.inf)] * len(questions)
    for row, index in enumerate(windows.question_index):
        best = found[index]._replace(null_score=min(found[index].null_score, float(nulls[row])))
        if scores[row] > best.score:
            start = int(windows.offsets[row, firsts[row], 0])
            end = int(windows.offsets[row, lasts[row], 1])
            end = _with_marks(questions[index].context, end)
            text = questions[index].context[start:end]
            best = FoundAnswer(text, start, end, float(scores[row]), best.null_score)
        found[index] = best
    if null_threshold is None:
        return found
    return [
        best._replace(text="", start=0, end=0)
        if best.null_score - best.score > null_threshold
        else best
        for best in found
    ]


def _with_marks(context, end):
    """The end of a token with the accents behind it, which the tokens of an uncased model lack."""
    while end < len(context) and unicodedata.category(context[end]) in ("Mn", "Me"):
        end += 1
    return end


def _best_spans(starts, ends, inside, max_answer_length):
    """The score, first and last token of the best span of each window."""
    starts, ends = np.where(inside, starts, -np.inf), np.where(inside, ends, -np.inf)
    rows, length = starts.shape
    scores = np.full(rows, -np.inf)
    firsts, lasts = np.zeros((2, rows), int)
    for more in range(min(max_answer_length, length)):  # tokens behind the first
        sums = starts[:, : length - more] + ends[:, more:]
        best = sums.argmax(1)
        score = sums[np.arange(rows), best]
        better = score > scores
        scores = np.where(better, score, scores)
        firsts, lasts = np.where(better, best, firsts), np.where(better, best + more, lasts)
    return scores, firsts, lasts
