"""The DCGAN's networks: sizes, the paper's guidelines, counts by hand, and the contracts."""

import keras
import numpy as np
import pytest

from kerasmodels.models import GAN, dcgan_discriminator, dcgan_generator
from tests.kit import assert_close, model_contracts, normal, to_numpy

LABELS = np.array([0, 2, 1], "int32")

# A ReLU has a corner, so no finite differences; the smallest sizes that have every part.
test_contracts_generator = model_contracts(
    lambda **kw: dcgan_generator((28, 28, 1), latent_dim=5, filters=2, **kw),
    options={"numeric": False, "free": (0,), "output_dtype": "float32"},
    noise=normal(3, 5),
)
test_contracts_discriminator = model_contracts(
    lambda **kw: dcgan_discriminator((28, 30, 2), filters=2, num_classes=3, **kw),
    options={"numeric": False, "free": (0,), "output_dtype": "float32"},
    images=normal(3, 28, 30, 2),
    labels=LABELS,
)
test_contracts_conditional = model_contracts(
    lambda **kw: dcgan_generator((28, 28, 1), latent_dim=5, filters=2, num_classes=3, **kw),
    without=("half", "jit", "keras_file", "weights_file"),
    options={"numeric": False, "free": (0,), "output_dtype": "float32"},
    noise=normal(3, 5),
    labels=LABELS,
)

# Image, where the generator starts, and number of convolutions.
SIZES = [
    ((28, 28, 1), (7, 7), 2),
    ((32, 32, 3), (4, 4), 3),
    ((48, 48, 3), (6, 6), 3),
    ((64, 64, 3), (4, 4), 4),
    ((64, 48, 1), (8, 6), 3),
    ((28, 64, 2), (7, 16), 2),
    ((29, 50, 1), (4, 7), 3),
]


@pytest.mark.parametrize("image_shape,start,stages", SIZES)
def test_sizes_and_counts(image_shape, start, stages):
    """Shapes, and the number of parameters by a formula."""
    f, latent, channels = 4, 6, image_shape[2]
    generator = dcgan_generator(image_shape, latent_dim=latent, filters=f)
    discriminator = dcgan_discriminator(image_shape, filters=f)
    images = to_numpy(generator(normal(2, latent)))
    assert images.shape == (2, *image_shape) and np.abs(images).max() <= 1
    assert discriminator(images).shape == (2, 1)
    widths = [f * 2 ** (stages - 1 - i) for i in range(stages)]  # of the hidden layers
    count = latent * start[0] * start[1] * widths[0]
    count += sum(25 * a * b for a, b in zip(widths, widths[1:], strict=False))
    count += sum(4 * width for width in widths)  # gamma, beta, mean, variance
    count += 25 * widths[-1] * channels + channels
    assert generator.count_params() == count
    widths.reverse()
    count = 25 * channels * f + f
    count += sum(25 * a * b + 4 * b for a, b in zip(widths, widths[1:], strict=False))
    count += start[0] * start[1] * widths[-1] + 1
    assert discriminator.count_params() == count


def test_the_papers_generator():
    """Figure 1: 100 -> 4x4x1024 -> 8x8x512 -> 16x16x256 -> 32x32x128 -> 64x64x3, kernels 5x5."""
    generator = dcgan_generator((64, 64, 3), filters=128)
    kernels = [tuple(w.shape) for w in generator.weights if "kernel" in w.path]
    assert kernels == [
        (100, 4 * 4 * 1024),
        (5, 5, 512, 1024),
        (5, 5, 256, 512),
        (5, 5, 128, 256),
        (5, 5, 3, 128),
    ]


def test_the_papers_guidelines():
    generator = dcgan_generator((32, 32, 3), filters=4)
    discriminator = dcgan_discriminator((32, 32, 3), filters=4)
    kinds = [[type(x).__name__ for x in m.layers] for m in (generator, discriminator)]
    assert not any("Pool" in kind for kind in kinds[0] + kinds[1])
    assert kinds[0][-2:] == ["Conv2DTranspose", "Activation"]  # no normalization at the output
    assert kinds[1][1:4] == ["Conv2D", "LeakyReLU", "Conv2D"]  # nor at the input
    assert "BatchNormalization" in kinds[0] and "BatchNormalization" in kinds[1]
    assert all(x.negative_slope == 0.2 for x in discriminator.layers if "leaky" in x.name)
    wide = dcgan_discriminator((32, 32, 3), filters=32)
    for model in (dcgan_generator((32, 32, 3), filters=32), wide):
        for weight in model.weights:
            if "kernel" in weight.path:
                value = to_numpy(weight.value)
                assert abs(value.std() - 0.02) < 0.002 and abs(value.mean()) < 0.002, weight.path


def test_layers_draw_different_weights():
    model = dcgan_discriminator((64, 64, 3), filters=4, num_classes=3)
    values = [to_numpy(w.value).ravel()[:12] for w in model.weights if "kernel" in w.path]
    assert len({tuple(v) for v in values}) == len(values) == 5


def test_the_policy_reaches_every_layer():
    """All but what makes float32 of the outputs."""
    for make in (dcgan_generator, dcgan_discriminator):
        model = make((28, 29, 1), filters=2, num_classes=3, dtype="mixed_bfloat16")
        layers = [x for x in model.layers if not isinstance(x, keras.layers.InputLayer)]
        *hidden, last = [x.dtype_policy.name for x in layers]
        assert set(hidden) == {"mixed_bfloat16"} and last == "float32"


def test_labels_matter():
    noise, images = normal(2, 5), normal(2, 28, 28, 1)
    generator = dcgan_generator((28, 28, 1), latent_dim=5, filters=2, num_classes=3)
    discriminator = dcgan_discriminator((28, 28, 1), filters=2, num_classes=3)
    for model, x in ((generator, noise), (discriminator, images)):
        one, other, again = (to_numpy(model([x, np.array(y)])) for y in ([0, 1], [0, 2], [0, 1]))
        assert_close(one[0], other[0])
        assert np.abs(one[1] - other[1]).max() > 1e-6
        assert_close(one, again)


def test_training_moves_every_weight():
    """Within a GAN, with labels: one step of each network."""
    generator = dcgan_generator((28, 28, 1), latent_dim=5, filters=2, num_classes=3)
    discriminator = dcgan_discriminator((28, 28, 1), filters=2, num_classes=3)
    weights = generator.weights + discriminator.weights
    before = [to_numpy(w.value) for w in weights]
    gan = GAN(generator, discriminator, latent_dim=5, num_classes=3, seed=0)
    adams = [keras.optimizers.Adam(2e-4, beta_1=0.5) for _ in range(2)]
    gan.compile(optimizer={"generator": adams[0], "discriminator": adams[1]})
    history = gan.fit(np.tanh(normal(3, 28, 28, 1)), LABELS, batch_size=3, verbose=0).history
    assert np.isfinite([history["d_loss"], history["g_loss"]]).all()
    for weight, value in zip(weights, before, strict=True):
        assert np.abs(to_numpy(weight.value) - value).max() > 1e-6, weight.path


def test_channels_first_by_default_changes_nothing():
    images = normal(1, 28, 28, 1)
    keras.config.set_image_data_format("channels_first")
    try:
        discriminator = dcgan_discriminator((28, 28, 1), filters=2)
        generator = dcgan_generator((30, 29, 1), filters=2)
    finally:
        keras.config.set_image_data_format("channels_last")
    assert generator(normal(1, 100)).shape == (1, 30, 29, 1)
    assert discriminator(images).shape == (1, 1)


@pytest.mark.parametrize(
    "image_shape", [(27, 28, 1), (28, 65, 1), (128, 128, 3), (28, 28), (28.5, 28, 1), (28, 28, 0)]
)
@pytest.mark.parametrize("make", [dcgan_generator, dcgan_discriminator])
def test_bad_image_shape(make, image_shape):
    with pytest.raises(ValueError, match="from 28 to 64") as error:
        make(image_shape)
    assert str(image_shape) in str(error.value)


@pytest.mark.parametrize("name", ["latent_dim", "filters", "kernel_size", "num_classes"])
def test_bad_sizes(name):
    for make in (dcgan_generator, dcgan_discriminator):
        if name != "latent_dim" or make is dcgan_generator:
            with pytest.raises(ValueError, match=f"{name}.*: {name}=0"):
                make((28, 28, 1), **{name: 0})
