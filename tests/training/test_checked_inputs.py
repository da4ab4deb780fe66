"""Bad ids are found where they enter, in arrays and in streams, and cost a model nothing."""

import keras
import numpy as np
import pytest

from kerasmodels import models, training
from tests.kit import backend

SIZES = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=8)
GOOD = np.array([[2, 5, 3]] * 2, "int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
TARGETS = np.array([0, 1])


def classifier():
    bert = models.Bert(9, **SIZES, max_sequence_length=4)
    model = models.BertClassifier(bert, num_classes=2)
    model.compile("sgd", LOSS)
    return model


def accumulating():
    model = training.GradientAccumulation(classifier(), 2)
    model.compile("sgd", LOSS)
    return model


def batch(ids=GOOD, **more):
    return {"token_ids": ids, "segment_ids": 0 * ids, "padding_mask": ids > 0, **more}


class Stream(keras.utils.PyDataset):
    def __init__(self, batches):
        super().__init__()
        self.batches, self.epochs = batches, 0

    def __len__(self):
        return len(self.batches)

    def __getitem__(self, index):
        return self.batches[index]

    def on_epoch_end(self):
        self.epochs += 1


def pipeline(batches):
    tf = pytest.importorskip("tensorflow")
    x, y = zip(*batches, strict=True)
    x = {name: np.concatenate([b[name] for b in x]) for name in x[0]}
    return tf.data.Dataset.from_tensor_slices((x, np.concatenate(y))).batch(2)


STREAMS = {
    "generator": lambda batches: (b for b in batches),
    "dataset": Stream,
    "pipeline": pipeline,
}
BAD = [
    (batch(np.array([[2, 5, 9]] * 2, "int32")), r"`token_ids` must be in \[0, 9\), the vocabulary"),
    (batch(np.array([[2, -1, 3]] * 2, "int32")), r"`token_ids` must be in \[0, 9\), the vocabular"),
    (batch(segment_ids=0 * GOOD + 2), r"`segment_ids` must be in \[0, 2\), the segments"),
]


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("make", [classifier, accumulating])
def test_streams(kind, make):
    model = make()
    weights = [np.array(w) for w in model.get_weights()]
    good = (batch(), TARGETS)
    model.fit(STREAMS[kind]([good] * 2), verbose=0)
    assert not all(np.array_equal(a, b) for a, b in zip(weights, model.get_weights(), strict=True))
    weights = [np.array(w) for w in model.get_weights()]
    for bad, message in BAD:
        for method in ("fit", "evaluate", "predict"):
            # In the first batch nothing is changed, and a model that was lost would not answer.
            with pytest.raises(Exception, match=message):
                getattr(model, method)(STREAMS[kind]([(bad, TARGETS)] * 2), verbose=0)
            for a, b in zip(weights, model.get_weights(), strict=True):
                np.testing.assert_array_equal(a, b)
    for method in ("evaluate", "predict"):
        with pytest.raises(Exception, match=message):
            getattr(model, method)(STREAMS[kind]([good, (bad, TARGETS)]), verbose=0)
        for a, b in zip(weights, model.get_weights(), strict=True):
            np.testing.assert_array_equal(a, b)
    validation = STREAMS[kind]([(bad, TARGETS)])
    with pytest.raises(Exception, match=message):
        model.fit(batch(), TARGETS, validation_data=validation, verbose=0)


def test_a_stream_is_what_it_was():
    model, data, plain = classifier(), *(Stream([(batch(), TARGETS)] * 3) for _ in range(2))
    history = model.fit(data, epochs=2, validation_data=Stream([(batch(), TARGETS)]), verbose=0)
    assert len(history.history["val_loss"]) == 2
    keras.Model.fit(model, plain, epochs=2, verbose=0)
    assert data.epochs == plain.epochs
    assert model.predict(Stream([(batch(),)] * 3), verbose=0).shape == (6, 2)


@pytest.mark.parametrize("name", ["token_ids", "segment_ids"])
def test_tensors(name):
    """What a direct call is given may be a tensor of the backend."""
    model = classifier()
    inputs = {key: keras.ops.convert_to_tensor(x) for key, x in batch().items()}
    model(inputs)
    for bad in (-1, 9):
        inputs[name] = keras.ops.convert_to_tensor(np.array([[0, bad, 0]] * 2, "int32"))
        with pytest.raises(ValueError, match=f"`{name}` must be in .* Received: {bad}"):
            model(inputs)
    inputs[name] = [[0, 1, 0]] * 2
    with pytest.raises(ValueError, match=f"`{name}` must be an array .*a list"):
        model(inputs)


def test_transformer():
    model = models.Transformer((9, 7), **SIZES, positions="learned", max_sequence_length=4)
    assert model.input_limits == {"encoder_token_ids": (9, 4), "decoder_token_ids": (7, 4)}
    inputs = {name: GOOD for name in model.input}
    inputs = {name: x > 0 if name.endswith("mask") else x for name, x in inputs.items()}
    model(inputs)
    for name, count in (("encoder_token_ids", 9), ("decoder_token_ids", 7)):
        with pytest.raises(ValueError, match=rf"`{name}` must be in \[0, {count}\)"):
            model({**inputs, name: 0 * GOOD + count})
        with pytest.raises(ValueError, match=f"`{name}` must have at most 4 tokens"):
            model({**inputs, name: np.zeros((2, 5), "int32")})


@pytest.mark.skipif(backend() != "jax", reason="the other backends do not empty a model")
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
def test_an_error_costs_no_weights(method):
    """Keras 3.15 takes a model's weights out while it trains, and leaves it so after an error."""
    model = models.ResNet(8, stem="cifar", num_classes=2)
    model.compile("sgd", LOSS)
    x = np.zeros((2, 8, 8, 3), "float32")
    model.fit(x, TARGETS, verbose=0)
    before = [np.array(w) for w in model.get_weights()]

    def broken():
        raise OSError("no such file")
        yield

    with pytest.raises(OSError, match="no such file"):
        getattr(model, method)(broken(), verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
