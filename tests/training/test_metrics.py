import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import MaskedAccuracy, Perplexity, SmoothedCrossEntropy, TokenLoss


def logits_of(losses, classes=4, target=1):
    """Logits whose cross-entropy at class `target` is `losses`."""
    p = np.exp(-np.asarray(losses, "float64"))[..., None]
    rest = np.broadcast_to((1 - p) / (classes - 1), (*p.shape[:-1], classes)).copy()
    rest[..., target] = p[..., 0]
    return np.log(rest).astype("float32")


NLL = np.array([[0.1, 0.2, 0.1, 0.9, 0.9], [0.3, 0.5, 0.1, 0.4, 0.2]])  # C14
TARGETS = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize(
    "metric, expected, empty",
    [(Perplexity(), 1.268075, 1.0), (TokenLoss(), 1.9 / 8, 0.0), (MaskedAccuracy(), 1.0, 0.0)],
)
def test_every_token_weighs_the_same_in_every_batch(metric, expected, empty):
    logits = logits_of(NLL)
    assert float(metric.result()) == empty
    for _ in range(2):
        metric.update_state(TARGETS, logits, sample_weight=TARGETS != 0)
        np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)
        metric.reset_state()
        assert float(metric.result()) == empty
        for row in range(2):
            rows = slice(row, row + 1)
            metric.update_state(TARGETS[rows], logits[rows], sample_weight=TARGETS[rows] != 0)
        np.testing.assert_allclose(float(metric.result()), expected, rtol=1e-5)
        metric.reset_state()
    metric.update_state(TARGETS, logits, sample_weight=np.zeros((2, 5)))  # padding alone
    assert float(metric.result()) == empty


def test_uniform_perplexity_is_the_number_of_classes_whatever_the_padding():
    for pads in (1, 3):
        y = np.array([[1] * (4 - pads) + [0] * pads])
        metric = Perplexity()
        metric.update_state(y, np.zeros((1, 4, 4), "float32"), y != 0)
        np.testing.assert_allclose(float(metric.result()), 4, rtol=1e-6)
        loss = SmoothedCrossEntropy(0.0)(y, np.zeros((1, 4, 4), "float32"), y != 0)
        np.testing.assert_allclose(float(loss), np.log(4), rtol=1e-6)


def test_token_mean_of_unequal_sequences():
    # C10 (c): losses 4 and 1, 1, 1
    logits = logits_of([[4, 9, 9], [1, 1, 1]])
    y = np.array([[1, 0, 0], [1, 1, 1]])
    metric = TokenLoss()
    metric.update_state(y, logits, y != 0)
    np.testing.assert_allclose(float(metric.result()), 1.75, rtol=1e-5)
    loss = SmoothedCrossEntropy(0.0)(y, logits, y != 0)
    np.testing.assert_allclose(float(loss), 1.75, rtol=1e-5)


def test_weights_smoothing_and_accuracy():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, (4, 6))
    logits = rng.normal(size=(4, 6, 5)).astype("float32")
    for weight in (None, rng.uniform(size=4), rng.uniform(size=(4, 6))):
        full = np.ones(y.shape) if weight is None else weight.reshape(4, -1)
        full = np.broadcast_to(full, y.shape) * (y != 0)
        metric = TokenLoss(label_smoothing=0.1, ignore_id=0)
        metric.update_state(y, logits, sample_weight=weight)
        loss = SmoothedCrossEntropy(0.1, ignore_id=0)(y, logits, weight)
        np.testing.assert_allclose(float(metric.result()), float(loss), rtol=1e-6)
        metric = MaskedAccuracy(ignore_id=0)
        metric.update_state(y, logits, sample_weight=weight)
        right = (logits.argmax(-1) == y) * full
        np.testing.assert_allclose(float(metric.result()), right.sum() / full.sum(), rtol=1e-6)
    # Ignoring nothing, and an id outside the classes.
    metric = MaskedAccuracy()
    metric.update_state(y, logits)
    np.testing.assert_allclose(float(metric.result()), (logits.argmax(-1) == y).mean(), rtol=1e-6)
    metric = Perplexity(ignore_id=-100)
    metric.update_state(np.where(y == 0, -100, y), ops.cast(logits, "float16"))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(logp, y[..., None], -1)[..., 0][y != 0]
    np.testing.assert_allclose(float(metric.result()), np.exp(-picked.mean()), rtol=2e-3)


def test_in_evaluate_for_every_batch_size_and_through_a_file(tmp_path):
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32")
    outputs = keras.layers.Dense(5)(keras.layers.Embedding(9, 6)(ids))
    model = keras.Model(ids, outputs)
    metrics = [TokenLoss(0.1, 0, name="smoothed"), Perplexity(0), MaskedAccuracy(0)]
    model.compile("sgd", loss=SmoothedCrossEntropy(0.1, ignore_id=0), metrics=metrics)
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 9, (6, 7)), rng.integers(1, 5, (6, 7))
    for row in range(6):
        y[row, row + 1 :] = 0
    logits = ops.convert_to_numpy(model(x))
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    real = y != 0
    picked = np.take_along_axis(logp, y[..., None], -1)[..., 0]
    expected = {
        "smoothed": -(0.9 * picked + 0.1 * logp.mean(-1))[real].mean(),
        "perplexity": np.exp(-picked[real].mean()),
        "masked_accuracy": (logits.argmax(-1) == y)[real].mean(),
    }
    for size in (2, 6):
        values = model.evaluate(x, y, batch_size=size, verbose=0, return_dict=True)
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-5)
    np.testing.assert_allclose(values["loss"], values["smoothed"], rtol=1e-6)  # one batch
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    loaded = loaded.evaluate(x, y, batch_size=6, verbose=0, return_dict=True)
    assert loaded.keys() == values.keys()
    for name, value in values.items():
        np.testing.assert_allclose(loaded[name], value, rtol=1e-6)


def test_monitors_know_the_direction():
    model = keras.Sequential([keras.Input((2,), dtype="float32"), keras.layers.Dense(3)])
    metrics = [Perplexity(), MaskedAccuracy()]
    model.compile("sgd", loss=SmoothedCrossEntropy(), metrics=metrics)
    callbacks = [
        keras.callbacks.EarlyStopping("val_perplexity", patience=5),
        keras.callbacks.EarlyStopping("val_masked_accuracy", patience=5),
    ]
    x, y = np.ones((4, 2), "float32"), np.ones(4, int)
    model.fit(x, y, validation_data=(x, y), callbacks=callbacks, verbose=0)
    assert [callback.monitor_op is ops.less for callback in callbacks] == [True, False]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TokenLoss(1.5), "label_smoothing"),
        (lambda: TokenLoss().update_state(np.ones((2, 3)), np.ones((2, 3))), "y_pred"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
