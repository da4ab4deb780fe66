import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import LinearCooldown, WarmupInverseSqrt, WarmupLinear

LAST = 2**31 - 1


def inverse_sqrt(step, hidden_dim, warmup, scale=1.0):
    return scale * hidden_dim**-0.5 * min(step**-0.5, step * warmup**-1.5)


def linear(step, peak, warmup, total, final=0.0):
    if step <= warmup:
        return peak * step / warmup
    return peak + (final - peak) * min(1, (step - warmup) / (total - warmup))


def kinds(step):
    """The step in every type that it may come in."""
    yield step
    yield float(step)
    yield np.int64(step)
    yield ops.convert_to_tensor(np.int32(step))
    yield ops.cast(ops.convert_to_tensor(np.int32(step)), "float32")
    if keras.backend.backend() != "jax":  # JAX has no 64 bits unless asked
        yield ops.convert_to_tensor(np.int64(step))
    yield keras.Variable(step, dtype="int32", trainable=False)


def compiled(schedule):
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.function(schedule.__call__, jit_compile=True)
    if keras.backend.backend() == "jax":
        import jax

        return jax.jit(schedule.__call__)
    return schedule


@pytest.mark.parametrize(
    "hidden_dim, warmup, expected",
    [
        (16, 4, {0: 0.03125, 1: 0.03125, 2: 0.0625, 4: 0.125, 16: 0.0625}),
        (512, 4000, {1: 1.746928e-7, 4000: 6.987712e-4, 16000: 3.493856e-4}),
    ],
)
def test_the_papers_formula_for_every_type_of_step(hidden_dim, warmup, expected):
    schedule = WarmupInverseSqrt(hidden_dim, warmup)
    for step, rate in expected.items():
        for value in kinds(step):
            result = schedule(value)
            assert keras.backend.standardize_dtype(result.dtype) == "float32"
            assert tuple(result.shape) == ()
            np.testing.assert_allclose(float(result), rate, rtol=5e-7)


SCHEDULES = [
    (WarmupInverseSqrt(512, 4000, 2.0), lambda s: inverse_sqrt(s, 512, 4000, 2.0)),
    (WarmupInverseSqrt(100, LAST // 3), lambda s: inverse_sqrt(s, 100, LAST // 3)),
    (WarmupLinear(1e-4, 10_000, 1_000_000), lambda s: linear(s, 1e-4, 10_000, 1_000_000)),
    (WarmupLinear(1e-4, 77, LAST, 1e-6), lambda s: linear(s, 1e-4, 77, LAST, 1e-6)),
    (WarmupLinear(1e-4, LAST - 500, LAST - 1), lambda s: linear(s, 1e-4, LAST - 500, LAST - 1)),
    (
        LinearCooldown(WarmupInverseSqrt(512, 4000), LAST - 5, 300),
        lambda s: inverse_sqrt(s, 512, 4000) * min(1, max(0, (LAST - 5 - s) / 300)),
    ),
]


@pytest.mark.parametrize("schedule, formula", SCHEDULES)
def test_relative_error_up_to_the_last_step(schedule, formula):
    steps = [1, 2, 3, 76, 77, 78, 3999, 4001, 9_999, 10_001, 999_999, 1_000_000, 1_000_001]
    steps += [2**24 + 1, LAST // 3, LAST // 3 + 1, *range(LAST - 512, LAST, 37), LAST - 2, LAST]
    expected = [formula(step) for step in steps]
    run = compiled(schedule)
    vector = run(ops.convert_to_tensor(np.array(steps, "int32")))
    np.testing.assert_allclose(ops.convert_to_numpy(vector), expected, rtol=1e-6)
    for step, rate in list(zip(steps, expected, strict=True))[::4]:
        np.testing.assert_allclose(float(schedule(step)), rate, rtol=1e-6)
    # A float32 step is what float32 makes of it.
    floats = np.array(steps, "float32")
    expected = [formula(min(int(step), LAST)) for step in floats]
    values = run(ops.convert_to_tensor(floats))
    np.testing.assert_allclose(ops.convert_to_numpy(values), expected, rtol=1e-6)


def test_step_zero_counts_as_one_and_fractions_are_taken_as_they_are():
    for schedule, formula in SCHEDULES[:3]:
        assert float(schedule(0)) == float(schedule(1)) > 0
        np.testing.assert_allclose(float(schedule(2.5)), formula(2.5), rtol=1e-6)


def test_peak_is_at_the_end_of_warmup():
    for schedule, peak in ((WarmupInverseSqrt(64, 50), 50), (WarmupLinear(1.0, 50, 90), 50)):
        rates = ops.convert_to_numpy(schedule(np.arange(200)))
        assert np.argmax(rates) == peak
    np.testing.assert_allclose(rates[90:], 0)
    np.testing.assert_allclose(ops.convert_to_numpy(WarmupLinear(1.0, 5, 9, 0.25)(12)), 0.25)


ALL = [
    WarmupInverseSqrt(16, 4, scale=0.5),
    WarmupLinear(0.3, 7, 101, final=0.01),
    LinearCooldown(WarmupInverseSqrt(16, 4, scale=0.5), 90, 30),
    LinearCooldown(keras.optimizers.schedules.CosineDecay(0.1, 50), 90, 30),
]


@pytest.mark.parametrize("schedule", ALL)
def test_config_through_json(schedule):
    config = json.loads(json.dumps(schedule.get_config()))
    copy = type(schedule).from_config(config)
    for step in (0, 1, 7, 100):
        assert float(copy(step)) == float(schedule(step))
    assert copy.get_config() == schedule.get_config()


@pytest.mark.parametrize("schedule", ALL[:3])
def test_compiled_model_through_a_file(schedule, tmp_path):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(schedule), loss="mse")
    x, y = np.ones((10, 2), "float32"), np.zeros((10, 1), "float32")
    before = model.get_weights()[1]
    model.fit(x, y, batch_size=5, epochs=1, verbose=0)
    assert not np.array_equal(before, model.get_weights()[1])  # the first updates move
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer._learning_rate) is type(schedule)
    assert int(ops.convert_to_numpy(loaded.optimizer.iterations)) == 2
    for step in (0, 1, 7, 100):
        assert float(loaded.optimizer._learning_rate(step)) == float(schedule(step))
    np.testing.assert_allclose(float(loaded.optimizer.learning_rate), float(schedule(2)), rtol=1e-6)


def test_updates_in_fit_follow_the_schedule():
    # y = w * 1, loss = w: every SGD update subtracts the rate.
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)])
    model.compile(keras.optimizers.SGD(WarmupInverseSqrt(16, 4)), loss=lambda y, p: p)
    before = model.get_weights()[0].item()
    x = np.ones((6, 1), "float32")
    model.fit(x, x, batch_size=1, epochs=1, verbose=0)
    # Keras asks for steps 0 to 5.
    expected = sum(inverse_sqrt(max(step, 1), 16, 4) for step in range(6))
    np.testing.assert_allclose(before - model.get_weights()[0].item(), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WarmupInverseSqrt(512, 0), "warmup_steps"),
        (lambda: WarmupInverseSqrt(512, -4000), "warmup_steps=-4000"),
        (lambda: WarmupInverseSqrt(0, 10), "hidden_dim"),
        (lambda: WarmupInverseSqrt("512", 10), "hidden_dim"),
        (lambda: WarmupInverseSqrt(8, 2.5), "warmup_steps"),
        (lambda: WarmupInverseSqrt(8, 10, 0), "scale"),
        (lambda: WarmupInverseSqrt(8, True), "warmup_steps"),
        (lambda: WarmupInverseSqrt(8, 10, float("inf")), "scale"),
        (lambda: WarmupLinear(0, 1, 2), "peak"),
        (lambda: WarmupLinear("1", 1, 2), "peak='1'"),
        (lambda: WarmupLinear(float("inf"), 1, 2), "peak=inf"),
        (lambda: WarmupLinear(1e-3, 1, 2, float("inf")), "final=inf"),
        (lambda: WarmupLinear(1e-3, 0, 2), "warmup_steps"),
        (lambda: WarmupLinear(1e-3, 5, 5), "total_steps"),
        (lambda: WarmupLinear(1e-3, 5, 2**31), "total_steps"),
        (lambda: WarmupLinear(1e-3, 5, 10, -1), "final"),
        (lambda: LinearCooldown(0.1, 10, 5), "schedule"),
        (lambda: LinearCooldown(WarmupInverseSqrt(8), 10, 11), "cooldown_steps"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
