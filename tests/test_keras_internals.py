"""Canaries for `kerasmodels/keras_internals.py`, and that no private name stands anywhere else.

When a new version of Keras or of a backend breaks a canary, its docstring says what to look at.
"""

import ast
import pathlib
import tomllib

import keras
import numpy as np
import pytest

import kerasmodels
from kerasmodels import keras_internals

PACKAGE = pathlib.Path(kerasmodels.__file__).parent
BACKEND = keras.backend.backend()
BACKENDS = ("jax", "jaxlib", "keras", "tensorflow", "torch")


def is_private(module):
    """Whether a dotted name leads into the insides of Keras or of a backend."""
    root, *rest = module.split(".")
    private = any(part.startswith("_") for part in rest) or module.startswith("tensorflow.python")
    return root in BACKENDS and (private or (root == "keras" and rest[:1] == ["src"]))


def private_imports(source):
    """Which private names of Keras and the backends Python source imports."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names |= {f"{node.module}.{name.name}" for name in node.names}
    return {name for name in names if is_private(name)}


def test_private_names_are_imported_in_one_place():
    files = {path: path.read_text() for path in PACKAGE.rglob("*.py")}
    found = {path.relative_to(PACKAGE).as_posix(): private_imports(files[path]) for path in files}
    found = {name: names for name, names in found.items() if names}
    assert found.keys() == {"keras_internals.py"}, found


def test_the_newest_keras_that_was_tested_is_the_last_let_in():
    """After a run of `make test-next` with a newer one, `pyproject.toml` may let that in."""
    root = PACKAGE.parent
    required = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    lines = [line for line in (root / "constraints.txt").read_text().split() if "==" in line]
    tested = dict(line.split("==") for line in lines)
    assert f"keras>=3.15,<={tested['keras-nightly']}" in required
    assert tested["keras"].startswith("3.15.")


def test_private_imports_are_seen():
    source = "from keras.src import x\nimport jax._src.core\nfrom torch import _C\nimport keras"
    assert private_imports(source) == {"keras.src.x", "jax._src.core", "torch._C"}
    assert private_imports("def f():\n    from tensorflow.python.eager import context")


def test_implicit_masks_are_read_and_set():
    """Look at `keras/src/backend/common/masking.py`, and at how `Layer.__call__` finds a mask."""
    x = keras.layers.Embedding(3, 2, mask_zero=True)(np.array([[1, 0]]))
    mask = keras_internals.get_keras_mask(x)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(mask), [[True, False]])
    y = keras.ops.convert_to_tensor(np.array([[[1.0], [5.0]]], "float32"))
    assert keras_internals.get_keras_mask(y) is None
    keras_internals.set_keras_mask(y, mask)
    mean = keras.layers.GlobalAveragePooling1D()(y)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(mean), [[1.0]])


@pytest.mark.parametrize("name", ["scale", "unscale"])
def test_all_losses_are_scaled_by_one_function(name, monkeypatch):
    """Look at where `keras/src/losses/loss.py` divides losses by the number of replicas."""
    seen = []
    function = f"{name}_loss_for_distribution"
    monkeypatch.setattr(keras_internals.loss_module, function, lambda x: seen.append(x) or x)
    x = keras.Input((3,))
    model = keras.Model(x, [keras.layers.Dense(1)(x), keras.layers.Dense(1)(x)])
    model.compile("sgd", ["mse", "mse"])
    model.evaluate(np.ones((2, 3)), [np.ones((2, 1)), np.ones((2, 1))], verbose=0)
    assert seen


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_a_model_says_what_it_is_built_from():
    """Look for what `fit` of TensorFlow's trainer does before its first batch."""
    import tensorflow as tf

    rows = []

    class Model(keras_internals.BuildsFromChosenBatch, keras.Model):
        def batch_to_build_from(self, iterator):
            return np.ones((5, 3)), np.ones((5, 1))

        def call(self, x):
            rows.append(x.shape[0])
            return x

    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = Model()
        model.compile(loss="mse")
    model.evaluate(np.ones((2, 3)), np.ones((2, 3)), verbose=0)
    assert rows[0] == 5


@pytest.mark.skipif(BACKEND != "jax", reason="on other backends the state is in the variables")
@pytest.mark.parametrize("batches", [2, 3])
def test_several_steps_at_once_are_split(batches):
    """Look at what a JAX test function takes from its iterator with `steps_per_execution`."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=2)
    model.make_test_function()
    function, steps = model.test_function, []

    def split(state, iterator):
        for index, one in enumerate(keras_internals.one_step_at_a_time(model, iterator)):
            try:
                logs, state = function(state, one)
            except StopIteration:
                if not index:
                    raise
                break
            steps.append(logs)
        return logs, state

    x = np.arange(6.0 * batches).reshape(-1, 3)
    expected = model.evaluate(x, x[:, :1], batch_size=2, verbose=0)
    model.test_function = split
    result = model.evaluate(x, x[:, :1], batch_size=2, verbose=0)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    stacked = 0 if keras.__version__.startswith("3.15") else 1
    assert len(steps) == batches - stacked


def test_all_layers_are_found():
    """Look for what `keras.Model.summary(expand_nested=True)` goes through."""
    inner = keras.layers.Dense(1)
    outer = keras.layers.TimeDistributed(inner)
    model = keras.Sequential([keras.Input((2, 3)), outer])
    assert inner in keras_internals.all_layers(model)
    assert model in keras_internals.all_layers(model)
    assert list(keras_internals.own_layers(outer)) == [inner]
    assert inner not in list(keras_internals.own_layers(model))


def test_a_tensor_knows_its_maker():
    """Look at `keras/src/ops/node.py` for where a KerasTensor's history went."""
    a, b, dense = keras.Input((3,)), keras.Input((3,)), keras.layers.Dense(1)
    dense(a)
    operation, inputs = keras_internals.maker_of(dense(b))
    assert operation is dense and inputs[0] is b


class Noted(keras_internals.OptimizerHooks, keras_internals.KerasAdamW):
    """Notes which hooks are called."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.notes = []

    def decay(self, variables):
        self.notes.append("decay")
        super().decay(variables)

    def update_all(self, *args):
        self.notes.append("update_all")
        super().update_all(*args)


def test_optimizers_call_their_hooks():
    """Look at `BaseOptimizer.apply` and `_use_weight_decay`; on PyTorch at `torch_adam.py` too."""
    kept, decayed = keras.Variable(np.ones(2)), keras.Variable(np.ones(2))
    ours, theirs = Noted(0.1, weight_decay=0.5), keras.optimizers.AdamW(0.1, weight_decay=0.5)
    for optimizer in (ours, theirs):
        optimizer.exclude_from_weight_decay(var_list=[kept])
        optimizer.build([kept, decayed])
    assert not ours.is_decayed(kept) and ours.is_decayed(decayed)
    results = []
    for optimizer in (ours, theirs):
        for variable in (kept, decayed):
            variable.assign(np.ones(2))
        optimizer.apply([keras.ops.convert_to_tensor(np.ones(2, "float32"))] * 2)
        results.append([keras.ops.convert_to_numpy(v) for v in (kept, decayed)])
    np.testing.assert_allclose(*results, rtol=1e-6)
    assert ours.notes == ["decay"] + ["update_all"] * (BACKEND == "torch")
    ours.decay([kept])  # an empty list, which PyTorch's kernel refuses
    (mean, _), (variance, _) = ours.moments([decayed, kept])
    np.testing.assert_allclose(keras.ops.convert_to_numpy(mean), 0.1, rtol=1e-5)
    np.testing.assert_allclose(keras.ops.convert_to_numpy(variance), 0.001, rtol=1e-5)


@pytest.mark.skipif(BACKEND != "torch", reason="the kernel is PyTorch's")
def test_the_fused_kernel_takes_a_step_of_adam():
    """Look at `_fused_adam` in `torch/optim/adam.py` for what the kernel is called with."""
    import torch

    x, gradient = torch.ones(2), torch.full((2,), 2.0)
    means, variances, step = torch.zeros(2), torch.zeros(2), torch.ones(())
    rates = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 0.0, "weight_decay": 0.0}
    keras_internals.fused_adam(
        [x], [gradient], [means], [variances], [step], **rates, amsgrad=False, maximize=False
    )
    np.testing.assert_allclose(x, 0.9, rtol=1e-6)
    np.testing.assert_allclose(means, 0.2, rtol=1e-6)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_monitors_know_which_way_is_better(direction):
    """Look at how `keras/src/callbacks/monitor_callback.py` understands mode "auto"."""

    @keras_internals.better_when(direction)
    class Score(keras.metrics.Mean):
        def update_state(self, y, y_pred, sample_weight=None):
            super().update_state(y_pred)

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=[Score(name="score")])
    stopping = keras.callbacks.EarlyStopping(monitor="score", patience=9)
    model.fit(np.ones((2, 1)), np.ones((2, 1)), callbacks=[stopping], verbose=0)
    assert bool(stopping.monitor_op(2.0, 1.0)) == (direction == "up")


def test_fit_says_that_it_evaluates():
    """Look for how `fit` calls `evaluate` in the trainers, `keras/src/backend/*/trainer.py`."""

    class Model(keras.Sequential):
        def evaluate(self, *args, **kwargs):
            seen.append(kwargs.get(keras_internals.CALLED_BY_FIT))
            return super().evaluate(*args, **kwargs)

    seen, data = [], (np.ones((2, 1)), np.ones((2, 1)))
    model = Model([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(*data, validation_data=data, verbose=0)
    model.evaluate(*data, verbose=0)
    assert seen == [True, None]


def test_the_tracker_of_the_loss_is_dropped():
    """Look at what `compile` adds to `keras.Model.metrics`."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert [metric.name for metric in model.metrics] == ["loss"]
    keras_internals.drop_loss_tracker(model)
    assert model.metrics == []


def test_an_optimizer_knows_what_it_was_built_for():
    """Look at `BaseOptimizer.build` and at the arguments of `stateless_apply`."""
    variables = [keras.Variable(np.ones(2)), keras.Variable(np.ones(2))]
    optimizer = keras.optimizers.SGD()
    optimizer.build(variables)
    built = keras_internals.built_for(optimizer)
    assert [id(v) for v in built] == [id(v) for v in variables]


def test_a_layer_and_a_functional_model_say_when_they_are_built():
    """Look at `build_wrapper` in `keras/src/layers/layer.py`, where `_post_build` was called."""
    calls = []

    class Layer(keras_internals.CallsAfterBuild, keras.layers.Dense):
        def after_build(self):
            calls.append(self.kernel.shape)

    class Model(keras_internals.CallsAfterBuild, keras.Model):
        def after_build(self):
            calls.append(len(self.weights))

    x = keras.Input((3,))
    Model(x, Layer(2)(x))
    assert calls == [(3, 2), 2]


def test_variables_hold_what_they_are_given():
    """Look at `KerasVariable.value` in `keras/src/backend/common/variables.py`."""
    variable = keras.Variable([1.0, 2.0])
    held = keras_internals.get_value(variable)
    with keras.StatelessScope([(variable, held + 1.0)]):
        assert keras_internals.get_value(variable) is held
    other = held * 3.0
    keras_internals.set_value(variable, other)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(variable), [3.0, 6.0])


def test_layers_are_built_without_numbers():
    """Look at where `keras/src/trainers/trainer.py` builds a model before the first batch."""
    dense = keras.layers.Dense(2)
    spec = keras_internals.compute_output_spec(dense, keras.KerasTensor((None, 3)))
    assert spec.shape == (None, 2) and dense.kernel.shape == (3, 2)
    np.testing.assert_array_equal(keras.ops.convert_to_numpy(dense.bias), [0.0, 0.0])
