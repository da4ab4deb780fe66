"""What the pictures show is read back from the figures: data, tokens, scales."""

import io
import sys

import keras
import numpy as np
import pytest
from keras import ops
from matplotlib.figure import Figure

from kerasmodels import layers, models, plots, training

LETTERS = ["c", "a", "t", "<end>"]
PHONEMES = ["K", "AE", "T"]


def weights(*shape):
    scores = np.exp(np.random.default_rng(0).normal(size=shape)).astype("float32")
    return scores / scores.sum(-1, keepdims=True)


def images(figure):
    """The arrays shown, one for each visible map."""
    return [
        np.asarray(a.images[0].get_array()) for a in figure.axes if a.images and a.get_visible()
    ]


def tokens(axis):
    """Tick labels of both axes: (queries, keys)."""
    return (
        [label.get_text() for label in axis.get_yticklabels()],
        [label.get_text() for label in axis.get_xticklabels()],
    )


def write(figure):
    """The figure draws without a warning, as a PNG of a sensible size."""
    assert isinstance(figure, Figure)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    png = file.getvalue()
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")
    assert 200 < width < 3000 and 200 < height < 3000, (width, height)
    assert figure._repr_png_()[:8] == png[:8]  # what a notebook asks for


@pytest.fixture(autouse=True)
def pyplot_stays_out():
    yield
    if "matplotlib.pyplot" in sys.modules:
        assert sys.modules["matplotlib.pyplot"].get_fignums() == []


@pytest.mark.filterwarnings("error::UserWarning")
def test_one_head():
    scores = weights(3, 4)
    figure = plots.attention_map(ops.convert_to_tensor(scores), PHONEMES, LETTERS, title="head $1")
    write(figure)
    (shown,) = images(figure)
    np.testing.assert_array_equal(shown, scores)
    assert tokens(figure.axes[0]) == (PHONEMES, LETTERS)
    assert figure.get_suptitle() == "head $1"
    assert figure.axes[-1].get_ylabel() == "attention weight"


@pytest.mark.filterwarnings("error::UserWarning")
@pytest.mark.parametrize("heads", [1, 2, 5, 7, 8])
def test_all_heads_of_a_layer(heads):
    scores = weights(heads, 3, 4)
    figure = plots.attention_map(scores, PHONEMES, LETTERS)
    write(figure)
    shown = images(figure)
    assert len(shown) == heads
    np.testing.assert_array_equal(shown, scores)
    # One colour scale: what is brighter in one head than in another is more.
    limits = {a.images[0].get_clim() for a in figure.axes if a.images and a.get_visible()}
    assert limits == {(0.0, float(scores.max()))}
    assert [a.get_title() for a in figure.axes[:heads]] == [f"head {i + 1}" for i in range(heads)]


@pytest.mark.parametrize("as_list", [True, False])
def test_layers_by_heads(as_list):
    scores = weights(2, 3, 4, 4)
    layers = [ops.convert_to_tensor(layer) for layer in scores] if as_list else scores
    figure = plots.attention_map(layers, LETTERS, LETTERS)
    write(figure)
    np.testing.assert_array_equal(images(figure), scores.reshape(6, 4, 4))
    titles = [a.get_title() for a in figure.axes[:6]]
    assert titles[0] == "layer 1, head 1" and titles[5] == "layer 2, head 3"


def test_attention_of_a_model():
    model = models.Transformer(13, 2, 2, hidden_dim=8, intermediate_dim=16)
    inputs = {
        "encoder_token_ids": np.array([[5, 6, 7, 2, 0, 0], [3, 2, 0, 0, 0, 0]]),
        "encoder_padding_mask": np.arange(6) < np.array([[4], [2]]),
        "decoder_token_ids": np.array([[1, 8, 9, 4], [1, 8, 0, 0]]),
        "decoder_padding_mask": None,
    }
    scores = model.attention_scores(inputs)["cross"]
    figure = plots.attention_map([layer[0] for layer in scores], ["<s>", *PHONEMES], LETTERS)
    write(figure)
    for shown, expected in zip(
        images(figure), [head for layer in scores for head in layer[0]], strict=True
    ):
        np.testing.assert_array_equal(shown, expected[:, :4])
        np.testing.assert_allclose(shown.sum(axis=-1), 1, rtol=1e-5)  # what is cut is padding


def test_some_heads_keep_their_numbers():
    scores = weights(2, 4, 3, 3)
    for given, expected, names in (
        (scores[0], scores[0][[3, 1]], ["head 4", "head 2"]),
        (list(scores), scores[:, [3, 1]].reshape(4, 3, 3), ["layer 1, head 4", "layer 1, head 2"]),
    ):
        figure = plots.attention_map(given, LETTERS[:3], LETTERS[:3], heads=[3, 1])
        np.testing.assert_array_equal(images(figure), expected)
        assert [axis.get_title() for axis in figure.axes[:2]] == names


def test_fewer_tokens_cut_the_padding():
    scores = weights(2, 6, 5)
    figure = plots.attention_map(scores, PHONEMES, np.array([7, 8]))
    np.testing.assert_array_equal(images(figure), scores[:, :3, :2])
    assert tokens(figure.axes[0]) == (PHONEMES, ["7", "8"])


@pytest.mark.filterwarnings("error::UserWarning")
def test_tokens_are_text():
    words = ["$x$", "$", "a\nb", "\u2581the", "x" * 60]
    figure = plots.attention_map(weights(5, 5), words, words)
    write(figure)
    shown, _ = tokens(figure.axes[0])
    assert shown[:4] == ["$x$", "$", "a\\nb", "\u2581the"]
    assert len(shown[4]) == 24 and shown[4].endswith("…")


def test_a_long_sequence_keeps_readable_ticks():
    figure = plots.attention_map(weights(200, 150))
    write(figure)
    queries, keys = tokens(figure.axes[0])
    assert queries[:3] == ["0", "2", "4"] and keys[:3] == ["0", "2", "4"]
    assert min(label.get_fontsize() for label in figure.axes[0].get_yticklabels()) >= 5


@pytest.mark.parametrize(
    "scores, arguments, message",
    [
        (weights(4), {}, r"scores.*\(4,\)"),
        (weights(1, 1, 1, 2, 2), {}, "scores"),
        (np.zeros((0, 3)), {}, "scores"),
        ([weights(2, 3, 3), weights(1, 3, 3)], {}, "one shape"),
        (weights(2, 2), {"query_tokens": ["a", "b", "c"]}, "query_tokens.*2 positions.*3"),
        (weights(2, 2), {"key_tokens": []}, "key_tokens.*0"),
        (np.ones((2, 3, 4)), {"heads": [2]}, r"`heads` must be integers in \[0, 2\)"),
        (np.ones((2, 3, 4)), {"heads": []}, "`heads`"),
        (np.ones((3, 4)), {"heads": [0]}, "`heads`"),
    ],
)
def test_bad_attention(scores, arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.attention_map(scores, **arguments)


def test_position_table():
    figure = plots.position_table(layers.PositionalEncoding(), length=5, hidden_dim=8)
    write(figure)
    (shown,) = images(figure)
    assert shown.shape == (5, 8)
    np.testing.assert_allclose(shown[3, 2], np.sin(3 / 10000**0.25), rtol=1e-5)
    np.testing.assert_allclose(shown[3, 3], np.cos(3 / 10000**0.25), rtol=1e-5)
    low, high = figure.axes[0].images[0].get_clim()
    assert low == -high
    (again,) = images(plots.position_table(shown))
    np.testing.assert_array_equal(again, shown)
    learned = layers.PositionEmbedding(6)
    (shown,) = images(plots.position_table(learned, length=4, hidden_dim=8))
    np.testing.assert_array_equal(shown, ops.convert_to_numpy(learned.embeddings)[:4])
    (again,) = images(plots.position_table(learned, length=4))  # built: its width is known
    np.testing.assert_array_equal(again, shown)
    for bad, message in (({"length": 0}, "length=0"), ({"hidden_dim": 0}, "hidden_dim=0")):
        with pytest.raises(ValueError, match=message):
            plots.position_table(layers.PositionalEncoding(), **bad)
    with pytest.raises(ValueError, match="positions"):
        plots.position_table(np.zeros((1, 2, 3)))


def test_schedule():
    def noam(step):
        return 512**-0.5 * min(step**-0.5, step * 4000**-1.5)

    decay = keras.optimizers.schedules.CosineDecay(1e-3, 1000)
    figure = plots.schedule({"Noam": noam, "cosine": decay, "constant": 5e-4}, num_steps=10000)
    write(figure)
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    steps = lines["Noam"].get_xdata()
    assert steps[0] == 1 and steps[-1] == 10000
    np.testing.assert_allclose(lines["Noam"].get_ydata(), [noam(s) for s in steps])
    expected = 0.5e-3 * (1 + np.cos(np.pi * np.minimum(steps, 1000) / 1000))
    np.testing.assert_allclose(lines["cosine"].get_ydata(), expected, rtol=1e-4, atol=1e-8)
    np.testing.assert_allclose(lines["constant"].get_ydata(), 5e-4)
    (line,) = plots.schedule(training.WarmupInverseSqrt(512), num_steps=10000).axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), [noam(s) for s in steps], rtol=1e-5)
    write(plots.schedule(noam, num_steps=3))
    for schedules, num_steps, message in (
        (noam, 1, "num_steps=1"),
        ({}, 10, "at least one"),
        ("noam", 10, "'noam'"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.schedule(schedules, num_steps)


@pytest.mark.filterwarnings("error::UserWarning")
def test_learning_curves():
    log = {
        "loss": [3.0, 2.0, 1.0, 0.5],
        "val_loss": [2.5, 1.5, 1.25, 1.0],
        "val_per": [0.5, 0.25],  # every second epoch
    }
    figure = plots.learning_curves(log, title="training")
    write(figure)
    loss, per = [axis for axis in figure.axes if axis.get_visible()]
    curves = {line.get_label(): line for line in loss.lines}
    assert loss.get_title() == "loss" and set(curves) == {"training", "validation"}
    np.testing.assert_array_equal(
        curves["training"].get_xydata(), [[1, 3], [2, 2], [3, 1], [4, 0.5]]
    )
    np.testing.assert_array_equal(curves["validation"].get_ydata(), log["val_loss"])
    (only,) = per.lines
    assert only.get_label() == "validation"
    np.testing.assert_array_equal(only.get_xydata(), [[2, 0.5], [4, 0.25]])
    (alone,) = plots.learning_curves(log, metrics=["per"]).axes
    assert alone.get_title() == "per"
    for history, metrics, message in (
        ({}, None, "no epoch"),
        (log, ["bleu"], "bleu"),
        (log, [], "loss"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.learning_curves(history, metrics)


def test_learning_curves_of_fit():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae"])
    x = np.ones((4, 2), "float32")
    history = model.fit(
        x, x[:, :1], epochs=4, initial_epoch=2, validation_data=(x, x[:, :1]), verbose=0
    )
    figure = plots.learning_curves(history)
    shown = {axis.get_title(): axis for axis in figure.axes}
    assert set(shown) == {"loss", "mae"}
    for name, axis in shown.items():
        training, validation = axis.lines
        np.testing.assert_array_equal(training.get_xdata(), [3, 4])
        np.testing.assert_allclose(training.get_ydata(), history.history[name], rtol=1e-6)
        np.testing.assert_allclose(
            validation.get_ydata(), history.history[f"val_{name}"], rtol=1e-6
        )


@pytest.mark.filterwarnings("error::UserWarning")
def test_training_curves():
    history = keras.callbacks.History()
    history.epoch = [2, 3]
    history.history = {"accuracy": [0.5, 0.75], "val_accuracy": [0.25, 0.5]}
    other = {"accuracy": [0, 0.25, 0.5, 1], "val_accuracy": [0.25, 0.5], "loss": [4, 3, 2, 1]}
    runs = {"plain": history, "residual": other, "tested": {"val_accuracy": [0.5]}}
    figure = plots.training_curves(runs, "accuracy", error=True, steps_per_epoch=10, title="Depth")
    write(figure)
    (axis,) = figure.axes
    assert axis.get_title() == "Depth"
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("step", "error (%)")
    train, test, train2, test2, test3 = axis.lines[:5]
    np.testing.assert_array_equal(train.get_xydata(), [[30, 50], [40, 25]])
    np.testing.assert_array_equal(test.get_xydata(), [[30, 75], [40, 50]])
    np.testing.assert_array_equal(train2.get_xdata(), [10, 20, 30, 40])
    np.testing.assert_array_equal(test2.get_xydata(), [[20, 75], [40, 50]])  # every second epoch
    np.testing.assert_array_equal(test3.get_xydata(), [[10, 50]])
    colors = [line.get_color() for line in axis.lines[:5]]
    assert colors[0] == colors[1] != colors[2] == colors[3] != colors[4]
    assert train.get_linestyle() == "--" and test.get_linestyle() == "-"
    legend = [text.get_text() for text in axis.get_legend().get_texts()]
    assert legend == ["plain", "residual", "tested", "training", "test"]

    (axis,) = plots.training_curves({"one": other}).axes
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("epoch", "loss")
    np.testing.assert_array_equal(axis.lines[0].get_xydata(), [[1, 4], [2, 3], [3, 2], [4, 1]])
    for arguments, message in (
        (({},), "`runs`"),
        (({"a": other, "b": history}, "loss"), "'loss' for 'b' with .*accuracy"),
        (({"a": other}, "loss", True), "between 0 and 1.*'loss' with 1.0 to 4.0 in 'a'"),
        (({"a": other}, "loss", False, 0), "steps_per_epoch=0"),
    ):
        with pytest.raises(ValueError, match=message):
            plots.training_curves(*arguments)


class ToyGAN:
    """Uniform noise times 2 plus 4; D says sigmoid(x - 4)."""

    latent_dim = 1
    noise = "uniform"

    def generator(self, z, training=None):
        return 4.0 + 2.0 * z

    def discriminator(self, x, training=None):
        return x - 4.0

    def generate(self, count, seed=None):
        z = np.random.default_rng(seed).uniform(-1, 1, (count, 1))
        return (4.0 + 2.0 * z).astype("float32")


def test_gan_1d():
    data = np.random.default_rng(0).normal(4.0, 1.5, 20_000)
    figure = plots.gan_1d(ToyGAN(), data)
    write(figure)
    left, right = figure.axes
    real, fake = left.get_lines()[:2]
    x = real.get_xdata()
    normal = np.exp(-0.5 * ((x - 4) / 1.5) ** 2) / (1.5 * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(real.get_ydata(), normal, atol=0.012)
    inside, outside = np.abs(x - 4) < 1.5, np.abs(x - 4) > 2.7
    np.testing.assert_allclose(fake.get_ydata()[inside], 0.25, atol=0.03)
    np.testing.assert_allclose(fake.get_ydata()[outside], 0.0, atol=0.01)
    d = right.get_lines()[0]
    np.testing.assert_allclose(d.get_ydata(), 1 / (1 + np.exp(4 - d.get_xdata())), atol=1e-5)
    # Noise from -1 to 1 goes to 2..6.
    ends = [line.get_xdata()[1] for line in left.get_lines()[2:19]]
    np.testing.assert_allclose(ends, np.linspace(2, 6, 17), atol=1e-5)


def test_gan_1d_stages():
    state = plots.gan_1d_state(ToyGAN(), count=500)
    data = np.linspace(0, 8, 100)
    named = plots.gan_1d({"before": state, "after": ToyGAN()}, data, title="Training")
    assert [a.get_title() for a in named.axes if a.get_title()] == ["before", "after"]
    write(named)
    lettered = plots.gan_1d([state] * 5, data)
    assert [a.get_title() for a in lettered.axes if a.get_title()] == [f"({c})" for c in "abcde"]


def test_bad_gan_1d():
    class Images(ToyGAN):
        def generate(self, count, seed=None):
            return np.zeros((count, 2, 2))

    with pytest.raises(ValueError, match="one number a sample.*2, 2"):
        plots.gan_1d(Images(), np.ones(3))
    with pytest.raises(ValueError, match=r"`data` must be numbers.*\(3, 2\)"):
        plots.gan_1d(ToyGAN(), np.ones((3, 2)))
    with pytest.raises(ValueError, match="`states`"):
        plots.gan_1d([], np.ones(3))


def test_image_grid():
    pixels = np.random.default_rng(0).uniform(-1, 1, (6, 4, 4, 1)).astype("float32")
    figure = plots.image_grid(ops.convert_to_tensor(pixels), columns=3, title="Samples")
    write(figure)
    (shown,) = images(figure)
    assert shown.shape == (9, 14)
    np.testing.assert_allclose(shown[:4, :4], (pixels[0, :, :, 0] + 1) * 127.5, atol=0.51)
