"""Files that answer as the model does: SavedModels run by TensorFlow alone, ONNX by onnxruntime."""

import os
import pathlib
import pickle
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import decoding, export, layers, models
from kerasmodels.export.archive import Archive
from kerasmodels.export.functional import _generation
from tests.kit import randomize, to_numpy

BACKEND = keras.backend.backend()
saves = pytest.mark.skipif(BACKEND == "torch", reason="PyTorch writes ONNX, never a SavedModel")
writes_onnx = pytest.mark.skipif(BACKEND != "torch", reason="only PyTorch writes ONNX")
MAX_LENGTH = 6
SHAPES = ((2, 7, 5), (3, 5, 8), (1, 1, 1))  # batch, source and target length (C32)


def transformer(**generation):
    model = models.Transformer(
        (13, 11),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        generation=generation or None,
    )
    return randomize(model, scale=0.5)


def encoder():
    """A model of one unnamed input, (None, None) ids."""
    token_ids = keras.Input((None,), dtype="int32", name="my-ids")
    x = layers.TokenEmbedding(13, 8)(token_ids)
    x = layers.TransformerEncoderBlock(2, 16)(layers.PositionalEncoding()(x))
    return randomize(keras.Model(token_ids, x))


PAD = 3


def batch(rows, source, target, seed=0):
    """Right-padded ids with their masks; the decoder starts with the pad id, as Marian's does."""
    rng = np.random.default_rng(seed)
    inputs = {}
    for side, size, length in (("encoder", 13, source), ("decoder", 11, target)):
        lengths = rng.integers(1, length + 1, (rows, 1))
        mask = np.arange(length) < lengths
        ids = np.where(mask, rng.integers(PAD + 1, size, (rows, length)), PAD).astype("int32")
        inputs |= {f"{side}_token_ids": ids, f"{side}_padding_mask": mask}
    inputs["decoder_token_ids"][:, 0] = PAD
    return inputs


def only(inputs, *parts):
    return {name: array for name, array in inputs.items() if all(p in name for p in parts)}


def serve(folder, calls):
    """The signatures of a SavedModel, and its answers in a process without Keras."""
    files = folder.parent / "calls.pkl", folder.parent / "results.pkl"
    files[0].write_bytes(pickle.dumps(calls))
    command = [sys.executable, "-m", "tests.scripts.serve", str(folder), *map(str, files)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    done = subprocess.run(
        command,
        cwd=pathlib.Path(__file__).parents[1],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return pickle.loads(files[1].read_bytes())


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@saves
def test_saved_model_without_keras(tmp_path):
    model = transformer(pad_id=PAD, start_id=PAD)
    search = decoding.BeamSearch(2)
    folder = tmp_path / "new" / "model"
    export.saved_model(model, folder, search=search, max_length=MAX_LENGTH)
    batches = [batch(*shape, seed) for seed, shape in enumerate(SHAPES)]
    calls = [("serve", inputs) for inputs in batches]
    expected = [model.predict_on_batch(inputs) for inputs in batches]
    for inputs in batches[:2]:
        calls.append(("generate", only(inputs, "encoder")))
        expected.append(model.generate(inputs, search=search, max_length=MAX_LENGTH))
    # The same from the ids alone, and by the names of the signatures.
    ids, sources = only(batches[0], "ids"), only(batches[0], "encoder")
    for name, inputs, answer in (
        ("serve", ids, expected[0]),
        ("signature serving_default", batches[0], expected[0]),
        ("signature serve_token_ids", ids, expected[0]),
        ("signature generate", sources, expected[3]),
        ("signature generate_token_ids", only(ids, "encoder"), expected[3]),
    ):
        calls.append((name, inputs))
        expected.append(answer)
    signatures, results = serve(folder, calls)
    assert signatures == [
        "generate",
        "generate_token_ids",
        "serve",
        "serve_token_ids",
        "serving_default",
    ]
    for (name, _), found, answer in zip(calls, results, expected, strict=True):
        assert found.shape == answer.shape and found.dtype == answer.dtype, name
        np.testing.assert_allclose(found, answer, rtol=1e-5, atol=1e-5, err_msg=name)
    assert len({tuple(row) for answer in expected[3:5] for row in answer}) > 1
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []


@saves
def test_one_input_and_a_second_export(tmp_path):
    import tensorflow as tf

    folder = tmp_path / "encoder"
    for _ in range(2):  # the second replaces the first
        model = encoder()
        export.saved_model(model, folder)
    served = tf.saved_model.load(str(folder))
    assert set(served.signatures) == {"serve", "serving_default"}
    for rows, length in ((2, 7), (3, 5), (1, 1)):
        ids = np.random.default_rng(0).integers(0, 13, (rows, length)).astype("int32")
        found = served.serve(tf.constant(ids)).numpy()
        np.testing.assert_allclose(found, model.predict_on_batch(ids), rtol=1e-5, atol=1e-5)
    assert [path.name for path in tmp_path.iterdir()] == ["encoder"]


@saves
def test_ids_that_a_saved_model_has_no_room_for(tmp_path):
    """Errors, where JAX would answer NaN."""
    import tensorflow as tf

    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=8)
    model = models.BertPretraining(models.Bert(9, **sizes, max_sequence_length=4))
    export.saved_model(model, tmp_path / "model")
    served = tf.saved_model.load(tmp_path / "model")
    ids = np.array([[2, 5, 3]], "int32")
    inputs = {"token_ids": ids, "segment_ids": 0 * ids, "mask_positions": ids[:, :1]}
    np.testing.assert_allclose(
        served.serve(inputs)["mlm"], to_numpy(model({**inputs, "padding_mask": None})["mlm"]), 1e-5
    )
    for name, wrong, message in (
        ("token_ids", 0 * ids + 9, r"`token_ids` must be in \[0, 9\)"),
        ("token_ids", 0 * ids - 1, r"`token_ids` must be in \[0, 9\)"),
        ("segment_ids", 0 * ids + 2, r"`segment_ids` must be in \[0, 2\)"),
        ("mask_positions", 0 * ids[:, :1] + 3, "`mask_positions` must be .* length of `tok"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            served.serve({**inputs, name: wrong})
    long = {name: np.zeros((1, 5), "int32") for name in ("token_ids", "segment_ids")}
    # TensorFlow may see for itself that the table is too short.
    error = (tf.errors.InvalidArgumentError, ValueError)
    with pytest.raises(error, match="at most 4 tokens|Dimensions must be equal, but are 5 and 4"):
        served.serve({**inputs, **long})


@saves
def test_sampling_draws_in_the_graph(tmp_path):
    import tensorflow as tf

    model = transformer()
    export.saved_model(model, tmp_path / "model", search=decoding.Sampling(), max_length=12)
    served = tf.saved_model.load(str(tmp_path / "model"))
    ids = {"encoder_token_ids": tf.constant([[5, 6, 7]] * 4)}
    first, second = served.generate(ids).numpy(), served.generate(ids).numpy()
    assert first.shape == (4, 12) and first.min() >= 0 and first.max() < 11
    assert (first != second).any()
    assert len({tuple(row) for row in first}) > 1  # every row draws its own numbers
    _, (_, draw) = _generation(model, decoding.Sampling(seed=3), 12)
    np.testing.assert_array_equal(draw(4), draw(4))


@saves
def test_a_failed_export_leaves_the_old_one(tmp_path, monkeypatch):
    folder = tmp_path / "model"
    export.saved_model(encoder(), folder)
    before = files_of(tmp_path)

    def half(self, path):
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"half")
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Archive, "write", half)
        for path in (folder, tmp_path / "other"):
            with pytest.raises(OSError, match="disk full"):
                export.saved_model(encoder(), path)
    assert files_of(tmp_path) == before

    def refuse(self, target):
        raise OSError("not allowed")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "replace", refuse)
        with pytest.raises(OSError, match="not allowed"):
            export.saved_model(encoder(), folder)
    assert files_of(tmp_path) == before


class Subclassed(keras.Model):
    def call(self, x):
        return x


@saves
def test_bad_saved_model(tmp_path):
    model, path = transformer(), tmp_path / "model"
    greedy = decoding.GreedySearch()
    for bad, arguments, message in (
        (model, {"search": greedy}, "max_length=None"),
        (model, {"max_length": 3}, "search=None"),
        (model, {"search": "greedy", "max_length": 3}, "'greedy'"),
        (model, {"search": greedy, "max_length": 0}, "max_length=0"),
        (model, {"search": decoding.BeamSearch(12), "max_length": 3}, "num_beams=12"),
        (encoder(), {"search": greedy, "max_length": 3}, "`start` and `step`"),
        (Subclassed(), {}, "functional.*Subclassed"),
        ("model.keras", {}, "functional.*str"),
    ):
        with pytest.raises(ValueError, match=message):
            export.saved_model(bad, path, **arguments)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    for mine in (tmp_path / "thesis", tmp_path / "thesis" / "chapter.tex"):
        with pytest.raises(ValueError, match="holds something else"):
            export.saved_model(encoder(), mine)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


@writes_onnx
def test_onnx(tmp_path):
    import onnxruntime

    model, path = transformer(), tmp_path / "new" / "model.onnx"
    export.onnx(model, path)
    assert [file.name for file in path.parent.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(str(path))
    assert {entry.name for entry in session.get_inputs()} == set(batch(1, 1, 1))
    for seed, shape in enumerate(SHAPES):
        inputs = batch(*shape, seed)
        (found,) = session.run(["output_0"], inputs)
        np.testing.assert_allclose(found, to_numpy(model(inputs)), rtol=1e-5, atol=1e-5)

    # The loop of the docstring, for a batch: what `generate` says.
    sources = only(batch(4, 6, 1), "encoder")
    tokens, ended = np.ones((4, 1), "int32"), np.zeros((4, 1), bool)
    for _ in range(MAX_LENGTH):
        seen = {"decoder_token_ids": tokens, "decoder_padding_mask": np.ones(tokens.shape, bool)}
        (logits,) = session.run(None, {**sources, **seen})
        following = np.where(ended, 0, logits[:, -1:].argmax(-1)).astype("int32")
        ended |= following == 2
        tokens = np.concatenate([tokens, following], axis=1)
    np.testing.assert_array_equal(tokens[:, 1:], model.generate(sources, max_length=MAX_LENGTH))


@writes_onnx
def test_onnx_of_one_input(tmp_path):
    import onnxruntime

    path = tmp_path / "encoder.onnx"
    for _ in range(2):
        model = encoder()
        export.onnx(model, path)
    session = onnxruntime.InferenceSession(str(path))
    (name,) = [entry.name for entry in session.get_inputs()]
    for rows, length in ((2, 7), (3, 5), (1, 1)):
        ids = np.random.default_rng(0).integers(0, 13, (rows, length)).astype("int32")
        (found,) = session.run(None, {name: ids})
        np.testing.assert_allclose(found, to_numpy(model(ids)), rtol=1e-5, atol=1e-5)
    assert [file.name for file in tmp_path.iterdir()] == ["encoder.onnx"]


class Branch(keras.layers.Layer):
    """Its Python looks at the values: no graph of it can be drawn."""

    def call(self, x):
        return x if float(ops.sum(x)) > 0 else -x


@writes_onnx
def test_a_failed_onnx_leaves_the_old_file(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"the old one")
    x = keras.Input((None,))
    y = keras.KerasTensor((None, None))
    layer = Branch()
    layer.compute_output_spec = lambda x: y
    with pytest.raises(ValueError, match="free sizes of batch"):
        export.onnx(keras.Model(x, layer(x)), path)
    assert path.read_bytes() == b"the old one"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="functional.*Subclassed"):
        export.onnx(Subclassed(), path)
    with pytest.raises(ValueError, match="folder"):
        export.onnx(encoder(), tmp_path)


def test_what_a_backend_cannot_write(tmp_path):
    write, instead = (
        (export.saved_model, "export.onnx") if BACKEND == "torch" else (export.onnx, "saved_model")
    )
    with pytest.raises(ValueError, match=f"{BACKEND} backend.*{instead}"):
        write(encoder(), tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
