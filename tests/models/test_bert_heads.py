"""BERT's heads: contracts, masked positions alone, shared encoders, training, bad input."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import model_cost
from kerasmodels.layers import TokenEmbedding
from kerasmodels.models import (
    Bert,
    BertClassifier,
    BertPretraining,
    BertSpanClassifier,
    BertTokenClassifier,
)
from kerasmodels.training import AdamW, GradientAccumulation, SmoothedCrossEntropy
from tests.kit import (
    assert_close,
    backend,
    gradients,
    model_contracts,
    randomize,
    to_numpy,
    token_ids,
)
from tests.kit.replicas import two_replicas
from tests.models.test_bert import MODEL, TINY, data

# What the encoder's own file has shown: the heads' graphs go on from its.
ENCODERS = ("symbolic", "dynamic", "jit")
PADDED = [("token_ids", "padding_mask", True)]


def bert(**kw):
    return Bert(**{**TINY, "num_layers": 1, **kw})


def pretraining_data(length=5):
    return {**data(length=length), "mask_positions": np.array([[0, 3], [0, 1]], "int32")}


test_contracts_pretraining = model_contracts(
    lambda **kw: BertPretraining(bert(**kw)),
    without=("dynamic",),
    padding=[("token_ids", "padding_mask", False)],
    options={"output_dtype": "float32"},
    **pretraining_data(),
)
test_contracts_classifier = model_contracts(
    lambda **kw: BertClassifier(bert(**kw), 3, class_names=["a", "b", "c"]),
    without=(*ENCODERS, "weights_file", "gradients"),
    options={"output_dtype": "float32"},
    **data(),
)
test_contracts_token_classifier = model_contracts(
    lambda **kw: BertTokenClassifier(bert(**kw), 4),
    without=(*ENCODERS, "weights_file", "gradients", "half"),
    padding=PADDED,
    options={"output_dtype": "float32"},
    **data(),
)
# -1e9 at padding is no number for sums: gradients and half precision are looked at without any.
test_contracts_span_classifier = model_contracts(
    lambda **kw: BertSpanClassifier(bert(**kw)),
    without=(*ENCODERS, "weights_file"),
    options={"output_dtype": "float32"},
    **{**data(), "padding_mask": np.ones((2, 5), bool)},
)


# ---- pre-training -------------------------------------------------------------------------------


def test_masked_positions_are_those_of_the_whole_row():
    """What is gathered first equals the head at every position, gathered afterwards."""
    model, inputs = randomize(BertPretraining(bert())), pretraining_data()
    everywhere = np.broadcast_to(np.arange(5, dtype="int32"), (2, 5))
    whole = to_numpy(model({**inputs, "mask_positions": everywhere})["mlm"])
    found = model(inputs)
    assert found["mlm"].shape == (2, 2, 11) and found["nsp"].shape == (2, 2)
    at = np.array([[0], [1]]), inputs["mask_positions"]
    assert_close(found["mlm"], whole[at])


def test_the_vocabulary_is_met_at_masked_positions_alone():
    model = BertPretraining(bert())
    shapes = {"token_ids": (2, 9), "mask_positions": (2, 3)}
    cost = model_cost(model, shapes)
    encoder = model_cost(model.backbone, {"token_ids": (2, 9)})
    head = 2 * 3 * (8 * 8 + 8 * 11) + 2 * 8 * 2
    assert cost.multiply_adds == encoder.multiply_adds + head
    shapes = {cost.output_shape for cost in cost.by_layer.values()}
    assert {shape for shape in shapes if shape[-1] == 11} == {(2, 3, 11)}


def test_one_matrix_embeds_and_decodes():
    model = BertPretraining(bert())
    assert sum(isinstance(layer, TokenEmbedding) for layer in model.layers) == 1
    head = model.count_params() - model.backbone.count_params()
    assert head == (8 * 8 + 8) + 2 * 8 + 11 + (8 * 2 + 2)
    alone = BertPretraining(bert(), next_sentence=False)
    assert list(alone.output) == ["mlm"]
    # A pooler that nothing reads is no weight of the model.
    assert alone.count_params() == model.count_params() - (8 * 8 + 8) - (8 * 2 + 2)


def losses():
    return {
        "mlm": SmoothedCrossEntropy(0.0, ignore_id=None),
        "nsp": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    }


def test_a_gradient_reaches_every_parameter():
    model, inputs = randomize(BertPretraining(bert())), pretraining_data()
    targets = {"mlm": token_ids(2, 2, seed=3), "nsp": np.array([0, 1])}

    def loss():
        outputs = model(inputs, training=True)
        return sum(fn(targets[key], outputs[key]) for key, fn in losses().items())

    _, found = gradients(loss, model.trainable_weights)
    for weight, gradient in zip(model.trainable_weights, found, strict=True):
        assert gradient is not None and np.isfinite(gradient).all(), weight.path
        if "key/bias" not in weight.path:  # softmax does not see it
            assert np.abs(gradient).max() > 1e-6, weight.path


def test_pretraining_learns(rng):
    """A sentence is one word three times; a next sentence has the same word."""
    encoder = bert(hidden_dim=32, intermediate_dim=64, dropout=0.0, attention_dropout=0.0)
    model = BertPretraining(encoder)
    words, other = rng.integers(4, 11, (2, 64))
    not_next = rng.integers(0, 2, 64)
    second = np.where(not_next & (words != other), other, words)
    ids = np.stack([words] * 3 + [second] * 3, 1)
    ids[:, 1] = 3
    inputs = {
        "token_ids": ids,
        "segment_ids": np.repeat([[0, 0, 0, 1, 1, 1]], 64, 0),
        "padding_mask": np.ones((64, 6), bool),
        "mask_positions": np.repeat([[1, 0]], 64, 0),
    }
    targets = {"mlm": np.stack([words, 0 * words], 1), "nsp": (second != words).astype("int32")}
    weights = {"mlm": np.repeat([[1.0, 0.0]], 64, 0), "nsp": np.ones(64)}
    model.compile(keras.optimizers.Adam(5e-3), losses())
    history = model.fit(
        inputs, targets, sample_weight=weights, batch_size=8, epochs=15, verbose=0
    ).history
    assert history["mlm_loss"][-1] < 0.6 * history["mlm_loss"][0]
    assert history["nsp_loss"][-1] < history["nsp_loss"][0]


@pytest.mark.skipif(backend() != "tensorflow", reason="tf.distribute is TensorFlow's")
def test_two_replicas_with_boolean_masks():
    with two_replicas().scope():
        model = BertPretraining(bert())
        model.compile("sgd", losses())
    inputs = {k: np.concatenate([v] * 2) for k, v in pretraining_data().items()}
    targets = {"mlm": token_ids(4, 2, seed=3), "nsp": np.array([0, 1, 1, 0])}
    history = model.fit(inputs, targets, batch_size=4, epochs=1, verbose=0).history
    assert np.isfinite(history["loss"][0])


# ---- fine-tuning --------------------------------------------------------------------------------


def test_heads_on_one_encoder_share_it():
    encoder = bert()
    classifier = BertClassifier(encoder, 3)
    tagger = BertTokenClassifier(encoder, 4)
    assert classifier.backbone is tagger.backbone is encoder
    shared = {id(w) for w in classifier.weights} & {id(w) for w in tagger.weights}
    assert len(shared) == len(encoder.weights) - 2  # the tagger reads no pooler
    classifier.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = to_numpy(tagger(data()))
    classifier.train_on_batch(data(), np.array([0, 2]))
    assert np.abs(to_numpy(tagger(data())) - before).max() > 0
    encoder.trainable = False
    assert [w.path for w in tagger.trainable_weights] == ["classifier/kernel", "classifier/bias"]


def test_several_heads_in_one_model():
    """Fine-tuning for several tasks at once: one encoder, two losses."""
    encoder = bert()
    mood = BertClassifier(encoder, 3, name="mood")
    tags = BertTokenClassifier(encoder, 4, name="tags")
    model = keras.Model(encoder.input, {"mood": mood.output, "tags": tags.output})
    loss = SmoothedCrossEntropy(0.0, ignore_id=None)
    model.compile(keras.optimizers.SGD(0.1), {"mood": loss, "tags": loss})
    before = [to_numpy(w.value) for w in (mood.classifier.kernel, tags.classifier.kernel)]
    targets = {"mood": np.array([0, 2]), "tags": np.ones((2, 5), "int32")}
    model.train_on_batch(data(), targets)
    for head, old in zip((mood, tags), before, strict=True):
        assert np.abs(to_numpy(head.classifier.kernel.value) - old).max() > 1e-4


def test_a_file_keeps_what_is_frozen_and_the_optimizer(tmp_path):
    model = BertClassifier(bert(), 3)
    model.backbone.token_embedding.trainable = False
    block = model.backbone.encoder_blocks[0]
    block.self_attention.query_dense.trainable = False
    model.compile(AdamW(0.01), "sparse_categorical_crossentropy")
    model.train_on_batch(data(), np.array([0, 2]))
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert again.get_config()["backbone"]["sublayers"] == {
        "token_embedding": {"trainable": False},
        "encoder_block_0/self_attention/query": {"trainable": False},
    }
    assert len(again.trainable_weights) == len(model.trainable_weights)
    assert int(again.optimizer.iterations) == 1
    for one, other in zip(again.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(to_numpy(one.value), to_numpy(other.value))


def test_a_first_batch_is_looked_at():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return {**data(), "token_ids": np.full((2, 5), 99, "int32")}, np.array([0, 2])

    model = BertClassifier(bert(), 3)
    model.compile("sgd", "sparse_categorical_crossentropy")
    for call in (model.fit, model.evaluate, model.predict):
        with pytest.raises(ValueError, match="`token_ids` must be in .* Received: 99"):
            call(Batches())


def test_classifier_is_dense_on_the_pooled_output():
    model, inputs = randomize(BertClassifier(bert(), 3)), data()
    pooled = to_numpy(model.backbone(inputs)["pooled_output"])
    expected = pooled @ to_numpy(model.classifier.kernel.value)
    assert_close(model(inputs), expected + to_numpy(model.classifier.bias.value), **MODEL)
    assert BertClassifier(bert(), 1)(inputs).shape == (2, 1)


def test_span_gives_padding_nothing():
    model, inputs = randomize(BertSpanClassifier(bert())), data()
    found = to_numpy(model(inputs))
    padding = ~inputs["padding_mask"]
    unmasked = to_numpy(model.span.dense(model.backbone(inputs)["sequence_output"]))
    for i, name in enumerate(("start", "end")):
        assert (found[name][padding] == -1e9).all()
        assert_close(found[name][~padding], unmasked[..., i][~padding], **MODEL)
        odds = to_numpy(ops.softmax(ops.convert_to_tensor(found[name])))
        assert (odds[padding] == 0).all()
    none = to_numpy(model({**inputs, "padding_mask": None}))
    assert (np.abs(none["start"]) < 1e3).all()


def test_config_is_readable_and_complete():
    model = BertClassifier(bert(dropout=0.3), 2, dropout=0.2, class_names=["no", "yes"], name="c")
    config = json.loads(json.dumps(model.get_config()))
    assert config["backbone"] == json.loads(json.dumps(model.backbone.get_config()))
    given = dict(num_classes=2, dropout=0.2, class_names=["no", "yes"], name="c")
    assert {name: config[name] for name in given} == given
    again = BertClassifier.from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    assert again.backbone.dropout == 0.3


def test_a_size_has_no_weights():
    with pytest.raises(ValueError, match="load_weights=False.*hf://google-bert/bert-base-uncased"):
        BertClassifier.from_preset("bert_base", num_classes=2)
    small = {"vocabulary_size": 11, "num_layers": 1}
    model = BertClassifier.from_preset(
        "bert_tiny", False, num_classes=5, backbone=small, dtype="mixed_bfloat16"
    )
    assert model.backbone.hidden_dim == 128 and model.num_classes == 5 and model.tokenizer is None
    assert model.backbone.vocabulary_size == 11 and model.backbone.compute_dtype == "bfloat16"
    assert model(data())[0].shape == (5,)


# ---- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make,says",
    [
        (lambda: BertClassifier(bert(), 0), ["num_classes", "0"]),
        (lambda: BertClassifier(bert(), 2.0), ["num_classes", "2.0"]),
        (lambda: BertClassifier(bert(), 3, class_names=["a", "b"]), ["class_names", "2", "3"]),
        (lambda: BertTokenClassifier(bert(), 1, class_names=[]), ["class_names", "0", "1"]),
        (lambda: BertClassifier(bert(), 2, class_names={0: "a", 1: "b"}), ["list of strings"]),
        (lambda: BertClassifier(bert(), 2, class_names="no"), ["list of strings", "no"]),
        (lambda: BertClassifier(bert(), 2, class_names=np.arange(2)), ["list of strings"]),
        (lambda: BertClassifier(bert(), 2, class_names=["a", 1]), ["list of strings"]),
        (lambda: BertClassifier(bert(pooler=False), 2), ["pooler"]),
        (lambda: BertPretraining(bert(pooler=False)), ["pooler"]),
        (lambda: BertSpanClassifier("bert_base"), ["backbone", "bert_base"]),
    ],
)
def test_bad_arguments(make, says):
    with pytest.raises(ValueError) as error:
        make()
    for words in says:
        assert words in str(error.value)


def sparse():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.parametrize(
    "make,loss,targets,says",
    [
        (lambda: BertClassifier(bert(), 3), sparse, np.array([0, 3]), ["[0, 3)", "[3]"]),
        (lambda: BertClassifier(bert(), 3), sparse, np.array([[-1], [0]]), ["[0, 3)", "[-1]"]),
        (lambda: BertTokenClassifier(bert(), 4), sparse, np.full((2, 5), 4), ["[0, 4)", "[4]"]),
        (
            lambda: BertTokenClassifier(bert(), 4),
            lambda: SmoothedCrossEntropy(0.0, ignore_id=-1),
            np.array([[-1, -1, 0, 1, 5]] * 2),
            ["[0, 4)", "[5]"],
        ),
        (
            lambda: BertSpanClassifier(bert()),
            lambda: {"start": sparse(), "end": sparse()},
            {"start": np.array([0, 1]), "end": np.array([2, 5])},
            ["end", "[0, 5)", "[5]"],
        ),
        (  # Keras would take them by the alphabet: the first for `end`
            lambda: BertSpanClassifier(bert()),
            sparse,
            (np.array([0, 1]), np.array([2, 2])),
            ["must be a dictionary", "start", "end", "a tuple"],
        ),
        (
            lambda: BertSpanClassifier(bert()),
            sparse,
            {"start": np.array([0, 1]), "stop": np.array([2, 2])},
            ["must be a dictionary", "stop"],
        ),
        (  # the second row has three tokens
            lambda: BertSpanClassifier(bert()),
            lambda: {"start": sparse(), "end": sparse()},
            {"start": np.array([0, 1]), "end": np.array([2, 3])},
            ["`end`", "not of padding", "3 in row 1, which has 3 tokens"],
        ),
        (lambda: BertClassifier(bert(), 1), lambda: "mse", np.array([0, np.nan]), ["finite"]),
        (lambda: BertClassifier(bert(), 1), lambda: "mse", np.array(["a", "b"]), ["numbers"]),
        (
            lambda: BertPretraining(bert()),
            losses,
            {"mlm": np.array([[0, 11]] * 2), "nsp": np.array([0, 1])},
            ["mlm", "[0, 11)", "[11]"],
        ),
        (
            lambda: BertPretraining(bert()),
            losses,
            {"mlm": np.array([[0, 1]] * 2), "nsp": np.array([0, 2])},
            ["nsp", "[0, 2)", "[2]"],
        ),
    ],
)
def test_labels_outside_the_classes(make, loss, targets, says):
    model = make()
    model.compile("sgd", loss())
    inputs = pretraining_data() if isinstance(model, BertPretraining) else data()
    for call in (model.fit, model.evaluate, model.train_on_batch, model.test_on_batch):
        with pytest.raises(ValueError) as error:
            call(inputs, targets)
        for words in says:
            assert words in str(error.value)


def test_weights_that_keras_would_apply_to_something_else():
    """To the place of the greatest label of a row, and to a column of tokens."""
    labels = np.array([[0, 1, 2, 3, 0]] * 2)
    for model, loss in (
        (BertTokenClassifier(bert(), 4), sparse()),
        (GradientAccumulation(BertTokenClassifier(bert(), 4), 2), sparse()),
    ):
        model.compile("sgd", loss)
        for call in (model.fit, model.train_on_batch):
            with pytest.raises(ValueError, match="`class_weight`.*`sample_weight`"):
                call(data(), labels, class_weight={0: 1.0, 1: 2.0, 2: 1.0, 3: 1.0})
            with pytest.raises(ValueError, match=r"`sample_weight` must .*shape=\(2,\)"):
                call(data(), labels, sample_weight=np.ones(2))
    model = BertTokenClassifier(bert(dropout=0.0, attention_dropout=0.0), 4, dropout=0.0)
    model.compile("sgd", SmoothedCrossEntropy(0.0, ignore_id=None))
    rows, tokens = np.array([1.0, 3.0]), np.array([[1.0] * 5, [3.0] * 5])
    assert_close(
        model.test_on_batch(data(), labels, sample_weight=rows),
        model.test_on_batch(data(), labels, sample_weight=tokens),
    )


@pytest.mark.parametrize(
    "given,says",
    [
        (np.array([[0, 5], [0, 1]]), ["mask_positions", "[0, 5)", "5"]),
        (np.array([[0, -1], [0, 1]]), ["mask_positions", "-1"]),
        (np.array([[0, 1]]), ["mask_positions", "2 rows", "(1, 2)"]),
        (np.array([[0.0, 1.0]] * 2), ["mask_positions", "integers"]),
    ],
)
def test_bad_positions(given, says):
    model = BertPretraining(bert())
    with pytest.raises(ValueError) as error:
        model({**pretraining_data(), "mask_positions": given})
    for words in says:
        assert words in str(error.value)


def test_a_loss_of_ones_own_may_allow_what_it_likes():
    def masked(y, y_pred):
        kept = ops.cast(y >= 0, "float32")
        losses = keras.losses.sparse_categorical_crossentropy(
            ops.maximum(y, 0), y_pred, from_logits=True
        )
        return ops.sum(kept * losses) / ops.sum(kept)

    tagger = BertTokenClassifier(bert(), 4)
    tagger.compile("sgd", masked)
    labels = np.array([[-100, 3, 0, -100, -100]] * 2)
    assert np.isfinite(tagger.test_on_batch(data(), labels)).all()


def test_what_predict_does_not_use_is_not_looked_at():
    """Test sets without labels have -1 in their place."""
    model = BertClassifier(bert(), 3)
    model.compile("sgd", sparse())
    assert model.predict(((data(), np.array([-1, -1])) for _ in range(2)), verbose=0).shape == (
        4,
        3,
    )
    spans = BertSpanClassifier(bert())
    nothing = (np.array([-1, -1]),) * 2
    assert spans.predict(((data(), nothing) for _ in range(1)), verbose=0)["end"].shape == (2, 5)
    with pytest.raises(ValueError, match="token_ids"):
        model.predict((dict(data(), token_ids=data()["token_ids"] + 99), 0) for _ in range(1))


def test_one_hot_and_ignored_labels_are_allowed():
    model = BertClassifier(bert(), 3)
    model.compile("sgd", keras.losses.CategoricalCrossentropy(from_logits=True))
    assert np.isfinite(model.test_on_batch(data(), np.eye(3, dtype="float32")[[0, 2]])).all()
    tagger = BertTokenClassifier(bert(), 4)
    tagger.compile("sgd", SmoothedCrossEntropy(0.0, ignore_id=-100))
    labels = np.array([[-100, 3, 0, -100, -100]] * 2)
    assert np.isfinite(tagger.test_on_batch(data(), labels)).all()
    number = BertClassifier(bert(), 1)
    number.compile("sgd", "mse")
    assert np.isfinite(number.test_on_batch(data(), np.array([[4.5], [-2.0]]))).all()
