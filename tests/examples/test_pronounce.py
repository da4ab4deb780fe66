"""`examples/pronounce.py` as its user meets it: what it prints, draws and leaves behind."""

import functools
import re
import zlib

import keras
import numpy as np
import pytest

from kerasmodels import data
from tests.examples.scripts import assert_is_a_picture, load, run
from tests.kit import once

BACKEND = keras.backend.backend()
WORDS = 60
SETTINGS = ["--words", str(WORDS), "--layers", "1", "--epochs", "3"]
RATES = r"PER (\d+\.\d\d) %  WER (\d+\.\d\d) %  \(([\d,]+) (.*)\)"


@pytest.fixture(scope="module")
def example():
    return load("pronounce")


def edits(one, other):
    """Levenshtein's distance between two sequences."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def rates(said, listed):
    """PER and WER in percent; the nearest pronunciation counts (the first such), and its length."""
    errors = length = wrong = 0
    for word, sounds in zip(said, listed, strict=True):
        nearest = min(sounds, key=functools.partial(edits, word))
        errors, length = errors + edits(word, nearest), length + len(nearest)
        wrong += word not in sounds
    return 100 * errors / length, 100 * wrong / len(said)


def exported(folder, inputs):
    """Answers to the sources, and logits, of the file that others read."""
    serve, sources = load("serve_pronounce"), inputs["encoder_token_ids"]
    if BACKEND == "torch":
        import onnxruntime

        path = folder / "model.onnx"
        (logits,) = onnxruntime.InferenceSession(path).run(None, inputs)
        return serve.onnx_generate(path, sources), logits

    import tensorflow as tf

    path = folder / "saved_model"
    loaded = tf.saved_model.load(path)  # its functions do not keep its variables alive
    logits = loaded.serve({name: tf.constant(x) for name, x in inputs.items()})
    return serve.savedmodel_generate(path, sources), logits.numpy()


def test_what_the_user_gets(example, tmp_path):
    folder = tmp_path / "new" / "run"
    printed = run("pronounce", *SETTINGS, "--output", folder)

    # A progress bar with the validation's values, and the scores.
    assert "val_token_loss" in printed and re.search(r"Trained for \d+ s\.", printed)
    assert f"parameters on {BACKEND}\n" in printed
    (per, wer, count, name), (_, _, hard, hard_name) = re.findall(RATES, printed)
    assert (name, hard_name) == ("test words", "without a sibling in training")
    assert 0 < int(hard) <= int(count) <= WORDS
    shown = re.findall(r"^  ([a-z]+) +(.*?) *(?:listed: (.+))?$", printed, re.MULTILINE)
    assert len(shown) == 12
    assert printed.count("The same as the model says.") == 1

    # The pictures.
    assert_is_a_picture(folder / "attention.png")
    assert_is_a_picture(folder / "learning_curve.png")

    # The model in its file says what was printed, and its scores are the printed ones.
    model = keras.saving.load_model(folder / "model.keras")
    letters = data.Vocabulary.load(folder / "letters.json")
    sounds = data.Vocabulary.load(folder / "sounds.json")
    words = example.read_dictionary()["test"]
    words = dict(list(words.items())[:: -(-len(words) // WORDS)])
    assert len(words) == int(count)
    token_ids = np.zeros((len(words), max(map(len, words))), "int32")
    for row, word in zip(token_ids, words, strict=True):
        row[: len(word)] = letters.encode(word)
    ids = model.generate(token_ids, max_length=example.MAX_LENGTH)
    said = {w: sounds.decode(row).split() for w, row in zip(words, ids, strict=True)}
    found = rates([tuple(s) for s in said.values()], list(words.values()))
    # A tie between two phonemes may fall otherwise where words are padded otherwise.
    np.testing.assert_allclose([float(per), float(wer)], found, atol=0.5)
    for word, answer, listed in shown:
        assert answer.split() == said[word]
        # What is listed stands beside wrong answers alone.
        assert tuple(listed.split() or answer.split()) in words[word]

    # It learns.
    losses = [float(x) for x in re.findall(r"val_token_loss: (\d+\.\d+)", printed)]
    assert len(losses) == 3 and losses[2] < losses[0]

    # What others read says the same: here, and without Keras in `serve_pronounce`'s own process.
    targets = np.random.default_rng(0).integers(1, sounds.vocabulary_size, (len(words), 5))
    inputs = {
        "encoder_token_ids": token_ids,
        "encoder_padding_mask": token_ids != 0,
        "decoder_token_ids": targets.astype("int32"),
        "decoder_padding_mask": np.ones(targets.shape, bool),
    }
    answers, logits = exported(folder, inputs)
    np.testing.assert_allclose(logits, model.predict_on_batch(inputs), rtol=1e-4, atol=1e-4)
    assert np.ptp(logits, axis=0).max() > 0.1  # words do differ
    assert (answers == ids).all(axis=1).mean() > 0.98
    served = printed.split("Without Keras, from the exported file:\n")[1].splitlines()[:12]
    assert served == [f"{word}\t{answer}" for word, answer, _ in shown]


@once
def test_the_words_are_split_as_stated(example):
    parts = example.read_dictionary()
    sizes = {name: len(part) for name, part in parts.items()}
    assert sum(sizes.values()) == 117_465 and sizes["test"] == 9_840
    for name, part in parts.items():
        for word in list(part)[::100]:
            place = {0: "test", 1: "dev"}.get(zlib.crc32(word.encode()) % 12, "train")
            assert place == name and word.isalpha() and 2 <= len(word) <= 20
    assert parts["train"]["tomato"] == [
        ("T", "AH", "M", "EY", "T", "OW"),
        ("T", "AH", "M", "AA", "T", "OW"),
    ]
    phonemes = {p for part in parts.values() for sounds in part.values() for s in sounds for p in s}
    assert len(phonemes) == 39 and max(len(p) for p in phonemes) == 2  # no digits of stress


def test_siblings_are_found(example):
    train = {"stop": [], "try": [], "make": [], "glass": [], "sing": [], "cars": []}
    siblings = ["stopped", "stops", "tried", "tries", "making", "glasses", "singing", "car"]
    strangers = ["stone", "trial", "mad", "glue", "song"]
    left = example.without_siblings(dict.fromkeys([*siblings, *strangers]), train)
    assert list(left) == strangers
