"""TransGAN: Two Pure Transformers Can Make One Strong GAN, and That Can Scale Up.

Yifan Jiang, Shiyu Chang, Zhangyang Wang, NeurIPS 2021, arXiv:2102.07074.

Implemented: the generator of section 3.1, stages of Transformer encoders with a pixel shuffle
between two stages that doubles the sides and divides the width by 4, and a discriminator of
Transformer encoders over one size of patches with a class token, the "vanilla" one of the paper's
first version. To be trained by `kerasmodels.models.GAN`; the authors' code for CIFAR-10 takes the
Wasserstein loss with gradient penalty, `keras.optimizers.Adam(1e-4, beta_1=0.0, beta_2=0.99)` for
both, four discriminator steps for one of the generator, and strong augmentation of what the
discriminator sees.

Departures: learned absolute positions alone (the final version adds relative ones), no grid
self-attention (meant for sides beyond 32), no multi-scale patches; tanh at the generator's end, so
that images lie in [-1, 1] as everywhere here; labels: an embedding beside the noise in the
generator, a projection (Miyato and Koyama 2018) in the discriminator.
"""

import keras

from kerasmodels import layers
from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.models.gan_parts import check_positive, logit_model, noise_with_labels

# Generators of the first version's table of sizes (for 32x32), there with a discriminator of width
# 384 and 7 layers; all have 4 heads. "tiny" is ours, for laptops and tests.
SIZES = {
    "transgan_tiny": dict(hidden_dim=64, num_layers=(1, 1, 1)),
    "transgan_s": dict(hidden_dim=384, num_layers=(5, 2, 2)),
    "transgan_m": dict(hidden_dim=512, num_layers=(5, 2, 2)),
    "transgan_l": dict(hidden_dim=768, num_layers=(5, 2, 2)),
    "transgan_xl": dict(hidden_dim=1024, num_layers=(5, 4, 2)),
}


@takes_numpy_numbers
def transgan_generator(
    image_shape,
    latent_dim=256,
    hidden_dim=384,
    num_layers=(5, 2, 2),
    num_heads=4,
    mlp_ratio=4,
    dropout=0.0,
    num_classes=None,
    dtype=None,
    name="generator",
):
    """The generator: noise becomes a small grid of tokens, then a larger one of narrower tokens.

    The first stage's grid has sides of `side / 2^(stages - 1)`, the last one's is the image.

    Args:
        image_shape: `(height, width, channels)`; `2^(stages - 1)` must divide both sides.
        latent_dim: Size of the noise.
        hidden_dim: Width of the first stage; each stage after has a quarter of it.
        num_layers: Number of blocks of each stage; its length is the number of stages. `SIZES` has
            the paper's: `transgan_generator(shape, **SIZES["transgan_s"])`.
        num_heads: Of each block; it must divide every stage's width.
        mlp_ratio: Inner size of the feed-forward networks relative to the stage's width.
        dropout: Of each sub-layer's output.
        num_classes: Number of labels, or `None` for a generator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of `noise (batch, latent_dim)`, with labels of
        `[noise, labels (batch,) int32]`, to float32 images `(batch, height, width, channels)` in
        [-1, 1].

    Raises:
        ValueError: If the stages do not fit the image or the width, the heads do not fit a stage,
            or a size is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    generator = models.transgan_generator((32, 32, 3), hidden_dim=64, num_layers=(1, 1, 1))
    images = generator(keras.random.normal((2, 256)))  # (2, 32, 32, 3)
    ```
    """
    check_positive(latent_dim=latent_dim, hidden_dim=hidden_dim, num_heads=num_heads)
    height, width, channels = _checked_shape(image_shape)
    num_layers, last = tuple(num_layers), len(num_layers) - 1
    if not num_layers or any(int(n) != n or n < 1 for n in num_layers):
        raise ValueError(
            "`num_layers` must be positive integers, one for each stage. "
            f"Received: num_layers={num_layers}"
        )
    if height % 2**last or width % 2**last:
        raise ValueError(
            f"With {len(num_layers)} stages both sides of the image must be divisible by "
            f"{2**last}. Received: image_shape={tuple(image_shape)}, num_layers={num_layers}"
        )
    if hidden_dim % (4**last * num_heads):
        raise ValueError(
            f"With {len(num_layers)} stages `hidden_dim` must be divisible by {4**last} times "
            f"`num_heads`. Received: hidden_dim={hidden_dim}, num_heads={num_heads}"
        )
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

    inputs, x = noise_with_labels(latent_dim, num_classes, policy)

    rows, columns = height // 2**last, width // 2**last
    x = keras.layers.Dense(rows * columns * hidden_dim, dtype=policy, name="project")(x)
    x = keras.layers.Reshape((rows * columns, hidden_dim), dtype=policy, name="tokens_0")(x)
    for stage, depth in enumerate(num_layers):
        if stage > 0:
            grid = (rows, columns, hidden_dim)
            x = keras.layers.Reshape(grid, dtype=policy, name=f"grid_{stage}")(x)
            x = layers.PixelShuffle(
                2, "channels_last", dtype=policy, name=f"pixel_shuffle_{stage}"
            )(x)
            rows, columns, hidden_dim = 2 * rows, 2 * columns, hidden_dim // 4
            tokens = (rows * columns, hidden_dim)
            x = keras.layers.Reshape(tokens, dtype=policy, name=f"tokens_{stage}")(x)
        x = layers.PositionEmbedding(rows * columns, dtype=policy, name=f"position_{stage}")(x)
        name_ = f"stage_{stage}_block"
        x = _blocks(x, depth, num_heads, mlp_ratio, dropout, policy, name_)
    x = keras.layers.Dense(channels, dtype=policy, name="pixels")(x)  # (batch, pixels, channels)
    x = keras.layers.Reshape((height, width, channels), dtype=policy, name="reshape")(x)
    images = keras.layers.Activation("tanh", dtype="float32", name="images")(x)
    return keras.Model(inputs, images, name=name)


@takes_numpy_numbers
def transgan_discriminator(
    image_shape,
    patch_size=4,
    hidden_dim=384,
    num_layers=7,
    num_heads=4,
    mlp_ratio=4,
    dropout=0.0,
    num_classes=None,
    dtype=None,
    name="discriminator",
):
    """The discriminator: patches and a class token through blocks; the token gives the logit.

    Args:
        image_shape: `(height, width, channels)`.
        patch_size: Side of a patch; it must divide both sides of the image.
        hidden_dim: Width of the tokens.
        num_layers: Number of blocks.
        num_heads: Of each block; it must divide `hidden_dim`.
        mlp_ratio: Inner size of the feed-forward networks relative to `hidden_dim`.
        dropout: Of each sub-layer's output.
        num_classes: Number of labels, or `None` for a discriminator without labels.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Returns:
        A `keras.Model` of `images (batch, height, width, channels)`, with labels of
        `[images, labels (batch,) int32]`, to float32 logits `(batch, 1)`; positive means real.

    Raises:
        ValueError: If the patches do not fit the image, the heads do not fit the width, or a size
            is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import models

    discriminator = models.transgan_discriminator((32, 32, 3), hidden_dim=64, num_layers=2)
    logits = discriminator(keras.ops.ones((2, 32, 32, 3)))  # (2, 1)
    ```
    """
    check_positive(
        patch_size=patch_size, hidden_dim=hidden_dim, num_layers=num_layers, num_heads=num_heads
    )
    height, width, _ = _checked_shape(image_shape)
    policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

    images = x = keras.Input(tuple(image_shape), name="images")
    x = layers.PatchEmbedding(
        patch_size, hidden_dim, data_format="channels_last", dtype=policy, name="patches"
    )(x)
    x = layers.ClassToken(dtype=policy, name="class_token")(x)
    length = 1 + (height // patch_size) * (width // patch_size)
    x = layers.PositionEmbedding(length, dtype=policy, name="position")(x)
    x = _blocks(x, num_layers, num_heads, mlp_ratio, dropout, policy, "block")
    x = keras.layers.LayerNormalization(epsilon=1e-5, dtype=policy, name="norm")(x[:, 0])
    return logit_model(images, x, num_classes, policy, "glorot_uniform", name)


def _blocks(x, num_layers, num_heads, mlp_ratio, dropout, policy, name):
    """Pre-norm encoder blocks over `(batch, length, hidden)`."""
    for i in range(num_layers):
        x = layers.TransformerEncoderBlock(
            num_heads,
            int(mlp_ratio * x.shape[-1]),
            dropout=dropout,
            activation="gelu",
            normalize_first=True,
            dtype=policy,
            name=f"{name}_{i}",
        )(x)
    return x


def _checked_shape(image_shape):
    if len(image_shape) != 3 or any(int(n) != n or n < 1 for n in image_shape):
        raise ValueError(
            "`image_shape` must be (height, width, channels), positive integers. "
            f"Received: image_shape={tuple(image_shape)}"
        )
    return image_shape
