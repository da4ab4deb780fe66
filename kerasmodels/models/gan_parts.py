"""The ends that the networks of several GAN papers share: noise in, a logit out, with labels."""

import keras

from kerasmodels import layers
from kerasmodels.models.gan_checks import check_integer


def check_positive(**arguments):
    """Raises a ValueError unless each argument is a positive integer."""
    for name, value in arguments.items():
        check_integer(name, value)


def noise_with_labels(latent_dim, num_classes, policy):
    """A generator's inputs, and the noise with the labels' vectors behind it.

    Args:
        latent_dim: Size of the noise.
        num_classes: Number of labels, or `None`.
        policy: Dtype policy of the layers.

    Returns:
        `(inputs, x)`: what `keras.Model` takes, and `(batch, latent_dim)`, twice as wide with
        labels.

    Raises:
        ValueError: If `num_classes` is no positive integer.
    """
    noise = keras.Input((latent_dim,), name="noise")
    if num_classes is None:
        return noise, noise
    check_positive(num_classes=num_classes)
    labels = keras.Input((), dtype="int32", name="labels")
    # As large as the noise: neither drowns the other.
    embedding = keras.layers.Embedding(
        num_classes,
        latent_dim,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        dtype=policy,
        name="label_embedding",
    )
    x = keras.layers.Concatenate(dtype=policy, name="noise_and_label")([noise, embedding(labels)])
    return [noise, labels], x


def logit_model(images, x, num_classes, policy, kernel_initializer, name):
    """A discriminator: one float32 logit from features, with labels by projection.

    Args:
        images: The network's input.
        x: Features, `(batch, features)`.
        num_classes: Number of labels, or `None`.
        policy: Dtype policy of the layers.
        kernel_initializer: Of the last layer.
        name: Of the model.

    Returns:
        A `keras.Model` of `images`, with labels of `[images, labels]`, to logits `(batch, 1)`.

    Raises:
        ValueError: If `num_classes` is no positive integer.
    """
    inputs = images
    settings = dict(kernel_initializer=kernel_initializer, dtype=policy, name="logit")
    if num_classes is None:
        logits = keras.layers.Dense(1, **settings)(x)
    else:
        check_positive(num_classes=num_classes)
        labels = keras.Input((), dtype="int32", name="labels")
        inputs = [images, labels]
        logits = layers.LabelProjection(num_classes, **settings)(x, labels)
    if policy.compute_dtype != "float32":
        logits = keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
    return keras.Model(inputs, logits, name=name)
