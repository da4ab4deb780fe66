"""The networks of "Generative Adversarial Nets", section 5, to be trained by `models.GAN`.

Ian Goodfellow et al., NeurIPS 2014, arXiv:1406.2661: the generator is a mixture of rectified linear
and sigmoid units, the discriminator has maxout units and is trained with dropout, and noise enters
the generator at its bottom layer alone. Sizes are those of the authors' code for MNIST,
https://github.com/goodfeli/adversarial, mnist.yaml; with `output_activation="sigmoid"` (for data in
[0, 1]; it counts for the default that images here are in [-1, 1]) the networks are those.

Departures: logits in place of probabilities, Keras's initial weights, and networks that know a
label, whose embedding stands beside the noise and beside the data (Mirza and Osindero 2014).
"""

import math

import keras

from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.layers import Maxout

_LABEL_DIM = 50


@takes_numpy_numbers
def mlp_generator(
    output_shape,
    latent_dim=100,
    hidden_units=(1200, 1200),
    activation="relu",
    output_activation="tanh",
    num_classes=None,
    dtype=None,
    name="generator",
):
    """A multilayer perceptron from noise to samples.

    Args:
        output_shape: Of a sample, such as `(28, 28, 1)` or `(1,)`.
        latent_dim: Size of the noise.
        hidden_units: Sizes of the hidden layers.
        activation: Of the hidden layers, the paper's `"relu"`.
        output_activation: `"tanh"` for data in [-1, 1], `"sigmoid"` (the paper's) in [0, 1],
            `"linear"` for any.
        num_classes: Number of labels, or `None` for a generator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of `noise (batch, latent_dim)`, with labels of
        `[noise, labels (batch,) int32]`, to float32 samples `(batch, *output_shape)`.

    Raises:
        ValueError: If a size is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    generator = models.mlp_generator((28, 28, 1), latent_dim=100)
    generator(keras.random.normal((16, 100)))  # (16, 28, 28, 1)
    ```
    """
    _check_sizes(output_shape=output_shape, latent_dim=(latent_dim,), hidden_units=hidden_units)
    noise = keras.Input((latent_dim,), name="noise")
    inputs, x = _with_labels(noise, noise, num_classes, dtype)
    for i, units in enumerate(hidden_units):
        x = keras.layers.Dense(units, activation, dtype=dtype, name=f"hidden_{i}")(x)
    x = keras.layers.Dense(math.prod(output_shape), dtype=dtype, name="output")(x)
    x = keras.layers.Reshape(tuple(output_shape), dtype=dtype, name="samples")(x)
    outputs = keras.layers.Activation(output_activation, dtype="float32", name="activation")(x)
    return keras.Model(inputs, outputs, name=name)


@takes_numpy_numbers
def maxout_discriminator(
    input_shape,
    units=(240, 240),
    pieces=5,
    dropout=0.5,
    input_dropout=0.2,
    num_classes=None,
    dtype=None,
    name="discriminator",
):
    """A maxout network (Goodfellow et al. 2013) from samples to one logit.

    Args:
        input_shape: Of a sample.
        units: Sizes of the hidden layers.
        pieces: Affine maps a unit is the maximum of.
        dropout: Rate of dropout after each hidden layer.
        input_dropout: Rate of dropout of the samples themselves.
        num_classes: Number of labels, or `None` for a discriminator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of samples `(batch, *input_shape)`, with labels of
        `[samples, labels (batch,) int32]`, to float32 logits `(batch, 1)`.

    Raises:
        ValueError: If a size is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    discriminator = models.maxout_discriminator((28, 28, 1))
    discriminator(keras.ops.zeros((16, 28, 28, 1)))  # (16, 1)
    ```
    """
    _check_sizes(input_shape=input_shape, units=units, pieces=(pieces,))
    samples = keras.Input(tuple(input_shape), name="samples")
    x = keras.layers.Flatten(dtype=dtype, name="flatten")(samples)
    x = _dropout(x, input_dropout, dtype, "input_dropout")
    inputs, x = _with_labels(samples, x, num_classes, dtype)
    for i, size in enumerate(units):
        x = Maxout(size, pieces, dtype=dtype, name=f"hidden_{i}")(x)
        x = _dropout(x, dropout, dtype, f"dropout_{i}")
    x = keras.layers.Dense(1, dtype=dtype, name="output")(x)
    logits = keras.layers.Activation("linear", dtype="float32", name="logits")(x)
    return keras.Model(inputs, logits, name=name)


def _dropout(x, rate, dtype, name):
    return keras.layers.Dropout(rate, dtype=dtype, name=name)(x) if rate else x


def _with_labels(first, x, num_classes, dtype):
    """The model's inputs, and `x` with the embedding of the label beside it."""
    if num_classes is None:
        return first, x
    _check_sizes(num_classes=(num_classes,))
    labels = keras.Input((), dtype="int32", name="labels")
    embedding = keras.layers.Embedding(num_classes, _LABEL_DIM, dtype=dtype, name="label")(labels)
    joined = keras.layers.Concatenate(dtype=dtype, name="with_label")([x, embedding])
    return [first, labels], joined


def _check_sizes(**arguments):
    for name, sizes in arguments.items():
        if not isinstance(sizes, (tuple, list)) or any(int(s) != s or s < 1 for s in sizes):
            raise ValueError(f"`{name}` must hold positive integers. Received: {name}={sizes}")
