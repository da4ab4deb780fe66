import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import AdamW, WarmupInverseSqrt

UNDECAYED = {"bias", "beta", "gamma", "scale"}


def make_model(dtype=None, first="unbiased_gamma"):  # the first layer's kernel is decayed
    return keras.Sequential(
        [
            keras.Input((4,)),
            keras.layers.Dense(5, name=first, dtype=dtype),
            keras.layers.LayerNormalization(name="norm", dtype=dtype),
            keras.layers.RMSNormalization(name="rms", dtype=dtype),
            keras.layers.Dense(2, name="top", dtype=dtype),
        ]
    )


def decayed_names(optimizer, model):
    """Which weights move when all gradients are 0: those that are decayed."""
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape))
    optimizer.apply([ops.zeros(v.shape) for v in variables], variables)
    moved = {}
    for variable in variables:
        value = ops.convert_to_numpy(variable)
        if not np.allclose(value, 1, rtol=0, atol=1e-7):
            moved["/".join(variable.path.split("/")[-2:])] = value.flat[0]
    return moved


KERNELS = {"unbiased_gamma/kernel", "top/kernel"}


def test_biases_and_norms_are_left_alone():
    model = make_model()
    moved = decayed_names(AdamW(0.1, weight_decay=0.5), model)
    assert moved.keys() == KERNELS
    np.testing.assert_allclose(list(moved.values()), 1 - 0.1 * 0.5, rtol=1e-6)
    # Everything excluded, nothing excluded, and a layer by its path.
    assert not decayed_names(AdamW(0.1, 0.5, undecayed=[""]), model)
    assert len(decayed_names(AdamW(0.1, 0.5, undecayed=[]), model)) == 7
    optimizer = AdamW(0.1, 0.5, undecayed=["top/", "norm", "rms", "bias$"])
    assert decayed_names(optimizer, model).keys() == {"unbiased_gamma/kernel"}
    optimizer = AdamW(0.1, 0.5)
    optimizer.exclude_from_weight_decay(var_names=["unbiased_gamma/"])
    assert decayed_names(optimizer, model).keys() == {"top/kernel"}
    with pytest.raises(ValueError, match="built"):
        optimizer.exclude_from_weight_decay(var_names=["top"])
    with pytest.raises(ValueError, match="var_list"):
        AdamW().exclude_from_weight_decay(var_list=[model.layers[0].kernel])
    copy = AdamW.from_config(json.loads(json.dumps(optimizer.get_config())))
    assert decayed_names(copy, model).keys() == {"top/kernel"}


def test_updates_are_those_of_keras():
    keras.utils.set_random_seed(0)
    ours, theirs = make_model(first="first"), make_model(first="first")
    theirs.set_weights(ours.get_weights())
    options = {"weight_decay": 0.1, "beta_2": 0.98, "global_clipnorm": 0.5}
    reference = keras.optimizers.AdamW(0.01, **options)
    reference.exclude_from_weight_decay(var_names=["bias", "beta", "gamma", "scale"])
    for model, optimizer in ((ours, AdamW(0.01, **options)), (theirs, reference)):
        rng = np.random.default_rng(0)
        for _ in range(3):
            variables = model.trainable_variables
            gradients = [rng.normal(size=v.shape).astype("float32") for v in variables]
            optimizer.apply([ops.convert_to_tensor(g) for g in gradients], variables)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    "dtype, options",
    [
        (None, {"clipnorm": 1.0, "amsgrad": True}),
        (None, {"use_ema": True, "ema_overwrite_frequency": 2, "gradient_accumulation_steps": 2}),
        ("mixed_float16", {"clipvalue": 1.0}),
    ],
)
def test_loaded_from_a_file_it_goes_on_as_before(dtype, options, tmp_path):
    keras.utils.set_random_seed(0)
    model = make_model(dtype)
    schedule = WarmupInverseSqrt(16, 4)
    optimizer = AdamW(schedule, weight_decay=0.3, undecayed=["bias$", "norm/"], **options)
    if dtype:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, loss="mse")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 2)).astype("float32")
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    # On JAX a weight and its average share a buffer now, and a second fit would donate it twice.
    model.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    assert type(inner) is AdamW and inner.undecayed == ["bias$", "norm/"]
    assert int(ops.convert_to_numpy(loaded.optimizer._iterations)) == int(
        ops.convert_to_numpy(model.optimizer._iterations)
    )
    for m in (model, loaded):
        m.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    tolerance = 2e-3 if dtype else 1e-6
    for a, b in zip(model.get_weights(), loaded.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": None}, "weight_decay"),
        ({"undecayed": "bias"}, "undecayed"),
        ({"undecayed": ["("]}, "undecayed"),
        ({"undecayed": [3]}, "undecayed"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        AdamW(**options)
