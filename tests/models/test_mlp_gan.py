"""The networks of the GAN paper, against numpy."""

import keras
import numpy as np
import pytest

from kerasmodels.models import maxout_discriminator, mlp_generator
from tests.kit import assert_close, assert_equal, gradients, normal, randomize, to_numpy

GENERATOR = dict(output_shape=(2, 3), latent_dim=4, hidden_units=(5, 6))
DISCRIMINATOR = dict(input_shape=(2, 3), units=(5, 6), pieces=3)
OUTPUTS = {
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "linear": lambda x: x,
}


@pytest.mark.parametrize("output_activation", OUTPUTS)
def test_generator(output_activation):
    model = randomize(mlp_generator(**GENERATOR, output_activation=output_activation))
    x = noise = normal(7, 4)
    *hidden, (w, b) = zip(*[iter(model.get_weights())] * 2, strict=True)
    for kernel, bias in hidden:
        x = np.maximum(x @ kernel + bias, 0)
    expected = OUTPUTS[output_activation](x @ w + b).reshape(7, 2, 3)
    assert_close(model(noise), expected.astype("float32"), rtol=1e-4, atol=1e-5)


def test_discriminator():
    model = randomize(maxout_discriminator(**DISCRIMINATOR))
    data = normal(7, 2, 3)
    x = data.reshape(7, 6)
    *hidden, (w, b) = zip(*[iter(model.get_weights())] * 2, strict=True)
    for kernel, bias in hidden:
        x = (x @ kernel + bias).reshape(7, 3, -1).max(axis=1)
    assert_close(model(data), x @ w + b, rtol=1e-4, atol=1e-5)
    # Dropout of the data and of both hidden layers, in training alone.
    assert (to_numpy(model(data, training=True)) != to_numpy(model(data))).any()
    rates = [layer.rate for layer in model.layers if isinstance(layer, keras.layers.Dropout)]
    assert rates == [0.2, 0.5, 0.5]
    plain = maxout_discriminator(**DISCRIMINATOR, dropout=0.0, input_dropout=0.0)
    assert not [layer for layer in plain.layers if isinstance(layer, keras.layers.Dropout)]


def test_sizes_of_the_authors_code():
    generator, discriminator = mlp_generator((784,)), maxout_discriminator((784,))
    assert generator.count_params() == 100 * 1200 + 1200**2 + 1200 * 784 + 1200 * 2 + 784
    assert discriminator.count_params() == 785 * 1200 + 241 * 1200 + 241


@pytest.mark.parametrize("make", [mlp_generator, maxout_discriminator])
def test_labels_dtype_and_file(make, tmp_path):
    sizes = GENERATOR if make is mlp_generator else DISCRIMINATOR
    model = make(**sizes, num_classes=3, name="net")
    x = normal(5, *model.inputs[0].shape[1:])
    labels = np.array([0, 1, 2, 0, 1], "int32")
    outputs = to_numpy(model([x, labels]))
    assert (outputs != to_numpy(model([x, np.zeros(5, "int32")])))[[1, 2, 4]].any()
    for weight, gradient in zip(
        model.trainable_weights,
        gradients(lambda: keras.ops.sum(model([x, labels]) ** 2), model.trainable_weights)[1],
        strict=True,
    ):
        assert np.abs(gradient).max() > 0, weight.path
    model.save(tmp_path / "net.keras")
    loaded = keras.saving.load_model(tmp_path / "net.keras", safe_mode=True)
    assert loaded.name == "net"
    assert_equal(loaded([x, labels]), outputs)
    half = make(**sizes, num_classes=3, dtype="mixed_bfloat16")
    assert half.layers[-2].compute_dtype == "bfloat16"
    assert keras.backend.standardize_dtype(half([x, labels]).dtype) == "float32"


@pytest.mark.parametrize(
    ("make", "argument", "value"),
    [
        (mlp_generator, "latent_dim", 0),
        (mlp_generator, "hidden_units", (4, -1)),
        (mlp_generator, "hidden_units", 4),
        (mlp_generator, "output_shape", (0,)),
        (mlp_generator, "num_classes", 0),
        (maxout_discriminator, "input_shape", (2, 0)),
        (maxout_discriminator, "units", (2.5,)),
        (maxout_discriminator, "pieces", 0),
    ],
)
def test_bad_input(make, argument, value):
    sizes = GENERATOR if make is mlp_generator else DISCRIMINATOR
    with pytest.raises(ValueError, match=f"`{argument}` must"):
        make(**{**sizes, argument: value})


def test_one_number_has_a_gradient_where_xla_rounds_twice():
    """Compiled, a product may be computed twice and rounded differently: max must not mind."""
    model = maxout_discriminator((1,), (24, 24), 4, dropout=0.0, input_dropout=0.0)
    model.compile("sgd", "mse")
    model.fit(4 + normal(512, 1), normal(512, 1), batch_size=512, verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())
