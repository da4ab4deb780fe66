"""The engine with a small model of its own: names, transforms, ties, heads, and what must match."""

import keras
import numpy as np
import pytest
from keras import ops
from safetensors.numpy import save_file

from kerasmodels.checkpoints import Key, KeyTable, keys, read_weights, weights_for_file

TABLE = KeyTable(
    keys=(
        Key("net.embed.weight", "embedding.embeddings", tied=("out.weight",), hidden=(1,)),
        Key("net.layers.{i}.fc.weight", "blocks.{i}.kernel", "transpose", hidden=(0,)),
        Key("net.layers.{i}.fc.bias", "blocks.{i}.bias"),
        Key("out_bias", "bias.bias", "row", optional=True),
        Key("classifier.weight", "head.kernel", "transpose", hidden=(0,)),
        Key("classifier.bias", "head.bias"),
    ),
    prefix="net.",
    derived=("*.positions",),
    heads=("classifier.*", "lm.*"),
)


@keras.saving.register_keras_serializable(package="tests")
class Bias(keras.layers.Layer):
    def build(self, shape):
        self.bias = self.add_weight(shape=(shape[-1],), name="bias")

    def call(self, x):
        return x + self.bias


def make_model(head=False, dtype="float32"):
    ids = keras.Input((None,), dtype="int32")
    embedding = keras.layers.Embedding(5, 4, dtype=dtype)
    blocks = [keras.layers.Dense(4, dtype=dtype) for _ in range(2)]
    x = embedding(ids)
    for block in blocks:
        x = block(x)
    bias = None if head else Bias(dtype=dtype)
    top = keras.layers.Dense(3, dtype=dtype) if head else None
    model = keras.Model(ids, top(x) if head else bias(x))
    model.embedding, model.blocks, model.bias, model.head = embedding, blocks, bias, top
    return model


@pytest.fixture
def tensors(rng):
    shapes = {"net.embed.weight": (5, 4), "out_bias": (1, 4)}
    for i in range(2):
        shapes |= {f"net.layers.{i}.fc.weight": (4, 4), f"net.layers.{i}.fc.bias": (4,)}
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def load(folder, tensors, model=None, **kwargs):
    save_file(tensors, folder / "model.safetensors")
    model = model or make_model()
    read_weights(model, folder, TABLE, **kwargs)
    return model


def test_reading_and_writing_are_inverse(tmp_path, tensors):
    model = load(tmp_path, tensors)
    kernel = ops.convert_to_numpy(model.blocks[1].kernel)
    np.testing.assert_array_equal(kernel, tensors["net.layers.1.fc.weight"].T)
    np.testing.assert_array_equal(ops.convert_to_numpy(model.bias.bias), tensors["out_bias"][0])
    written = weights_for_file(model, TABLE)
    assert set(written) == set(tensors)
    for name, array in tensors.items():
        np.testing.assert_array_equal(written[name], array)


def test_features_may_be_written_in_another_order(tmp_path, tensors):
    model = load(tmp_path, tensors)
    written = weights_for_file(model, TABLE, order=[2, 0, 1, 3])
    np.testing.assert_array_equal(
        written["net.embed.weight"], tensors["net.embed.weight"][:, [2, 0, 1, 3]]
    )
    np.testing.assert_array_equal(
        written["net.layers.0.fc.weight"], tensors["net.layers.0.fc.weight"][:, [2, 0, 1, 3]]
    )
    np.testing.assert_array_equal(written["out_bias"], tensors["out_bias"])


@pytest.mark.parametrize("spell", [lambda n: n.removeprefix("net."), lambda n: f"net.{n}"])
def test_the_prefix_is_optional(tmp_path, tensors, spell):
    names = [n if n.startswith("net.") and spell("x") != "x" else spell(n) for n in tensors]
    model = load(tmp_path, dict(zip(names, tensors.values(), strict=True)))
    written = weights_for_file(model, TABLE)
    assert all(np.array_equal(written[n], tensors[n]) for n in tensors)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("stored", ["float16", "bfloat16", "float64"])
def test_tensors_are_cast_to_the_variables(tmp_path, tensors, stored, dtype):
    import ml_dtypes

    target = ml_dtypes.bfloat16 if stored == "bfloat16" else stored
    tensors = {n: a.astype(target) for n, a in tensors.items()}
    model = load(tmp_path, tensors, make_model(dtype=dtype))
    assert all(keras.backend.standardize_dtype(v.dtype) == dtype for v in model.weights)
    exact = tensors["net.embed.weight"].astype("float32")
    got = ops.convert_to_numpy(ops.cast(model.embedding.embeddings, "float32"))
    np.testing.assert_allclose(got, exact, rtol=2**-7 if dtype == "bfloat16" else 1e-3, atol=1e-6)
    if dtype == "float32":
        np.testing.assert_array_equal(got, exact)


def test_tied_names_stand_for_one_weight(tmp_path, tensors):
    tensors["out.weight"] = tensors["net.embed.weight"].copy()
    load(tmp_path, tensors)
    del tensors["net.embed.weight"]
    model = load(tmp_path, tensors)
    np.testing.assert_array_equal(
        ops.convert_to_numpy(model.embedding.embeddings), tensors["out.weight"]
    )
    tensors["net.embed.weight"] = tensors["out.weight"] + 1
    with pytest.raises(ValueError, match="net.embed.weight and out.weight"):
        load(tmp_path, tensors)


def test_what_follows_from_the_configuration_is_ignored(tmp_path, tensors):
    for name in ("net.a.positions", "net.position_ids", "optimizer.step", "net.x/adam_m"):
        tensors[name] = np.zeros((1,), "float32")
    tensors["global_step"] = np.zeros((), "int64")
    del tensors["out_bias"]  # optional
    model = load(tmp_path, tensors)
    assert not ops.convert_to_numpy(model.bias.bias).any()


def test_all_that_does_not_fit_is_listed_and_nothing_is_assigned(tmp_path, tensors):
    del tensors["net.embed.weight"]
    tensors["net.layers.0.fc.weight"] = np.zeros((4, 7), "float32")
    tensors["net.layers.2.fc.bias"] = np.zeros((9,), "float32")
    tensors["lm.bias"] = np.zeros((1,), "float32")  # a head that the model lacks: no problem
    model = make_model()
    before = [ops.convert_to_numpy(v) for v in model.weights]
    with pytest.raises(ValueError) as error:
        load(tmp_path, tensors, model)
    lines = [line.strip() for line in str(error.value).splitlines()]
    assert "model.safetensors" in lines[0]
    assert lines[1:] == [
        "misshapen: net.layers.0.fc.weight (4, 7), expected (4, 4)",
        "missing: net.embed.weight (5, 4)",
        "unexpected: net.layers.2.fc.bias (9,)",
    ]
    for old, new in zip(before, model.weights, strict=True):
        np.testing.assert_array_equal(old, ops.convert_to_numpy(new))


def test_what_is_no_float_or_there_twice(tmp_path, tensors):
    """Quantized integers are no weights, and of two spellings of one weight neither is right."""
    name = "net.embed.weight"
    for dtype in ("int8", "bool"):
        with pytest.raises(ValueError, match=f"{name} must hold floats. Received: {dtype}"):
            load(tmp_path, {**tensors, name: tensors[name].astype(dtype)})
    twice = {**tensors, name.removeprefix("net."): 0 * tensors[name]}
    with pytest.raises(ValueError, match=f"twice, as one weight here: .*{name}"):
        load(tmp_path, twice)


def test_heads_are_loaded_ignored_or_new_by_name(tmp_path, tensors):
    del tensors["out_bias"]
    with pytest.raises(ValueError, match=r"missing: classifier.bias \(3,\)"):
        load(tmp_path, tensors, make_model(head=True))
    model = make_model(head=True)
    kernel = ops.convert_to_numpy(model.head.kernel)
    load(tmp_path, tensors, model, new_heads=("classifier",))
    np.testing.assert_array_equal(kernel, ops.convert_to_numpy(model.head.kernel))
    # The file's head is of another size, and a new one is wanted all the same.
    tensors |= {
        "classifier.weight": np.ones((2, 4), "float32"),
        "classifier.bias": np.ones((2,), "float32"),
    }
    with pytest.raises(ValueError, match="misshapen: classifier.weight"):
        load(tmp_path, tensors, make_model(head=True))
    load(tmp_path, tensors, make_model(head=True), new_heads=("classifier",))
    load(tmp_path, tensors, make_model())  # no head: an encoder from a file with one
    with pytest.raises(ValueError, match=r"no head named \['pooler'\]"):
        load(tmp_path, tensors, make_model(), new_heads=("pooler",))


def test_a_weight_without_a_name_is_refused():
    model = make_model()
    table = KeyTable(keys=TABLE.keys[:-3])
    with pytest.raises(ValueError, match="no name for the weights.*bias"):
        weights_for_file(model, table)
    assert len(keys.bind(model, TABLE)) == len(model.weights)
