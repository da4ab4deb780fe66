"""What every model promises about its copies.

A new family gets these tests for one line in `tests/models/test_copies.py`. The copies are those of
a `.keras` file, `copy.deepcopy`, `pickle` and the config. They are of the same class and compute
the same, also when single layers were changed after the model was built.
"""

import copy
import json
import pickle

import keras
import numpy as np
from keras import ops

from kerasmodels.keras_internals import all_layers
from kerasmodels.layers import FeedForward
from tests.kit.tools import assert_close, assert_equal, called_once, to_numpy

ROWS, LENGTH, SIDE = 2, 5, 8


def model_inputs(model):
    """Arrays for all inputs of a functional model, small ids and some padding among them."""
    rng = np.random.default_rng(5)

    def array(tensor):
        shape = [
            ROWS,
            *(n or (LENGTH if len(tensor.shape) < 4 else SIDE) for n in tensor.shape[1:]),
        ]
        if tensor.dtype == "bool":
            return np.arange(shape[1])[None] < np.array([[LENGTH], [LENGTH - 2]])
        if "int" in tensor.dtype:
            return rng.integers(0, 2, shape).astype("int32")
        return rng.normal(size=shape).astype("float32")

    return keras.tree.map_structure(array, model.input)


def run(model, inputs=None):
    """The outputs of a model as a list of numpy arrays."""
    inputs = model_inputs(model) if inputs is None else inputs
    outputs = keras.tree.flatten(called_once(lambda x: model(x), inputs))
    return [to_numpy(ops.cast(output, "float32")) for output in outputs]


def add_lora(layer, alpha=2):
    """LoRA with a delta that is not zero."""
    layer.enable_lora(2, lora_alpha=alpha)  # Keras's Dense loads with an alpha of the rank alone
    for variable in layer.trainable_variables:
        if "lora" in variable.path:
            variable.assign(variable + 0.1)


def change_layers(model):
    """Changes single layers, on all levels, in all the ways that Keras's layers offer."""
    count = 0
    for layer in list(all_layers(model)):
        if isinstance(layer, FeedForward):
            layer.trainable = False
        elif isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.25
        elif hasattr(layer, "momentum") or isinstance(layer, keras.layers.LayerNormalization):
            layer.epsilon = 0.125
        elif hasattr(layer, "quantize") and hasattr(layer, "enable_lora"):
            ways = "int8", "lora", "half", "frozen", "int4", "both"
            way, count = ways[count % len(ways)], count + 1
            if way in ("int8", "int4", "both") and hasattr(layer, "kernel_size"):
                way = "lora"  # Keras quantizes no convolution
            if way == "half":
                layer.dtype_policy = keras.DTypePolicy("mixed_bfloat16")
            if way == "frozen":
                layer.trainable = False
            if way in ("int8", "int4", "both"):
                layer.quantize("int8" if way == "both" else way, type_check=False)
            if way in ("lora", "both"):
                add_lora(layer)


def states(model):
    """What is to be kept of each layer, in the order of the layers."""
    names = ("rate", "epsilon", "lora_rank", "lora_alpha", "quantization_mode", "trainable")
    return [
        (type(layer).__name__, layer.dtype_policy.name, *(getattr(layer, n, None) for n in names))
        for layer in all_layers(model)
    ]


def assert_copy(other, model, expected, **tolerance):
    """The same class, the same layers, the same weights in the same order, the same outputs."""
    assert type(other) is type(model) and other.name == model.name
    assert states(other) == states(model)
    for kind in ("weights", "trainable_weights"):
        paths = [[(w.path, w.dtype) for w in getattr(m, kind)] for m in (other, model)]
        assert paths[0] == paths[1], kind
    if tolerance:
        assert_close(run(other), expected, **tolerance)
    else:
        assert_equal(run(other), expected)


def _saved(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def check_unchanged(make, folder):
    """A model as it was built, with new weights."""
    model = make()
    expected = run(model)
    assert_copy(_saved(model, folder), model, expected)
    assert_copy(pickle.loads(pickle.dumps(model)), model, expected)
    assert_copy(copy.deepcopy(model), model, expected)


def check_changed(make, folder):
    """A model whose layers were changed in all ways at once; its config says so in plain JSON."""
    model = make()
    change_layers(model)
    # Keras writes the sum of kernel and delta, which is rounded anew where the kernel has 8 bits.
    assert_copy(_saved(model, folder), model, run(model), rtol=0.05, atol=0.05)
    config = json.loads(json.dumps(model.get_config()))
    rebuilt = type(model).from_config(copy.deepcopy(config))  # Keras's own takes it apart
    assert states(rebuilt) == states(model)
    assert json.loads(json.dumps(rebuilt.get_config())) == config


def check_frozen(make, folder):
    """All of a model stands still but one layer, which `trainable` says at two levels."""
    model = make()
    model.trainable = False
    next(x for x in all_layers(model) if isinstance(x, keras.layers.Dense)).trainable = True
    rebuilt = type(model).from_config(json.loads(json.dumps(model.get_config())))
    assert not rebuilt.trainable and states(rebuilt) == states(model)


def check_numpy(cls, arguments):
    """Numbers of numpy are numbers, and those of Python in the config."""

    def numpy(value):
        if isinstance(value, dict):
            return {key: numpy(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(map(numpy, value))
        return {int: np.int64, float: np.float32}.get(type(value), lambda x: x)(value)

    expected = json.dumps(cls(**arguments, name="model").get_config())
    model = cls(**numpy(arguments), name="model")
    assert json.dumps(model.get_config()) == expected


CHECKS = {"unchanged": check_unchanged, "changed": check_changed, "frozen": check_frozen}
