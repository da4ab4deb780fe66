"""`examples/bert_finetune.py`: what it prints and leaves behind, and the tables that it reads."""

import re

import keras
import numpy as np
import pytest

from kerasmodels import data, models
from tests.examples.scripts import assert_is_a_picture, load, run

TEXTS = ["a fine film", "a dull film", "fine fine", "dull dull dull", "fine", "so dull"] * 5


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    """A tiny encoder with random weights and its tokenizer."""
    folder = tmp_path_factory.mktemp("preset")
    tokenizer = data.BertTokenizer.train(TEXTS, 40)
    bert = models.Bert(len(tokenizer), 1, 2, 16, 32, max_sequence_length=12)
    bert.tokenizer = tokenizer
    bert.save_to_preset(folder)
    return folder


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling takes half a minute; the model has tests on every backend",
)
@pytest.mark.parametrize("kind", ["classes of pairs", "numbers"])
def test_what_the_user_gets(preset, kind, tmp_path):
    if kind == "numbers":
        lines = ["label\ttext", *(f"{len(t) / 8:.2f}\t{t}" for t in TEXTS)]
        (tmp_path / "mine.tsv").write_text("\n".join(lines) + "\n")
        columns = ("label", "text")
        file = tmp_path / "mine.tsv"
    else:
        lines = ["first,second,verdict", *(f'"{t}, {t}",{t},{"dull" in t}' for t in TEXTS)]
        (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
        columns = ("verdict", "first", "second")
        file = tmp_path / "mine.csv"
    output = tmp_path / "new" / "run"
    more = ("--columns", *columns, "--preset", preset, "--epochs", 2, "--freeze", 1)
    printed = run("bert_finetune", file, *more, "--output", output)
    assert "24 texts to learn from, 6 held out" in printed
    model = models.BertClassifier.from_preset(output / "preset")
    again = keras.saving.load_model(output / "model.keras")
    inputs = model.tokenizer(["fine", "a dull film"])
    np.testing.assert_allclose(model.predict(inputs, verbose=0), again.predict(inputs, verbose=0))
    if kind == "numbers":
        assert len(re.findall(r"held-out texts, from .*: mean error \d+\.\d{3}", printed)) == 2
        assert model.num_classes == 1
    else:
        assert len(re.findall(r"held-out texts, from .*: \d+\.\d % right", printed)) == 2
        assert model.class_names == ["False", "True"]
        assert_is_a_picture(output / "confusion.png")


def test_tables(tmp_path):
    example = load("bert_finetune")
    labels, (texts,) = example.movie_reviews()
    assert sorted(set(labels)) == ["neg", "pos"] and len(texts) == 200
    assert texts[0] == "simplistic , silly and tedious . "
    path = tmp_path / "a.tsv"
    path.write_text("label\ttext\n1\tgood\n2\t\n")
    with pytest.raises(ValueError, match=r"a.tsv, line 3: nothing in \['text'\]"):
        example.read_table(path, ["label", "text"])
    with pytest.raises(ValueError, match=r"has the columns \['label', 'text'\]; .* \['words'\]"):
        example.read_table(path, ["label", "words"])
    path.write_text("label\ttext\n")
    with pytest.raises(ValueError, match="no rows below its header"):
        example.read_table(path, ["label", "text"])
    names, targets = example.as_targets(["2", "1", "2"])
    assert names == ["1", "2"] and targets.tolist() == [1, 0, 1]
    names, targets = example.as_targets(["0.5", "1"])
    assert names is None and targets.dtype == "float32"
