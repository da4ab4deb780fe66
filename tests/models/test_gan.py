"""GAN: algorithm 1 against a PyTorch loop, cases C26, C27, C34 to C36, and bad input."""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.models import GAN, maxout_discriminator, mlp_generator
from tests.kit import assert_close, assert_equal, backend, normal, to_numpy
from tests.kit.replicas import two_replicas

X = normal(12, 2, seed=1) + 1.0
Y = np.arange(12) % 3
NOISE = normal(64, 12, 2, seed=2)


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class FixedNoise(GAN):
    """Draw number n is the same on every backend and in every run."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.draws = keras.Variable(0, dtype="int32", trainable=False, name="draws")

    def sample_noise(self, batch_size, seed=None):
        if seed is not None:
            return super().sample_noise(batch_size, seed)
        noise = ops.take(ops.convert_to_tensor(NOISE), self.draws.value, axis=0)
        self.draws.assign_add(1)
        return noise[:batch_size]


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class SameNoise(GAN):
    """Every draw is the same, and replicas share it out among them."""

    def sample_noise(self, batch_size, seed=None):
        start = 0
        if backend() == "tensorflow":
            import tensorflow as tf

            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            start = ops.cast(replica, "int32") * batch_size
        return ops.convert_to_tensor(NOISE[0])[start : start + batch_size]


@keras.saving.register_keras_serializable(package="kerasmodels_tests")
class Count(keras.layers.Layer):
    """Counts calls with `training=True`, and the rows that it saw in them."""

    def build(self, input_shape):
        self.calls = self.add_weight(
            shape=(), dtype="int32", initializer="zeros", trainable=False, name="calls"
        )

    def call(self, x, training=None):
        if training:
            self.calls.assign_add(1)
        return x


def dense(units, *shape, activation=None, seed=0, regularizer=None):
    """A hidden layer of 3 units and an output, with the same weights on every backend."""
    inputs = keras.Input(shape)
    x = keras.layers.Dense(3, "tanh")(inputs)
    outputs = keras.layers.Dense(units, activation, kernel_regularizer=regularizer)(x)
    model = keras.Model(inputs, outputs)
    model.set_weights([normal(*w.shape, seed=seed + i) for i, w in enumerate(model.weights)])
    return model


def single(units, name=None):
    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)], name=name)


def compiled(gan, generator=0.1, discriminator=0.1, **kwargs):
    gan.compile(
        optimizer={
            "generator": keras.optimizers.SGD(generator),
            "discriminator": keras.optimizers.SGD(discriminator),
        },
        **kwargs,
    )
    return gan


def train(gan, x=X, y=None, batch_size=12, epochs=1, **kwargs):
    return gan.fit(
        x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0, **kwargs
    ).history


def plain_loop(loss, k, steps):
    """Algorithm 1 in plain PyTorch, on the weights of `dense`."""
    import torch
    from torch.nn.functional import softplus

    def tensors(model):
        return [torch.tensor(w, requires_grad=True) for w in model.get_weights()]

    def run(weights, x):
        w, b, v, c = weights
        return torch.tanh(x @ w + b) @ v + c

    g, d = tensors(dense(2, 2, seed=3)), tensors(dense(1, 2, seed=7))
    optimizers = {"g": torch.optim.SGD(g, 0.1), "d": torch.optim.SGD(d, 0.1)}
    noise, m, history = iter(torch.tensor(NOISE)), len(X) // k, []
    for _ in range(steps):
        d_losses = []
        for real in torch.tensor(X).split(m)[:k]:
            fake = run(g, next(noise)[:m]).detach()
            optimizers["d"].zero_grad()
            a, b = run(d, real), run(d, fake)
            if loss == "least_squares":
                d_loss = ((a - 1) ** 2).mean() / 2 + (b**2).mean() / 2
            else:
                d_loss = softplus(-a).mean() + softplus(b).mean()
            d_loss.backward()
            optimizers["d"].step()
            d_losses.append(d_loss.item())
        optimizers["g"].zero_grad()
        b = run(d, run(g, next(noise)[:m]))
        g_loss = {
            "non_saturating": lambda b: softplus(-b).mean(),
            "minimax": lambda b: -softplus(b).mean(),
            "least_squares": lambda b: ((b - 1) ** 2).mean() / 2,
        }[loss](b)
        g_loss.backward()
        optimizers["g"].step()
        history.append((np.mean(d_losses), g_loss.item()))
    return [w.detach().numpy() for w in g], [w.detach().numpy() for w in d], history


@pytest.mark.parametrize(
    ("loss", "k"), [("non_saturating", 1), ("minimax", 3), ("least_squares", 5)]
)
def test_five_steps_equal_a_plain_pytorch_loop(loss, k):
    gan = FixedNoise(dense(2, 2, seed=3), dense(1, 2, seed=7), 2, k, loss)
    history = train(compiled(gan), epochs=5)
    g, d, losses = plain_loop(loss, k, steps=5)
    assert_close(gan.generator.get_weights(), g, rtol=0, atol=1e-5)
    assert_close(gan.discriminator.get_weights(), d, rtol=0, atol=1e-5)
    found = np.stack([history["d_loss"], history["g_loss"]], axis=1)
    np.testing.assert_allclose(found, losses, rtol=1e-5)


def test_c26_two_networks_and_two_optimizers():
    for moved, still in (("discriminator", "generator"), ("generator", "discriminator")):
        gan = GAN(single(2), single(1), 2, discriminator_steps=3, seed=1)
        compiled(gan, **{moved: 0.1, still: 0.0})
        before = {name: getattr(gan, name).get_weights() for name in (moved, still)}
        for fits in (1, 2):
            train(gan)
            assert_equal(getattr(gan, still).get_weights(), before[still])
            change = [
                np.abs(a - b).max()
                for a, b in zip(getattr(gan, moved).get_weights(), before[moved], strict=True)
            ]
            assert min(change) > 0
            assert int(gan.optimizer["discriminator"].iterations) == 3 * fits
            assert int(gan.optimizer["generator"].iterations) == fits
            before[moved] = getattr(gan, moved).get_weights()
    gan = compiled(GAN(single(2), single(1), 2))
    train(gan, batch_size=4)
    assert [int(o.iterations) for o in gan.optimizer.optimizers] == [3, 3]


def test_c27_epochs_report_their_own_batches():
    inner = dense(1, 2, seed=7)
    inner.compile("adam", "mse", metrics=["mae"])
    inner_optimizer = inner.optimizer
    gan = compiled(SameNoise(dense(2, 2, seed=3), inner, 2), 0.0, 0.0)
    data = np.tile(X[:6], (2, 1))
    history = train(gan, data, batch_size=6, epochs=2)
    names = {"d_loss", "g_loss", "value", "d_real", "d_fake", "jsd"}
    assert set(history) == names == {metric.name for metric in gan.metrics}
    result = gan.evaluate(data, batch_size=6, verbose=0, return_dict=True)
    real = inner.predict(X[:6], verbose=0)
    fake = inner.predict(gan.generator.predict(NOISE[0, :6], verbose=0), verbose=0)
    value = -np.log1p(np.exp(-real)).mean() - np.log1p(np.exp(fake)).mean()
    expected = {
        "d_loss": -value,
        "g_loss": np.log1p(np.exp(-fake)).mean(),
        "value": value,
        "d_real": (1 / (1 + np.exp(-real))).mean(),
        "d_fake": (1 / (1 + np.exp(-fake))).mean(),
        "jsd": np.clip((value + np.log(4)) / 2, 0, np.log(2)),
    }
    for name, number in expected.items():
        np.testing.assert_allclose(history[name], [number] * 2, rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(result[name], number, rtol=1e-5, atol=1e-6, err_msg=name)
    assert inner.optimizer is inner_optimizer and inner.compiled
    # A mean over unequal batches weighs their rows.
    gan = compiled(SameNoise(dense(2, 2, seed=3), dense(1, 2, seed=7), 2), 0.0, 0.0)
    found = train(gan, X[:9], batch_size=6)["d_loss"][0]
    parts = [gan.evaluate(x, verbose=0, return_dict=True)["d_loss"] for x in (X[:6], X[6:9])]
    np.testing.assert_allclose(found, np.average(parts, weights=[6, 3]), rtol=1e-5)


def test_c34_weights_are_refused():
    gan = compiled(GAN(single(2), single(1), 2))
    labelled = compiled(GAN(*conditional_pair(), 2, num_classes=3))
    for model, y, weights in (
        (gan, None, {"sample_weight": np.ones(12, "float32")}),
        (labelled, Y, {"sample_weight": np.ones(12, "float32")}),
        (labelled, Y, {"class_weight": {0: 1.0, 1: 3.0, 2: 1.0}}),
    ):
        with pytest.raises(ValueError, match="no use for weights"):
            train(model, y=y, **weights)
    with pytest.raises(ValueError, match="no use for weights"):
        gan.evaluate(X, sample_weight=np.ones(12, "float32"), verbose=0)

    class Weighted(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return X, Y, np.ones(12, "float32")

    with pytest.raises(ValueError, match="no use for weights"):
        labelled.fit(Weighted(), verbose=0)


@pytest.mark.skipif(backend() == "torch", reason="Keras distributes nothing on PyTorch")
def test_c35_replicas_equal_one_device():
    def build():
        discriminator = dense(1, 2, seed=7, regularizer=keras.regularizers.L2(0.1))
        return compiled(SameNoise(dense(2, 2, seed=3), discriminator, 2))

    one = build()
    expected = train(one, epochs=3)
    if backend() == "tensorflow":
        scope = two_replicas().scope()
    else:
        devices = keras.distribution.list_devices("cpu")[:2]
        scope = keras.distribution.DataParallel(devices=devices).scope()
    with scope:
        many = build()
        history = train(many, epochs=3)
    assert_close(many.get_weights(), one.get_weights(), rtol=0, atol=1e-5)
    for name, values in expected.items():
        if name == "jsd":  # replicas clip their own, then the mean is taken
            continue
        np.testing.assert_allclose(history[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def data_of_kind(kind, x, batch_size):
    if kind == "numpy":
        return {"x": x, "batch_size": batch_size}
    if kind == "tf.data":
        import tensorflow as tf

        return {"x": tf.data.Dataset.from_tensor_slices(x).batch(batch_size)}
    if kind == "PyDataset":

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return -(-len(x) // batch_size)

            def __getitem__(self, index):
                return (x[index * batch_size : (index + 1) * batch_size],)

        return {"x": Batches()}
    if kind == "generator":
        return {"x": ((x[i : i + batch_size],) for i in range(0, len(x), batch_size))}
    import torch

    dataset = torch.utils.data.TensorDataset(torch.tensor(x))
    return {"x": torch.utils.data.DataLoader(dataset, batch_size=batch_size)}


@pytest.mark.parametrize(
    ("kind", "batch_size", "steps"),
    [
        *((kind, 5, 2) for kind in ("tf.data", "PyDataset", "DataLoader", "generator")),
        *((kind, size, None) for kind in ("tf.data", "PyDataset", "DataLoader") for size in (5, 4)),
    ],
)
def test_c36_every_sample_once(kind, batch_size, steps):
    def fitted(kind):
        counted = keras.Sequential([keras.Input((2,)), Count(), dense(1, 2, seed=7)])
        gan = compiled(FixedNoise(dense(2, 2, seed=3), counted, 2))
        data = data_of_kind(kind, X[:10], batch_size)
        gan.fit(**data, steps_per_epoch=steps, shuffle=False, verbose=0)
        return gan, int(to_numpy(counted.layers[0].calls))

    gan, calls = fitted(kind)
    assert calls == 3 * (3 if batch_size == 4 else 2)  # on data, on samples, for the generator
    assert_close(gan.get_weights(), fitted("numpy")[0].get_weights(), rtol=0, atol=1e-5)


def test_which_passes_train():
    """What the docstring says about batch statistics, dropout and seeds."""
    inputs = keras.Input((2,))
    generator = keras.Model(inputs, Count()(keras.layers.Dense(2)(inputs)))
    x = keras.layers.Dropout(0.5, seed=1)(Count()(inputs))
    x = keras.layers.BatchNormalization(momentum=0.5)(x)
    discriminator = keras.Model(inputs, keras.layers.Dense(1)(x))
    k = 3
    gan = compiled(GAN(generator, discriminator, 2, k, seed=1))
    train(gan)
    assert int(to_numpy(generator.layers[-1].calls)) == k + 1
    assert int(to_numpy(discriminator.layers[1].calls)) == 2 * k + 1
    state = {v.path: to_numpy(v.value) for v in gan.non_trainable_variables}
    seeds = {path: v for path, v in state.items() if "seed_generator" in path}
    assert sorted(int(v[1]) for v in seeds.values()) == [k + 1, 2 * k + 1]  # noise, dropout
    moving = discriminator.layers[3].moving_variance
    assert float(to_numpy(moving)[0]) != 1.0
    before = gan.get_weights()
    gan.evaluate(X, verbose=0)
    gan.generate(3, seed=1)
    assert_equal(gan.get_weights(), before)  # neither statistics nor weights


@pytest.mark.parametrize("frozen", ["generator", "discriminator"])
def test_frozen_by_the_user(frozen, recwarn):
    gan = GAN(dense(2, 2, seed=3), dense(1, 2, seed=7), 2, 2, seed=1)
    getattr(gan, frozen).trainable = False
    compiled(gan)
    before = gan.generator.get_weights(), gan.discriminator.get_weights()
    history = train(gan)
    assert np.isfinite(history["d_loss"][0]) and np.isfinite(history["g_loss"][0])
    after = gan.generator.get_weights(), gan.discriminator.get_weights()
    for name, old, new in zip(("generator", "discriminator"), before, after, strict=True):
        moved = any((a != b).any() for a, b in zip(old, new, strict=True))
        assert moved == (name != frozen), name
    assert not [w for w in recwarn if "no variables" in str(w.message)]


@pytest.mark.parametrize("num_classes", [None, 3])
@pytest.mark.parametrize("loss", ["non_saturating", "minimax", "least_squares", "wasserstein"])
def test_every_loss_trains(loss, num_classes):
    networks = conditional_pair() if num_classes else (dense(2, 2, seed=3), dense(1, 2, seed=7))
    gan = compiled(GAN(*networks, 2, 2, loss, num_classes=num_classes, seed=1))
    y = Y if num_classes else None
    before = gan.get_weights()
    history = train(gan, y=y)
    assert all(np.isfinite(values).all() for values in history.values())
    assert ("value" in history) == (loss in ("non_saturating", "minimax"))
    for old, new, w in zip(before, gan.get_weights(), gan.weights, strict=True):
        assert (old != new).any() or "bias" in w.path, w.path  # a critic's bias has no slope
    assert set(gan.evaluate(X, y, verbose=0, return_dict=True)) == set(history)


def test_wasserstein_penalty_is_in_the_loss():
    """A linear critic: the slope is its kernel, wherever the penalty looks."""
    losses = []
    for weight in (0.0, 10.0):
        critic = single(1)
        critic.set_weights([np.array([[3.0], [4.0]], "float32"), np.zeros(1, "float32")])
        gan = SameNoise(dense(2, 2), critic, 2, 1, "wasserstein", gradient_penalty=weight)
        losses.append(train(compiled(gan, 0.0, 0.0))["d_loss"][0])
        losses.append(gan.evaluate(X, batch_size=12, verbose=0, return_dict=True)["d_loss"])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-5)
    np.testing.assert_allclose(losses[2:], losses[0] + 10 * (5 - 1) ** 2, rtol=1e-5)


def test_regularizers_count_in_their_own_loss():
    def build(regularizer):
        generator, discriminator = (
            dense(units, 2, seed=units, regularizer=regularizer) for units in (2, 1)
        )
        return compiled(SameNoise(generator, discriminator, 2), 0.0, 0.0)

    plain, heavy = build(None), build(keras.regularizers.L2(0.1))
    expected, found = train(plain), train(heavy)
    for network, name in ((heavy.generator, "g_loss"), (heavy.discriminator, "d_loss")):
        more = 0.1 * (network.get_weights()[2] ** 2).sum()
        np.testing.assert_allclose(found[name][0], expected[name][0] + more, rtol=1e-5)


def conditional_pair(num_classes=3):
    generator = mlp_generator(
        (2,), 2, hidden_units=(4,), output_activation="linear", num_classes=num_classes
    )
    discriminator = maxout_discriminator((2,), (4,), 2, num_classes=num_classes)
    return generator, discriminator


def test_labels_reach_both_networks():
    gan = compiled(GAN(*conditional_pair(), 2, num_classes=3, seed=1), jit_compile=False)
    samples = gan.generate(6, seed=1)  # labels in turn
    assert_equal(gan.generate(6, seed=1, labels=np.arange(6) % 3), samples)
    assert (gan.generate(6, seed=1, labels=np.zeros(6, int)) != samples).any()
    train(gan, y=Y[:, None])  # (batch, 1) too
    gan.evaluate(X, Y, verbose=0)
    # k minibatches of labels stand beside their rows: D sees what it was given.
    seen = [
        (to_numpy(x), to_numpy(labels))
        for x, labels in GAN(*conditional_pair(), 2, 5, num_classes=3)._minibatches(
            ops.convert_to_tensor(X), ops.convert_to_tensor(Y)
        )
    ]
    assert len(seen) == 5
    assert_equal(np.concatenate([x for x, _ in seen]), X[:10])
    assert_equal(np.concatenate([y for _, y in seen]), Y[:10])


def test_generate():
    gan = GAN(dense(2, 2), single(1), 2, seed=3)
    samples = gan.generate(300, seed=5)
    assert samples.shape == (300, 2) and samples.dtype == np.float32
    assert isinstance(samples, np.ndarray)
    np.testing.assert_allclose(gan.generate(300, seed=5, batch_size=7), samples, atol=1e-6)
    assert (gan.generate(300, seed=6) != samples).any()
    assert (gan.generate(3) != gan.generate(3)).any()
    assert_equal(gan.generate(5, seed=9)[:2], gan.generate(5, seed=9, batch_size=2)[:2])
    for noise, low, high in (("uniform", -1, 1), ("normal", -np.inf, np.inf)):
        drawn = to_numpy(GAN(dense(2, 2), single(1), 2, noise=noise).sample_noise(4000, seed=1))
        assert drawn.shape == (4000, 2) and drawn.min() >= low and drawn.max() <= high
        assert abs(drawn.mean()) < 0.05
        assert abs(drawn.std() - (3**-0.5 if noise == "uniform" else 1)) < 0.03
    # With seed=None the model's own state moves; two models of a seed draw the same.
    a, b = (GAN(dense(2, 2), single(1), 2, seed=3) for _ in range(2))
    assert_equal(a.generate(4), b.generate(4))
    for n in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="`n` must be a positive integer"):
            gan.generate(n)
    with pytest.raises(ValueError, match="no `num_classes`"):
        gan.generate(2, labels=[0, 1])
    conditional = GAN(*conditional_pair(), 2, num_classes=3)
    for labels in ([0, 3], [0, -1], [0.5, 1.0], [0], [[0, 1]]):
        with pytest.raises(ValueError, match="abels"):
            conditional.generate(2, labels=labels)


def test_generate_within_fit():
    seen = []
    draw = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: seen.append(gan.generate(2, seed=1)),
        on_epoch_end=lambda epoch, logs: seen.append(gan.generate(2)),
    )
    gan = compiled(GAN(dense(2, 2, seed=3), dense(1, 2, seed=7), 2, seed=1))
    train(gan, batch_size=6, callbacks=[draw])
    assert len(seen) == 3 and (seen[0] != seen[1]).any()
    assert_equal(seen[1], gan.generate(2, seed=1))


def adams(gan):
    gan.compile(
        optimizer={
            "generator": keras.optimizers.Adam(0.01, use_ema=True),
            "discriminator": keras.optimizers.Adam(0.02, beta_1=0.5),
        }
    )
    return gan


def test_file_and_resume(tmp_path):
    """Killed after 2 of 4 epochs and loaded again: the uninterrupted run, noise included."""

    def build():
        inputs = keras.Input((2,))
        x = keras.layers.Dropout(0.3, seed=4)(inputs)
        discriminator = keras.Model(inputs, keras.layers.Dense(1)(x))
        discriminator.set_weights([np.ones((2, 1)), np.zeros(1)])
        return adams(GAN(dense(2, 2, seed=3), discriminator, 2, 2, noise="uniform", seed=1))

    whole = build()
    train(whole, epochs=2)
    train(whole, epochs=2)
    half = build()
    train(half, epochs=2)
    half.save(tmp_path / "gan.keras")
    loaded = keras.saving.load_model(tmp_path / "gan.keras", safe_mode=True)
    assert type(loaded) is GAN and loaded.name == half.name and loaded.noise == "uniform"
    assert_equal(loaded.generate(3, seed=1), half.generate(3, seed=1))
    assert [int(o.iterations) for o in loaded.optimizer.optimizers] == [4, 2]
    train(loaded, epochs=2)
    for one, other in (
        (whole.non_trainable_variables, loaded.non_trainable_variables),
        (whole.trainable_variables, loaded.trainable_variables),
        (whole.optimizer.variables, loaded.optimizer.variables),
    ):
        assert_close([v.value for v in one], [to_numpy(v.value) for v in other], atol=1e-6)


def test_config_round_trip():
    gan = GAN(
        *conditional_pair(),
        2,
        discriminator_steps=2,
        generator_loss="wasserstein",
        gradient_penalty=5.0,
        num_classes=3,
        noise="uniform",
        seed=4,
        name="g",
    )
    copy = GAN.from_config(gan.get_config())
    assert copy.get_config() == gan.get_config()
    assert copy.name == "g" and copy.generator is not gan.generator
    assert len(copy.weights) == len(gan.weights)


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_float16")
    networks = conditional_pair()
    gan = GAN(*networks, 2, 2, "wasserstein", num_classes=3, seed=1)
    adams(gan)
    assert isinstance(gan.optimizer["generator"], keras.optimizers.LossScaleOptimizer)
    history = train(gan, y=Y)
    assert np.isfinite(history["d_loss"][0])
    assert gan.generate(2).dtype == np.float32


@pytest.mark.skipif(backend() == "torch", reason="Keras refuses steps_per_execution on PyTorch")
def test_steps_per_execution():
    one, two = (
        compiled(FixedNoise(dense(2, 2, seed=3), dense(1, 2, seed=7), 2, 2), **kwargs)
        for kwargs in ({}, {"steps_per_execution": 2})
    )
    for gan in (one, two):
        train(gan, batch_size=3)
    assert_close(one.get_weights(), two.get_weights(), atol=1e-6)
