"""TransGAN's networks: stages, counts by hand, a forward pass in numpy, and the contracts."""

import keras
import numpy as np
import pytest

from kerasmodels.models import GAN, transgan_discriminator, transgan_generator
from kerasmodels.models.transgan import SIZES
from tests.kit import assert_close, model_contracts, normal, randomize, to_numpy

LABELS = np.array([0, 2, 1], "int32")
TINY = dict(hidden_dim=16, num_layers=(1, 1), num_heads=2, mlp_ratio=2)

test_contracts_generator = model_contracts(
    lambda **kw: transgan_generator((6, 4, 1), latent_dim=5, num_classes=3, **TINY, **kw),
    # Random weights make the numbers before tanh, whose last digits bfloat16 lacks, large.
    options={
        "free": (0,),
        "output_dtype": "float32",
        "half_tolerance": {"mixed_bfloat16": 1e-1, "mixed_float16": 1e-2},
    },
    noise=normal(3, 5),
    labels=LABELS,
)
_D = dict(hidden_dim=8, num_layers=2, num_heads=2, mlp_ratio=2)
test_contracts_discriminator = model_contracts(
    lambda **kw: transgan_discriminator((6, 4, 1), patch_size=2, **_D, **kw),
    options={"free": (0,), "output_dtype": "float32"},
    images=normal(3, 6, 4, 1),
)
test_contracts_conditional = model_contracts(
    lambda **kw: transgan_discriminator((6, 4, 1), patch_size=2, num_classes=3, **_D, **kw),
    without=("half", "jit", "weights_file"),
    options={"free": (0,), "output_dtype": "float32"},
    images=normal(3, 6, 4, 1),
    labels=LABELS,
)


def _block(width, ratio):
    """Attention with four projections, feed-forward, two LayerNorms."""
    inner = ratio * width
    return 4 * (width**2 + width) + 2 * width * inner + inner + width + 4 * width


@pytest.mark.parametrize("shape", [(28, 28, 1), (16, 8, 2)])
def test_stages_and_counts(shape):
    latent, hidden, depths, ratio = 6, 64, (2, 1, 1), 3
    model = transgan_generator(shape, latent, hidden, depths, mlp_ratio=ratio)
    assert model.output_shape == (None, *shape)
    height, width, channels = shape
    pixels = height * width // 16
    count = (latent + 1) * pixels * hidden
    for depth in depths:
        assert model.get_layer(f"position_{depths.index(depth)}") is not None
        count += pixels * hidden + depth * _block(hidden, ratio)
        pixels, last, hidden = pixels * 4, hidden, hidden // 4
    count += (last + 1) * channels
    assert model.count_params() == count
    grids = [tuple(model.get_layer(f"pixel_shuffle_{i}").output.shape[1:]) for i in (1, 2)]
    assert grids == [(height // 2, width // 2, 16), (height, width, 4)]


@pytest.mark.parametrize("shape,patch", [((8, 8, 3), 4), ((28, 28, 1), 7), ((16, 8, 2), 4)])
def test_discriminator_counts(shape, patch):
    model = transgan_discriminator(shape, patch, hidden_dim=8, num_layers=2, num_heads=2)
    assert model(normal(2, *shape)).shape == (2, 1)
    patches = shape[0] * shape[1] // patch**2
    count = (patch**2 * shape[2] + 1) * 8 + 8 + (patches + 1) * 8 + 2 * _block(8, 4)
    assert model.count_params() == count + 2 * 8 + 8 + 1


def test_pixels_come_from_their_own_token():
    """With blocks that do nothing, a token of the first stage fills 2x2 pixels by equation 4."""
    model = transgan_generator((4, 6, 1), 5, **TINY)
    noise = normal(2, 5)
    model(noise)
    randomize(model)
    for i in (0, 1):
        block = model.get_layer(f"stage_{i}_block_0")
        for dense in (block.self_attention.output_dense, block.feed_forward.output_dense):
            dense.kernel.assign(np.zeros(dense.kernel.shape))
            dense.bias.assign(np.zeros(dense.bias.shape))
    weights = {w.path: to_numpy(w.value) for w in model.weights}
    x = noise @ weights["project/kernel"] + weights["project/bias"]
    x = x.reshape(2, 6, 16) + weights["position_0/embeddings"]
    x = x.reshape(2, 2, 3, 4, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(2, 24, 4)
    x = x + weights["position_1/embeddings"]
    x = np.tanh(x @ weights["pixels/kernel"] + weights["pixels/bias"]).reshape(2, 4, 6, 1)
    assert_close(model(noise), x, rtol=1e-4, atol=1e-5)


def test_only_the_class_token_is_read():
    """With blocks that do nothing, the logit does not depend on the image."""
    model = transgan_discriminator((4, 4, 1), 2, **_D)
    images = normal(2, 4, 4, 1)
    model(images)
    randomize(model)
    for i in (0, 1):
        block = model.get_layer(f"block_{i}")
        for dense in (block.self_attention.output_dense, block.feed_forward.output_dense):
            dense.kernel.assign(np.zeros(dense.kernel.shape))
            dense.bias.assign(np.zeros(dense.bias.shape))
    weights = {w.path: to_numpy(w.value) for w in model.weights}
    x = weights["class_token/token"] + weights["position/embeddings"][0]
    x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weights["norm/gamma"] + weights["norm/beta"]
    logit = x @ weights["logit/kernel"] + weights["logit/bias"]
    assert_close(model(images), np.stack([logit, logit]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(SIZES))
def test_the_papers_sizes_fit_cifar(name):
    """32x32, the heads and every stage's width; the small ones are built."""
    size = SIZES[name]
    assert size["hidden_dim"] % (16 * 4) == 0 and len(size["num_layers"]) == 3
    if size["hidden_dim"] == 64:
        assert transgan_generator((32, 32, 3), **size).output_shape == (None, 32, 32, 3)


def test_the_policy_reaches_every_layer():
    """All but what makes float32 of the outputs."""
    for model in (
        transgan_generator((6, 4, 1), 5, num_classes=3, **TINY, dtype="mixed_bfloat16"),
        transgan_discriminator((6, 4, 1), 2, num_classes=3, **_D, dtype="mixed_bfloat16"),
    ):
        layers = [x for x in model.layers if not isinstance(x, keras.layers.InputLayer)]
        *hidden, last = [x.dtype_policy.name for x in layers if type(x).__name__ != "GetItem"]
        assert set(hidden) == {"mixed_bfloat16"} and last == "float32"


def test_labels_matter():
    generator = transgan_generator((6, 4, 1), latent_dim=5, num_classes=3, **TINY)
    discriminator = transgan_discriminator((6, 4, 1), 2, num_classes=3, **_D)
    for model, x in ((generator, normal(2, 5)), (discriminator, normal(2, 6, 4, 1))):
        one, other = (to_numpy(model([x, np.array(y)])) for y in ([0, 1], [0, 2]))
        assert_close(one[0], other[0])
        assert np.abs(one[1] - other[1]).max() > 1e-6


def test_training_moves_every_weight():
    """Within a GAN with the authors' loss: one step of each network."""
    generator = transgan_generator((6, 4, 1), latent_dim=5, **TINY)
    discriminator = transgan_discriminator((6, 4, 1), 2, **_D)
    # A key's bias has no gradient, nor has what adds the same to all logits of this loss.
    still = ("key/bias", "norm/beta", "logit/bias")
    weights = generator.trainable_weights + discriminator.trainable_weights
    weights = [w for w in weights if not w.path.endswith(still[0]) and w.path not in still[1:]]
    before = [to_numpy(w.value) for w in weights]
    gan = GAN(generator, discriminator, latent_dim=5, generator_loss="wasserstein", seed=0)
    adams = [keras.optimizers.Adam(1e-4, beta_1=0.0, beta_2=0.99) for _ in range(2)]
    gan.compile(optimizer={"generator": adams[0], "discriminator": adams[1]})
    history = gan.fit(np.tanh(normal(3, 6, 4, 1)), batch_size=3, verbose=0).history
    assert np.isfinite([history["d_loss"], history["g_loss"]]).all()
    for weight, value in zip(weights, before, strict=True):
        assert np.abs(to_numpy(weight.value) - value).max() > 1e-6, weight.path
    samples = gan.generate(4, seed=1)
    assert samples.shape == (4, 6, 4, 1) and np.abs(samples).max() < 1


@pytest.mark.parametrize(
    "kwargs,message",
    [
        ({"image_shape": (6, 5, 1)}, r"divisible by 2.*image_shape=\(6, 5, 1\)"),
        ({"image_shape": (6, 4)}, r"image_shape=\(6, 4\)"),
        ({"hidden_dim": 12}, "hidden_dim=12, num_heads=2"),
        ({"num_layers": ()}, r"num_layers=\(\)"),
        ({"num_layers": (1, 0)}, r"num_layers=\(1, 0\)"),
        ({"latent_dim": 0}, "latent_dim=0"),
        ({"num_classes": 0}, "num_classes=0"),
        ({"dropout": 1.5}, "dropout=1.5"),
    ],
)
def test_bad_generator(kwargs, message):
    with pytest.raises(ValueError, match=message):
        transgan_generator(**{"image_shape": (6, 4, 1), "latent_dim": 5, **TINY, **kwargs})


@pytest.mark.parametrize(
    "kwargs,message",
    [
        ({"image_shape": (6, 5, 1)}, "height=6, width=5, patch_size=2"),
        ({"image_shape": (6, 0, 1)}, r"image_shape=\(6, 0, 1\)"),
        ({"patch_size": 0}, "patch_size=0"),
        ({"num_heads": 3}, "num_heads=3"),
        ({"num_layers": 0}, "num_layers=0"),
        ({"num_classes": 1.5}, "num_classes=1.5"),
    ],
)
def test_bad_discriminator(kwargs, message):
    with pytest.raises(ValueError, match=message):
        transgan_discriminator(**{"image_shape": (6, 4, 1), "patch_size": 2, **_D, **kwargs})
