"""The state within an epoch, threads, and weights that Keras would drop."""

import concurrent.futures
import threading

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import decoding, models, plots, training
from kerasmodels.data import BertTokenizer
from tests.kit import assert_close, assert_equal, backend

RNG = np.random.default_rng(0)
SIZES = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=8)
CROSSENTROPY = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
WORDS = ["red", "cat", "sat"]
TOKENIZER = BertTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
IMAGES = RNG.uniform(-1, 1, (8, 8, 8, 3)).astype("float32")
POINTS = RNG.normal(size=(8, 2)).astype("float32")


def text(rows=8):
    ids = RNG.integers(5, 8, (rows, 4)).astype("int32")
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0}


def bert():
    return models.Bert(8, **SIZES, max_sequence_length=8)


def sentence_encoder():
    model = models.BertSentenceEncoder(bert())
    model.tokenizer = TOKENIZER
    model.compile(keras.optimizers.SGD(0.5), "mse")
    return model, (text(), RNG.normal(size=(8, 4)))


def pretraining():
    model = models.BertPretraining(bert(), next_sentence=False)
    model.tokenizer = TOKENIZER
    model.compile(keras.optimizers.SGD(0.5), {"mlm": CROSSENTROPY})
    places = np.ones((8, 1), "int32")
    return model, ({**text(), "mask_positions": places}, {"mlm": 0 * places + 6})


def transformer():
    model = models.Transformer(8, **SIZES, dropout=0.0)
    model.compile(keras.optimizers.SGD(0.5), CROSSENTROPY)
    ids = text()["token_ids"]
    inputs = {f"{side}_token_ids": ids for side in ("encoder", "decoder")}
    inputs |= {f"{side}_padding_mask": ids > 0 for side in ("encoder", "decoder")}
    return model, (inputs, ids)


def resnet():
    model = models.ResNet(8, stem="cifar", num_classes=2)
    model.compile(keras.optimizers.SGD(0.1), CROSSENTROPY)
    return model, (IMAGES, np.arange(8) % 2)


def gan():
    networks = models.mlp_generator((2,), 2, (4,)), models.maxout_discriminator((2,), (4,), 2)
    model = models.GAN(*networks, latent_dim=2)
    names = ("generator", "discriminator")
    model.compile({name: keras.optimizers.SGD(0.5) for name in names})
    return model, (POINTS,)


def accumulation():
    inner, data = transformer()
    model = training.GradientAccumulation(inner, 2)
    model.compile(keras.optimizers.SGD(0.5), training.SmoothedCrossEntropy(0.0))
    return model, data


def first(data, rows=2):
    return keras.tree.map_structure(lambda x: x[:rows], data[0])


def cached(data):
    return {k: v for k, v in first(data).items() if k.startswith("encoder")}


# What somebody may want to see of a model while it learns.
LOOKS = {
    "call": (sentence_encoder, lambda m, d: m(first(d), training=False)),
    "predict": (sentence_encoder, lambda m, d: m.predict(first(d), verbose=0)),
    "predict_on_batch": (resnet, lambda m, d: m.predict_on_batch(first(d))),
    "embed": (sentence_encoder, lambda m, d: m.embed(["red cat", "sat"])),
    "inner": (sentence_encoder, lambda m, d: m.backbone(first(d))["sequence_output"]),
    "hidden_states": (sentence_encoder, lambda m, d: m.backbone.hidden_states(first(d))[-1]),
    "features": (sentence_encoder, lambda m, d: m.backbone.features([-1])(first(d))),
    "scores": (sentence_encoder, lambda m, d: m.backbone.attention_scores(first(d))[-1]),
    "fill_mask": (
        pretraining,
        lambda m, d: np.array([p for _, p in m.fill_mask(["red [MASK]"], top_k=3)[0][0]]),
    ),
    "generate": (
        transformer,
        lambda m, d: m.generate(cached(d), decoding.BeamSearch(2), 3, return_scores=True)[1],
    ),
    "cross_scores": (transformer, lambda m, d: m.attention_scores(first(d))["cross"][-1]),
    "images": (resnet, lambda m, d: m(first(d), training=False)),
    "feature_maps": (resnet, lambda m, d: keras.tree.flatten(m.feature_extractor()(first(d)))[-1]),
    "plot": (resnet, lambda m, d: plots.saliency_map(m, first(d)[0], class_index=1)),
    "samples": (gan, lambda m, d: m.generate(3, seed=1)),
    "network": (gan, lambda m, d: m.generator(POINTS[:2], training=False)),
    "gan_plot": (gan, lambda m, d: m.discriminator.predict(POINTS, verbose=0)),
    "accumulated": (
        accumulation,
        lambda m, d: m.model.generate(cached(d), max_length=3, return_scores=True)[1],
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_a_callback_sees_the_present_weights(name):
    make, look = LOOKS[name]
    model, data = make()
    seen, weights = [], []

    def note(batch, logs):  # a function that knows the model by another way than `self.model`
        seen.append(ops.convert_to_numpy(look(model, data)))
        weights.append([np.array(w) for w in model.get_weights()])

    before = [np.array(w) for w in model.get_weights()]
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=note)
    model.fit(*data, batch_size=4, verbose=0, shuffle=False, callbacks=[callback])
    after = model.get_weights()
    for a, b, c in zip(before, *weights, strict=True):
        assert a.shape == b.shape == c.shape
    moved = [
        max(np.abs(a - b).max() for a, b in zip(w, weights[0], strict=True) if a.size)
        for w in (before, weights[1])
    ]
    assert min(moved) > 1e-4  # both steps were taken when they were looked at
    for a, b in zip(weights[1], after, strict=True):
        assert_equal(a, b)
    for result, values in zip(seen, weights, strict=True):
        model.set_weights(values)
        assert_close(result, ops.convert_to_numpy(look(model, data)), rtol=1e-5, atol=1e-6)


def test_what_a_callback_assigns_stays():
    model, data = resnet()
    optimizer, rates = model.optimizer, []
    halves = [np.array(w) / 2 for w in model.get_weights()]

    def assign(batch, logs):
        rates.append(float(ops.convert_to_numpy(optimizer.learning_rate)))
        optimizer.learning_rate = 0.0
        model.set_weights(halves)

    callback = keras.callbacks.LambdaCallback(on_train_batch_end=assign)
    model.fit(*data, batch_size=4, verbose=0, callbacks=[callback])
    assert rates == [pytest.approx(0.1), 0.0] and float(optimizer.learning_rate) == 0.0
    for a, b in zip(model.get_weights(), halves, strict=True):
        assert_equal(a, b)


# What servers call, of a model whose weights nobody changes meanwhile.
SERVED = {
    "texts": (
        sentence_encoder,
        ["call", "predict", "embed", "inner", "hidden_states", "scores"],
    ),
    "masks": (pretraining, ["fill_mask"]),
    "translations": (transformer, ["generate", "cross_scores"]),
    "images": (resnet, ["images", "predict_on_batch", "predict"]),
    "samples": (gan, ["samples", "network"]),
}


@pytest.mark.parametrize("name", SERVED)
def test_threads(name):
    """Eight of them at once, from the first call on, which compiles."""
    make, looks = SERVED[name]
    (model, data), looks = make(), [LOOKS[look][1] for look in looks]
    start = threading.Barrier(8)

    def serve(i):
        if i < 8:
            start.wait()
        return [ops.convert_to_numpy(looks[(i + j) % len(looks)](model, data)) for j in (0, 1)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(serve, range(16)))
    expected = [ops.convert_to_numpy(look(model, data)) for look in looks]
    for i, pair in enumerate(results):
        for j, result in enumerate(pair):
            assert_close(result, expected[(i + j) % len(looks)], rtol=1e-5, atol=1e-6)


class Weighted(training.PortableModel):
    """Its loss is the weighted mean of the squared sums of its inputs; targets it has none."""

    def __init__(self):
        super().__init__()
        ones = keras.layers.Dense(1, kernel_initializer="ones")
        self.network = keras.Sequential([keras.Input((2,)), ones])
        self.loss_tracker = keras.metrics.Mean(name="loss")

    def loss_of(self, data):
        x, _, weights = keras.utils.unpack_x_y_sample_weight(data)
        return ops.mean(self.network(x)[:, 0] ** 2 * weights)

    def training_step(self, data):
        variables = self.network.trainable_variables
        self.loss_tracker.update_state(self.minimize(lambda: self.loss_of(data), variables))
        return self.get_metrics_result()

    def validation_step(self, data):
        self.loss_tracker.update_state(self.loss_of(data))
        return self.get_metrics_result()


def weighted():
    model = Weighted()
    model.compile(keras.optimizers.SGD(0.1))
    return model, (POINTS,)


def features():
    model = bert().features([-1])
    model.compile("sgd", "mse")
    return model, (text(), np.zeros((8, 4, 4)))


WEIGHTS = np.linspace(0, 2, 8).astype("float32")
MODELS = (weighted, sentence_encoder, transformer, resnet, gan, accumulation, features)


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize("method", ["fit", "evaluate", "train_on_batch", "test_on_batch"])
def test_weights_without_targets_are_refused(make, method):
    model, (x, *_) = make()
    before = [np.array(w) for w in model.get_weights()]
    for weights in (WEIGHTS, {"a": WEIGHTS}):
        with pytest.raises(ValueError, match="[Ww]eights"):
            getattr(model, method)(x, sample_weight=weights)
    if method in ("fit", "train_on_batch"):
        with pytest.raises(ValueError, match="class_weight"):
            getattr(model, method)(x, class_weight={0: 1.0, 1: 2.0})
    if method == "fit":
        with pytest.raises(ValueError, match="[Ww]eights"):
            model.fit(x, verbose=0, validation_data=(x, None, WEIGHTS))
    for a, b in zip(before, model.get_weights(), strict=True):
        assert_equal(a, b)


class Batches(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]


# Keras's PyDataset takes no None on TensorFlow, and says so.
@pytest.mark.parametrize("stream", [iter] + [Batches] * (backend() != "tensorflow"))
@pytest.mark.parametrize("make", MODELS)
def test_weights_without_targets_in_a_stream_arrive_or_are_refused(make, stream):
    batches = [(make()[1][0], None, WEIGHTS)]
    for method in ("fit", "evaluate"):
        model, _ = make()
        source = (batch for batch in batches) if stream is iter else stream(batches)
        if make is weighted:
            logs = getattr(model, method)(source, verbose=0)
            loss = logs.history["loss"][0] if method == "fit" else logs
            expected = (POINTS.sum(axis=1) ** 2 * WEIGHTS).mean()
            assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        else:
            with pytest.raises(ValueError):
                getattr(model, method)(source, verbose=0)
