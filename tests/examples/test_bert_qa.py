"""`examples/bert_qa.py`: what it prints and leaves behind, and what it learns from."""

import argparse
import json
import re

import keras
import numpy as np
import pytest

from kerasmodels import data, models
from tests.examples.scripts import load, run

SCORES = r"^(.+?) +EM (\S+)%  F1 (\S+)%  of (\d+) questions$"


def scores_of(example, folder, path, null_threshold):
    """What the folder's model answers, and the scores as they are printed."""
    questions = data.read_squad(path)
    model = models.BertSpanClassifier.from_preset(folder / "preset")
    options = argparse.Namespace(max_length=40, doc_stride=24)
    found = [a.text for a in example.answer(model, questions, options, null_threshold)]
    scores = data.answer_scores(found, questions)
    return found, tuple(f"{100 * scores[name]:.1f}" for name in ("exact_match", "f1"))


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling takes longer than all the rest; model, data and training have their tests",
)
def test_what_the_user_gets(tmp_path, monkeypatch, capsys):
    example = load("bert_qa")
    sizes = ("--max-length", 40, "--doc-stride", 24, "--epochs", 2)
    printed = run("bert_qa", "--from-scratch", "--texts", 30, *sizes, "--output", tmp_path)
    losses = [float(x) for x in re.findall(r" loss: (\S+)", printed)]
    assert len(losses) == 2 and losses[1] < losses[0] and losses[1] < np.log(40)  # of a guess
    (windows,) = re.findall(r"^60 questions in (\d+) windows$", printed, re.M)
    assert int(windows) > 60

    # The folder's model says what was printed.
    test = data.read_squad(tmp_path / "test.json")
    found, (exact, f1) = scores_of(example, tmp_path, tmp_path / "test.json", 0.0)
    whole, *parts = re.findall(SCORES, printed, re.M)
    assert whole == ("all", exact, f1, "16")
    assert [row[0] for row in parts] == ["with an answer", "without"]
    for column, of_all in ((1, exact), (2, f1)):  # the mean of the parts
        total = sum(float(row[column]) * int(row[3]) for row in parts)
        assert abs(total / 16 - float(of_all)) < 0.11
    shown = printed.split(" says:\n")[1].splitlines()
    assert len(shown) == 8
    for line, question, text in zip(shown, test[::2], found[::2], strict=True):
        right = question.answers[0].text if question.answers else "no answer"
        assert line.split("  right: ")[1] == right
        assert line.strip().startswith(question.question) and (text or "no answer") in line

    # So does the other file.
    inputs = data.encode_questions(data.BertTokenizer.from_folder(tmp_path / "preset"), test).inputs
    model = models.BertSpanClassifier.from_preset(tmp_path / "preset")
    other = keras.saving.load_model(tmp_path / "model.keras").predict(inputs, verbose=0)
    for name, logits in model.predict(inputs, verbose=0).items():
        np.testing.assert_allclose(other[name], logits, rtol=1e-4, atol=1e-5)

    # A user's own file, in which every question has an answer, so that one is always given. The
    # test is on what was learned: of other texts so short a training knows next to nothing.
    own = tmp_path / "own.json"
    content = json.loads((tmp_path / "train.json").read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        paragraph["qas"] = [qa for qa in paragraph["qas"] if not qa["is_impossible"]]
    own.write_text(json.dumps(content))
    files = ("--data", own, "--test", own, "--preset", tmp_path / "preset")
    arguments = ["bert_qa.py", *files, *sizes, "--rate", 1e-3, "--output", tmp_path / "own"]
    monkeypatch.setattr("sys.argv", [str(argument) for argument in arguments])
    example.main()  # in this process: starting one more costs as much as all of it
    printed = capsys.readouterr().out
    found, scores = scores_of(example, tmp_path / "own", own, None)
    whole, part = re.findall(SCORES, printed, re.M)
    assert part[0] == "with an answer" and whole[1:] == part[1:] and whole[1:3] == scores
    assert float(whole[2]) > 20 and all(found) and "no answer" not in printed


def test_questions_about_one_text_are_held_out_together():
    example = load("bert_qa")
    questions = [data.Question(str(i), "?", f"text {i % 10}") for i in range(30)]
    train, test = example.split(questions)
    assert len(test) == 6 and len({question.context for question in test}) == 2
    assert sorted(train + test) == sorted(questions)
    assert not {question.context for question in test} & {question.context for question in train}
    with pytest.raises(ValueError, match="two texts .*at least.* --test. Received: 3 .* about 1"):
        example.split(questions[::10])


def test_no_name_of_the_test_was_learned(tmp_path):
    example = load("bert_qa")
    questions = [data.read_squad(path) for path in example.write_demo(tmp_path, example.DEMO)]
    assert [len(part) for part in questions] == [600, 150]
    names = []
    for part in questions:
        texts = [text for q in part for text in (q.question, q.context)]
        words = {word for text in texts for word in re.findall(r"[A-Z][a-z]+", text)}
        names.append(words - {"In", "From", "The", "Where", "When", "Who"})
        without = np.mean([not question.answers for question in part])
        assert 0.15 < without < 0.27
        # What is asked stands in the text, but for questions without an answer.
        asked = [re.findall(r"(?<=.)[A-Z][a-z]+", q.question) for q in part]
        stands = [
            set(n) <= set(re.findall(r"\w+", q.context)) for n, q in zip(asked, part, strict=True)
        ]
        assert stands == [bool(question.answers) for question in part]
    assert len(names[0]) > 400 and len(names[1]) > 130 and not names[0] & names[1]
