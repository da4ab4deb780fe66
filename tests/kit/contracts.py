"""What every layer and every model promises, as tests that a new one gets for one line.

    test_feed_forward = contracts(lambda **kw: FeedForward(16, **kw), x=normal(2, 5, 8))

`contracts` returns a test function with one case a contract; `make(**kw)` builds a new object and
must pass `dtype` on. The keywords are the call's arguments by name: arrays are inputs, everything
else is handed over as it is. For a functional `keras.Model` they are its inputs by name.

Each contract is a function `check_<name>(case, ...)` of its own, to be called alone where a test
needs just one.
"""

import copy
import inspect
import json
import pickle
import re
import warnings

import keras
import numpy as np
import pytest
from keras import ops, tree

from tests.kit.case import Case
from tests.kit.tools import (
    assert_close,
    assert_equal,
    backend,
    called_once,
    compiled,
    copy_weights,
    gradients,
    to_numpy,
)

LAYER_TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}
MODEL_TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def tolerance(layer):
    """The design's tolerances: tight for a layer, ten times that for a whole model."""
    return MODEL_TOLERANCE if isinstance(layer, keras.Model) else LAYER_TOLERANCE


def check_symbolic(case):
    """Shape and dtype of a symbolic call are the eager call's, for known and for free axes."""
    for policy in (None, "mixed_bfloat16"):
        layer = case.make() if policy is None else case.make(dtype=policy)
        symbolic = {}
        for shape_of in (case.dynamic_shape, np.shape):
            symbols = {
                name: keras.KerasTensor(shape_of(array), dtype=str(array.dtype))
                for name, array in case.arrays.items()
            }
            symbolic[shape_of] = tree.flatten(case.call(layer, symbols))
        eager = tree.flatten(case.call(case.built(policy)))
        for shape_of, found in symbolic.items():
            for real, symbol in zip(eager, found, strict=True):
                assert symbol.dtype == keras.backend.standardize_dtype(real.dtype)
                assert len(symbol.shape) == len(real.shape), (symbol.shape, real.shape)
                for known, size in zip(symbol.shape, real.shape, strict=True):
                    allowed = (size,) if shape_of is np.shape else (size, None)
                    assert known in allowed, (symbol.shape, real.shape)


def check_dynamic(case):
    """One traced graph with free batch and length serves other sizes, down to 1."""
    layer = case.built()
    model = case.functional(layer)

    def call(arrays):
        return case.run(model, arrays)

    if backend() == "tensorflow":
        import tensorflow as tf

        signature = {
            name: tf.TensorSpec(case.dynamic_shape(array), array.dtype)
            for name, array in case.arrays.items()
        }
        call = tf.function(call, input_signature=[signature])
    for batch, length in ((1, lambda n: 1), (3, lambda n: n + 3)):
        arrays = case.resized(batch, length)
        assert_close(call(arrays), case.call(layer, arrays), **tolerance(layer))


def check_config(case):
    """The config is plain JSON, rebuilds the same object, and keeps the dtype policy."""
    for policy in (None, "mixed_bfloat16"):
        layer = case.built(policy)
        config = layer.get_config()
        if policy is not None:
            given_as_object = case.make(dtype=keras.DTypePolicy(policy)).get_config()
            assert json.dumps(given_as_object.get("dtype")) == json.dumps(config.get("dtype"))
        text = json.dumps(keras.saving.serialize_keras_object(layer))
        ours = type(layer).__module__.startswith("kerasmodels")
        if ours:
            assert json.loads(text)["registered_name"].startswith("kerasmodels>")
        rebuilt = keras.saving.deserialize_keras_object(json.loads(text))
        assert type(rebuilt) is type(layer) and rebuilt.name == layer.name
        # In JSON, where a tuple is a list.
        assert json.dumps(rebuilt.get_config()) == json.dumps(config)
        if policy is not None:
            # Keras's own functional model leaves the policy to its layers, compared above.
            assert rebuilt.dtype_policy.name == policy or not ours
            continue
        case.call(rebuilt)
        copy_weights(layer, rebuilt)
        assert_equal(case.call(rebuilt), case.call(layer))
        if ours and isinstance(layer, keras.Model):
            _check_frozen(layer)


def _check_frozen(model):
    """What is frozen stays so in the config, or files would lose the optimizer's state."""
    part = next(layer for layer in model.layers if layer.trainable_weights)
    part.trainable = False
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(model)))
    part.trainable = True
    rebuilt = keras.saving.deserialize_keras_object(config)
    frozen = len(part.trainable_weights)
    assert len(rebuilt.trainable_weights) == len(model.trainable_weights) - frozen


def check_keras_file(case, folder):
    """A `.keras` file loads in safe mode, without custom objects, with every weight and the same
    outputs."""
    model = case.functional(case.built())
    path = str(folder / "model.keras")
    model.save(path)
    loaded = keras.saving.load_model(path, safe_mode=True)
    assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
    assert_equal([w.value for w in loaded.weights], [w.value for w in model.weights])
    assert_equal(case.run(loaded), case.run(model))
    if model is not case.built():
        check_copies(case, model)


def check_copies(case, model):
    """Copies of a functional model around a layer: deepcopy, pickle and Keras's `clone_model`."""
    cloned = keras.models.clone_model(model)
    cloned.set_weights(model.get_weights())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), cloned):
        assert [w.path for w in other.weights] == [w.path for w in model.weights]
        assert [w.trainable for w in other.weights] == [w.trainable for w in model.weights]
        assert_equal(case.run(other), case.run(model))


def check_weights_file(case, folder):
    """`save_weights`, a new object, `load_weights`: nothing is lost, whatever list or attribute it
    lives in."""
    model = case.functional(case.built())
    path = str(folder / "model.weights.h5")
    model.save_weights(path)
    other = case.functional(case.make())
    other.load_weights(path)
    assert len(other.weights) == len(model.weights)
    assert_equal([w.value for w in other.weights], [w.value for w in model.weights])
    assert_equal(case.run(other), case.run(model))


def _loss(case, layer, **kwargs):
    """A number that depends on every output: their product with fixed random numbers."""
    rng = np.random.default_rng(3)
    total = 0.0
    for leaf in tree.flatten(case.call(layer, **kwargs)):
        factors = ops.convert_to_tensor(rng.normal(size=leaf.shape).astype("float32"))
        total = total + ops.sum(ops.cast(leaf, "float32") * factors)
    return total


def check_gradients(case):
    """A gradient reaches every trainable weight, and it is the slope that finite differences
    see."""
    layer = case.built()
    weights = layer.trainable_weights
    _, found = gradients(lambda: _loss(case, layer), weights)
    largest = max((np.abs(g).max() for g in found if g is not None), default=0.0)
    for weight, gradient in zip(weights, found, strict=True):
        assert gradient is not None, f"no gradient reaches {weight.path}"
        assert gradient.shape == tuple(weight.shape)
        assert np.isfinite(gradient).all(), f"the gradient of {weight.path} is not finite"
        if re.search(case.zero_gradient, weight.path):
            assert np.abs(gradient).max() <= 1e-5 * largest, weight.path
        else:
            assert np.abs(gradient).max() > 1e-5 * largest, f"zero gradient for {weight.path}"
    if not case.numeric or not weights:
        return
    # The slope along a direction that is half the gradient, half chance: a wrong scale or sign
    # anywhere shows.
    rng = np.random.default_rng(4)
    norm = np.sqrt(sum((g**2).sum() for g in found))
    noise = [rng.normal(size=g.shape) for g in found]
    noise_norm = np.sqrt(sum((n**2).sum() for n in noise))
    direction = [g / norm + n / noise_norm for g, n in zip(found, noise, strict=True)]
    values = [to_numpy(w.value) for w in weights]
    losses = []
    for step in (1e-4, -1e-4):  # a longer one would meet kinks of ReLU
        for weight, value, along in zip(weights, values, direction, strict=True):
            weight.assign((value + step * along).astype("float32"))
        losses.append(float(to_numpy(_loss(case, layer))))
    slope = (losses[0] - losses[1]) / 2e-4
    expected = sum((g * d).sum() for g, d in zip(found, direction, strict=True))
    assert abs(slope - expected) <= 2e-2 * norm, (slope, expected, norm)


def _other(array, seed=9):
    """Values that have nothing to do with the array's: far larger numbers, or other ids."""
    rng = np.random.default_rng(seed)
    if array.dtype.kind == "f":
        return (30.0 * rng.normal(size=array.shape)).astype(array.dtype)
    return rng.integers(1, array.max() + 1, size=array.shape).astype(array.dtype)


def _where(mask, array, other):
    return np.where(mask.reshape(mask.shape + (1,) * (array.ndim - mask.ndim)), array, other)


def check_padding(case):
    """What stands behind a mask moves no kept output, and what stands before it does."""
    layer = case.built()
    before = to_numpy(tree.flatten(case.call(layer))[0])
    for name, mask_name, follows in case.padding:
        array, mask = case.inputs[name], case.inputs[mask_name].astype(bool)
        assert mask.any() and not mask.all(), "the case must have some padding"
        seen = mask if follows else Ellipsis
        after = to_numpy(
            tree.flatten(case.call(layer, {name: _where(mask, array, _other(array))}))[0]
        )
        assert_close(after[seen], before[seen], **tolerance(layer))
        moved = to_numpy(
            tree.flatten(case.call(layer, {name: _where(~mask, array, _other(array))}))[0]
        )
        assert np.abs(moved[seen] - before[seen]).max() > 1e-3, f"{name} has no effect at all"


def check_causal(case):
    """What stands at t or later moves no output before t, with dropout off and on."""
    layer = case.built()
    array = case.inputs[case.causal]
    start = [to_numpy(v.value) for v in layer.variables]

    def call(inputs, training):
        # The same dropout mask every time: seeds are variables, but PyTorch draws from its own.
        keras.utils.set_random_seed(5)
        for variable, value in zip(layer.variables, start, strict=True):
            variable.assign(value)
        return to_numpy(tree.flatten(case.call(layer, inputs, training=training))[0])

    for training in (False, True):
        before = call({}, training)
        for t in range(1, array.shape[1]):
            other = array.copy()
            other[:, t:] = _other(array)[:, t:]
            after = call({case.causal: other}, training)
            assert_close(after[:, :t], before[:, :t], message=f"t={t}", **tolerance(layer))
            assert np.abs(after[:, t:] - before[:, t:]).max() > 1e-3


def check_half(case):
    """Half precision: outputs in the compute dtype, close to float32's, and finite gradients."""
    layer = case.built()
    expected = tree.flatten(to_numpy(case.call(layer)))
    for policy, allowed in case.half_tolerance.items():
        half = case.built(policy)
        copy_weights(layer, half)
        outputs = tree.flatten(case.call(half))
        dtype = case.output_dtype or half.compute_dtype
        for output, exact in zip(outputs, expected, strict=True):
            assert keras.backend.standardize_dtype(output.dtype) == dtype
            output = to_numpy(output)
            assert np.isfinite(output).all(), policy
            size = max(1.0, float(np.abs(exact).max()))
            assert_close(output, exact, rtol=0, atol=allowed * size, message=policy)
    # The last one is float16: bfloat16 has float32's range, where nothing overflows.
    _, found = gradients(lambda: _loss(case, half), half.trainable_weights)
    for weight, gradient in zip(half.trainable_weights, found, strict=True):
        assert weight.dtype == "float32"
        assert np.isfinite(gradient).all(), weight.path


def check_jit(case):
    """A compiled call (XLA) gives what the eager call gives."""
    layer = case.built()
    expected = case.call(layer)
    outputs = compiled(lambda arrays: case.call(layer, arrays))(case.arrays)
    assert_close(outputs, expected, **tolerance(layer))


def check_numpy_numbers(case):
    """Numbers of numpy are taken as arguments, and are Python's in the config."""
    layer = case.built()
    config = {k: v for k, v in layer.get_config().items() if k not in ("name", "trainable")}
    of_numpy = {k: tree.map_structure(_of_numpy, v) for k, v in config.items() if k != "dtype"}
    of_python = tree.map_structure(lambda n: n.item() if hasattr(n, "item") else n, of_numpy)
    given = type(layer).from_config({**config, **of_numpy})
    expected = type(layer).from_config({**config, **of_python, "name": given.name})
    saved = [keras.saving.serialize_keras_object(each)["config"] for each in (given, expected)]
    assert json.dumps(saved[0]) == json.dumps(saved[1])
    case.call(given)
    copy_weights(layer, given)
    assert_close(case.call(given), case.call(layer), **tolerance(layer))


def _of_numpy(number):
    kinds = {bool: np.bool_, int: np.int64, float: np.float32}
    return kinds[type(number)](number) if type(number) in kinds else number


def check_ranks(case):
    """An axis too many or too few is an error that names the shape, or a loop over that axis."""
    layer = case.built()
    for name, array in case.arrays.items():
        if name == "attention_mask":  # of either rank: the same for all heads, or one for each
            continue
        others = np.stack([array, np.roll(array, 1, axis=-1)])
        for wrong in (others, array[0]):
            try:
                found = case.call(layer, {name: wrong})
            except ValueError as error:
                assert re.search(r"ndim|axes|axis|shape|rank|dimension", str(error)), error
                continue
            several = wrong.ndim > array.ndim
            outputs = [case.call(layer, {name: a}) for a in (others if several else [wrong[None]])]
            leaves = zip(*(tree.flatten(to_numpy(one)) for one in outputs), strict=True)
            expected = [np.stack(leaf) if several else leaf[0][0] for leaf in leaves]
            assert_close(tree.flatten(found), expected, **tolerance(layer))


def check_channels_first(case):
    """The same numbers with channels first, whether the argument or Keras's setting says so."""
    layer = case.built()
    config = {k: v for k, v in layer.get_config().items() if k != "name"}
    first = type(layer).from_config({**config, "data_format": "channels_first"})
    keras.config.set_image_data_format("channels_first")
    try:
        by_setting = type(layer).from_config({**config, "data_format": None})
    finally:
        keras.config.set_image_data_format("channels_last")
    (name,) = case.arrays
    images = np.moveaxis(case.arrays[name], -1, 1)
    expected = to_numpy(case.call(layer))
    for other in (first, by_setting):
        case.call(other, {name: images})
        copy_weights(layer, other)
        output = to_numpy(case.call(other, {name: images}))
        if output.ndim == 4:
            output = np.moveaxis(output, 1, -1)
        assert_close(output, expected, **tolerance(layer))
        assert other.get_config()["data_format"] == "channels_first"


def _leaves(layer):
    """Layers inside of a layer that have weights and no layers of their own."""
    parts = [part for part in layer._flatten_layers() if part.weights]
    return [part for part in parts if len(list(part._flatten_layers())) == 1]


def _parts(layer):
    """Those of the leaves that may have policies of their own.

    The projections of one attention go together: their products meet one another.
    """
    return [leaf for leaf in _leaves(layer) if "attention/" not in leaf.path]


def check_policy_map(case):
    """Some parts in float32 and the others in bfloat16: finite, close, and kept in the config."""
    layer = case.built()
    policies = keras.dtype_policies.DTypePolicyMap("mixed_bfloat16")
    for part in _parts(layer)[::2]:
        name = layer.name.rstrip("_0123456789")  # a new layer has another number behind its name
        policies[part.path.replace(layer.name, f"{name}[_0-9]*", 1)] = "float32"
    mixed = case.make(dtype=policies)
    symbols = {k: keras.KerasTensor(a.shape, dtype=str(a.dtype)) for k, a in case.arrays.items()}
    symbolic = tree.flatten(case.call(mixed, symbols))
    found = tree.flatten(case.call(mixed))
    copy_weights(layer, mixed)
    assert {p.compute_dtype for p in _parts(mixed)[::2]} <= {"float32"}
    assert {p.compute_dtype for p in _parts(mixed)[1::2]} <= {"bfloat16"}
    expected = tree.flatten(to_numpy(case.call(layer)))
    found = tree.flatten(case.call(mixed))
    for symbol, output, exact in zip(symbolic, found, expected, strict=True):
        assert symbol.dtype == keras.backend.standardize_dtype(output.dtype)
        size = max(1.0, float(np.abs(exact).max()))
        assert_close(output, exact, rtol=0, atol=5e-2 * size)
    text = json.dumps(keras.saving.serialize_keras_object(mixed))
    rebuilt = keras.saving.deserialize_keras_object(json.loads(text))
    case.call(rebuilt)
    copy_weights(layer, rebuilt)
    assert_equal(case.call(rebuilt), case.call(mixed))


def check_adapted(case, folder):
    """int8 and LoRA, where the parts of a layer can: files and copies keep both."""
    if not any(hasattr(leaf, "enable_lora") for leaf in _leaves(case.built())):
        return

    def run(model):
        return to_numpy(tree.flatten(called_once(lambda x: case.run(model, x), case.arrays)))

    for adapt in (_quantize, _add_lora):
        layer = case.make()
        model = case.functional(layer)
        copy_weights(case.functional(case.built()), model)
        exact = run(model)
        if not adapt(model):
            continue
        outputs = run(model)
        assert max(np.abs(o - e).max() for o, e in zip(outputs, exact, strict=True)) > 0
        for output, expected in zip(outputs, exact, strict=True):
            size = max(1.0, float(np.abs(expected).max()))
            assert_close(output, expected, rtol=0, atol=0.2 * size)
        path = str(folder / "adapted.keras")
        model.save(path)
        loaded = keras.saving.load_model(path)
        assert [w.path for w in loaded.weights] == [w.path for w in model.weights]
        assert [w.dtype for w in loaded.weights] == [w.dtype for w in model.weights]
        assert [w.trainable for w in loaded.weights] == [w.trainable for w in model.weights]
        # LoRA's product is added to the kernel when a file is written.
        assert_close(run(loaded), run(model), **tolerance(layer))
        cloned = keras.models.clone_model(model)
        cloned.set_weights(model.get_weights())
        assert_equal(run(cloned), run(model))


def _quantize(model):
    """Quantizes what can be, and says whether anything was."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras says of each other layer that it remains as it is
        model.quantize("int8")
    return any(getattr(leaf, "quantization_mode", None) for leaf in _leaves(model))


def _add_lora(model):
    """Gives a rank to what can have one, and says whether anything has."""
    rng = np.random.default_rng(8)
    adapted = [leaf for leaf in _leaves(model) if hasattr(leaf, "enable_lora")]
    for leaf in adapted:
        leaf.enable_lora(2)
        for weight in leaf.trainable_weights:
            if "lora" in weight.name:
                weight.assign(0.1 * rng.normal(size=weight.shape))
    return bool(adapted)


FILE_CONTRACTS = {
    "keras_file": check_keras_file,
    "weights_file": check_weights_file,
}
CONTRACTS = {
    "symbolic": check_symbolic,
    "dynamic": check_dynamic,
    "config": check_config,
    "gradients": check_gradients,
    "half": check_half,
    "jit": check_jit,
    "padding": check_padding,
    "causal": check_causal,
}
# Each of these takes a layer, and a model has tests of its own for it.
LAYER_CONTRACTS = {
    "adapted": check_adapted,
    "numpy_numbers": check_numpy_numbers,
    "ranks": check_ranks,
    "channels_first": check_channels_first,
    "policy_map": check_policy_map,
}


def contracts(make, *, without=(), padding=(), causal=None, options=None, **inputs):
    """A test of all contracts for one layer; see the module's docstring.

    Args:
        make: `make(**kw)` returns a new object; `kw` holds at most `dtype`.
        without: names of contracts that cannot hold for this one; say why where you use it.
        padding: see `Case`.
        causal: see `Case`.
        options: further fields of `Case`.
        **inputs: the call's arguments by name, the first one first.
    """
    if not hasattr(make(), "data_format"):
        without = (*without, "channels_first")
    if "config" in without:
        without = (*without, "numpy_numbers", "policy_map")
    if "keras_file" in without:
        without = (*without, "adapted")
    case = _case(make, padding, causal, options, inputs)
    return _test(case, {**CONTRACTS, **LAYER_CONTRACTS, **FILE_CONTRACTS}, without)


def model_contracts(make, *, without=(), padding=(), causal=None, options=None, **inputs):
    """The same for one model."""
    case = _case(make, padding, causal, options, inputs)
    return _test(case, {**CONTRACTS, **FILE_CONTRACTS}, without)


def _case(make, padding, causal, options, inputs):
    inputs = dict(sorted(inputs.items(), key=lambda item: not isinstance(item[1], np.ndarray)))
    return Case(make, inputs, padding=padding, causal=causal, **(options or {}))


def _test(case, checks, without):
    absent = {"jit": backend() == "torch", "padding": not case.padding, "causal": not case.causal}
    names = [n for n in checks if n not in without and not absent.get(n)]

    @pytest.mark.parametrize("contract", names)
    def test(contract, tmp_path):
        in_a_folder = "folder" in inspect.signature(checks[contract]).parameters
        checks[contract](case, *[tmp_path] * in_a_folder)

    test.case = case
    return test
