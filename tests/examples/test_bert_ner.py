"""`examples/bert_ner.py`: what it prints and leaves behind, and what it learns from."""

import re

import keras
import numpy as np
import pytest

from kerasmodels import data, models
from tests.examples.scripts import load, run

SCORES = r"^(\S+) +precision (\S+)%  recall (\S+)%  F1 (\S+)%  of (\S+) entities$"


def printed_scores(scores):
    return [
        (
            kind,
            *(f"{100 * score[name]:.1f}" for name in ("precision", "recall", "f1")),
            str(score["references"]),
        )
        for kind, score in scores.items()
    ]


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling takes longer than all the rest; model, data and training have their tests",
)
def test_what_the_user_gets(tmp_path, monkeypatch, capsys):
    example = load("bert_ner")
    small = ("--from-scratch", "--sentences", 120, "--batch-size", 8, "--rate", 3e-3)
    printed = run("bert_ner", *small, "--output", tmp_path)
    losses = [float(x) for x in re.findall(r"loss: (\S+)", printed)]
    assert len(losses) == 3 and losses[2] < losses[0] and losses[2] < np.log(7)  # of a guess

    # The files hold what was counted, and the folder's model says what was printed.
    test = data.read_conll(tmp_path / "test.conll")
    model = models.BertTokenClassifier.from_preset(tmp_path / "preset")
    assert f"120 sentences to learn, {len(test)} to be tested on: {model.class_names}" in printed
    said = example.tag(model, [words for words, _ in test])
    right = [tags for _, tags in test]
    scores = data.entity_scores(said, right)
    assert re.findall(SCORES, printed, re.M) == printed_scores(scores)
    assert 0 < scores["all"]["f1"] < 1
    shown = printed.split(" says:\n")[1].splitlines()
    bracketed = {example.marked(words, tags) for (words, _), tags in zip(test, said, strict=True)}
    answers = [line.strip() for line in shown if not line.startswith("    right: ")]
    assert len(answers) == 8 and set(answers) <= bracketed
    wrong = sum(
        data.entity_spans(s) != data.entity_spans(r)
        for (words, r), s in zip(test, said, strict=True)
        if example.marked(words, s) in answers
    )
    assert len(shown) - len(answers) == wrong > 0

    # So does the other file.
    inputs = model.tokenizer.encode_words([words for words, _ in test])
    inputs.pop("word_ids")
    whole = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(
        whole.predict(inputs, verbose=0), model.predict(inputs, verbose=0), rtol=1e-4, atol=1e-5
    )

    # A user's own file, of which a fifth is held out, and the model that was just made.
    own = ("--data", tmp_path / "train.conll", "--preset", tmp_path / "preset", "--epochs", 1)
    arguments = ["bert_ner.py", *own, "--output", tmp_path / "own"]
    monkeypatch.setattr("sys.argv", [str(argument) for argument in arguments])
    example.main()  # in this process: starting one more costs as much as all of it
    printed = capsys.readouterr().out
    assert "96 sentences to learn, 24 to be tested on" in printed


def test_no_name_of_the_test_was_learned(tmp_path):
    example = load("bert_ner")
    paths = example.write_demo(tmp_path, example.DEMO)
    names = []
    for path, count in zip(paths, (1000, 300), strict=True):
        sentences = data.read_conll(path)
        assert len(sentences) == count
        kinds = {}
        for words, tags in sentences:
            for start, end, kind in data.entity_spans(tags):
                for word in set(words[start:end]) - {"&"}:
                    kinds.setdefault(word, set()).add(kind)
        names.append(set(kinds))
        assert np.mean([len(kind) > 1 for kind in kinds.values()]) > 0.5  # any name may be each
    assert len(names[0]) > 250 and len(names[1]) > 80 and not names[0] & names[1]


def test_sentences_as_they_are_shown():
    example = load("bert_ner")
    words, tags = ["Ada", "Lovelace", "wrote", "to", "Rome"], ["B-PER", "I-PER", "O", "O", "B-LOC"]
    assert example.marked(words, tags) == "[PER Ada Lovelace] wrote to [LOC Rome]"


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("We PRP\nsaw VBD\n\nit PRP\n", None, "train.conll, --column -1: Tags must be .*'PRP'"),
        ("Ada b-per\n\nYes O\n", None, "train.conll, .*'b-per'"),
        ("Ada B-all\n\nYes O\n", None, "train.conll, .* 'all' is taken"),
        ("Ada B-PER\n", "Ada B\n", "test.conll, .*'B'"),
        ("Ada B-PER\n", None, "--data must hold two sentences at least.* --test. Received: 1"),
    ],
)
def test_what_cannot_be_learned_is_said_before_training(
    train, test, message, tmp_path, monkeypatch
):
    example = load("bert_ner")
    monkeypatch.setattr(example, "build", lambda *arguments: pytest.fail("a model was made"))
    arguments = ["--data", tmp_path / "train.conll", "--output", tmp_path / "out"]
    (tmp_path / "train.conll").write_text(train)
    if test:
        (tmp_path / "test.conll").write_text(test)
        arguments += ["--test", tmp_path / "test.conll"]
    monkeypatch.setattr("sys.argv", ["bert_ner.py", *map(str, arguments)])
    with pytest.raises(ValueError, match=message):
        example.main()


def test_a_fifth_of_the_sentences_is_held_out():
    example = load("bert_ner")
    sentences = [([str(i)], ["O"]) for i in range(10)]
    train, test = example.split(sentences)
    assert len(test) == 2 and sorted(train + test) == sentences
    train, test = example.split(sentences[:2])
    assert len(test) == len(train) == 1
    with pytest.raises(ValueError, match="two sentences at least.* Received: 0"):
        example.split([])
