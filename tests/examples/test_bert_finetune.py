"""`examples/bert_finetune.py`: what it prints and leaves behind, and the tables that it reads."""

import argparse
import re

import keras
import numpy as np
import pytest

from kerasmodels import data, models, training
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


@pytest.mark.parametrize(
    ("name", "content", "labels", "texts"),
    [
        ("a.tsv", 'pos\t"Great film\nneg\tbad\n', ["pos", "neg"], ['"Great film', "bad"]),
        ("a.tsv", "pos\tgood\r\n\r\nneg\tbad\r\n", ["pos", "neg"], ["good", "bad"]),
        ("a.tsv", "pos\tgood\rneg\tbad\r", ["pos", "neg"], ["good", "bad"]),
        ("a.tsv", "pos\tgood\n pos \tbad", ["pos", "pos"], ["good", "bad"]),
        ("a.tsv", "pos\t" + "word " * 40_000, ["pos"], ["word " * 40_000]),
        ("a.CSV", 'pos,"a ""b"",\n\nc"\nneg,5" disk\n', ["pos", "neg"], ['a "b",\n\nc', '5" disk']),
    ],
    ids=["open quote", "Windows", "old Mac", "labels are stripped", "long", "csv"],
)
def test_no_row_of_a_table_is_lost(name, content, labels, texts, tmp_path):
    example = load("bert_finetune")
    header = "label,text\n" if name.endswith("CSV") else "label\ttext\n"
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + (header + content).encode())
    assert example.read_table(tmp_path / name, ["label", "text"]) == (labels, [texts])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", 'l,t\npos,good\n\nneg,"bad\npos,ok\n', "a.csv, row .* line 4: .* closed"),
        ("a.csv", 'l,t\npos,"bad" film\n', "a.csv, row .* line 2: .* closed"),
        ("a.csv", 'l,t\npos,"two\nlines"\nneg, \n', r"a.csv, line 4: nothing in \['t'\]"),
        ("a.tsv", "l\tt\n\n\n \tbad\n", r"a.tsv, line 4: nothing in \['l'\]"),
        ("a.tsv", "l\tt\n\npos\n", "a.tsv, line 3: 1 columns, where the header has 2"),
        ("a.tsv", "l\tt\npos\tgood\tfilm\n", "a.tsv, line 2: 3 columns"),
        ("a.tsv", "l\tt\npos\tgood\rfilm\n", "a.tsv, line 3: 1 columns"),
        ("a.tsv", "l\tt\tt\npos\ta\tb\n", r"columns \['l', 't', 't'\]; .* \['t'\].* once"),
        ("a.tsv", "l\tt\npos\tcaf\u00e9\n".encode("cp1252"), "a.tsv must be UTF-8"),
        ("a.tsv", "l\tt\npos\tgood\n".encode("utf-16"), "a.tsv must be UTF-8"),
        ("a.tsv", "l\tt\npos\tgood\n".encode("utf-16-le"), "a.tsv must be UTF-8"),
    ],
)
def test_what_a_table_must_not_hold(name, content, message, tmp_path):
    example = load("bert_finetune")
    content = content if isinstance(content, bytes) else content.encode()
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        example.read_table(tmp_path / name, ["l", "t"])
    assert type(caught.value) is ValueError  # not a UnicodeDecodeError, which is one, too


def test_a_column_is_asked_for_once(monkeypatch, capsys):
    arguments = ["bert_finetune.py", "a.tsv", "--columns", "label", "text", "text"]
    monkeypatch.setattr("sys.argv", arguments)
    with pytest.raises(SystemExit):
        load("bert_finetune").main()
    assert "--columns takes the names" in capsys.readouterr().err


def test_targets():
    example = load("bert_finetune")
    names, targets = example.as_targets(["2", "1", "2", "1"])
    assert names == ["1", "2"] and targets.tolist() == [1, 0, 1, 0] and targets.dtype == "int32"
    names, targets = example.as_targets(["0.5", "1"])
    assert names is None and targets.tolist() == [0.5, 1] and targets.dtype == "float32"
    few_numbers = ["3.5", "four", "five"] * 2
    assert example.as_targets(few_numbers)[0] == ["3.5", "five", "four"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["0.5", "nan", "1"], "row 2 must be a finite number.* 'nan'"),
        (["0", "1", "0", "1", "-inf"], "row 5 must be a finite number.* '-inf'"),
        (["nan", "NaN"], "row 1 must be a finite number.* 'nan'"),
        (["0.5", "1e39"], "row 2 must be a finite number.* '1e39'"),  # infinite as float32
        (["0.5", "0.25", "n/a", "?"] + ["1"], "row 3 must be a finite number.* 'n/a'"),
        (["pos"] * 5, r"two labels at least. Received: \['pos'\] for all of 5"),
        (["0.5", "0.50"], "two labels at least"),
        (["pos", "neg", "pos", "odd", "neg"], r"two texts at least.* 1 of 3 .*\['odd'\]"),
    ],
)
def test_labels_that_are_no_targets(labels, message):
    with pytest.raises(ValueError, match=message):
        load("bert_finetune").as_targets(labels)


def test_training_stops_where_the_loss_is_lost():
    class Model:
        num_classes = 1

        def compile(self, *arguments, **more):
            pass

        def fit(self, *arguments, callbacks=(), **more):
            self.callbacks = callbacks

        def predict(self, inputs, verbose):
            return inputs

    model, options = Model(), argparse.Namespace(batch_size=1, epochs=1, learning_rate=1.0)
    load("bert_finetune").finetune(model, ([1], [1]), ([1], [1]), options)
    assert [type(callback) for callback in model.callbacks] == [training.NonFiniteGuard]
