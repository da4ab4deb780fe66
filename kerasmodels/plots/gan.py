"""The picture of Goodfellow et al. 2014, figure 1: what a generator and its judge have learned."""

import math

import keras
import numpy as np

from kerasmodels.plots.figures import new_figure, to_numpy


def gan_1d_state(gan, count=10_000, grid=None, seed=0):
    """What `gan_1d` draws, taken from a GAN as it is now, so that later training changes nothing.

    Args:
        gan: A model with `generator` (noise to `(batch, 1)`), `discriminator` (to logits),
            `latent_dim` and `generate(count, seed=)`, such as `models.GAN`.
        count: Number of samples whose density is drawn.
        grid: `(from, to)` of the axis; by default that of the data and the samples.
        seed: Of the samples.

    Returns:
        A dict of numpy arrays: `samples` `(count,)`; `at`, `d`: the places where D was asked, and
        its answer sigmoid(logit); `noise`, `images`: evenly spread noise and what G makes of it
        (empty if `latent_dim` is not 1).

    Raises:
        ValueError: If the generator does not return one number a sample.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, plots

    gan = models.GAN(
        models.mlp_generator((1,), latent_dim=1, hidden_units=(16, 16), output_activation="linear"),
        models.maxout_discriminator((1,), units=(16,)),
        latent_dim=1,
        noise="uniform",
    )
    gan.compile(optimizer={"generator": "adam", "discriminator": "adam"})
    data = np.random.default_rng(0).normal(4.0, 1.5, (1000, 1))

    states = {"before": plots.gan_1d_state(gan)}
    gan.fit(data, epochs=10)
    states["after"] = plots.gan_1d_state(gan)
    figure = plots.gan_1d(states, data)
    ```
    """
    samples = to_numpy(gan.generate(count, seed=seed))
    if samples.size != count:
        raise ValueError(
            "`gan` must generate one number a sample, (batch, 1). "
            f"Received: samples of shape {samples.shape}"
        )
    samples = samples.reshape(-1)
    low, high = grid if grid is not None else (samples.min() - 4.0, samples.max() + 4.0)
    at = np.linspace(low, high, 400, dtype="float32")
    logits = gan.discriminator(keras.ops.convert_to_tensor(at[:, None]), training=False)
    noise = images = np.zeros(0, "float32")
    if gan.latent_dim == 1:
        ends = (-1.0, 1.0) if getattr(gan, "noise", "normal") == "uniform" else (-2.0, 2.0)
        noise = np.linspace(*ends, 17, dtype="float32")
        images = gan.generator(keras.ops.convert_to_tensor(noise[:, None]), training=False)
    return {
        "samples": samples,
        "at": at,
        "d": to_numpy(keras.ops.sigmoid(logits)).reshape(-1),
        "noise": noise,
        "images": to_numpy(images).reshape(-1),
    }


def gan_1d(states, data, title=None):
    """Draws figure 1 of the paper: the data's density, the generator's, and D.

    Dotted black: the density of the data. Green: that of the generator's samples. Dashed blue: D,
    the probability that a value is from the data, on the axis at the right; 1/2 is marked. Below,
    the lines that the generator maps evenly spread noise along, if the noise has one dimension.
    At the end both densities are one, and D is 1/2 wherever data lies.

    Args:
        states: A GAN over `(batch, 1)`, or what `gan_1d_state` returned, or, for stages of a
            training side by side, a dict of such from titles or a list of them.
        data: Numbers, `(count,)` or `(count, 1)`.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is no state, no data, or the data are not numbers.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, plots

    gan = models.GAN(
        models.mlp_generator((1,), latent_dim=1, hidden_units=(16, 16), output_activation="linear"),
        models.maxout_discriminator((1,), units=(16,)),
        latent_dim=1,
        noise="uniform",
    )
    gan.compile(optimizer={"generator": "adam", "discriminator": "adam"})
    data = np.random.default_rng(0).normal(4.0, 1.5, (1000, 1))

    states = {"before": plots.gan_1d_state(gan)}
    gan.fit(data, epochs=10)
    figure = plots.gan_1d({**states, "after": gan}, data)
    ```
    """
    data = to_numpy(data)
    if not data.size or data.size != data.shape[0]:
        raise ValueError(
            "`data` must be numbers, (count,) or (count, 1), at least one. "
            f"Received: shape {data.shape}"
        )
    data = data.reshape(-1)
    if isinstance(states, (list, tuple)):
        states = {f"({chr(97 + i)})": state for i, state in enumerate(states)}
    elif not isinstance(states, dict) or "samples" in states:
        states = {"": states}
    if not states:
        raise ValueError("`states` must hold at least one. Received: none")
    spread = float(data.std()) or 1.0
    low, high = data.min() - 2 * spread, data.max() + 2 * spread
    states = {
        name: state if isinstance(state, dict) else gan_1d_state(state, grid=(low, high))
        for name, state in states.items()
    }
    columns = min(len(states), 4)
    rows = math.ceil(len(states) / columns)
    figure = new_figure((0.6 + 3.6 * columns, 0.4 + 3.4 * rows))
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    places = np.linspace(low, high, 400)
    real = _density(data, places)
    for axis, (name, state) in zip(axes.flat, states.items(), strict=False):
        fake = _density(state["samples"], places)
        axis.plot(places, real, "k:", linewidth=2, label="data")
        axis.plot(places, fake, color="tab:green", linewidth=2, label="generator")
        axis.set_title(name, fontsize=10)
        right = axis.twinx()
        right.plot(state["at"], state["d"], "--", color="tab:blue", label="D")
        right.axhline(0.5, color="tab:blue", linewidth=0.6, alpha=0.5)
        # Both axes leave the same share below 0, where the noise has its place.
        right.set_ylim(-0.5, 1.05)
        right.set_yticks([0, 0.5, 1])
        top = 2.0 * real.max()  # a generator that puts all on one value is cut off
        axis.set_ylim(-top * 0.5 / 1.05, top)
        axis.set_yticks([])
        axis.set_xlim(low, high)
        if len(state["noise"]):
            z = state["noise"]
            # The noise's own axis lies at the bottom, stretched over the width of the picture.
            share = (z - z[0]) / (z[-1] - z[0])
            start = low + (high - low) * (0.1 + 0.8 * share)
            for x0, x1 in zip(start, state["images"], strict=True):
                axis.plot([x0, x1], [-top * 0.42, -top * 0.05], color="0.5", linewidth=0.7)
            axis.axhline(-top * 0.42, color="0.3", linewidth=0.8)
            axis.text(low, -top * 0.41, " z", fontsize=9, va="bottom")
        axis.axhline(0.0 if not len(state["noise"]) else -top * 0.05, color="0.3", linewidth=0.8)
        axis.text(low, 0.0, " x", fontsize=9, va="bottom")
    lines = axes[0, 0].get_lines()[:2] + right.get_lines()[:1]
    figure.legend(
        lines, ["data", "generator", "D"], loc="outside lower center", ncols=3, frameon=False
    )
    for axis in axes.flat[len(states) :]:
        axis.set_visible(False)
    if title:
        figure.suptitle(title)
    return figure


def _density(samples, places):
    """A Gaussian kernel estimate with Silverman's bandwidth, on at most 10,000 samples."""
    samples = samples[:: max(1, len(samples) // 10_000)]
    low, high = np.quantile(samples, [0.25, 0.75])
    width = 0.9 * min(samples.std(), (high - low) / 1.349 or np.inf) * len(samples) ** -0.2
    width = max(float(width), (places[1] - places[0]))  # all samples may be one value
    distance = (places[:, None] - samples[None]) / width  # (places, samples)
    return np.exp(-0.5 * distance**2).mean(axis=1) / (width * math.sqrt(2 * math.pi))
