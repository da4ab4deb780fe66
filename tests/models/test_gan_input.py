"""What GAN refuses, and what it warns of."""

import warnings

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.models import GAN
from tests.kit import backend, normal
from tests.models.test_gan import compiled, conditional_pair, data_of_kind, dense, single, train

X = normal(12, 2, seed=1)


def test_arguments():
    networks = single(2), single(1)
    for kwargs, message in (
        ({"latent_dim": 0}, "`latent_dim` must be a positive integer"),
        ({"latent_dim": 2.5}, "latent_dim=2.5"),
        ({"discriminator_steps": 0}, "discriminator_steps=0"),
        ({"discriminator_steps": -1}, "discriminator_steps=-1"),
        ({"num_classes": 0}, "num_classes=0"),
        ({"generator_loss": "hinge"}, "non_saturating.*generator_loss='hinge'"),
        ({"noise": "cauchy"}, "noise='cauchy'"),
        ({"gradient_penalty": -1.0}, "gradient_penalty=-1.0"),
        ({"generator": "dcgan"}, "`generator` must be a Keras model"),
    ):
        arguments = {"generator": networks[0], "discriminator": networks[1], "latent_dim": 2}
        with pytest.raises(ValueError, match=message):
            GAN(**{**arguments, **kwargs})


def test_latent_dim_that_does_not_fit():
    with pytest.raises(ValueError, match=r"latent_dim=5, a generator of.*\(None, 2\)"):
        GAN(single(2), single(1), 5)
    with pytest.raises(ValueError, match="labels.*latent_dim=2"):
        GAN(single(2), single(1), 2, num_classes=3)
    with pytest.raises(ValueError, match="latent_dim=2"):
        GAN(conditional_pair()[0], single(1), 2)


def test_networks_that_do_not_fit_each_other():
    with pytest.raises(ValueError, match=r"makes \(None, 5\).*discriminator of.*\(None, 2\)"):
        GAN(single(5), single(1), 2)
    with pytest.raises(ValueError, match=r"one logit a row.*\(None, 3\)"):
        GAN(single(2), single(3), 2)


def test_an_unbuilt_pair_is_built():
    generator = keras.Sequential([keras.layers.Dense(2)])
    discriminator = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape(())])
    gan = compiled(GAN(generator, discriminator, 3, 2))
    assert len(gan.weights) == 4
    assert np.isfinite(train(gan, X)["d_loss"][0])


def test_shared_layers():
    layer = keras.layers.Dense(2, name="both")
    networks = [
        keras.Sequential([keras.Input((2,)), layer]),
        keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)]),
    ]
    with pytest.raises(ValueError, match="must not share a layer.*both"):
        GAN(*networks, 2)
    network = single(1)
    with pytest.raises(ValueError, match="must not share"):
        GAN(network, network, 2)
    outer = keras.Sequential([keras.Input((2,)), keras.Sequential([layer]), keras.layers.Dense(1)])
    with pytest.raises(ValueError, match="both"):
        GAN(networks[0], outer, 2)


class Subclassed(keras.Model):
    def __init__(self, activation):
        super().__init__()
        self.hidden = keras.layers.Dense(4, "sigmoid")
        self.head = keras.layers.Dense(1, activation)

    def call(self, x):
        return self.head(self.hidden(x))


def test_a_discriminator_that_ends_in_a_sigmoid():
    inputs = keras.Input((2,))
    layers = keras.layers
    ends = {
        "Dense": [layers.Dense(1, "sigmoid")],
        "Activation": [layers.Dense(1), layers.Activation("sigmoid")],
        "Softmax": [layers.Dense(1), layers.Softmax()],
        "flattened": [layers.Dense(1, "sigmoid"), layers.Reshape((1, 1)), layers.Flatten()],
        "float32": [layers.Dense(1, "sigmoid"), layers.Activation("linear", dtype="float32")],
        "nested": [keras.Sequential([layers.Dense(1, keras.ops.sigmoid)])],
    }
    found = {name: keras.Sequential([keras.Input((2,)), *end]) for name, end in ends.items()}
    found["functional"] = keras.Model(inputs, layers.Dense(1, "sigmoid")(inputs))
    found["operation"] = keras.Model(inputs, ops.sigmoid(layers.Dense(1)(inputs)))
    found["subclassed"] = Subclassed("sigmoid")
    for name, discriminator in found.items():
        with pytest.raises(ValueError, match="must return logits"):
            GAN(single(2), discriminator, 2)
            pytest.fail(name)
    GAN(single(2), Subclassed(None), 2)
    hidden = keras.Sequential([keras.Input((2,)), layers.Dense(1, "sigmoid"), layers.Dense(1)])
    GAN(single(2), hidden, 2)


def test_optimizers():
    gan = GAN(single(2), single(1), 2)
    for optimizer in (
        "adam",
        {"generator": "adam"},
        {"discriminator": "adam"},
        {"generator": "adam", "discriminator": "adam", "encoder": "adam"},
    ):
        with pytest.raises(ValueError, match="takes two optimizers"):
            gan.compile(optimizer=optimizer)
    both = {"generator": "adam", "discriminator": "adam"}
    for kwargs in ({"loss": "mse"}, {"metrics": ["mae"]}):
        with pytest.raises(ValueError, match="own losses and metrics"):
            gan.compile(optimizer=both, **kwargs)


def test_batches_with_fewer_rows_than_steps():
    gan = compiled(GAN(dense(2, 2), dense(1, 2), 2, discriminator_steps=4))
    with pytest.raises(ValueError, match="batch of 3 rows, discriminator_steps=4"):
        train(gan, X, batch_size=3)
    with pytest.raises(ValueError, match="batch of 2 rows"):  # what remains of 12
        train(gan, X, batch_size=5)
    train(gan, X, batch_size=8)  # 4 remain
    train(gan, X, batch_size=5, steps_per_epoch=2)  # the last is not reached
    for kind in ("PyDataset", "DataLoader", "tf.data", "generator"):
        with pytest.raises(Exception, match="discriminator_steps"):
            gan.fit(**data_of_kind(kind, X, 5), verbose=0)


@pytest.mark.parametrize("shape", [(12, 3), (12, 2, 1), (12,)])
def test_data_of_another_shape(shape):
    gan = compiled(GAN(dense(2, 2), dense(1, 2), 2))
    data = normal(*shape)
    expected = r"data \(batch, .*generator's output \(batch, 2\)"
    with pytest.raises(ValueError, match=expected):
        train(gan, data)
    with pytest.raises(ValueError, match=expected):
        gan.evaluate(data, verbose=0)
    with pytest.raises(ValueError, match=expected):
        gan.train_on_batch(data)
    with pytest.raises(ValueError, match="one array"):
        gan.fit({"x": X}, verbose=0)


def test_labels():
    plain = compiled(GAN(dense(2, 2), dense(1, 2), 2))
    with pytest.raises(ValueError, match="fit\\(x\\)"):
        train(plain, X, np.zeros(12, int))
    gan = compiled(GAN(*conditional_pair(), 2, num_classes=3))
    with pytest.raises(ValueError, match="num_classes=3"):
        train(gan, X)
    for labels in (np.full(12, 3), np.full(12, -1), np.full(12, 0.5)):
        with pytest.raises(ValueError, match="integers from 0 to 2"):
            train(gan, X, labels)
    with pytest.raises(ValueError, match=r"shape \(.*3\)"):
        train(gan, X, np.eye(3, dtype="int32")[np.arange(12) % 3])


@pytest.mark.parametrize("kind", ["numpy", "tf.data", "PyDataset", "DataLoader", "generator"])
def test_range_of_the_data(kind):
    pixels = np.linspace(0, 255, 24).reshape(12, 2).astype("float32")[::-1].copy()
    for activation, good, limits in (
        ("tanh", pixels / 127.5 - 1, "-1 to 1"),
        ("sigmoid", pixels / 255, "0 to 1"),
    ):
        gan = compiled(GAN(dense(2, 2, activation=activation), dense(1, 2), 2))
        with pytest.warns(UserWarning, match=f"ends in {activation}.*from {limits}.*Scale"):
            gan.fit(**data_of_kind(kind, pixels, 4), verbose=0)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*Scale the data.*")
            gan.fit(**data_of_kind(kind, good, 4), verbose=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*Scale the data.*")
        train(compiled(GAN(dense(2, 2), dense(1, 2), 2)), pixels)


def test_integer_pixels_are_numbers_too():
    pixels = np.arange(24).reshape(12, 2).astype("uint8")
    gan = compiled(GAN(dense(2, 2), dense(1, 2), 2, seed=1))
    assert np.isfinite(train(gan, pixels)["d_loss"][0])


def test_training_step_without_logs():
    class Silent(GAN):
        def training_step(self, data):
            super().training_step(data)

    with pytest.raises(ValueError, match="must return its logs as a dict"):
        train(compiled(Silent(dense(2, 2), dense(1, 2), 2)), X)


@pytest.mark.skipif(backend() != "torch", reason="it is PyTorch's compiler that cannot do it")
def test_no_compiled_gradient_penalty():
    gan = GAN(dense(2, 2), dense(1, 2), 2, generator_loss="wasserstein")
    with pytest.raises(ValueError, match="jit_compile=False"):
        compiled(gan, jit_compile=True)
