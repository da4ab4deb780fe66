"""A model of texts in a file: strings in, the tokenizer inside, names or vectors out."""

import itertools
import os
import pathlib
import pickle
import subprocess
import sys
from importlib.util import find_spec

import keras
import numpy as np
import pytest

from kerasmodels import data, export, models
from kerasmodels.export.graph_tokenizer import graph_tokenizer
from kerasmodels.export.text import _longest_first, _text_inputs
from tests.data.test_bert_tokenizer import MODEL, ODD, SPECIAL
from tests.kit import randomize, to_numpy
from tests.test_export import BACKEND, files_of, saves

NEWS = pathlib.Path(find_spec("gensim").submodule_search_locations[0]) / "test" / "test_data"
NAMES = ["bad", "naïve", "good"]
TOKENS = [*SPECIAL, *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh"), "!", "日"]
MARKS = "\x01[MASK]\x00[MASK] [MA\x01SK] [MASK\x01]\x00"  # around and in what stands for a token
TEXTS = ["", "abc Ab, h!", "[MASK] d\x00e\u0301日日!", "a b c d e f g h", "Bad " * 40, MARKS]
PAIRS = ["a!", "", "d [SEP] e", "abc " * 30, "h " * 30, "c"]
# Runs a SavedModel with tensorflow-text beside TensorFlow. It imports Keras for layers of its own,
# after which there is none.
SCRIPT = """
import runpy, sys
import tensorflow_text
others = "keras", "kerasmodels", "jax", "torch", "tokenizers", "transformers"
assert "kerasmodels" not in sys.modules
sys.modules.update(dict.fromkeys(others))  # an import of them is an error
runpy.run_module("tests.scripts.serve", run_name="__main__")
"""


def tokenizer(**arguments):
    return data.BertTokenizer(TOKENS, **{"max_sequence_length": 40, **arguments})


def bert(**arguments):
    sizes = {"num_layers": 1, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 16}
    return models.Bert(len(TOKENS) + 2, **sizes, **{"max_sequence_length": 24, **arguments})


def classifier(**arguments):
    """A head that tells the texts apart, which an encoder of random weights hardly does."""
    model = models.BertClassifier(bert(), **{"num_classes": 3, **arguments})
    model.tokenizer = tokenizer()
    kernel, bias = randomize(model, scale=0.5).classifier.weights
    kernel.assign(10 * kernel)
    logits = to_numpy(model(model.tokenizer(TEXTS, max_length=20, truncation=True)))
    bias.assign(bias - logits.mean(axis=0))
    return model


def strings(texts):
    return np.array(texts, dtype=object)


def serve(folder, calls):
    """The signatures of a SavedModel, and its answers, in a process of TensorFlow alone."""
    files = folder.parent / "calls.pkl", folder.parent / "results.pkl"
    files[0].write_bytes(pickle.dumps(calls))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), *map(str, files)],
        cwd=pathlib.Path(__file__).parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads(files[1].read_bytes())


@saves
def test_text_model_without_keras(tmp_path):
    net = classifier(class_names=NAMES)
    folder = tmp_path / "new" / "reviews"
    export.text_model(net, folder, max_length=20)
    texts, pairs = strings(TEXTS), strings(PAIRS)
    both = {"texts": texts, "pairs": pairs}
    # Calls, and what the tokenizer gets.
    calls = [
        ("serve", texts, [TEXTS]),
        ("signature serve", {"texts": texts[:3]}, [TEXTS[:3]]),
        ("signature serving_default", {"texts": texts[3:]}, [TEXTS[3:]]),
        ("signature serve_pairs", both, [TEXTS, PAIRS]),
    ]
    signatures, results = serve(folder, [call[:2] for call in calls])
    assert signatures == ["serve", "serve_pairs", "serving_default"]
    best = set()
    for (_, _, sides), result in zip(calls, results, strict=True):
        inputs = net.tokenizer(*sides, max_length=20, truncation=True)
        logits = to_numpy(net(inputs)).astype("float64")
        scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        order = np.argsort(-scores, axis=1)
        assert set(result) == {"label", "scores", "class_names"}
        expected = np.take_along_axis(scores, order, axis=1)
        assert result["scores"].dtype == "float32"
        np.testing.assert_allclose(result["scores"], expected, rtol=1e-5, atol=1e-5)
        found = [[name.decode() for name in row] for row in result["class_names"]]
        assert found == [[NAMES[i] for i in row] for row in order]
        assert [name.decode() for name in result["label"]] == [row[0] for row in found]
        best |= set(result["label"])
    assert len(best) > 1  # texts differ
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


@pytest.mark.skipif(
    BACKEND != "tensorflow", reason="the model's part is in the test above, the rest TensorFlow's"
)
def test_vectors_and_values(tmp_path):
    import tensorflow as tf

    # A model of one segment takes no pairs; one of the user's own has no names and no tokenizer.
    net = randomize(bert(num_segments=1), scale=0.5)
    folder, vectors = tmp_path / "net", keras.Model(net.input, net.output["pooled_output"])
    export.text_model(vectors, folder, tokenizer(special_tokens_in_text=False))
    served = tf.saved_model.load(str(folder))
    assert set(served.signatures) == {"serve", "serving_default"}
    answer = served.serve(tf.constant(TEXTS))
    assert set(answer) == {"vectors"} and answer["vectors"].dtype == tf.float32
    inputs = tokenizer(special_tokens_in_text=False)(TEXTS, max_length=24, truncation=True)
    expected = to_numpy(vectors(inputs))
    np.testing.assert_allclose(answer["vectors"], expected, rtol=1e-5, atol=1e-5)
    before = files_of(tmp_path)
    with pytest.raises(ValueError, match="max_length=25"):
        export.text_model(vectors, folder, tokenizer(), max_length=25)
    assert files_of(tmp_path) == before

    # Regression, in place of the file before.
    net = classifier(num_classes=1)
    export.text_model(net, folder)
    served = tf.saved_model.load(str(folder))
    answer = served.serve_pairs(tf.constant(TEXTS), tf.constant(PAIRS))
    expected = to_numpy(net(net.tokenizer(TEXTS, PAIRS, max_length=24, truncation=True)))[:, 0]
    assert set(answer) == {"value"}
    np.testing.assert_allclose(answer["value"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="operations of TensorFlow, once is enough")
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"lowercase": False, "special_tokens_in_text": False},
        {"lowercase": False, "strip_accents": True, "split_chinese": False},
    ],
)
def test_ids_in_the_graph(arguments):
    import tensorflow as tf

    vocabulary = (MODEL / "vocab.txt").read_text(encoding="utf-8").splitlines()
    exact = data.BertTokenizer(vocabulary, **arguments)
    ids = tf.function(graph_tokenizer(exact), input_signature=[tf.TensorSpec((None,), tf.string)])
    lines = (NEWS / "lee_background.cor").read_text(encoding="utf-8").splitlines()[:150]
    more = NEWS / "OPUS_en_it_europarl_train_one2ten.txt"
    lines += [line[:2000] for line in more.read_text(encoding="utf-8").splitlines()[:150]]
    # Each character within a word: all of the first and of the last pages, some of the others.
    rare = np.random.default_rng(0).integers(0xE000, 0x110000, 3000).tolist()
    codes = [*range(0x3400), *range(0xF900, 0x10000), *rare]
    lines += [*ODD, *TEXTS, *(f"a{chr(code)}b" for code in codes)]
    assert len(lines) > 18000
    found = ids(tf.constant(lines)).to_list()
    expected = exact.encode_batch(lines)
    assert [
        line for line, *two in zip(lines, found, expected, strict=True) if two[0] != two[1]
    ] == []
    # Bytes that are no UTF-8 are dropped, as the character that replaces them is.
    assert ids(tf.constant([b"a\xffb", b"\xed\xa0\x80"])).to_list() == [exact.encode("ab"), []]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="operations of TensorFlow, once is enough")
def test_inputs_in_the_graph():
    import tensorflow as tf

    special = {"pad": "<pad>", "mask": "[MASK] ["}  # one token begins with another
    tokens = ["x", *SPECIAL, "<pad>", "[MASK] [", *TOKENS[5:]]  # the pad id is not 0
    exact = data.BertTokenizer(tokens, special_tokens=special)
    lines = [*TEXTS, "a [MASK] [b", "x [CLS][MASK]"]
    for limit in (3, 17):
        inputs_of = _text_inputs(exact, limit)
        for sides in ([lines], [lines, lines[::-1]], [[]]):
            inputs = inputs_of(*(tf.constant(side, "string") for side in sides))
            expected = exact(*sides, max_length=limit, truncation=True)
            for array, name in zip(inputs, expected, strict=True):
                array = array.numpy() if sides[0] else array.numpy()[:, :0]
                assert array.dtype == expected[name].dtype
                np.testing.assert_array_equal(array, expected[name])
    with pytest.raises(tf.errors.InvalidArgumentError, match="`pairs` must be as many"):
        inputs_of(tf.constant(["a"]), tf.constant(["a", "b"]))
    # All lengths up to 6 against all limits.
    counts = np.array(list(itertools.product(range(7), repeat=2))).T
    rows = [tf.ragged.range(tf.constant(side)) for side in counts]
    firsts, seconds = (["a " * count for count in side] for side in counts)
    for room in range(13):
        inputs = exact(firsts, seconds, max_length=room + 3, truncation=True)
        second = inputs["segment_ids"].sum(axis=1) - 1  # without [SEP]
        first = inputs["padding_mask"].sum(axis=1) - 3 - second
        for found, kept in zip(_longest_first(rows, room), (first, second), strict=True):
            assert found.to_list() == [list(range(count)) for count in kept]


@saves
def test_bad_text_model(tmp_path):
    net, words = classifier(), tokenizer()
    x = keras.Input((8,))
    more = data.BertTokenizer([*TOKENS, "x", "y", "z"])
    for bad, arguments, message in (
        ("net.keras", {}, "functional.*str"),
        (keras.Model(x, keras.layers.Dense(2)(x)), {}, "`token_ids`.*keras_tensor"),
        (models.BertPretraining(bert()), {}, "mask_positions"),
        (bert(), {}, "one output.*sequence_output"),
        (models.BertTokenClassifier(bert(), 3), {}, r"one output.*\(None, None, 3\)"),
        (models.BertClassifier(bert(), 3), {}, "tokenizer=None"),
        (net, {"tokenizer": "bert_base"}, "BertTokenizer.*'bert_base'"),
        (net, {"tokenizer": more}, "25.*26 tokens"),
        (net, {"class_names": NAMES[:2]}, "3 classes.*2 names"),
        (net, {"class_names": "abc"}, "`class_names` must be a list"),
        (net, {"class_names": {"a": 0, "b": 1, "c": 2}}, "`class_names` must be a list"),
        (net, {"class_names": ["a", "a", "b"]}, "differ from one another"),
        (net, {"max_length": 2}, "at least 3.*max_length=2"),
        (net, {"max_length": 25}, "allow, 24.*max_length=25"),
        (net, {"max_length": 21, "tokenizer": tokenizer(max_sequence_length=20)}, "allow, 20"),
        (net, {"max_length": 8.0}, "max_length=8.0"),
    ):
        with pytest.raises(ValueError, match=message):
            export.text_model(bad, tmp_path / "net", **arguments)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(ValueError, match="holds something else"):
        export.text_model(net, tmp_path / "thesis", words)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


@pytest.mark.skipif(BACKEND != "torch", reason="what PyTorch says")
def test_on_torch(tmp_path):
    with pytest.raises(ValueError, match="torch backend.*export.onnx.*KERAS_BACKEND=tensorflow"):
        export.text_model(classifier(), tmp_path / "net")
