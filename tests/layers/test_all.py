"""What holds for all public layers, found by their names and not by a list."""

import importlib
import inspect
import json
import pathlib

import keras
import numpy as np
import pytest

from kerasmodels import layers
from tests.kit.case import Case

LAYERS = [
    value
    for name in layers.__all__
    if inspect.isclass(value := getattr(layers, name)) and issubclass(value, keras.layers.Layer)
]
# Constructor's arguments that have no default.
REQUIRED = {
    "BasicBlock": (4,),
    "BottleneckBlock": (4,),
    "Conv2D": (4, 3),
    "Conv2DTranspose": (4, 3),
    "Dense": (4,),
    "FeedForward": (4,),
    "LabelProjection": (3,),
    "Maxout": (4, 2),
    "MultiHeadAttention": (2, 4),
    "PatchEmbedding": (2, 4),
    "PixelShuffle": (2,),
    "PositionEmbedding": (8,),
    "SegmentEmbedding": (2,),
    "TokenEmbedding": (11, 8),
    "TransformerDecoderBlock": (2, 8),
    "TransformerEncoderBlock": (2, 8),
}
# These stand in for Keras's own, and take what Keras takes.
STAND_INS = {
    "Dense",
    "LayerNormalization",
    "BatchNormalization",
    "Conv2D",
    "Conv2DTranspose",
}
OURS = [cls for cls in LAYERS if cls.__name__ not in STAND_INS]


def make(cls, **kwargs):
    return cls(*REQUIRED.get(cls.__name__, ()), **kwargs)


def arguments(ending):
    """Pairs of a layer and the name of an argument of it that ends so."""
    return [
        pytest.param(cls, name, id=f"{cls.__name__}-{name}")
        for cls in OURS
        for base in cls.__mro__
        if base.__module__.startswith("kerasmodels") and "__init__" in vars(base)
        for name in inspect.signature(base.__init__).parameters
        if name.endswith(ending)
    ]


def test_every_public_layer_has_the_contracts():
    folder = pathlib.Path(__file__).parent
    modules = [importlib.import_module(f"tests.layers.{p.stem}") for p in folder.glob("test_*.py")]
    tests = [value for module in modules for value in vars(module).values()]
    cases = [case for test in tests if isinstance(case := getattr(test, "case", None), Case)]
    assert {type(case.make()) for case in cases} >= set(LAYERS)


@pytest.mark.parametrize("cls", LAYERS, ids=lambda cls: cls.__name__)
def test_every_layer_writes_its_own_config(cls):
    layer = make(cls, dtype=keras.DTypePolicy("mixed_bfloat16"), name="one", trainable=False)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    rebuilt = keras.saving.deserialize_keras_object(config)
    assert type(rebuilt) is cls and rebuilt.name == "one" and not rebuilt.trainable
    assert rebuilt.dtype_policy == layer.dtype_policy
    own = [base for base in cls.__mro__ if base.__module__.startswith("kerasmodels")]
    for base in own:
        names = inspect.signature(base.__init__).parameters if "__init__" in vars(base) else ()
        for name in names:
            assert name in ("self", "args", "kwargs", *layer.get_config())


@keras.saving.register_keras_serializable(package="tests")
def halves(shape, dtype=None):
    return keras.ops.full(shape, 0.5, dtype)


class NoConfig:
    """A callable object that no config can write."""

    def __call__(self, x, dtype=None):
        return x


@pytest.mark.parametrize(("cls", "name"), arguments("initializer"))
def test_an_initializer_is_written_or_refused_at_once(cls, name):
    unwritable = (np.ones((8, 4), "float32"), keras.ops.ones((3,)), lambda shape, dtype: 0)
    for value in (*unwritable, NoConfig(), 3):
        with pytest.raises(ValueError, match=f"`{name}`|initializer"):
            make(cls, **{name: value})
    values = np.arange(8.0)
    for value in ("zeros", keras.initializers.Constant(values), halves, keras.initializers.Ones):
        layer = make(cls, **{name: value})
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
        rebuilt = keras.saving.deserialize_keras_object(config)
        assert json.dumps(rebuilt.get_config()) == json.dumps(layer.get_config())
    assert str(values.tolist()) in str(
        make(cls, **{name: keras.initializers.Constant(values)}).get_config()
    )


@pytest.mark.parametrize(("cls", "name"), arguments("activation"))
def test_an_activation_is_written_or_refused_at_once(cls, name):
    for value in (lambda x: x, NoConfig(), np.tanh, np.ones(3), 3):
        with pytest.raises(ValueError, match="activation"):
            make(cls, **{name: value})


@pytest.mark.parametrize("cls", OURS, ids=lambda cls: cls.__name__)
def test_numbers_that_are_none_are_refused_by_name(cls):
    parameters = inspect.signature(cls.__init__).parameters.values()
    positional = dict(
        zip([p.name for p in parameters][1:], REQUIRED.get(cls.__name__, ()), strict=False)
    )
    defaults = {p.name: p.default for p in parameters if type(p.default) in (int, float)}
    for name in (*positional, *defaults):
        for value in ("4", [4], None if name in positional else "x", float("nan"), -1):
            with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
                cls(**{**positional, name: value})
