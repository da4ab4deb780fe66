"""The paper's figure 1: a generator learns the normal distribution N(4, 1.5) from uniform noise.

    python examples/gan_gaussian.py
    python examples/gan_gaussian.py --frozen   # the generator stands still: what failure looks like

At the end, measured with 10,000 samples, the worst of all seeds (2 busy cores of an AMD EPYC):

| run | seeds | seconds | mean | std | KS | D on data / samples | D within 2 std | value |
|---|---|---|---|---|---|---|---|---|
| TensorFlow | 10 | 5 | 4.00 to 4.06 | 1.45 to 1.51 | .032 | .501 / .498 | .46 to .52 | -1.382 |
| JAX | 10 | 4 to 11 | 3.97 to 4.03 | 1.49 to 1.52 | .031 | .501 / .498 | .46 to .52 | -1.381 |
| PyTorch | 1 | 19 | 3.99 | 1.48 | .018 | .501 / .499 | .49 to .51 | -1.383 |
| generator frozen | 1 | 3 | 0.06 | 0.04 | .995 | .96 / .02 | .19 to 1.00 | -0.11 |

KS is the Kolmogorov-Smirnov distance from N(4, 1.5), of which chance alone makes .014. In the
equilibrium D is 1/2 everywhere and the value -log 4 = -1.386.
"""

import argparse
import math
import time

import keras
import numpy as np

from kerasmodels import models

MEAN, STD = 4.0, 1.5
BATCH, STEPS_PER_EPOCH, EPOCHS = 1024, 100, 10
DISCRIMINATOR_STEPS = 2


def draw_data(rows=BATCH * STEPS_PER_EPOCH, seed=0):
    """Draws from the normal distribution, float32 `(rows, 1)`."""
    return np.random.default_rng(seed).normal(MEAN, STD, (rows, 1)).astype("float32")


def build(seed=0, frozen=False, epochs=EPOCHS):
    """A compiled GAN that settles, which takes more than algorithm 1 says.

    A plain GAN circles around the equilibrium. What makes it settle here:

    - the discriminator learns faster than the generator (Heusel et al. 2017): it then is near its
      optimum, where theorem 1 holds; and nothing has momentum (Gidel et al. 2019);
    - noise on the discriminator's inputs (Arjovsky and Bottou 2017): both densities are blurred,
      and no D can be sure where samples are few;
    - rates that fall to 0, and averages over the last steps in place of the weights.

    Args:
        seed: Of the weights and the noise.
        frozen: Whether the generator stands still.
        epochs: After how many the rates are 0.

    Returns:
        A `models.GAN`, to be trained with `train`.
    """
    keras.utils.set_random_seed(seed)
    generator = models.mlp_generator(
        (1,), latent_dim=1, hidden_units=(128, 128), output_activation="linear"
    )
    discriminator = keras.Sequential(
        [
            keras.Input((1,)),
            keras.layers.GaussianNoise(0.6, seed=seed),
            models.maxout_discriminator((1,), (24, 24), 4, dropout=0.0, input_dropout=0.0),
        ]
    )
    generator.trainable = not frozen
    gan = models.GAN(
        generator, discriminator, 1, DISCRIMINATOR_STEPS, noise="uniform", seed=seed, name="gan"
    )

    def optimizer(rate, steps):
        rate = keras.optimizers.schedules.CosineDecay(rate, steps)
        return keras.optimizers.Adam(rate, beta_1=0.0, beta_2=0.99, use_ema=True, ema_momentum=0.99)

    steps = epochs * STEPS_PER_EPOCH
    gan.compile(
        optimizer={
            "generator": optimizer(2e-3, steps),
            "discriminator": optimizer(1e-2, steps * DISCRIMINATOR_STEPS),
        },
        # PyTorch has no such loop.
        steps_per_execution=1 if keras.backend.backend() == "torch" else 50,
    )
    return gan


def train(gan, data, epochs=EPOCHS, **kwargs):
    """Trains for `epochs`; further arguments are `fit`'s."""
    return gan.fit(data, batch_size=BATCH, epochs=epochs, verbose=0, **kwargs)


def measure(gan, seed=1, rows=10_000):
    """How far samples and discriminator are from the equilibrium, a dict of numbers.

    Args:
        gan: A trained GAN.
        seed: Of the samples and of the fresh data.
        rows: How many of each.

    Returns:
        `mean` and `std` of the samples; `ks`, their Kolmogorov-Smirnov distance from N(4, 1.5);
        `d_real`, `d_fake`: the mean of D on fresh data and on samples; `d_low`, `d_high`: the
        least and greatest D within two standard deviations of the mean; `value`.
    """
    samples = gan.generate(rows, seed=seed, batch_size=rows)[:, 0]
    data = draw_data(rows, seed=seed + 1000)
    grid = np.linspace(MEAN - 2 * STD, MEAN + 2 * STD, 101, dtype="float32")[:, None]

    def logits(x):
        return gan.discriminator.predict(x, batch_size=rows, verbose=0)[:, 0].astype("float64")

    real, fake, on_grid = logits(data), logits(samples[:, None]), _sigmoid(logits(grid))
    ordered = np.sort(samples.astype("float64"))
    theirs = 0.5 * (1 + np.vectorize(math.erf)((ordered - MEAN) / (STD * math.sqrt(2))))
    steps = np.arange(rows + 1) / rows
    return {
        "mean": float(samples.mean()),
        "std": float(samples.std()),
        "ks": float(max((theirs - steps[:-1]).max(), (steps[1:] - theirs).max())),
        "d_real": float(_sigmoid(real).mean()),
        "d_fake": float(_sigmoid(fake).mean()),
        "d_low": float(on_grid.min()),
        "d_high": float(on_grid.max()),
        "value": float(-np.logaddexp(0, -real).mean() - np.logaddexp(0, fake).mean()),
    }


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))  # exp(-x) would overflow


def main():
    """Trains, and prints what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many runs")
    parser.add_argument("--frozen", action="store_true", help="the generator stands still")
    args = parser.parse_args()
    for seed in range(args.seeds):
        start = time.time()
        gan = build(seed, args.frozen)
        train(gan, draw_data(seed=seed))
        result = measure(gan)
        numbers = "  ".join(f"{name} {number:.3f}" for name, number in result.items())
        print(f"seed {seed}: {numbers}  ({time.time() - start:.0f} s)")


if __name__ == "__main__":
    main()
