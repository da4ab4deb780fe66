import functools

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import PortableModel, value_and_grad
from tests.kit.replicas import two_replicas

BACKEND = keras.backend.backend()
RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 5)).astype("float32")
Y = RNG.integers(0, 3, size=(24,)).astype("int32")
WEIGHT = RNG.uniform(0.5, 2.0, size=(24,)).astype("float32")


def network(dropout=0.0, seed=1, **kwargs):
    inputs = keras.Input((5,))
    # Without a bias: batch normalization takes it out, and Adam would blow up its rounding errors.
    x = keras.layers.Dense(
        8, use_bias=False, kernel_initializer=keras.initializers.GlorotUniform(seed=seed), **kwargs
    )(inputs)
    x = keras.layers.BatchNormalization()(x)
    x = keras.layers.Activation("relu")(x)
    x = keras.layers.Dropout(dropout, seed=7)(x)
    x = keras.layers.Dense(3, kernel_initializer=keras.initializers.GlorotUniform(seed=seed + 1))(x)
    return keras.Model(inputs, keras.layers.Activation("linear", dtype="float32")(x))


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class Classifier(PortableModel):
    def __init__(self, network, **kwargs):
        super().__init__(**kwargs)
        self.network = network
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def call(self, x, training=None):
        return self.network(x, training=training)

    def training_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)

        def loss_fn():
            y_pred = self(x, training=True)
            return self.compute_loss(x, y, y_pred, sample_weight), y_pred

        loss, y_pred = self.minimize(loss_fn, self.trainable_variables)
        self.loss_tracker.update_state(loss, sample_weight=ops.shape(x)[0])
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def validation_step(self, data):
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        y_pred = self(x, training=False)
        loss = self.compute_loss(x, y, y_pred, sample_weight, training=False)
        self.loss_tracker.update_state(loss, sample_weight=ops.shape(x)[0])
        return self.compute_metrics(x, y, y_pred, sample_weight)

    def get_config(self):
        return {"network": keras.saving.serialize_keras_object(self.network)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["network"]))


def crossentropy():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def compiled(model, optimizer=None, **kwargs):
    model.compile(
        optimizer or keras.optimizers.Adam(0.01),
        loss=crossentropy(),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        **kwargs,
    )
    return model


def train(model, epochs=1, **kwargs):
    return model.fit(X, Y, batch_size=8, epochs=epochs, shuffle=False, verbose=0, **kwargs).history


def assert_same_weights(a, b, atol=1e-6):
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["plain", "sample_weight"])
def test_three_steps_equal_keras(weight):
    keras_model = compiled(network(kernel_regularizer=keras.regularizers.L2(0.1)))
    ours = compiled(Classifier(network(kernel_regularizer=keras.regularizers.L2(0.1))))
    expected = train(keras_model, sample_weight=weight, validation_data=(X, Y))
    history = train(ours, sample_weight=weight, validation_data=(X, Y))
    assert_same_weights(ours.network, keras_model)
    assert set(history) == set(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=1e-5, err_msg=key)
    ours_result = ours.evaluate(X, Y, verbose=0, return_dict=True)
    for key, value in keras_model.evaluate(X, Y, verbose=0, return_dict=True).items():
        np.testing.assert_allclose(ours_result[key], value, rtol=1e-5, err_msg=key)
    np.testing.assert_allclose(
        ours.predict(X, verbose=0), keras_model.predict(X, verbose=0), atol=1e-5
    )


def test_batch_statistics_and_seeds_move_as_in_keras():
    keras_model, ours = compiled(network(dropout=0.5)), compiled(Classifier(network(dropout=0.5)))
    states = []
    for model in (keras_model, ours):
        train(model)
        states.append([ops.convert_to_numpy(v.value) for v in model.non_trainable_variables])
    assert len(states[0]) == len(states[1]) == 3  # mean, variance, seed
    # Random numbers in a compiled TensorFlow step depend on the graph: only counters compare.
    for a, b in zip(*states, strict=True):
        if BACKEND != "tensorflow" or a.dtype.kind != "f":
            np.testing.assert_allclose(a, b, atol=1e-6)
    np.testing.assert_array_equal(states[0][-1], [7, 3])
    if BACKEND != "tensorflow":
        assert_same_weights(ours.network, keras_model)


def test_callbacks_and_second_fit():
    model = compiled(Classifier(network()))
    seen = []
    callbacks = [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
        keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: seen.append(logs)),
        keras.callbacks.EarlyStopping("val_loss", mode="min", patience=0, min_delta=100.0),
    ]
    history = train(model, epochs=5, callbacks=callbacks, validation_data=(X, Y))
    assert len(history["loss"]) == 2  # nothing improves by 100: stopped after the second
    np.testing.assert_allclose(history["learning_rate"], [0.005, 0.0025])
    assert len(seen) == 6 and {"loss", "accuracy"} <= set(seen[0])
    train(model)
    assert int(model.optimizer.iterations) == 9


def test_jit_compile_equals_eager():
    results = []
    for kwargs in ({"run_eagerly": True}, {"jit_compile": True}):
        if BACKEND == "torch" and "jit_compile" in kwargs:
            kwargs = {"jit_compile": False}  # torch.compile needs a C++ compiler at run time
        model = compiled(Classifier(network()), **kwargs)
        train(model)
        results.append(model)
    assert_same_weights(*results)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras refuses steps_per_execution on PyTorch")
def test_steps_per_execution():
    one, three = (compiled(Classifier(network()), steps_per_execution=n) for n in (1, 3))
    train(one)
    train(three)
    assert_same_weights(one, three)


def test_train_on_batch():
    a, b = compiled(Classifier(network())), compiled(Classifier(network()))
    a.train_on_batch(X, Y, sample_weight=WEIGHT)
    b.fit(X, Y, sample_weight=WEIGHT, batch_size=24, verbose=0)
    assert_same_weights(a, b)
    assert np.isfinite(a.test_on_batch(X, Y, return_dict=True)["loss"])


def test_clipping_decay_and_averages_reach_the_optimizer():
    def optimizer():
        return keras.optimizers.AdamW(0.01, weight_decay=0.1, clipnorm=0.05, use_ema=True)

    keras_model, ours = (
        compiled(network(), optimizer()),
        compiled(Classifier(network()), optimizer()),
    )
    train(keras_model)
    train(ours)
    assert_same_weights(ours.network, keras_model)
    train(ours)  # weights and averages must not share their buffers
    assert int(ours.optimizer.iterations) == 6


def test_file_round_trip_with_optimizer_state(tmp_path):
    model = compiled(Classifier(network()))
    train(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 3
    for a, b in zip(model.optimizer.variables, loaded.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(b))
    train(model)
    train(loaded)
    assert_same_weights(model, loaded)


def test_mixed_float16_scales_the_loss():
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = compiled(Classifier(network()))
        reference = compiled(network())
    finally:
        keras.config.set_dtype_policy(policy)
    assert isinstance(model.optimizer, keras.optimizers.LossScaleOptimizer)
    before = model.get_weights()
    train(model)
    train(reference)
    assert_same_weights(model.network, reference, atol=2e-3)
    assert int(model.optimizer.step_counter) == 3
    assert any(np.abs(a - b).max() > 1e-3 for a, b in zip(before, model.get_weights(), strict=True))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow's")
@pytest.mark.parametrize("kind", ["keras loss", "mean"])
def test_replicas_equal_one_device(kind):
    class Plain(Classifier):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            picked = ops.take_along_axis(ops.log_softmax(y_pred), y[:, None], axis=-1)
            return -ops.mean(picked)

    def build():
        inputs = keras.Input((5,))
        layer = keras.layers.Dense(
            3, "relu", kernel_initializer="ones", kernel_regularizer=keras.regularizers.L2(0.1)
        )
        model = Classifier if kind == "keras loss" else Plain
        return compiled(model(keras.Model(inputs, layer(inputs))))

    single = build()
    expected = train(single)
    with two_replicas().scope():
        mirrored = build()
    history = train(mirrored)
    assert_same_weights(single, mirrored)
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=1e-5, err_msg=key)
    if kind == "keras loss":
        for key, value in single.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True).items():
            result = mirrored.evaluate(X, Y, batch_size=8, verbose=0, return_dict=True)[key]
            np.testing.assert_allclose(result, value, rtol=1e-5, err_msg=key)


@pytest.mark.skipif(BACKEND != "jax", reason="it works on JAX alone")
def test_data_parallel_equals_one_device():
    single = compiled(Classifier(network()))
    train(single)
    devices = keras.distribution.list_devices("cpu")[:4]
    with keras.distribution.DataParallel(devices=devices).scope():
        parallel = compiled(Classifier(network()))
        train(parallel)
    assert_same_weights(single, parallel)


@pytest.mark.skipif(BACKEND != "jax", reason="the other backends update such variables")
def test_a_stranger_variable_is_noticed():
    stranger = keras.Variable(0.0, name="stranger")

    class Counting(Classifier):
        def training_step(self, data):
            stranger.assign_add(1.0)
            return super().training_step(data)

    model = compiled(Counting(network()))
    before = model.get_weights()
    with pytest.raises(ValueError, match="stranger"):
        train(model)
    # The trainer had emptied the variables; they are back.
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_first_error_is_shown_and_the_model_survives():
    class Broken(Classifier):
        def training_step(self, data):
            super().training_step(data)
            raise RuntimeError("the user's own mistake")

    model = compiled(Broken(network()), keras.optimizers.Adam(0.01, use_ema=True))
    with pytest.raises(RuntimeError, match="own mistake"):
        train(model)
    assert np.isfinite(model.predict(X, verbose=0)).all()


def test_frozen_everything_warns_and_changes_nothing():
    class Frozen(Classifier):
        def training_step(self, data):
            x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
            loss = self.minimize(lambda: self.compute_loss(x, y, self(x)), [])
            self.loss_tracker.update_state(loss)
            return {"loss": self.loss_tracker.result()}

    model = Frozen(network())
    model.compile("adam", loss=crossentropy())
    with pytest.warns(UserWarning, match="no variables"):
        history = train(model)
    assert int(model.optimizer.iterations) == 0 and np.isfinite(history["loss"][0])


def test_bad_input():
    class Silent(Classifier):
        def training_step(self, data):
            super().training_step(data)

    with pytest.raises(ValueError, match="must return its logs as a dict"):
        train(compiled(Silent(network())))

    class Nothing(PortableModel):
        pass

    model = Nothing()
    model.compile("adam")
    for step in (model.training_step, model.validation_step):
        with pytest.raises(NotImplementedError, match="needs a method"):
            step(X)

    single = compiled(Classifier(network()))
    with pytest.raises(ValueError, match="without a name"):
        single.minimize(lambda: ops.ones(()), [], optimizer="generator")


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class Forgetful(Classifier):
    """Unpacks the weights and forgets them, in training or in validation."""

    def __init__(self, network, forgets, **kwargs):
        super().__init__(network, **kwargs)
        self.forgets = forgets

    def training_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        return super().training_step((x, y) if self.forgets == "training" else data)

    def validation_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        return super().validation_step((x, y) if self.forgets == "validation" else data)


@pytest.mark.parametrize("run_eagerly", [False, True])
def test_ignored_weights_are_an_error(run_eagerly):
    def build(forgets):
        return compiled(Forgetful(network(dropout=0.5), forgets), run_eagerly=run_eagerly)

    message = r"Forgetful\.{}_step was given `sample_weight`"
    model = build("training")
    train(model)  # no weights, nothing to say
    with pytest.raises(ValueError, match=message.format("training")):
        train(model, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match=message.format("training")):
        train(model, class_weight={0: 1.0, 1: 2.0, 2: 1.0})
    model = build("validation")
    train(model, sample_weight=WEIGHT)
    with pytest.raises(ValueError, match=message.format("validation")):
        model.evaluate(X, Y, sample_weight=WEIGHT, verbose=0)


@pytest.mark.parametrize(
    "weights, expected",
    [
        ({}, 0.569717),
        ({"class_weight": {0: 1.0, 1: 3.0}}, 1.486008),  # sum of w l / N, as Keras has it
        ({"sample_weight": np.array([1.0, 0.0])}, 0.111572),
    ],
)
def test_weights_of_a_step_that_uses_them(weights, expected):  # C34
    x = np.eye(2, dtype="float32")
    inputs = keras.Input((2,))
    layer = keras.layers.Dense(2, use_bias=False)
    model = Classifier(keras.Model(inputs, layer(inputs)))
    # With one-hot inputs and a learning rate of 0 the probabilities are fixed.
    layer.set_weights([np.log([[0.8, 0.2], [0.6, 0.4]])])
    model.compile(
        keras.optimizers.SGD(0.0),
        loss=crossentropy(),
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(name="w", from_logits=True)],
    )
    logs = model.fit(x, np.array([0, 1]), verbose=0, **weights).history
    np.testing.assert_allclose(logs["loss"], [expected], atol=1e-5)
    total = {"class_weight": 4.0, "sample_weight": 1.0}.get(next(iter(weights), None), 2.0)
    np.testing.assert_allclose(logs["w"], [2 * expected / total], atol=1e-5)  # sum w l / sum w


@pytest.mark.skipif(BACKEND != "torch", reason="TensorFlow and JAX compile nested gradients")
def test_a_compiled_gradient_penalty_is_refused_on_torch(monkeypatch):
    import torch

    class Penalized(PortableModel):
        def __init__(self):
            super().__init__()
            self.dense = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1, "tanh")])

        def training_step(self, x):
            def penalty():
                _, (slope,) = value_and_grad(lambda x: ops.sum(self.dense(x)), [x])
                return ops.mean(slope**2)

            return {"loss": self.minimize(penalty, self.dense.trainable_variables)}

    model = Penalized()
    model.compile("sgd", jit_compile=True)
    compiler = functools.partial(torch.compile, backend="aot_eager")  # the same, without C++
    monkeypatch.setattr(torch, "compile", compiler)
    with pytest.raises(ValueError, match="PyTorch compiles no gradient of a gradient"):
        model.fit(X, batch_size=24, verbose=0)
    model.compile("sgd", jit_compile=False)
    assert np.isfinite(model.fit(X, batch_size=24, verbose=0).history["loss"][0])


def test_compiling_anew_forgets_the_old_step():
    """Also while something holds the old one: JAX knows a program by its function."""
    model, losses, held = Classifier(network()), [], []
    for smoothing in (0.0, 0.5):
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, label_smoothing=smoothing)
        model.compile(keras.optimizers.SGD(0.0), loss)
        y = np.eye(3, dtype="float32")[Y]
        logs = model.fit(X, y, batch_size=24, verbose=0, shuffle=False).history["loss"]
        losses.append((logs[0], model.evaluate(X, y, verbose=0)))
        held += [model.train_function, model.test_function]
    assert abs(losses[0][0] - losses[1][0]) > 1e-3
    assert abs(losses[0][1] - losses[1][1]) > 1e-3


@pytest.mark.skipif(BACKEND != "torch", reason="the methods are those of PyTorch's modules")
def test_a_model_moves_as_a_module_of_pytorch():
    model = compiled(Classifier(network()))
    model.double()
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float64"}


class Lazy(PortableModel):
    """Layers without an `Input`: what they make is known with the first batch alone."""

    def __init__(self, loss=lambda difference: ops.mean(difference**2)):
        super().__init__()
        self.hidden = keras.layers.Dense(2, "tanh", kernel_initializer="ones")
        self.dense = keras.layers.Dense(1, kernel_initializer="ones")
        self.scale = keras.layers.Dense(1, kernel_initializer="ones", use_bias=False)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.loss_of = loss

    def call(self, x):
        return self.dense(self.hidden(x))

    def training_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)

        def loss_fn():  # `scale` is the step's own, `call` has no use for it
            return self.loss_of(self.scale(self(x, training=True)) - y)

        loss = self.minimize(loss_fn, self.trainable_variables)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


class LazyPair(PortableModel):
    """Two networks that are not built, and no `call`."""

    def __init__(self):
        super().__init__()
        self.first = keras.Sequential([keras.layers.Dense(2, kernel_initializer="ones")])
        self.second = keras.layers.Dense(1, kernel_initializer="ones")
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def training_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)

        def loss_fn():
            return ops.mean((self.second(self.first(x)) - y) ** 2)

        for name in ("first", "second"):
            variables = getattr(self, name).trainable_variables
            loss = self.minimize(loss_fn, variables, optimizer=name)
        self.loss_tracker.update_state(loss)
        return self.get_metrics_result()

    def validation_step(self, data):
        x, y, _ = keras.utils.unpack_x_y_sample_weight(data)
        self.loss_tracker.update_state(ops.mean((self.second(self.first(x)) - y) ** 2))
        return self.get_metrics_result()


def optimizer_of(kind):
    if kind is Lazy:
        return keras.optimizers.Adam(0.1)
    return {"first": keras.optimizers.Adam(0.1), "second": keras.optimizers.SGD(0.1)}


TARGETS = RNG.normal(size=(24, 1)).astype("float32")


def weights_of_built_layers(kind, steps):
    """What layers that are built beforehand have after some steps: nothing has to be found out."""
    model = kind()
    for layer, width in zip(model.layers, (5, 2, 1), strict=False):
        layer.build((None, width))
    model.compile(optimizer_of(kind))
    for i in range(steps):
        model.train_on_batch(X[8 * i : 8 * i + 8], TARGETS[8 * i : 8 * i + 8])
    return model.get_weights()


MODES = [{}, {"run_eagerly": True}]
if BACKEND != "torch":
    MODES += [{"jit_compile": False}, {"jit_compile": True}, {"steps_per_execution": 2}]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("kind", [Lazy, LazyPair])
def test_layers_that_are_not_built_learn_from_the_first_step(kind, mode):
    model = kind()
    model.compile(optimizer_of(kind), **mode)
    model.fit(X, TARGETS, batch_size=8, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 3 and model.built
    for a, b in zip(model.get_weights(), weights_of_built_layers(kind, 3), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [Lazy, LazyPair])
def test_layers_that_are_not_built_from_a_generator_or_a_batch(kind):
    batches = [(X[i : i + 8], TARGETS[i : i + 8]) for i in (0, 8, 16)]
    results = []
    for method in ("generator", "batches"):
        model = kind()
        model.compile(optimizer_of(kind))
        if method == "generator":
            model.fit((batch for batch in batches), verbose=0)
        else:
            for batch in batches:
                model.train_on_batch(*batch)
        assert int(model.optimizer.iterations) == 3  # no batch was lost to look at it
        results.append(model)
    assert_same_weights(*results)


def test_layers_that_are_not_built_can_be_evaluated_first():
    model = LazyPair()
    model.compile(optimizer_of(LazyPair))
    expected = np.mean((2 * X.sum(axis=1, keepdims=True) - TARGETS) ** 2)
    np.testing.assert_allclose(model.evaluate(X, TARGETS, verbose=0), expected, rtol=1e-5)
    assert int(model.optimizer.iterations) == 0


@pytest.mark.parametrize("kind", [Lazy, LazyPair])
def test_layers_that_are_not_built_resume(kind, tmp_path):
    def run(epochs):
        model = kind()
        model.compile(optimizer_of(kind))
        backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
        data = dict(batch_size=8, shuffle=False, verbose=0)
        model.fit(X, TARGETS, epochs=epochs, callbacks=[backup] * (epochs != 4), **data)
        return model

    whole = run(4)
    run(1)
    resumed = run(2)
    assert int(resumed.optimizer.iterations) == 6
    model = kind()
    model.compile(optimizer_of(kind))
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    model.fit(X, TARGETS, batch_size=8, shuffle=False, verbose=0, epochs=4, callbacks=[backup])
    assert_same_weights(model, whole)


def test_what_cannot_be_built_is_named():
    class Hasty(LazyPair):
        def training_step(self, data):
            if not self.first.built:
                raise TypeError("this step needs its layers")
            return super().training_step(data)

        validation_step = PortableModel.validation_step

    model = Hasty()
    model.compile(optimizer_of(LazyPair))
    with pytest.raises(ValueError, match=r"needs its layers.*`Input`.*self.first.*self.second"):
        model.fit(X, TARGETS, verbose=0)

    model = Lazy()
    model.compile("sgd")
    with pytest.raises(ValueError, match=r"`Input`.*self\.hidden"):
        model.minimize(lambda: ops.mean(model(X) ** 2), model.trainable_variables)
