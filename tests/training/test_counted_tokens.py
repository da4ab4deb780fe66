"""What counts in a batch: weights, masks and pad ids, said by the batch and by the model."""

import warnings

import keras
import numpy as np
import pytest

from kerasmodels import data, models, training
from kerasmodels.decoding import TokenRules
from tests.kit.replicas import two_replicas

BACKEND = keras.backend.backend()
SIZE = 11
RULES = {
    "default": TokenRules(),
    "marian": TokenRules(pad_id=SIZE - 1, start_id=SIZE - 1, end_id=0),
    "several ends": TokenRules(pad_id=1, start_id=2, end_id=[0, 3]),
    "pad ends": TokenRules(pad_id=2, start_id=1, end_id=2),
}
TARGETS = [[4, 5, 6, 7], [8], [], [5, 9, 4]]


def arrays(rules, shift="inputs and targets"):
    """Sources, decoder inputs and targets, padded; `real` marks the tokens among the targets."""
    width = 1 + max(map(len, TARGETS))
    decoder, targets = (np.full((len(TARGETS), width), rules.pad_id) for _ in range(2))
    for row, ids in enumerate(TARGETS):
        decoder[row, : len(ids) + 1] = [rules.start_id, *ids]
        targets[row, : len(ids) + 1] = [*ids, rules.end_ids[0]]
        if shift == "one row":  # the end token is read too where there is room for it
            decoder[row, len(ids) + 1 : len(ids) + 2] = rules.end_ids[0]
    real = np.arange(width) < np.array([[len(ids) + 1] for ids in TARGETS])
    mask = np.arange(width) < np.array([[len(ids) + 1 + (shift == "one row")] for ids in TARGETS])
    inputs = {
        "encoder_token_ids": np.array([[5, 6]] * len(TARGETS)),
        "encoder_padding_mask": np.ones((len(TARGETS), 2), bool),
        "decoder_token_ids": decoder,
        "decoder_padding_mask": mask,
    }
    return inputs, targets, real


def make(rules, metrics=None, **kwargs):
    keras.utils.set_random_seed(3)
    model = models.Transformer(SIZE, 1, 2, 8, 8, dropout=0.0, generation=rules)
    return compiled(model, metrics, **kwargs)


def compiled(model, metrics=None, **kwargs):
    model.compile(
        keras.optimizers.SGD(0.0),
        training.SmoothedCrossEntropy(0.0),
        metrics=[training.TokenLoss(name="once"), training.MaskedAccuracy(name="right")],
        weighted_metrics=[training.TokenLoss(name="weighted")],
        jit_compile=BACKEND == "jax",
        **kwargs,
    )
    return model


def expected(model, inputs, targets, weight):
    """The logs, from the formulas in float64."""
    logits = np.asarray(model.predict_on_batch(inputs), "float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(log_p, targets[..., None], -1)[..., 0]
    weight = np.broadcast_to(weight, targets.shape)
    real = weight != 0
    return {
        "loss": (losses * weight).sum() / weight.sum(),
        "once": losses[real].mean(),
        "right": (logits.argmax(-1) == targets)[real].mean(),
        "weighted": (losses * weight).sum() / weight.sum(),
    }


def assert_logs(logs, values):
    logs = {key: np.mean(value) for key, value in logs.items()}
    assert logs.keys() == values.keys()
    for key, value in values.items():
        np.testing.assert_allclose(logs[key], value, rtol=1e-5, err_msg=key)


@pytest.mark.parametrize("name", list(RULES))
def test_padding_counts_nothing_whatever_the_data_say_of_it(name):
    rules = RULES[name]
    model = make(rules)
    inputs, targets, real = arrays(rules)
    values = expected(model, inputs, targets, real.astype("float64"))
    assert abs(values["once"] - expected(model, inputs, targets, 1.0)["once"]) > 1e-3
    rows = np.array([1.0, 0.0, 2.0, 0.5], "float32")
    tokens = np.random.default_rng(0).uniform(0.5, 2, targets.shape).astype("float32")

    def logs(inputs, targets, weight=None):
        return model.evaluate(inputs, targets, 4, 0, weight, return_dict=True)

    assert_logs(logs(inputs, targets, real.astype("float32")), values)
    assert_logs(logs(inputs, targets, real), values)
    assert_logs(logs(inputs, targets), values)
    assert_logs(model.fit(inputs, targets, batch_size=4, verbose=0).history, values)
    for weight in (rows, rows[:, None], tokens):
        full = weight.reshape(4, -1) * real
        assert_logs(logs(inputs, targets, weight), expected(model, inputs, targets, full))
    batches = data.BucketedPairs([[5, 6]] * 4, TARGETS, shuffle=False, rules=model)
    assert_logs(model.evaluate(batches, verbose=0, return_dict=True), values)
    if name != "pad ends":  # the pad id alone says it
        assert_logs(logs({**inputs, "decoder_padding_mask": None}, targets), values)
        inputs, targets, real = arrays(rules, "one row")
        values = expected(model, inputs, targets, real.astype("float64"))
        assert_logs(logs(inputs, targets), values)
    compiled(model)  # TensorFlow's step, once traced, takes targets of one rank
    assert_logs(logs(inputs, targets[..., None]), values)


def test_everything_counts_where_the_pad_id_ends_and_nothing_is_masked():
    rules = RULES["pad ends"]
    model, (inputs, targets, _) = make(rules), arrays(rules)
    inputs["decoder_padding_mask"] = None
    logs = model.evaluate(inputs, targets, verbose=0, return_dict=True)
    assert_logs(logs, expected(model, inputs, targets, 1.0))


def test_rows_that_fill_a_batch_count_nothing():
    model = make(RULES["marian"])
    source = [[5, 6]] * 3
    batches = data.BucketedPairs(source, TARGETS[:3], batch_multiple=4, shuffle=False, rules=model)
    inputs, targets, weight = batches[0]
    assert len(targets) == 4 and not weight[3].any()
    values = expected(model, inputs, targets, weight)
    assert_logs(model.evaluate(batches, verbose=0, return_dict=True), values)


@pytest.mark.parametrize("weighted", [True, False])
def test_inside_gradient_accumulation(weighted):
    rules = RULES["marian"]
    model, (inputs, targets, real) = make(rules), arrays(rules)
    split = compiled(training.GradientAccumulation(model, 3))
    weight = np.random.default_rng(0).uniform(0.5, 2, targets.shape).astype("float32")
    values = expected(model, inputs, targets, real * (weight if weighted else 1.0))
    given = weight if weighted else None
    history = split.fit(inputs, targets, sample_weight=given, batch_size=4, verbose=0).history
    assert_logs(history, values)
    logs = split.evaluate(inputs, targets, 4, 0, given, return_dict=True)
    assert_logs(logs, values)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has neither on PyTorch")
def test_replicas_devices_and_several_steps_at_once():
    rules = RULES["marian"]
    single, (inputs, targets, real) = make(rules), arrays(rules)
    values = expected(single, inputs, targets, real.astype("float64"))

    def check(**kwargs):
        batches = data.BucketedPairs(
            [[5, 6]] * 4, TARGETS, batch_multiple=2, shuffle=False, rules=rules
        )
        model = make(rules, **kwargs)
        assert_logs(model.evaluate(batches, verbose=0, return_dict=True), values)
        assert_logs(model.fit(inputs, targets, batch_size=4, verbose=0).history, values)

    check(steps_per_execution=2)
    if BACKEND == "tensorflow":
        with two_replicas().scope():
            check()
        return
    devices = keras.distribution.list_devices()[:2]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    try:
        check()
    finally:
        keras.distribution.set_distribution(None)


def bert(**sizes):
    keras.utils.set_random_seed(4)
    return models.Bert(SIZE, 1, 2, 8, 8, max_sequence_length=6, dropout=0.0, **sizes)


def bert_inputs(rows=3):
    token_ids = np.random.default_rng(1).integers(0, SIZE, (rows, 6))
    mask = np.arange(6) < np.array([[6], [4], [3]])[:rows]
    return {
        "token_ids": token_ids,
        "segment_ids": np.zeros((rows, 6), "int32"),
        "padding_mask": mask,
    }


def test_pieces_without_weight_count_in_no_metric_of_ours():
    model = compiled(models.BertTokenClassifier(bert(), num_classes=3))
    inputs = bert_inputs()
    labels = np.random.default_rng(2).integers(0, 3, (3, 6))
    weight = inputs["padding_mask"] * np.array([0, 1, 0, 1, 1, 0.5], "float32")
    values = expected(model, inputs, labels, weight)
    logs = model.evaluate(inputs, labels, sample_weight=weight, verbose=0, return_dict=True)
    assert_logs(logs, values)


def test_each_of_several_outputs_has_its_own_weights():
    model = models.BertPretraining(bert())
    inputs = {**bert_inputs(), "mask_positions": np.array([[1, 2], [2, 0], [0, 0]])}
    targets = {"mlm": np.array([[4, 5], [6, 0], [0, 0]]), "nsp": np.array([0, 1, 0])}
    weight = {
        "mlm": np.array([[1, 1], [1, 0], [0, 0]], "float32"),
        "nsp": np.array([1, 1, 0], "float32"),
    }
    metrics = {
        task: [training.TokenLoss(name="loss"), training.MaskedAccuracy(name="right")]
        for task in targets
    }
    for argument in ("metrics", "weighted_metrics"):
        loss = training.SmoothedCrossEntropy(0.0)
        model.compile("sgd", {"mlm": loss, "nsp": loss}, **{argument: metrics})
        logs = model.evaluate(inputs, targets, sample_weight=weight, verbose=0, return_dict=True)
        outputs = model.predict_on_batch(inputs)
        for task, logits in outputs.items():
            logits, real = np.asarray(logits, "float64"), weight[task] > 0
            log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            losses = -np.take_along_axis(log_p, targets[task][..., None], -1)[..., 0]
            np.testing.assert_allclose(logs[f"{task}_loss"], losses[real].mean(), rtol=1e-5)
            right = (logits.argmax(-1) == targets[task])[real].mean()
            np.testing.assert_allclose(logs[f"{task}_right"], right, rtol=1e-5)


def test_in_a_training_step_of_ones_own():
    class Tagger(training.PortableModel):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(3)

        def call(self, x):
            return self.dense(x)

        def training_step(self, batch):
            x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)

            def loss_fn():
                y_pred = self(x, training=True)
                return self.compute_loss(x, y, y_pred, weight), y_pred

            _, y_pred = self.minimize(loss_fn, self.trainable_variables)
            return self.compute_metrics(x, y, y_pred, weight)

    keras.utils.set_random_seed(0)
    model = Tagger()
    model(np.zeros((1, 4, 2)))
    model.compile(
        keras.optimizers.SGD(0.0),
        training.SmoothedCrossEntropy(0.0),
        metrics=[training.TokenLoss(name="once")],
    )
    random = np.random.default_rng(0)
    x, y = random.normal(size=(2, 4, 2)).astype("float32"), random.integers(0, 3, (2, 4))
    weight = np.array([[1, 1, 0, 0], [0.5, 1, 1, 0]], "float32")
    values = expected(model, x, y, weight)
    history = model.fit(x, y, sample_weight=weight, batch_size=2, verbose=0).history
    np.testing.assert_allclose(history["once"], [values["once"]], rtol=1e-5)


def test_a_warning_where_nothing_says_what_is_padding():
    x, y = np.ones((2, 3, 2), "float32"), np.array([[1, 2, 0], [1, 0, 0]])
    inputs = keras.Input((None, 2))
    model = keras.Model(inputs, keras.layers.Dense(3)(inputs))
    tokens = (y != 0).astype("float32")

    def warnings_of(ignore_id=None, weight=None, **metrics):
        model.compile("sgd", training.SmoothedCrossEntropy(ignore_id=ignore_id), **metrics)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.evaluate(x, y, sample_weight=weight, verbose=0)
        return {str(w.message).split("`")[1] for w in caught if "padding" in str(w.message)}

    assert warnings_of() == warnings_of(weight=np.ones(2)) == {"smoothed_cross_entropy"}
    assert warnings_of(weight=tokens, metrics=[training.Perplexity()]) == {"perplexity"}
    assert not warnings_of(weight=tokens, weighted_metrics=[training.Perplexity()])
    assert not warnings_of(0, metrics=[training.Perplexity(0)])
    assert not warnings_of(metrics=[], weight=tokens)
    # One class a row has no padding, and our own model knows it.
    ours, (inputs, targets, _) = make(TokenRules()), arrays(TokenRules())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        training.SmoothedCrossEntropy()(np.array([1, 0]), np.ones((2, 3), "float32"))
        ours.evaluate(inputs, targets, verbose=0)


def test_batches_of_other_rules_are_refused():
    model = make(RULES["marian"])
    batches = data.BucketedPairs([[5]] * 4, [[6]] * 4)
    split = compiled(training.GradientAccumulation(model, 2))
    good = data.BucketedPairs([[5]] * 4, [[6]] * 4, rules=model)
    for trained in (model, split):
        for call in (
            lambda trained=trained: trained.fit(batches, verbose=0),
            lambda trained=trained: trained.fit(good, validation_data=batches, verbose=0),
            lambda trained=trained: trained.evaluate(batches, verbose=0),
        ):
            with pytest.raises(
                ValueError, match="pad_id=10, start_id=10, end_id=0.*rules=model.*pad_id=0"
            ):
                call()


def test_a_mask_that_hides_the_start_token_is_refused():
    model, (inputs, targets, _) = make(RULES["marian"]), arrays(RULES["marian"])
    inputs["decoder_padding_mask"] = inputs["decoder_token_ids"] != SIZE - 1
    with pytest.raises(ValueError, match="decoder_padding_mask.*first position.*row 0"):
        model.fit(inputs, targets, verbose=0)
