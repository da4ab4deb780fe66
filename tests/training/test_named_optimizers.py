import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import KeepLastCheckpoints
from kerasmodels.training.portable import PortableModel
from tests.kit.replicas import two_replicas

BACKEND = keras.backend.backend()


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class GAN(PortableModel):
    """Two networks without `call`, k discriminator steps and one generator step a batch."""

    def __init__(self, k=3, **kwargs):
        super().__init__(**kwargs)
        self.k = k
        self.generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
        self.discriminator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        self.d_loss = keras.metrics.Mean(name="d_loss")
        self.g_loss = keras.metrics.Mean(name="g_loss")
        for i, variable in enumerate(self.trainable_variables):
            values = np.random.default_rng(i).normal(size=variable.shape)
            variable.assign(values.astype("float32"))

    def training_step(self, data):
        real = data[0] if isinstance(data, tuple) else data
        size = real.shape[0] // self.k if real.shape[0] else ops.shape(real)[0] // self.k
        for i in range(self.k):
            rows = real[i * size : (i + 1) * size]
            noise = rows * 0.5

            def d_loss(rows=rows, noise=noise):
                fake = self.generator(noise, training=True)
                return ops.mean(ops.softplus(-self.discriminator(rows))) + ops.mean(
                    ops.softplus(self.discriminator(fake))
                )

            loss = self.minimize(
                d_loss, self.discriminator.trainable_variables, optimizer="discriminator"
            )
            self.d_loss.update_state(loss)

        def g_loss():
            return ops.mean(ops.softplus(-self.discriminator(self.generator(noise, training=True))))

        loss = self.minimize(g_loss, self.generator.trainable_variables, optimizer="generator")
        self.g_loss.update_state(loss)
        return self.get_metrics_result()

    def get_config(self):
        return {"k": self.k}


REAL = np.random.default_rng(5).normal(size=(24, 2)).astype("float32")


def assert_same_weights(a, b, atol=1e-6):
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


def gan_fit(model, epochs=1):
    return model.fit(REAL, batch_size=12, epochs=epochs, shuffle=False, verbose=0).history


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("frozen", ["generator", "discriminator"])
def test_two_optimizers_step_their_own_networks(k, frozen):
    model = GAN(k)
    moving = "discriminator" if frozen == "generator" else "generator"
    model.compile(optimizer={frozen: keras.optimizers.SGD(0.0), moving: keras.optimizers.SGD(0.1)})
    before = {name: getattr(model, name).get_weights() for name in (frozen, moving)}
    gan_fit(model)
    gan_fit(model)
    for a, b in zip(before[frozen], getattr(model, frozen).get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(before[moving], getattr(model, moving).get_weights(), strict=True):
        assert np.abs(a - b).max() > 1e-4
    assert int(model.optimizer["discriminator"].iterations) == 4 * k
    assert int(model.optimizer["generator"].iterations) == 4


def test_metrics_are_epoch_means():
    model = GAN(1)
    model.compile(optimizer={n: keras.optimizers.SGD(0.0) for n in ("generator", "discriminator")})
    history = gan_fit(model, epochs=2)
    assert set(history) == {"d_loss", "g_loss"}
    w, b = (v.astype("float64") for v in model.discriminator.get_weights())
    k, c = (v.astype("float64") for v in model.generator.get_weights())
    fake = 0.5 * REAL @ k + c
    real_loss, fake_loss = (
        np.log1p(np.exp(-(REAL @ w + b))).mean(),
        np.log1p(np.exp(fake @ w + b)).mean(),
    )
    np.testing.assert_allclose(history["d_loss"], [real_loss + fake_loss] * 2, rtol=1e-5)


@pytest.mark.parametrize("other", [keras.optimizers.Adam, keras.optimizers.RMSprop])
def test_named_optimizers_are_saved_and_restored(tmp_path, other):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    model = GAN()
    # Not in alphabetical order, one with a schedule, and twice the same class.
    model.compile(optimizer={"generator": other(0.02), "discriminator": other(schedule)})
    gan_fit(model)
    model.save(tmp_path / "gan.keras")
    loaded = keras.saving.load_model(tmp_path / "gan.keras")
    assert loaded.optimizer.names == ["discriminator", "generator"]
    for name in loaded.optimizer.names:
        ours, theirs = model.optimizer[name], loaded.optimizer[name]
        assert ours.get_config() == theirs.get_config()
        assert int(theirs.iterations) == int(ours.iterations) > 0
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(b))
    gan_fit(model)
    gan_fit(loaded)
    assert_same_weights(model, loaded)
    with pytest.raises(ValueError, match="Only in the file"):
        loaded.optimizer.load_own_variables({"generator.0": np.zeros(())})


def test_named_optimizers_with_callbacks_ema_and_float16(tmp_path):
    policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = GAN()
    finally:
        keras.config.set_dtype_policy(policy)
    model.compile(
        optimizer={
            "generator": keras.optimizers.Adam(0.02, use_ema=True),
            "discriminator": keras.optimizers.Adam(0.01),
        }
    )
    halve = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    model.fit(REAL, batch_size=12, verbose=0, callbacks=[halve, backup])
    np.testing.assert_allclose(float(model.optimizer["generator"].learning_rate), 0.01, rtol=1e-6)
    np.testing.assert_allclose(
        float(model.optimizer["discriminator"].learning_rate), 0.005, rtol=1e-6
    )
    # At the end of `fit` the generator holds its average.
    average = model.optimizer["generator"].inner_optimizer._model_variables_moving_average
    for a, b in zip(model.generator.trainable_variables, average, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(b))
    model.fit(REAL, batch_size=12, verbose=0, callbacks=[backup])
    assert int(model.optimizer["generator"].iterations) == 2  # restored: nothing left to do
    model.fit(REAL, batch_size=12, verbose=0, epochs=2, callbacks=[backup])
    assert int(model.optimizer["generator"].iterations) == 4


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow's")
def test_replicas_equal_one_device():
    def build():
        model = GAN(1)
        model.compile(
            {name: keras.optimizers.Adam(0.01) for name in ("generator", "discriminator")}
        )
        return model

    single = build()
    expected = gan_fit(single)
    with two_replicas().scope():
        mirrored = build()
    history = gan_fit(mirrored)
    assert_same_weights(single, mirrored)
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=1e-5, err_msg=key)


def test_bad_input():
    gan = GAN()
    with pytest.raises(ValueError, match="no layer `self.critic`"):
        gan.compile(optimizer={"generator": "adam", "critic": "adam"})
    with pytest.raises(ValueError, match="map names"):
        gan.compile(optimizer={})
    shared = keras.optimizers.Adam()
    with pytest.raises(ValueError, match="of its own"):
        gan.compile(optimizer={"generator": shared, "discriminator": shared})
    gan.compile(optimizer={"generator": "adam", "discriminator": "sgd"})
    with pytest.raises(ValueError, match="one of"):
        gan.minimize(lambda: ops.ones(()), gan.trainable_variables)
    with pytest.raises(ValueError, match="say which"):
        gan.optimizer.apply([], [])


def two_adams(**kwargs):
    model = GAN(1)
    model.compile(
        {n: keras.optimizers.Adam(0.01) for n in ("generator", "discriminator")}, **kwargs
    )
    return model


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("run_eagerly", [False, True])
def test_iterations_are_the_model_s_steps(k, run_eagerly):
    model = GAN(k)
    optimizers = {n: keras.optimizers.SGD(0.1) for n in ("generator", "discriminator")}
    model.compile(optimizers, run_eagerly=run_eagerly)
    gan_fit(model, epochs=2)
    model.train_on_batch(REAL)
    model.train_on_batch(REAL)
    assert int(model.optimizer.iterations) == 6
    assert int(model.optimizer["discriminator"].iterations) == 6 * k


def test_checkpoints_of_a_resumed_run_count_on(tmp_path):
    def checkpoints():
        return KeepLastCheckpoints(tmp_path / "steps", unit="step", every=2)

    model = two_adams()
    model.fit(REAL, batch_size=6, verbose=0, callbacks=[checkpoints()])
    model.save(tmp_path / "gan.keras")
    loaded = keras.saving.load_model(tmp_path / "gan.keras")
    assert int(loaded.optimizer.iterations) == 4
    last = checkpoints()
    loaded.fit(REAL, batch_size=6, verbose=0, callbacks=[last])
    assert [p.name for p in last.paths] == [f"step-{n:07d}.weights.h5" for n in (2, 4, 6, 8)]
    # What was written before there was a count has the count of its optimizers.
    store = {}
    loaded.optimizer.save_own_variables(store)
    del store["iterations"]
    loaded.optimizer.iterations.assign(0)
    loaded.optimizer.load_own_variables(store)
    assert int(loaded.optimizer.iterations) == 8


def test_the_learning_rate_is_set_in_every_optimizer():
    model = two_adams()
    model.optimizer.learning_rate = 0.5
    for name in model.optimizer.names:
        assert float(model.optimizer[name].learning_rate) == 0.5
    assert float(model.optimizer.learning_rate) == 0.5
    model.optimizer["generator"].learning_rate = 0.25
    with pytest.raises(ValueError, match="several rates"):
        model.optimizer.learning_rate  # noqa: B018
    schedule = keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    model.compile({"generator": keras.optimizers.SGD(schedule), "discriminator": "sgd"})
    with pytest.raises(ValueError, match=r"schedule.*\['generator'\]"):
        model.optimizer.learning_rate = 0.5
    np.testing.assert_allclose(float(model.optimizer["discriminator"].learning_rate), 0.01)
    with pytest.raises(ValueError, match=r"optimizer\[name\].clipnorm"):
        model.optimizer.clipnorm = 1.0
    with pytest.raises(ValueError, match="exclude_from_weight_decay"):
        model.optimizer.exclude_from_weight_decay(var_names=["bias"])


def test_callbacks_that_read_the_optimizer(tmp_path):
    model = GAN(1)
    names = ("generator", "discriminator")
    model.compile({n: keras.optimizers.SGD(0.1, use_ema=True) for n in names})
    seen = []
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("d_loss", mode="min", patience=0, min_delta=100.0),
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: seen.append(int(model.optimizer.iterations))
        ),
    ]
    model.fit(REAL, batch_size=12, epochs=3, verbose=0, callbacks=callbacks)
    assert seen == [1, 2, 3, 4, 5, 6]
    for name in names:  # halved tenfold after the second and the third epoch
        np.testing.assert_allclose(float(model.optimizer[name].learning_rate), 1e-3, rtol=1e-5)
