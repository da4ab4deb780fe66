"""`examples/bert_pretrain.py`: what it prints and leaves behind, and the texts that it reads."""

import json
import re

import keras
import numpy as np
import pytest

from kerasmodels import models
from tests.examples.scripts import assert_is_a_picture, load, run
from tests.kit import once

SMALL = ("--epochs", 2, "--layers", 1, "--hidden", 16, "--batch-size", 8, "--vocabulary", 120)

ABLATION = ("--no-nsp", "--whole-word", "--accumulate", 2, "--rematerialize")
ABLATION = (*ABLATION, "--dtype", "mixed_bfloat16")


def write_documents(path, count):
    """Documents of three to six sentences that count, each from another number on."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    documents = [
        "\n".join(
            " ".join(words[(start + line + i) % 10] for i in range(4)) + "."
            for line in range(3 + start % 4)
        )
        for start in range(count)
    ]
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling takes half a minute; model and data have tests on every backend",
)
@pytest.mark.parametrize("switches", [(), ABLATION], ids=["paper", "ablation"])
def test_what_the_user_gets(switches, tmp_path):
    write_documents(tmp_path / "mine.txt", 20)
    output = tmp_path / "new" / "run"
    printed = run(
        "bert_pretrain", "--texts", tmp_path / "mine.txt", *SMALL, *switches, "--output", output
    )
    assert "20 documents, 2 of them held out; " in printed
    right, guess, hidden = re.findall(r"(\d+\.\d) %", printed)[:3]
    found = json.loads((output / "results.json").read_text())
    assert f"{100 * found['mlm_accuracy']:.1f}" == right
    assert f"{100 * found['most_frequent']:.1f}" == guess
    assert f"{100 * found['hidden_accuracy']:.1f}" == hidden
    assert ("Next sentences of held-out text: " in printed) == (not switches)
    assert len(found["logs"]["val_loss"]) == 2 and np.isfinite(found["logs"]["val_loss"]).all()
    assert printed.count("[MASK]") == 1 + 4
    assert_is_a_picture(output / "curves.png")
    again = models.BertPretraining.from_preset(output / "model")
    assert again.next_sentence == (not switches)
    assert len(again.fill_mask(["one two [MASK] four."])[0][0]) == 5


@once
def test_texts_of_gensim():
    documents = load("bert_pretrain").read_texts()
    assert 400 < len(documents) < 700 and min(map(len, documents)) > 1
    sentences = [sentence for document in documents for sentence in document]
    assert len(sentences) > 15_000
    assert (
        "A new blaze near Goulburn, south-west of Sydney, has forced the closure" in documents[0][1]
    )
    # No markup is left.
    for mark in ("[[", "]]", "{{", "'''", "<ref", "\n"):
        assert sum(mark in sentence for sentence in sentences) < len(sentences) / 100, mark
