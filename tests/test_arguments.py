"""Numbers as arguments: those of numpy are taken, and saved as Python's."""

import json

import keras
import numpy as np
import pytest

from kerasmodels import decoding, training
from kerasmodels.arguments import flag, integer, number, positive_number, rate


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8, lambda n: np.array(n)])
def test_integers(kind):
    assert integer("n", kind(3)) == 3 and type(integer("n", kind(3))) is int
    assert integer("n", kind(0), least=0) == 0
    assert number("x", kind(3)) == 3 and type(number("x", kind(3))) is int
    assert flag("f", kind(1)) is True and flag("f", kind(0)) is False
    with pytest.raises(ValueError, match="`n` must be a positive integer. Received: n="):
        integer("n", kind(0))
    with pytest.raises(ValueError, match="`n` must be an integer from 1 to 2. Received: n="):
        integer("n", kind(3), most=2)


@pytest.mark.parametrize("kind", [float, np.float32, np.float64, np.float16, lambda x: np.array(x)])
def test_floats(kind):
    for check in (number, positive_number, rate):
        assert check("x", kind(0.5)) == 0.5 and type(check("x", kind(0.5))) is float
    for check, wrong in ((number, np.nan), (number, np.inf), (positive_number, 0), (rate, 1)):
        with pytest.raises(ValueError, match="`x` must be .* number.*Received: x="):
            check("x", kind(wrong))
    with pytest.raises(ValueError, match="`n` must be a positive integer"):
        integer("n", kind(2.5))


def test_tensors_with_a_value_are_numbers():
    assert integer("n", keras.ops.convert_to_tensor(3)) == 3
    assert number("x", keras.ops.convert_to_tensor(0.5)) == 0.5
    for tensor in (keras.KerasTensor((), "int32"), keras.KerasTensor((), "float32")):
        for check in (integer, number, flag):
            with pytest.raises(ValueError, match="Received: n="):
                check("n", tensor)


def test_what_is_no_number():
    for value in ("3", None, [3], np.array([3]), {}, 1j, object()):
        for check in (integer, number, rate, flag):
            with pytest.raises(ValueError, match="`n` must be"):
                check("n", value)
    for value in (True, np.True_, np.array(True)):
        assert flag("f", value) is True
        for check in (integer, number):
            with pytest.raises(ValueError, match="`n` must be"):
                check("n", value)


SETTINGS = [
    (decoding.BeamSearch, dict(num_beams=3, length_penalty=0.5, num_return=2)),
    (decoding.Sampling, dict(temperature=0.5, top_k=3, top_p=0.5, seed=7)),
    (training.WarmupInverseSqrt, dict(hidden_dim=8, warmup_steps=10, scale=0.5)),
    (training.WarmupLinear, dict(peak=0.5, warmup_steps=2, total_steps=9, final=0.25)),
    (training.SmoothedCrossEntropy, dict(label_smoothing=0.5, ignore_id=3)),
    (training.TokenLoss, dict(label_smoothing=0.5, ignore_id=3)),
    (training.Perplexity, dict(ignore_id=3)),
    (training.MaskedAccuracy, dict(ignore_id=3)),
    (training.AdamW, dict(learning_rate=0.5, weight_decay=0.25)),
    (training.SGD, dict(learning_rate=0.5, momentum=0.25, nesterov=True, weight_decay=0.25)),
    (training.Bleu, dict(max_order=2)),
    (training.NonFiniteGuard, dict(every=2)),
    (training.KeepLastCheckpoints, dict(folder="somewhere", keep=3, every=2)),
    (training.SampleGrid, dict(folder="somewhere", every=2, shape=(2, 3), seed=1, zoom=2)),
]


@pytest.mark.parametrize(("make", "settings"), SETTINGS, ids=lambda v: getattr(v, "__name__", ""))
def test_settings_may_be_numbers_of_numpy(make, settings):
    kinds = {bool: np.bool_, int: np.int64, float: np.float32}
    of_numpy = keras.tree.map_structure(lambda n: kinds.get(type(n), str)(n), settings)
    given, expected = make(**of_numpy), make(**settings)
    for name, value in vars(expected).items():
        if type(value) in kinds and make not in (training.AdamW, training.SGD):
            assert vars(given)[name] == value and type(vars(given)[name]) is type(value), name
    if hasattr(given, "get_config"):
        saved = [keras.saving.serialize_keras_object(x)["config"] for x in (given, expected)]
        for config in saved:
            config.pop("name", None)
        assert json.dumps(saved[0]) == json.dumps(saved[1])


@pytest.mark.parametrize(("make", "settings"), SETTINGS, ids=lambda v: getattr(v, "__name__", ""))
def test_settings_that_are_no_numbers_are_refused_by_name(make, settings):
    if make.__module__.endswith(("losses", "metrics", "optimizers")):
        settings = {k: v for k, v in settings.items() if k in ("label_smoothing", "weight_decay")}
    for name, value in settings.items():
        if type(value) in (int, float) and name != "seed":
            for wrong in (-1.0 if make is not decoding.BeamSearch else np.nan, np.nan):
                with pytest.raises(ValueError, match=rf"`{name}` must .*Received: {name}="):
                    make(**{**settings, name: wrong})
