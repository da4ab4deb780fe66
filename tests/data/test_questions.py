"""Questions about texts: files, windows, the best spans, and SQuAD's scores."""

import json
import warnings

import numpy as np
import pytest

from kerasmodels import data

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [f"w{i}" for i in range(40)]


@pytest.fixture(scope="module")
def tokenizer():
    return data.BertTokenizer([*SPECIAL, *WORDS, "caf", "##e", "19", "##40", "##s", "?"])


def ask(context, answer=None, question="w0?", name="q"):
    """A question whose answer is where `answer` stands first."""
    answers = () if answer is None else (data.Answer(answer, context.index(answer)),)
    return data.Question(name, question, context, answers)


# === Files ===


def squad(*entries, context="Ada was born in London."):
    return {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(entries)}]}]}


def entry(*answers, **more):
    answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": "7", "question": "Where?", "answers": answers} | more


def test_files(tmp_path):
    path = tmp_path / "squad.json"
    plausible = {"plausible_answers": [{"text": "London", "answer_start": 16}]}
    content = squad(
        entry(("London", 16), ("in London", 13)),  # SQuAD 1.1 has no is_impossible
        entry(("Ada", 0), is_impossible=False),
        entry(is_impossible=True, **plausible),
    )
    content["data"] += squad(entry(("🙂", 2)), context="é 🙂!")["data"]
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(content, ensure_ascii=False).encode())
    questions = data.read_squad(path)
    assert [q.answers for q in questions] == [
        (("London", 16), ("in London", 13)),
        (("Ada", 0),),
        (),
        (("🙂", 2),),
    ]
    assert questions[0][:3] == ("7", "Where?", "Ada was born in London.")
    for question in questions:
        for text, start in question.answers:
            assert question.context[start : start + len(text)] == text


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "squad.json must be a JSON file"),
        (b'"\xff"', "squad.json must be a JSON file"),
        ([], "squad.json: expected a list 'data'"),
        ({"data": [{"title": "t"}]}, "expected a list 'paragraphs'"),
        (squad(entry(), context=1), "expected a string 'context'.*context=1"),
        (squad({"id": "7", "question": "?"}), "question '7': expected a list 'answers'"),
        (squad(entry(("London", None))), "question '7': expected an integer 'answer_start'"),
        (squad(), "squad.json must hold questions"),
        (squad(entry(("London", 15))), "question '7': .*'London' at 15, .* has ' Londo'"),
        (squad(entry(("London", -7))), "question '7': .*'London' at -7"),
        (squad(entry(("", 3))), "question '7': .*'' at 3"),
        (squad(entry(("Ada", 0), ("Ada", 1))), "question '7': .*'Ada' at 1"),
        (squad(entry()), "question '7': .*Received: 0 answers and is_impossible=False"),
        (
            squad(entry(("Ada", 0), is_impossible=True)),
            "question '7': .*Received: 1 answers and is_impossible=True",
        ),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "squad.json"
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        data.read_squad(path)


# === Windows ===


@pytest.mark.parametrize("max_length, doc_stride", [(14, 3), (14, 9), (14, 100), (9, 1), (60, 20)])
def test_windows_are_those_of_the_package_tokenizers(tokenizer, max_length, doc_stride):
    import tokenizers

    question, context = "w0 w1?", " ".join(WORDS[5:30])
    windows = data.encode_questions(
        tokenizer, [ask(context, question=question)], max_length, doc_stride
    )
    # There the stride is what two windows have in common.
    room = max_length - 6
    engine = tokenizers.Tokenizer.from_str(tokenizer.engine.to_str())
    common = room - min(room, doc_stride)
    engine.enable_truncation(max_length, stride=common, strategy="only_second")
    engine.enable_padding(pad_id=tokenizer.pad_id)
    first = engine.encode(question, context)
    expected = [first, *first.overflowing]
    assert windows.inputs["token_ids"].tolist() == [e.ids for e in expected]
    assert windows.inputs["segment_ids"].tolist() == [e.type_ids for e in expected]
    real = [e.attention_mask for e in expected]
    np.testing.assert_array_equal(windows.inputs["padding_mask"], real)
    of_context = np.array([[side == 1 for side in e.sequence_ids] for e in expected])
    places = np.array([e.offsets for e in expected]) * of_context[..., None]
    np.testing.assert_array_equal(windows.offsets, places)
    assert windows.question_index.tolist() == [0] * len(expected)
    assert not windows.targets["start"].any() and not windows.targets["end"].any()


def test_targets(tokenizer):
    context = "w1 w2 Café, w3 (1940s) w4 w5 w6 w7"  # the comma and brackets are unknown
    # w1 w2 caf ##e , w3 ( 19 ##40 ##s ) w4 w5 w6 w7
    questions = [
        ask(context, "Café, w3"),
        ask(context, "1940"),  # ends within a word
        ask(context),
        ask(context, "af"),  # and begins within a piece
        ask(context, " w7"),
        data.Question("two", "w0?", context, [data.Answer("w6", 29), data.Answer("w1", 0)]),
    ]
    whole = data.encode_questions(tokenizer, questions)
    shift = 4  # [CLS] w0 ? [SEP]
    expected = {"start": [6, 11, 0, 6, 18, 17], "end": [9, 12, 0, 6, 18, 17]}
    assert {name: x.tolist() for name, x in whole.targets.items()} == expected
    assert {x.dtype.name for x in [*whole.targets.values(), whole.question_index]} == {"int32"}

    # Five tokens a window, three from one to the next: 0-4, 3-7, 6-10, 9-13, 12-14. The first
    # answer is 2-5, which none holds whole; the second is 7-8, the third 6.
    three = [*questions[:2], ask(context, "(")]
    with pytest.warns(UserWarning, match="^The answers to 1 of 3 questions lie in no window"):
        tiny = data.encode_questions(tokenizer, three, max_length=10, doc_stride=3)
    np.testing.assert_array_equal(tiny.question_index, np.repeat([0, 1, 2], 5))
    start, end = (tiny.targets[name].reshape(3, 5) for name in ("start", "end"))
    np.testing.assert_array_equal(start[:2], [[0] * 5, [0, 0, shift + 1, 0, 0]])
    np.testing.assert_array_equal(end[:2], [[0] * 5, [0, 0, shift + 2, 0, 0]])
    np.testing.assert_array_equal(start[2], [0, shift + 3, shift, 0, 0])
    np.testing.assert_array_equal(end[2], start[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data.encode_questions(tokenizer, questions[1:], max_length=10, doc_stride=3)


def test_no_questions_and_no_context(tokenizer):
    none = data.encode_questions(tokenizer, [])
    assert none.inputs["token_ids"].shape == (0, 0) and none.offsets.shape == (0, 0, 2)
    logits = {name: np.zeros((0, 0)) for name in ("start", "end")}
    assert data.find_answers(logits, none, []) == []
    questions = [ask("")]
    empty = data.encode_questions(tokenizer, questions)
    assert empty.inputs["token_ids"].tolist() == [[2, 5, 50, 3, 3]]
    assert empty.inputs["segment_ids"].tolist() == [[0, 0, 0, 0, 1]]
    logits = {name: np.arange(5.0)[None] for name in ("start", "end")}
    assert data.find_answers(logits, empty, questions) == [("", 0, 0, -np.inf, 0)]


def test_bad_questions(tokenizer):
    questions = [ask("w1 w2", "w2", question="w0 w1 w2 w3")]
    with pytest.raises(ValueError, match="Received: 7; question 'q' alone has 4 tokens"):
        data.encode_questions(tokenizer, questions, max_length=7)
    for max_length in (3, 513):
        with pytest.raises(ValueError, match=f"`max_length` .*Received: {max_length}"):
            data.encode_questions(tokenizer, questions, max_length)
    with pytest.raises(ValueError, match="`doc_stride`"):
        data.encode_questions(tokenizer, questions, doc_stride=0)
    moved = questions[0]._replace(answers=[data.Answer("w2", 2)])
    with pytest.raises(ValueError, match="Question 'q': .*'w2' at 2, where the context has ' w'"):
        data.encode_questions(tokenizer, [moved])
    with pytest.raises(ValueError, match="Question 'q': its answer .* has no token"):
        data.encode_questions(tokenizer, [ask("w1 \x01 w2", "\x01")])

    windows = data.encode_questions(tokenizer, questions)
    logits = {name: np.zeros(windows.inputs["token_ids"].shape) for name in ("start", "end")}
    with pytest.raises(ValueError, match=r"Received: start \(1, 9\), end \(1, 8\)"):
        data.find_answers({**logits, "end": logits["end"][:, 1:]}, windows, questions)
    with pytest.raises(ValueError, match="max_answer_length"):
        data.find_answers(logits, windows, questions, max_answer_length=0)
    for wrong in ([], questions * 2):
        with pytest.raises(ValueError, match=f"{len(wrong)} questions for windows of 1"):
            data.find_answers(logits, windows, wrong)
    for name in logits:
        with pytest.raises(ValueError, match=f"`logits` must be numbers. Received: NaN in '{name}"):
            data.find_answers({**logits, name: logits[name] * np.nan}, windows, questions)
    with pytest.raises(ValueError, match="`null_threshold` must be a number"):
        data.find_answers(logits, windows, questions, null_threshold=np.nan)
    for wrong in (("q", "w0", "w1", ()), {"id": "q"}, questions[0]._replace(context=None)):
        with pytest.raises(ValueError, match="`questions` must be `Question`s.*number 1"):
            data.encode_questions(tokenizer, [questions[0], wrong])


# === Answers ===


@pytest.mark.parametrize("answer", ["cafe\u0301", "caf\u00e9", "w1\u20dd", "w1\u0302\u0323"])
def test_an_answer_keeps_its_accents(tokenizer, answer):
    """The tokens of an uncased model end before the mark that they have lost."""
    questions = [ask(f"The {answer} w2", answer)]
    windows = data.encode_questions(tokenizer, questions)
    length = windows.inputs["token_ids"].shape[1]
    logits = {name: np.eye(length)[target] for name, target in windows.targets.items()}
    found = data.find_answers(logits, windows, questions)[0]
    assert (found.text, found.start, found.end) == (answer, 4, 4 + len(answer))
    scores = data.answer_scores([found.text], questions)
    assert scores == {"exact_match": 1.0, "f1": 1.0}


def brute_force(logits, windows, questions, max_answer_length):
    """The best span and the lowest [CLS], by looking at each span of each window."""
    found = []
    for index, question in enumerate(questions):
        spans, nulls = [], []
        for row in np.flatnonzero(windows.question_index == index):
            start, end = logits["start"][row], logits["end"][row]
            nulls.append(start[0] + end[0])
            ids, segments = windows.inputs["token_ids"][row], windows.inputs["segment_ids"][row]
            context = [i for i in np.flatnonzero(segments) if ids[i] != 3]  # without [SEP]
            for i in context:
                for j in context:
                    if i <= j < i + max_answer_length:
                        place = windows.offsets[row, i, 0], windows.offsets[row, j, 1]
                        spans.append((start[i] + end[j], *place))
        score, first, last = max(spans)
        found.append((question.context[first:last], first, last, score, min(nulls)))
    return found


@pytest.mark.parametrize("max_answer_length", [1, 3, 30])
def test_answers_by_brute_force(tokenizer, max_answer_length):
    random = np.random.default_rng(0)
    questions = []
    for i in range(20):  # of 1 to 25 words: 1 to 7 windows
        words = random.choice([*WORDS, "CAFÉ,", "(1940s)", "\x01"], random.integers(1, 25))
        questions.append(ask("  ".join(words) + " w1", question="w0 " * (1 + i % 3)))
    windows = data.encode_questions(tokenizer, questions, max_length=12, doc_stride=4)
    shape = windows.inputs["token_ids"].shape
    logits = {name: random.normal(size=shape).astype("float32") for name in ("start", "end")}
    logits["start"][:, 0] += 2  # [CLS] is never an answer, nor is the question
    logits["start"] += 2 * (windows.inputs["segment_ids"] == 0)
    precise = {name: x.astype("float64") for name, x in logits.items()}
    expected = brute_force(precise, windows, questions, max_answer_length)
    found = data.find_answers(logits, windows, questions, max_answer_length)
    assert found == expected

    # A threshold takes away the answers that [CLS] beats by more than it.
    margins = [answer.null_score - answer.score for answer in found]
    threshold = sorted(margins)[10]
    kept = data.find_answers(logits, windows, questions, max_answer_length, threshold)
    for answer, other, margin in zip(found, kept, margins, strict=True):
        assert other == (answer if margin <= threshold else ("", 0, 0, *answer[3:]))
    assert sum(answer.text == "" for answer in kept) == 9


def test_of_equal_answers_the_first_and_shortest_is_given(tokenizer):
    questions = [ask("w1 w2 w3 w4 w5")]
    windows = data.encode_questions(tokenizer, questions, max_length=8, doc_stride=2)
    logits = {name: np.zeros(windows.inputs["token_ids"].shape) for name in ("start", "end")}
    assert data.find_answers(logits, windows, questions) == [("w1", 0, 2, 0, 0)]


def test_targets_as_logits_give_the_answers(tokenizer):
    context = "w1 Café,  W2 (1940s) w3 w4 w5 w6 w7 w8 w9"
    questions = [ask(context, text) for text in ("Café,  W2", "1940s", "(", "w9")] + [ask(context)]
    windows = data.encode_questions(tokenizer, questions, max_length=13, doc_stride=4)
    length = windows.inputs["token_ids"].shape[1]
    logits = {name: np.eye(length)[x] for name, x in windows.targets.items()}
    # A window without the answer wants [CLS], so the lowest [CLS] is what tells.
    found = data.find_answers(logits, windows, questions, null_threshold=0)
    assert [answer.text for answer in found] == ["Café,  W2", "1940s", "(", "w9", ""]
    scores = data.answer_scores([answer.text for answer in found], questions)
    assert scores == {"exact_match": 1, "f1": 1}


# === Scores ===


@pytest.mark.parametrize(
    "text, answers, exact, f1",
    [
        ("The Tower, of London!", ["tower of london"], 1, 1),
        ("An  apple a\nday", ["apple day"], 1, 1),
        ("theatre", ["atre"], 0, 0),  # an article is a word
        ("U.S.", ["us"], 1, 1),
        ("re-use it", ["reuse"], 0, 2 / 3),
        ("in 1940", ["1940", "the year 1940"], 0, 2 / 3),
        ("a b c", ["b c d e"], 0, 2 * 1 * 0.5 / 1.5),  # a is an article
        ("x x y", ["x z"], 0, 2 * (1 / 3) * 0.5 / (1 / 3 + 0.5)),  # words are counted
        ("", ["x"], 0, 0),
        ("x", [], 0, 0),
        ("", [], 1, 1),
        ("the", [], 1, 1),
        ("", ["The!"], 1, 1),  # nothing of it is left: as none
        ("x", ["the", "x"], 1, 1),
        ("", ["the", "x"], 0, 0),
    ],
)
def test_scores_counted_by_hand(text, answers, exact, f1):
    context = " ".join(answers)
    question = data.Question("q", "?", context, [data.Answer(a, context.index(a)) for a in answers])
    scores = data.answer_scores([text], [question])
    assert scores["exact_match"] == exact
    np.testing.assert_allclose(scores["f1"], f1, rtol=1e-12)
    wrong = data.answer_scores([text, "wrong"], [question, question])
    np.testing.assert_allclose([*wrong.values()], [exact / 2, f1 / 2], rtol=1e-12)


def test_bad_scores():
    for texts, questions in (([], []), (["x"], []), ([], [ask("w1")])):
        with pytest.raises(ValueError, match="one answer to each question"):
            data.answer_scores(texts, questions)
    for texts in ({"q": "w1"}, "w", [None], [data.FoundAnswer("w1", 0, 2, 0.0, 0.0)]):
        with pytest.raises(ValueError, match=r"`texts` must be a list of strings.*answer\.text"):
            data.answer_scores(texts, [ask("w1")])
