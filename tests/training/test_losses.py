import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.training import SmoothedCrossEntropy, TokenLoss
from kerasmodels.training.gradients import value_and_grad
from tests.kit.replicas import two_replicas

LOGITS = np.array([[[0, 2, 1, 0], [0, 0, 3, 1], [5, -5, 0, 2]]], "float32")  # C09
TARGETS = np.array([[1, 2, 0]])


def dense(y, logits, eps, weights):
    """The formula with one-hot targets, in float64: sum(w * l) / sum(w)."""
    logits = np.asarray(logits, "float64")
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    classes = logits.shape[-1]
    q = (1 - eps) * np.eye(classes)[y] + eps / classes
    losses = -(q * logp).sum(-1)
    return (losses * weights).sum() / np.sum(weights)


def batch(seed=0, shape=(3, 5), classes=7):
    rng = np.random.default_rng(seed)
    y = rng.integers(1, classes, shape)
    y[0, 2:] = 0
    y[2, 4:] = 0
    logits = rng.normal(size=(*shape, classes)).astype("float32") * 3
    return y, logits


@pytest.mark.parametrize("eps, expected", [(0.1, 0.514905), (0.0, 0.352405)])
def test_padding_weighs_nothing_in_both_terms(eps, expected):
    by_weight, by_id = SmoothedCrossEntropy(eps), SmoothedCrossEntropy(eps, ignore_id=0)
    np.testing.assert_allclose(by_weight(TARGETS, LOGITS, TARGETS != 0), expected, atol=1e-6)
    np.testing.assert_allclose(by_id(TARGETS, LOGITS), expected, atol=1e-6)
    # More padding changes nothing, whatever the logits there are.
    y = np.pad(TARGETS, ((0, 2), (0, 3)))
    logits = np.pad(LOGITS, ((0, 2), (0, 3), (0, 0)), constant_values=7)
    np.testing.assert_allclose(by_weight(y, logits, y != 0), expected, atol=1e-6)
    np.testing.assert_allclose(by_id(y, logits), expected, atol=1e-6)


@pytest.mark.parametrize("outside", [-100, 4, 2**31 - 1])
def test_a_target_without_weight_may_be_any_number(outside):
    y = np.where(TARGETS == 0, outside, TARGETS)
    variable = keras.Variable(LOGITS)
    value, (gradient,) = value_and_grad(
        lambda: SmoothedCrossEntropy(0.1)(y, variable, sample_weight=TARGETS != 0), [variable]
    )
    np.testing.assert_allclose(value, 0.514905, atol=1e-6)
    gradient = ops.convert_to_numpy(gradient)
    assert np.isfinite(gradient).all() and not gradient[TARGETS == 0].any()
    metric = TokenLoss(0.1)
    metric.update_state(y, LOGITS, sample_weight=TARGETS != 0)
    np.testing.assert_allclose(metric.result(), 0.514905, atol=1e-6)


def test_loss_of_every_token():
    tokens = ops.convert_to_numpy(SmoothedCrossEntropy(0.1, ignore_id=0).call(TARGETS, LOGITS))
    np.testing.assert_allclose(tokens, [[0.618812, 0.410998, 0]], atol=1e-6)


@pytest.mark.parametrize("eps", [0.0, 0.1, 0.4])
def test_equals_torch_and_the_dense_formula(eps):
    import torch

    y, logits = batch()
    for dtype in ("float32",) if keras.backend.backend() == "jax" else ("float32", "float64"):
        logits_ = ops.convert_to_tensor(logits, dtype=dtype)
        value = SmoothedCrossEntropy(eps)(y, logits_, y != 0)
        np.testing.assert_allclose(value, dense(y, logits, eps, y != 0), rtol=2e-6)
    theirs = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=eps)
    expected = theirs(torch.tensor(logits).reshape(-1, 7), torch.tensor(y).reshape(-1))
    np.testing.assert_allclose(value, expected.numpy(), rtol=2e-6)


@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_gradient_is_softmax_minus_target_over_the_count(eps):
    y, logits = batch()
    variable = keras.Variable(logits)
    _, (gradient,) = value_and_grad(
        lambda: SmoothedCrossEntropy(eps)(y, variable, y != 0), [variable]
    )
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = probabilities - (1 - eps) * np.eye(7)[y] - eps / 7
    expected = expected * (y != 0)[..., None] / (y != 0).sum()
    np.testing.assert_allclose(ops.convert_to_numpy(gradient), expected, atol=1e-6)


def test_weights_a_row_and_a_token():
    y, logits = batch()
    real = y != 0
    rows = np.array([1.0, 0.5, 2.0], "float32")
    tokens = np.random.default_rng(1).uniform(size=y.shape).astype("float32")
    loss = SmoothedCrossEntropy(0.1, ignore_id=0)
    for weight in (rows, rows[:, None], rows[:, None, None], tokens, tokens[..., None]):
        full = np.broadcast_to(weight.reshape(3, -1), y.shape)
        expected = dense(y, logits, 0.1, real * full)
        np.testing.assert_allclose(loss(y, logits, sample_weight=weight), expected, rtol=2e-6)
        np.testing.assert_allclose(loss.token_weight(y, weight), (real * full).sum(), rtol=1e-6)
    np.testing.assert_allclose(loss.token_weight(y), real.sum())
    # Batches combine exactly through their weights.
    parts = [(y[:1], logits[:1]), (y[1:], logits[1:])]
    total = sum(float(loss(*part)) * float(loss.token_weight(part[0])) for part in parts)
    np.testing.assert_allclose(total / real.sum(), float(loss(y, logits)), rtol=1e-6)


def test_batch_of_padding_gives_zero_and_finite_gradients():
    for weight in (None, np.zeros(2, "float32")):
        y = np.zeros((2, 3), int) if weight is None else np.ones((2, 3), int)
        variable = keras.Variable(np.random.default_rng(0).normal(size=(2, 3, 5)))
        value, (gradient,) = value_and_grad(
            lambda y=y, weight=weight, variable=variable: SmoothedCrossEntropy(ignore_id=0)(
                y, variable, sample_weight=weight
            ),
            [variable],
        )
        assert float(value) == 0
        np.testing.assert_array_equal(ops.convert_to_numpy(gradient), np.zeros((2, 3, 5)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_logits_are_summed_in_float32(dtype):
    rng = np.random.default_rng(0)
    logits = ops.cast(rng.normal(size=(2, 4, 70_000)) * 8, dtype)  # sum(exp) exceeds float16
    y = rng.integers(1, 70_000, (2, 4))
    value = SmoothedCrossEntropy(0.1)(y, logits)
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    exact = ops.convert_to_numpy(ops.cast(logits, "float32"))
    logp = exact.astype("float64")
    logp = logp - np.log(np.exp(logp).sum(-1, keepdims=True))
    picked = np.take_along_axis(logp, y[..., None], -1)[..., 0]
    np.testing.assert_allclose(value, -(0.9 * picked + 0.1 * logp.mean(-1)).mean(), rtol=1e-5)


def test_large_common_offset_costs_no_digits():
    y, logits = batch()
    offset = np.round(logits * 16) / 16 + 4096  # exact in float32
    value = SmoothedCrossEntropy(0.0)(y, offset, y != 0)
    np.testing.assert_allclose(value, dense(y, offset - 4096, 0.0, y != 0), rtol=1e-5)


def test_other_shapes_and_ignored_ids():
    y, logits = batch()
    # every class counts
    value = SmoothedCrossEntropy(0.1)(y, logits)
    np.testing.assert_allclose(value, dense(y, logits, 0.1, np.ones(y.shape)), rtol=2e-6)
    # an ignored id outside the vocabulary, as masked language models have
    value = SmoothedCrossEntropy(0.1, ignore_id=-100)(np.where(y == 0, -100, y), logits)
    np.testing.assert_allclose(value, dense(y, logits, 0.1, y != 0), rtol=2e-6)
    # one class a row, also in a column, and float ids
    value = SmoothedCrossEntropy(0.1)(y[:, :1].astype("float32"), logits[:, 0])
    np.testing.assert_allclose(value, dense(y[:, 0], logits[:, 0], 0.1, np.ones(3)), rtol=2e-6)


def test_implicit_keras_mask_combines_with_padding():
    # Embedding's mask hides token 0; the targets' padding hides the last position besides.
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(9, 6, mask_zero=True)(ids)
    model = keras.Model(ids, keras.layers.Dense(7)(hidden))
    x = np.array([[3, 4, 0, 5], [1, 2, 3, 4]])
    y = np.array([[1, 2, 3, 4], [5, 6, 1, 0]])
    logits = ops.convert_to_numpy(model(x))
    expected = dense(y, logits, 0.1, (x != 0) & (y != 0))
    model.compile("sgd", loss=SmoothedCrossEntropy(ignore_id=0), metrics=[TokenLoss(0.1, 0)])
    np.testing.assert_allclose(model.evaluate(x, y, verbose=0), [expected] * 2, rtol=1e-5)


def sequence_model(classes=7, dtype=None):
    ids = keras.Input((None,), dtype="int32")
    hidden = keras.layers.Embedding(9, 6, dtype=dtype)(ids)
    outputs = keras.layers.Dense(classes, dtype=dtype, name="logits")(hidden)
    return keras.Model(ids, outputs)


def test_fit_and_evaluate_honour_sample_weight():
    keras.utils.set_random_seed(0)
    y, _ = batch()
    x = np.random.default_rng(2).integers(1, 9, y.shape)
    model = sequence_model()
    logits = ops.convert_to_numpy(model(x))
    model.compile(
        keras.optimizers.SGD(0.0),
        loss=SmoothedCrossEntropy(ignore_id=0),
        weighted_metrics=[TokenLoss(label_smoothing=0.1, ignore_id=0)],
    )
    rows = np.array([1.0, 0.0, 3.0], "float32")
    tokens = np.random.default_rng(1).uniform(size=y.shape).astype("float32")
    for weight in (None, rows, tokens):
        full = np.ones(y.shape) if weight is None else weight.reshape(3, -1)
        expected = dense(y, logits, 0.1, (y != 0) * full)
        history = model.fit(x, y, sample_weight=weight, batch_size=3, verbose=0).history
        values = [history["loss"][0], history["token_loss"][0]]
        np.testing.assert_allclose(values, [expected] * 2, rtol=1e-5)
        values = model.evaluate(x, y, sample_weight=weight, batch_size=3, verbose=0)
        np.testing.assert_allclose(values, [expected] * 2, rtol=1e-5)


def test_class_weight_of_one_class_a_row():
    # C34; a weighted mean divides by the weights: (l0 + 3 * l1) / 4, and l0 alone.
    y, probabilities = np.array([0, 1]), np.array([[0.8, 0.2], [0.6, 0.4]], "float32")
    model = keras.Sequential([keras.Input((2,)), keras.layers.Activation("linear")])
    model.compile("sgd", loss=SmoothedCrossEntropy(0.0))
    x, l0, l1 = np.log(probabilities), -np.log(0.8), -np.log(0.4)
    cases = [
        ({}, (l0 + l1) / 2),
        ({"sample_weight": np.array([1.0, 0.0])}, l0),
        ({"class_weight": {0: 1.0, 1: 3.0}}, (l0 + 3 * l1) / 4),
    ]
    for weights, expected in cases:
        history = model.fit(x, y, verbose=0, **weights).history
        np.testing.assert_allclose(history["loss"], [expected], rtol=1e-5)


def test_saved_and_loaded_with_the_model(tmp_path):
    assert SmoothedCrossEntropy().ignore_id is None
    loss = SmoothedCrossEntropy(0.2, ignore_id=np.int64(3), name="mine")
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()
    model = sequence_model()
    model.compile("sgd", loss=loss)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(loaded.loss, SmoothedCrossEntropy)
    x = y = np.random.default_rng(0).integers(1, 7, (4, 5))
    expected = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(loaded.evaluate(x, y, verbose=0), expected, rtol=1e-6)


def test_mixed_float16_fit_is_finite():
    keras.utils.set_random_seed(0)
    model = sequence_model(dtype="mixed_float16")
    model.compile(keras.optimizers.Adam(0.01), loss=SmoothedCrossEntropy())
    x = np.random.default_rng(0).integers(1, 7, (8, 5))
    losses = model.fit(x, x, epochs=3, verbose=0).history["loss"]
    assert np.all(np.isfinite(losses)) and losses[-1] < losses[0]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: SmoothedCrossEntropy(1.0), "label_smoothing"),
        (lambda: SmoothedCrossEntropy(-0.1), "label_smoothing"),
        (lambda: SmoothedCrossEntropy()(np.ones((2, 3)), np.ones((2, 4, 5))), r"\(2, 4, 5\)"),
        (lambda: SmoothedCrossEntropy()(np.ones((2, 3)), np.ones((2, 5))), "y_true"),
        (
            lambda: SmoothedCrossEntropy()(np.ones((2, 3)), np.ones((2, 3, 5)), np.ones(3)),
            "sample_weight",
        ),
        (
            lambda: SmoothedCrossEntropy()(np.ones((2, 3)), np.ones((2, 3, 5)), np.ones((2, 4))),
            "sample_weight",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def train_with_unequal_padding():
    rng = np.random.default_rng(0)
    x, y = rng.integers(1, 9, (8, 6)), rng.integers(1, 7, (8, 6))
    y[:, 4:], y[0:2, 1:], y[4] = 0, 0, 0  # the halves of the batch have 10 and 12 tokens
    weight = rng.uniform(size=y.shape).astype("float32")
    keras.utils.set_random_seed(0)
    model = sequence_model()
    metrics = [TokenLoss(0.1)]
    model.compile(keras.optimizers.SGD(0.5), loss=SmoothedCrossEntropy(), weighted_metrics=metrics)
    real = (y != 0).astype("float32")
    history = model.fit(x, y, sample_weight=real, batch_size=8, epochs=3, verbose=0).history
    values = history["loss"] + history["token_loss"]
    values += model.evaluate(x, y, sample_weight=real * weight, batch_size=8, verbose=0)
    return values + model.get_weights()


@pytest.mark.skipif(keras.backend.backend() == "torch", reason="Keras has no replicas on PyTorch")
def test_replicas_with_unequal_padding_equal_one_device():
    single = train_with_unequal_padding()
    if keras.backend.backend() == "tensorflow":
        assert two_replicas().num_replicas_in_sync == 2
        with two_replicas().scope():
            several = train_with_unequal_padding()
    else:
        devices = keras.distribution.list_devices()[:2]
        assert len(devices) == 2
        keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
        try:
            several = train_with_unequal_padding()
        finally:
            keras.distribution.set_distribution(None)
    for a, b in zip(several, single, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
