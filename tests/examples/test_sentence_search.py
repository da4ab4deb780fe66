"""The search example: how files are cut, the index on disk, and a run from the command line."""

import os
import sys
import types

import keras
import numpy as np
import pytest

from kerasmodels.data import BertTokenizer
from kerasmodels.models import Bert, BertSentenceEncoder
from tests.examples import scripts

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "sea", "fire", "old", "."]


@pytest.fixture(scope="module")
def example():
    return scripts.load("sentence_search")


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    keras.utils.set_random_seed(1)
    model = BertSentenceEncoder(Bert(11, 1, 1, 8, 8, max_sequence_length=16))
    model.tokenizer = BertTokenizer(WORDS, max_sequence_length=16)
    folder = tmp_path_factory.mktemp("preset")
    model.save_to_preset(folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "texts"
    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("red fire .\n\nblue\nsea .\n")
    (folder / "more" / "b.txt").write_text("\n\nold old .\n")
    (folder / "c.md").write_text("never read")
    return folder


def run(example, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["sentence_search.py", *map(str, arguments)])
    example.main()


def test_passages(example):
    """Paragraphs, whole; long ones at the ends of sentences; long lines for themselves."""
    assert example.passages("One.\nTwo.\n\n \n  Three\n") == [(1, "One. Two."), (5, "Three")]
    assert example.passages(" \n\n") == []
    sentence = "word " * 30 + "end. "  # 155 characters
    lines = "\n".join(["A first line of its own."] + [(sentence * 4).strip()] * 2)
    found = example.passages(lines)
    assert [line for line, _ in found] == [1, 2, 2, 3, 3]
    assert [passage.count("end.") for _, passage in found] == [0, 3, 1, 3, 1]
    wrapped = "\n".join((("word " * 10 + "end.\n") * 30).splitlines())
    found = example.passages(wrapped)
    assert all(len(passage) <= example.LONGEST for _, passage in found)
    assert " ".join(passage for _, passage in found) == " ".join(wrapped.split())
    for line, passage in found:
        assert wrapped.splitlines()[line - 1].startswith(passage[:20])
    assert example.passages("word " * 400)[0][1] == ("word " * 400).strip()  # no sentence ends


def test_passages_without_white_space_between_sentences(example):
    text = ("字" * 99 + "。") * 4 + "他说：「" + "字" * 90 + "！」" + "字" * 400 + "？！好。"
    found = [passage for _, passage in example.passages(text)]
    assert "".join(found) == text and len(found) > 1
    assert all(len(passage) <= example.LONGEST for passage in found)
    assert found[0].endswith("！」") and found[1].startswith("字")
    assert example.END_OF_SENTENCE.split("好？！好。") == ["好？！", "好。", ""]


def test_search_is_by_cosine(example, rng):
    vectors = rng.normal(size=(20, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = example.search(vectors, vectors[7], 3)
    assert found[0] == (7, pytest.approx(1.0)) and len(found) == 3
    assert found[1][1] == pytest.approx(np.sort(vectors @ vectors[7])[-2])


def test_a_run(example, preset, folder, tmp_path, monkeypatch, capsys):
    index = tmp_path / "runs" / "index.npz"
    arguments = (folder, "blue sea .", "old old .", "--preset", preset, "--index", index)
    run(example, monkeypatch, *arguments, "--top", 2, "--no-progress")
    first = capsys.readouterr().out
    assert "3 passages of 2 files" in first
    _, one, other = first.split("\n\n")
    assert one.splitlines()[:3] == ["blue sea .", "  1.000  a.txt:3", " " * 9 + "blue sea ."]
    assert other.splitlines()[:2] == ["old old .", "  1.000  more/b.txt:3"]
    # Once more, from the index; and anew when a file has changed.
    embedded = []
    embed = BertSentenceEncoder.embed
    monkeypatch.setattr(
        BertSentenceEncoder,
        "embed",
        lambda model, texts, **kw: embedded.append(list(texts)) or embed(model, texts, **kw),
    )
    run(example, monkeypatch, *arguments, "--top", 2)
    assert first.endswith(capsys.readouterr().out) and len(embedded) == 1
    (folder / "a.txt").write_text("blue sea . red .\n")
    run(example, monkeypatch, *arguments)
    assert embedded[1] == ["blue sea . red .", "old old ."]


def test_files_of_other_kinds(example, folder, capsys):
    (folder / "a.txt").write_text("red fire .", encoding="utf-8-sig")
    (folder / "caf\u00e9.txt").write_text("caf\u00e9", encoding="cp1252")
    for encoding in ("utf-16", "utf-16-le"):
        (folder / f"{encoding}.txt").write_text("blue", encoding=encoding)
    found = example.read_folder(folder, "*.txt")
    assert found == [("a.txt", 1, "red fire ."), ("more/b.txt", 3, "old old .")]
    said = capsys.readouterr().out.splitlines()
    assert [line.rpartition("/")[2] for line in said] == [
        "caf\u00e9.txt",
        "utf-16-le.txt",
        "utf-16.txt",
    ]
    assert all(line.startswith("Left out, since it is not utf-8: ") for line in said)
    assert example.read_folder(folder, "caf*", "cp1252") == [("caf\u00e9.txt", 1, "caf\u00e9")]
    assert example.read_folder(folder, "utf-16.*", "utf-16") == [("utf-16.txt", 1, "blue")]


def test_the_index(example, preset, folder, tmp_path, monkeypatch, capsys):
    index = tmp_path / "foo.idx"
    arguments = (folder, "blue", "--preset", preset, "--index", index, "--no-progress")
    run(example, monkeypatch, *arguments)
    first = capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foo.idx", "texts"]
    run(example, monkeypatch, *arguments)
    assert "passages of" not in capsys.readouterr().out
    content = index.read_bytes()

    # One that cannot be read, be it half of one or another program's, is made anew.
    np.savez(tmp_path / "other.npz", x=1)
    np.save(tmp_path / "array.npy", np.arange(3))
    others = [(tmp_path / name).read_bytes() for name in ("other.npz", "array.npy")]
    for unreadable in (content[: len(content) // 2], b"", b"what is this?", *others):
        index.write_bytes(unreadable)
        run(example, monkeypatch, *arguments)
        printed = capsys.readouterr().out
        assert f"{index} cannot be read and is made anew" in printed
        assert [line for line in printed.splitlines() if "0." in line or "1." in line] == [
            line for line in first.splitlines() if "0." in line or "1." in line
        ]
    run(example, monkeypatch, *arguments)
    assert "anew" not in capsys.readouterr().out

    # What stood there before a failed save still does.
    content = index.read_bytes()

    def savez(file, **arrays):
        file.write(b"half")
        raise OSError("the disk is full")

    monkeypatch.setattr(np, "savez", savez)
    with pytest.raises(OSError, match="full"):
        example.write_index(index, state="new")
    assert index.read_bytes() == content
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    monkeypatch.undo()

    # Another tokenizer in the same folder makes another index, too.
    os.utime(preset / "vocab.txt")
    run(example, monkeypatch, *arguments)
    assert "passages of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--top", 0], "--top must be at least 1"),
        (["--index", "a.txt"], "one of the files to be searched"),
        (["--index", "more"], "is a folder"),
    ],
)
def test_what_the_command_line_must_not_say(example, folder, monkeypatch, capsys, more, message):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(BertSentenceEncoder, "from_preset", lambda *a, **kw: pytest.fail("loaded"))
    with pytest.raises(SystemExit):
        run(example, monkeypatch, folder, "red", "--preset", "none", *more)
    assert message in capsys.readouterr().err
    assert (folder / "a.txt").read_text() == "red fire .\n\nblue\nsea .\n"


def test_a_folder_without_text(example, preset, folder, tmp_path, monkeypatch):
    (folder / "blank.txt").write_text(" \n\n")
    index = tmp_path / "index.npz"
    more = ("--pattern", "blank*", "--preset", preset, "--index", index)
    with pytest.raises(SystemExit, match="No text is in the 1 files"):
        run(example, monkeypatch, folder, "red", *more)
    assert not index.exists()


def test_what_is_missing_is_said(example, folder, preset, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(example, monkeypatch, folder, "red", "--preset", preset, "--pattern", "*.rst")
    assert "no files that fit '*.rst'" in capsys.readouterr().err
    found = types.SimpleNamespace(submodule_search_locations=["there"])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: found)
    assert example.default_preset().parts == ("there", "model")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="--preset.*hf://"):
        example.default_preset()
