"""A resumed run draws the numbers of the run that was not interrupted; replicas draw their own."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import FitOnReplicas, PortableModel
from tests.kit.replicas import two_replicas

BACKEND = keras.backend.backend()
X = np.random.default_rng(0).normal(size=(24, 6)).astype("float32")


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class Denoiser(PortableModel):
    """Two networks, two Adams, dropout in a nested layer and noise of the model's own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.encoder = keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(8, "relu", kernel_initializer="ones"),
                keras.Sequential([keras.layers.Dropout(0.5, seed=3)]),
            ]
        )
        self.decoder = keras.Sequential([keras.Input((8,)), keras.layers.Dense(6)])
        self.noise = keras.random.SeedGenerator(5)
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def training_step(self, data):
        data, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        noise = keras.random.normal(ops.shape(data), seed=self.noise)

        def loss_fn():
            return ops.mean((self.decoder(self.encoder(data + noise, training=True)) - data) ** 2)

        for name in ("encoder", "decoder"):
            variables = getattr(self, name).trainable_variables
            loss = self.minimize(loss_fn, variables, optimizer=name)
        self.loss_tracker.update_state(loss)
        return {"loss": self.loss_tracker.result()}


def build(seed=0):
    keras.utils.set_random_seed(seed)
    model = Denoiser()
    model.compile({"encoder": keras.optimizers.Adam(0.01), "decoder": keras.optimizers.Adam(0.03)})
    return model


def fit(model, **kwargs):
    return model.fit(X, batch_size=8, shuffle=False, verbose=0, **kwargs).history["loss"]


def state(model):
    everything = model.variables + model.optimizer.variables
    return {v.path: ops.convert_to_numpy(v.value) for v in everything}


def assert_same_state(a, b):
    a, b = (list(state(m).items()) for m in (a, b))
    assert len(a) == len(b)
    for (path, x), (_, y) in zip(a, b, strict=True):
        np.testing.assert_allclose(
            x, y, rtol=0, atol=0 if x.dtype.kind != "f" else 1e-6, err_msg=path
        )


def test_data_of_unknown_length_move_seeds_and_counters_no_further():
    def batches():
        for rows in np.split(X, 3):
            yield (rows,)

    known, unknown = build(), build()
    fit(known)
    unknown.fit(batches(), verbose=0)  # on TensorFlow the end is met inside a fourth step
    assert_same_state(unknown, known)


class Killed(Exception):
    pass


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path):
    whole = build()
    expected = fit(whole, epochs=4)

    def kill(epoch, logs=None):
        if epoch == 2:
            raise Killed

    def backup():
        return keras.callbacks.BackupAndRestore(tmp_path)

    killer = keras.callbacks.LambdaCallback(on_epoch_begin=kill)
    with pytest.raises(Killed):
        fit(build(), epochs=4, callbacks=[backup(), killer])
    resumed = build(seed=1)  # another process would start from other weights
    history = fit(resumed, epochs=4, callbacks=[backup()])
    np.testing.assert_allclose(history, expected[2:], rtol=1e-5)
    assert_same_state(resumed, whole)
    assert [int(o.iterations) for o in resumed.optimizer.optimizers] == [12, 12]


def test_a_keras_file_goes_on_too(tmp_path):
    whole, first = build(), build()
    expected = fit(whole, epochs=3)
    fit(first, epochs=1)
    first.save(tmp_path / "run.keras")
    loaded = keras.saving.load_model(tmp_path / "run.keras")
    np.testing.assert_allclose(fit(loaded, initial_epoch=1, epochs=3), expected[1:], rtol=1e-5)
    assert_same_state(loaded, whole)


def test_files_without_random_state_load(tmp_path, monkeypatch):
    model = build()
    fit(model)
    with monkeypatch.context() as patch:
        patch.setattr(PortableModel, "save_own_variables", keras.Model.save_own_variables)
        model.save_weights(tmp_path / "older.weights.h5")
    other = build(seed=1)
    other.load_weights(tmp_path / "older.weights.h5")
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(ops.convert_to_numpy(other.noise.state.value), [5, 0])


def test_another_number_of_generators_is_said(tmp_path):
    model = build()
    model.save_weights(tmp_path / "a.weights.h5")
    other = build()
    other.more = keras.random.SeedGenerator(1)
    with pytest.warns(UserWarning, match="state of 2 random generators and the model has 3"):
        other.load_weights(tmp_path / "a.weights.h5")


class Noisy(PortableModel):
    """Sums up what its replicas drew."""

    def __init__(self):
        super().__init__()
        self.noise = keras.random.SeedGenerator(5)
        self.total = keras.metrics.Sum(name="total")
        self.squares = keras.metrics.Sum(name="squares")

    def training_step(self, data):
        drawn = keras.random.normal((), seed=self.noise) + 0.0 * ops.sum(data)
        self.total.update_state(drawn)
        self.squares.update_state(drawn**2)
        return self.get_metrics_result()


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only tf.distribute has replicas")
def test_replicas_draw_their_own_noise():
    with two_replicas().scope():
        model = Noisy()
        model.compile("sgd")
    logs = model.fit(X, batch_size=24, verbose=0).history
    total, squares = logs["total"][0], logs["squares"][0]
    # Two equal numbers have total^2 = 2 * squares.
    assert abs(total**2 - 2 * squares) > 1e-3
    first = float(keras.random.normal((), seed=keras.random.SeedGenerator(5)))
    other = total - first  # replica 0 draws what one device draws
    np.testing.assert_allclose(first**2 + other**2, squares, rtol=1e-4)
    np.testing.assert_array_equal(ops.convert_to_numpy(model.noise.state.value), [5, 1])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="only tf.distribute has replicas")
def test_replicas_have_their_own_dropout_in_a_plain_model():
    class Net(FitOnReplicas, keras.Model):
        pass

    ones = np.ones((2, 512), "float32")
    with two_replicas().scope():
        x = keras.Input((512,))
        y = keras.layers.Dropout(0.5, seed=3)(x)
        model = Net(x, keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(y))
        model.compile(keras.optimizers.SGD(1.0), "mse")
    model.fit(ones, np.ones((2, 1), "float32"), batch_size=2, verbose=0)
    # The step is the sum of both masks' parts: with one mask for both, only two values occur.
    assert len(np.unique(np.round(model.get_weights()[0], 5))) == 3
