"""Questions about texts: SQuAD's files and its scores.

Rajpurkar et al. 2016, "SQuAD: 100,000+ questions for machine comprehension of text", section 6.1,
and Rajpurkar et al. 2018, "Know what you don't know: unanswerable questions for SQuAD".
"""

import json
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["Answer", "Question", "answer_scores", "read_squad"]


class Answer(NamedTuple):
    """A right answer: a piece of the context.

    Attributes:
        text: The words.
        start: Where they begin in the context, in characters.
    """

    text: str
    start: int


class Question(NamedTuple):
    """A question about a text.

    Attributes:
        id: Its name in the file.
        question: The question.
        context: The text that may hold the answer.
        answers: The right answers, each as good as the other. None: the text does not say, or
            nobody knows yet.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()


# === Files ===


def read_squad(path: str | Path) -> list[Question]:
    r"""Reads a file of SQuAD 1.1 or 2.0.

    A question that `is_impossible` has no answers; those that only seem plausible are not read.

    Args:
        path: A JSON file (UTF-8).

    Returns:
        A list of `Question`s, in the order of the file.

    Raises:
        ValueError: The file is not JSON, lacks a field or has one of another kind, or holds no
            question; an answer does not stand where `answer_start` says; a question without answers
            is not marked impossible, or one with answers is. The message names file and question.
        FileNotFoundError: There is no such file.

    Example:
    ```python
    import json
    from pathlib import Path
    from kerasmodels import data

    answer = {"text": "London", "answer_start": 16}
    question = {"id": "1", "question": "Where was Ada born?", "answers": [answer]}
    paragraph = {"context": "Ada was born in London.", "qas": [question]}
    content = {"version": "1.1", "data": [{"title": "Ada", "paragraphs": [paragraph]}]}
    Path("squad.json").write_text(json.dumps(content))
    data.read_squad("squad.json")[0].answers  # (Answer(text='London', start=16),)
    ```
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except ValueError as error:  # UnicodeDecodeError and JSONDecodeError are such
        raise ValueError(f"{path} must be a JSON file in UTF-8: {error}") from error
    questions = []
    for article in _field(content, "data", list, path):
        for paragraph in _field(article, "paragraphs", list, path):
            context = _field(paragraph, "context", str, path)
            for entry in _field(paragraph, "qas", list, path):
                question_id = _field(entry, "id", str, path)
                where = f"{path}, question {question_id!r}"
                answers = tuple(
                    Answer(_field(a, "text", str, where), _field(a, "answer_start", int, where))
                    for a in _field(entry, "answers", list, where)
                )
                impossible = entry.get("is_impossible", False)
                if impossible != (not answers):
                    raise ValueError(
                        f"{where}: it must have answers, or none and `is_impossible`. "
                        f"Received: {len(answers)} answers and is_impossible={impossible}."
                    )
                text = _field(entry, "question", str, where)
                questions.append(Question(question_id, text, context, answers))
                check_answers(questions[-1], where)
    if not questions:
        raise ValueError(f"{path} must hold questions. Received: a file without one.")
    return questions


def _field(mapping, name, kind, where):
    value = mapping.get(name) if isinstance(mapping, dict) else None
    if not isinstance(value, kind):
        names = {list: "a list", str: "a string", int: "an integer"}
        raise ValueError(
            f"{where}: expected {names[kind]} {name!r}, as SQuAD's files have. "
            f"Received: {name}={value!r}."
        )
    return value


def check_answers(question: Question, where: str) -> None:
    """Refuse answers that do not stand in the context where they say.

    Args:
        question: A `Question`.
        where: What the message begins with.

    Raises:
        ValueError: For what is not allowed.
    """
    for text, start in question.answers:
        found = question.context[start : start + len(text)] if start >= 0 else ""
        if not text.strip() or found != text:
            raise ValueError(
                f"{where}: an answer must stand in the context where its start says. "
                f"Received: {text!r} at {start}, where the context has {found!r}."
            )


# === Scores ===


def answer_scores(texts: Sequence[str], questions: Sequence[Question]) -> dict[str, float]:
    """Exact match and F1 as the program of SQuAD 2.0 counts them, which serves 1.1 as well.

    Before texts are compared they are put in lower case and lose punctuation (ASCII) and the
    articles. F1 is that of their words. Of several right answers the nearest counts; where there is
    none, the empty text is right.

    Args:
        texts: The answer to each question; empty for none.
        questions: The questions with their right answers.

    Returns:
        A dictionary of `exact_match` and `f1`, means over the questions, from 0 to 1.

    Raises:
        ValueError: There are not as many texts as questions, or there are none; or they are no
            strings.

    Example:
    ```python
    from kerasmodels import data

    question = data.Question("1", "Where?", "in the Tower of London", [data.Answer("London", 16)])
    data.answer_scores(["Tower of London."], [question])  # {'exact_match': 0.0, 'f1': 0.5}
    ```
    """
    if isinstance(texts, str | Mapping) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            "`texts` must be a list of strings, such as [answer.text for answer in found]. "
            f"Received: {str(texts)[:80]}."
        )
    if len(texts) != len(questions) or not questions:
        raise ValueError(
            "`texts` must be one answer to each question. "
            f"Received: {len(texts)} texts for {len(questions)} questions."
        )
    exact, f1 = 0, 0.0
    for text, question in zip(texts, questions, strict=True):
        said = _words(text)
        answers = [_words(answer.text) for answer in question.answers]
        answers = [words for words in answers if words] or [[]]
        exact += said in answers
        f1 += max(_f1(said, words) for words in answers)
    return {"exact_match": exact / len(questions), "f1": f1 / len(questions)}


def _words(text):
    """The words that are compared."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", text).split()


def _f1(said, right):
    both = (Counter(said) & Counter(right)).total()
    if not (said and right):
        return float(said == right)
    return 2 * both / (len(said) + len(right))
