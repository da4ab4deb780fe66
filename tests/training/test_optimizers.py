import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import Conv2D
from kerasmodels.training import SGD, AdamW, WarmupInverseSqrt
from tests.kit.replicas import two_replicas


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


def test_the_l2_term_is_of_all_weights_but_those_named():
    model = make_model()
    moved = decayed_names(SGD(0.1, weight_decay=0.5), model)
    assert len(moved) == 7
    np.testing.assert_allclose(list(moved.values()), 1 - 0.1 * 0.5, rtol=1e-6)
    optimizer = SGD(0.1, weight_decay=0.5, undecayed=["bias$", "beta$", "gamma$", "scale$"])
    assert decayed_names(optimizer, model).keys() == KERNELS
    assert not decayed_names(SGD(0.1, weight_decay=0.5, undecayed=[""]), model)
    assert not decayed_names(SGD(0.1, weight_decay=0.0), model)
    config = json.loads(json.dumps(optimizer.get_config()))
    assert decayed_names(SGD.from_config(config), model).keys() == KERNELS


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2}, {"use_ema": True}])
def test_updates_are_those_of_keras(options):
    keras.utils.set_random_seed(0)
    ours, theirs = make_model(first="first"), make_model(first="first")
    theirs.set_weights(ours.get_weights())
    options = {"weight_decay": 0.1, "beta_2": 0.98, "global_clipnorm": 0.5, **options}
    reference = keras.optimizers.AdamW(0.01, **options)
    reference.exclude_from_weight_decay(var_names=["bias", "beta", "gamma", "scale"])
    for model, optimizer in ((ours, AdamW(0.01, **options)), (theirs, reference)):
        rng = np.random.default_rng(0)
        for _ in range(5):
            variables = model.trainable_variables
            gradients = [rng.normal(size=v.shape).astype("float32") for v in variables]
            optimizer.apply([ops.convert_to_tensor(g) for g in gradients], variables)
    for a, b in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.01}, {"amsgrad": True}])
def test_updates_reach_weights_in_any_order_of_memory(options):
    # `Conv2D` keeps its kernel in PyTorch's order there; a gradient may come in either.
    found = []
    for optimizer in (AdamW(0.01, 0.1, **options), keras.optimizers.AdamW(0.01, 0.1, **options)):
        keras.utils.set_random_seed(0)
        layer = Conv2D(3, (2, 4), use_bias=False)
        layer.build((None, 8, 8, 5))
        rng = np.random.default_rng(0)
        for _ in range(4):
            gradient = ops.convert_to_tensor(rng.normal(size=layer.kernel.shape).astype("float32"))
            optimizer.apply([gradient], [layer.kernel])
        found.append(ops.convert_to_numpy(layer.kernel))
    np.testing.assert_allclose(*found, rtol=1e-6, atol=1e-6)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="PyTorch has a kernel of its own")
def test_a_compiled_step_equals_an_eager_one(rng):
    x = rng.normal(size=(32, 4)).astype("float32")
    found = []
    for jit_compile in (False, True):
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(AdamW(WarmupInverseSqrt(8, 4)), "mse", jit_compile=jit_compile)
        model.fit(x, x[:, :1], batch_size=8, epochs=2, shuffle=False, verbose=0)
        found.append(model.get_weights())
    for eager, compiled in zip(*found, strict=True):
        np.testing.assert_allclose(eager, compiled, rtol=1e-5, atol=1e-5)


def test_decay_alone_goes_through_the_momentum():
    def left(optimizer):
        weight = keras.Variable([1.0])
        for _ in range(100):
            optimizer.apply([ops.zeros((1,))], [weight])
        return ops.convert_to_numpy(weight)[0]

    weight, velocity = 1.0, 0.0
    for _ in range(100):
        velocity = 0.9 * velocity - 0.1 * 0.01 * weight
        weight = weight + velocity
    ours = left(SGD(0.1, momentum=0.9, weight_decay=0.01))
    np.testing.assert_allclose(ours, weight, rtol=1e-5)
    np.testing.assert_allclose(ours, 0.369, atol=5e-4)
    # What the class is for: Keras's own, of the same numbers, decays a tenth of that.
    decoupled = left(keras.optimizers.SGD(0.1, momentum=0.9, weight_decay=0.01))
    np.testing.assert_allclose(decoupled, 0.905, atol=5e-4)


@pytest.mark.parametrize(
    "nesterov, options",
    [(False, {}), (True, {"global_clipnorm": 2.0, "loss_scale_factor": 8.0})],
)
def test_sgd_is_that_of_pytorch(nesterov, options, rng):
    import torch

    start = [rng.normal(size=shape) for shape in ((3, 4), (4,))]
    theirs = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float32)) for value in start]
    reference = torch.optim.SGD(
        [{"params": theirs[:1]}, {"params": theirs[1:], "weight_decay": 0.0}],
        lr=0.1,
        momentum=0.9,
        weight_decay=0.05,
        nesterov=nesterov,
    )
    names = ("kernel", "bias")
    ours = [keras.Variable(v, name=name) for v, name in zip(start, names, strict=True)]
    optimizer = SGD(0.1, 0.9, nesterov, weight_decay=0.05, undecayed=["bias$"], **options)
    scale = options.get("loss_scale_factor", 1.0)
    for _ in range(20):
        gradients = [rng.normal(size=value.shape).astype("float32") for value in start]
        optimizer.apply([ops.convert_to_tensor(g * scale) for g in gradients], ours)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = torch.tensor(gradient)
        if "global_clipnorm" in options:
            torch.nn.utils.clip_grad_norm_(theirs, options["global_clipnorm"])
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(ops.convert_to_numpy(a), b.detach(), rtol=1e-6, atol=1e-6)


def test_the_rates_of_the_papers_recipe():
    boundaries, rates = [399, 31_999, 47_999], [0.01, 0.1, 0.01, 0.001]
    optimizer = SGD(keras.optimizers.schedules.PiecewiseConstantDecay(boundaries, rates))
    for updates_done, rate in (
        (0, 0.01),
        (399, 0.01),
        (400, 0.1),
        (31_999, 0.1),
        (32_000, 0.01),
        (47_999, 0.01),
        (48_000, 0.001),
        (63_999, 0.001),
    ):
        optimizer.iterations.assign(updates_done)
        now = ops.convert_to_numpy(optimizer.learning_rate)
        np.testing.assert_allclose(now, rate, rtol=1e-6, err_msg=updates_done)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="it is TensorFlow's")
def test_replicas_and_sparse_gradients_decay_once():
    import tensorflow as tf

    with two_replicas().scope():
        table, bias = keras.Variable(np.ones((3, 2))), keras.Variable([1.0, 1.0], name="bias")
        optimizer = SGD(0.1, weight_decay=0.5, undecayed=["bias"])
        optimizer.build([table, bias])

    def apply():
        slices = tf.IndexedSlices(tf.ones((1, 2)), tf.constant([1]), tf.constant([3, 2]))
        optimizer.apply([slices, tf.zeros(2)], [table, bias])

    tf.function(two_replicas().run)(apply)
    # Gradients are summed over the replicas; the decay reaches rows that no gradient does.
    expected = 1 - 0.1 * (np.array([[0.0], [2.0], [0.0]]) + 0.5)
    np.testing.assert_allclose(table.numpy(), np.tile(expected, 2), rtol=1e-6)
    np.testing.assert_array_equal(bias.numpy(), 1)


EMA = {"use_ema": True, "ema_overwrite_frequency": 2, "gradient_accumulation_steps": 2}


# Compiled once: what a file holds does not depend on it, and compiling is slow.
@pytest.mark.parametrize(
    "optimizer_class, dtype, options, eager",
    [
        (AdamW, None, {"clipnorm": 1.0, "amsgrad": True}, True),
        (AdamW, "mixed_float16", {"clipvalue": 1.0}, True),
        (SGD, None, EMA, False),
        (SGD, "mixed_float16", {"nesterov": True}, True),
    ],
)
def test_loaded_from_a_file_it_goes_on_as_before(optimizer_class, dtype, options, eager, tmp_path):
    keras.utils.set_random_seed(0)
    model = make_model(dtype)
    schedule = WarmupInverseSqrt(16, 4)
    optimizer = optimizer_class(schedule, weight_decay=0.3, undecayed=["bias$", "norm/"], **options)
    if dtype:
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, loss="mse", run_eagerly=eager)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype("float32"), rng.normal(size=(8, 2)).astype("float32")
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    # On JAX a weight and its average share a buffer now, and a second fit would donate it twice.
    model.set_weights(model.get_weights())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    inner = getattr(loaded.optimizer, "inner_optimizer", loaded.optimizer)
    assert type(inner) is optimizer_class and inner.undecayed == ["bias$", "norm/"]
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
        ({"undecayed": None}, "undecayed"),
        ({"weight_decay": "a"}, "weight_decay"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"learning_rate": -1.0}, "learning_rate"),
    ],
)
def test_bad_input(options, message):
    for optimizer_class in (AdamW, SGD):
        with pytest.raises(ValueError, match=message):
            optimizer_class(**options)
