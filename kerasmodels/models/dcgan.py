"""Unsupervised Representation Learning with Deep Convolutional Generative Adversarial Networks.

Alec Radford, Luke Metz, Soumith Chintala, ICLR 2016, arXiv:1511.06434.

Implemented: the two networks of section 3 (figure 1), for images of 28 to 64 pixels a side, to be
trained by `kerasmodels.models.GAN`. The paper's guidelines for stable ones:

- strided convolutions in the discriminator and transposed ones in the generator, no pooling;
- batch normalization in both, but not at the generator's output and the discriminator's input;
- no hidden fully connected layer: a projection of the noise that is reshaped, and one logit;
- ReLU in the generator and tanh at its end; LeakyReLU of slope 0.2 in the discriminator.

Section 4 trains with `keras.optimizers.Adam(2e-4, beta_1=0.5)` for both networks, batches of 128,
images scaled to [-1, 1], all weights from N(0, 0.02^2).

Departures: fewer filters by default (figure 1 has twice as many), any size of image rather than
64x64, logits rather than probabilities, and labels: an embedding beside the noise in the generator,
a projection (Miyato and Koyama 2018) in the discriminator.
"""

import keras

from kerasmodels import layers
from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.models.gan_parts import check_positive, logit_model, noise_with_labels

SMALLEST, LARGEST = 28, 64


@takes_numpy_numbers
def dcgan_generator(
    image_shape,
    latent_dim=100,
    filters=64,
    kernel_size=5,
    num_classes=None,
    dtype=None,
    name="generator",
):
    """The generator of figure 1: noise is projected, reshaped and doubled in size until it fits.

    The smaller side is halved until it is at most 7: 28x28 grows from 7x7, 32x32, 48x48 and 64x64
    from 4x4, 6x6 and 4x4. Where a size on the way is odd, the last row or column falls off.

    Args:
        image_shape: `(height, width, channels)`, both sides from 28 to 64.
        latent_dim: Size of the noise.
        filters: Of the last hidden layer; each one before has twice as many (figure 1: 128).
        kernel_size: Of the convolutions.
        num_classes: Number of labels, or `None` for a generator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of `noise (batch, latent_dim)`, with labels of
        `[noise, labels (batch,) int32]`, to float32 images `(batch, height, width, channels)` in
        [-1, 1].

    Raises:
        ValueError: If a side is not within 28 to 64, or a size is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    generator = models.dcgan_generator((28, 28, 1), latent_dim=100)
    images = generator(keras.random.normal((2, 100)))  # (2, 28, 28, 1)
    ```
    """
    sizes = _sizes(image_shape)  # from the image down
    check_positive(latent_dim=latent_dim, filters=filters, kernel_size=kernel_size)
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

    def normalized(x, index):
        x = _batch_norm(policy, f"norm_{index}")(x)
        return keras.layers.ReLU(dtype=policy, name=f"relu_{index}")(x)

    inputs, x = noise_with_labels(latent_dim, num_classes, policy)

    stages = len(sizes) - 1
    shape = (*sizes[-1], filters * 2 ** (stages - 1))
    x = keras.layers.Dense(
        shape[0] * shape[1] * shape[2],
        use_bias=False,
        kernel_initializer=_normal(),
        dtype=policy,
        name="project",
    )(x)
    x = normalized(keras.layers.Reshape(shape, dtype=policy, name="reshape")(x), 0)
    for i, (height, width) in enumerate(sizes[-2::-1], start=1):
        last = i == stages
        x = layers.Conv2DTranspose(
            image_shape[2] if last else filters * 2 ** (stages - 1 - i),
            kernel_size,
            strides=2,
            padding="same",
            data_format="channels_last",
            use_bias=last,  # batch normalization has its own
            kernel_initializer=_normal(),
            dtype=policy,
            name=f"convolution_{i}",
        )(x)
        odd = x.shape[1] - height, x.shape[2] - width
        if any(odd):
            x = keras.layers.Cropping2D(
                [(0, n) for n in odd],
                data_format="channels_last",
                dtype=policy,
                name=f"crop_{i}",
            )(x)
        if not last:
            x = normalized(x, i)
    images = keras.layers.Activation("tanh", dtype="float32", name="images")(x)
    return keras.Model(inputs, images, name=name)


@takes_numpy_numbers
def dcgan_discriminator(
    image_shape,
    filters=64,
    kernel_size=5,
    num_classes=None,
    dtype=None,
    name="discriminator",
):
    """The discriminator of section 3: the generator backwards, with LeakyReLU and one logit.

    Args:
        image_shape: `(height, width, channels)`, both sides from 28 to 64.
        filters: Of the first layer; each one after has twice as many.
        kernel_size: Of the convolutions.
        num_classes: Number of labels, or `None` for a discriminator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of `images (batch, height, width, channels)`, with labels of
        `[images, labels (batch,) int32]`, to float32 logits `(batch, 1)`; positive means real.

    Raises:
        ValueError: If a side is not within 28 to 64, or a size is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    discriminator = models.dcgan_discriminator((28, 28, 1))
    logits = discriminator(keras.ops.ones((2, 28, 28, 1)))  # (2, 1)
    ```
    """
    stages = len(_sizes(image_shape)) - 1
    check_positive(filters=filters, kernel_size=kernel_size)
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

    images = x = keras.Input(tuple(image_shape), name="images")
    for i in range(stages):
        x = layers.Conv2D(
            filters * 2**i,
            kernel_size,
            strides=2,
            padding="same",
            data_format="channels_last",
            use_bias=i == 0,
            kernel_initializer=_normal(),
            dtype=policy,
            name=f"convolution_{i}",
        )(x)
        if i > 0:
            x = _batch_norm(policy, f"norm_{i}")(x)
        x = keras.layers.LeakyReLU(0.2, dtype=policy, name=f"leaky_relu_{i}")(x)
    x = keras.layers.Flatten(data_format="channels_last", dtype=policy, name="flatten")(x)
    return logit_model(images, x, num_classes, policy, _normal(), name)


def _normal():
    """A new one each time: one object would draw the same numbers for each layer."""
    return keras.initializers.RandomNormal(stddev=0.02)


def _batch_norm(policy, name):
    # The common settings of this network; Keras's 0.99 remembers some 500 steps of early images.
    return keras.layers.BatchNormalization(momentum=0.9, epsilon=1e-5, dtype=policy, name=name)


def _sizes(image_shape):
    """Heights and widths from the image down to where the generator starts."""
    allowed = (
        len(image_shape) == 3
        and all(int(n) == n for n in image_shape)
        and all(SMALLEST <= n <= LARGEST for n in image_shape[:2])
        and image_shape[2] >= 1
    )
    if not allowed:
        raise ValueError(
            "`image_shape` must be (height, width, channels) with integer sides from "
            f"{SMALLEST} to {LARGEST}. Received: image_shape={tuple(image_shape)}"
        )
    sizes = [tuple(image_shape[:2])]
    while min(sizes[-1]) > 7:
        sizes.append(tuple(-(-n // 2) for n in sizes[-1]))
    return sizes
