"""Bad ids are found where they enter, in arrays and in streams, and cost a model nothing."""

import keras
import numpy as np
import pytest

from kerasmodels import models, training
from kerasmodels.training.streams import checked_stream
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


class Counting(Stream):
    """Notes which batches were asked for."""

    def __init__(self, batches):
        super().__init__(batches)
        self.asked = []

    def __getitem__(self, index):
        self.asked.append(index)
        return super().__getitem__(index)


def test_a_stream_is_what_it_was():
    """The same batches in the same order, but for the first, which is looked at before."""
    model, good = classifier(), (batch(), TARGETS)
    data, plain = Counting([good] * 3), Counting([good] * 3)
    history = model.fit(data, epochs=2, validation_data=Stream([good]), shuffle=False, verbose=0)
    assert len(history.history["val_loss"]) == 2
    keras.Model.fit(classifier(), plain, epochs=2, shuffle=False, verbose=0)
    assert data.epochs == plain.epochs and data.asked == [0, *plain.asked]
    assert model.predict(Stream([(batch(),)] * 3), verbose=0).shape == (6, 2)
    taken, looked = [], []
    endless = (taken.append(i) or good for i in range(99))
    stream = checked_stream(endless, looked.append, {})
    assert [next(stream), next(stream)] == looked and taken == [0, 1]  # none ahead of its time
    for _ in range(2):
        model.fit(endless, steps_per_epoch=2, verbose=0)
    assert len(taken) >= 6  # how far ahead Keras looks is its own affair, and TensorFlow's
    if backend() != "tensorflow":
        assert len(taken) <= 8


def test_what_checks_nothing_is_left_alone():
    """Not even its first batch is asked for."""
    dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model = training.GradientAccumulation(dense, 2)
    model.compile("sgd", "mse")
    x = (np.ones((2, 2), "float32"), np.ones((2, 1), "float32"))
    data = Counting([x] * 2)
    assert model._checked(data, (), True) is data and data.asked == []


def test_a_pipeline_that_is_shared_out_keeps_its_last_step(monkeypatch):
    """Whoever shares it out looks there for the batch size, which a `map` behind it hides."""
    model, data = classifier(), pipeline([(batch(), TARGETS)])
    assert model._checked(data, (), True) is not data
    monkeypatch.setattr(keras.distribution, "distribution", object)
    assert model._checked(data, (), True) is data
    assert checked_stream(data, model._check, {}) is data  # nor where there is nothing to check


@pytest.mark.skipif(backend() != "torch", reason="PyTorch's tensors are looked at in every step")
def test_tensors_that_numpy_does_not_know():
    import torch

    from kerasmodels.training.input_checks import visible_array

    half = visible_array(torch.tensor([1.5], dtype=torch.bfloat16))
    assert half.dtype == "float32" and half[0] == 1.5
    seen = []
    torch.func.vmap(lambda x: seen.append(visible_array(x)) or x)(torch.ones(2, 3))
    assert seen == [None]
    assert visible_array(torch.ones(2, device="meta")) is None


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


class Fails(keras.callbacks.Callback):
    def on_test_batch_end(self, batch, logs=None):
        raise KeyboardInterrupt

    on_predict_batch_end = on_train_batch_end = on_test_batch_end


def iter_of(batches):
    yield from batches


def broken(batches):
    yield from batches
    raise OSError("no such file")


@pytest.mark.skipif(backend() != "jax", reason="the other backends do not empty a model")
@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("steps_per_execution", [1, 2])
def test_an_error_costs_no_weights(method, steps_per_execution):
    """Keras 3.15 takes a model's weights out while it trains, and leaves it so after an error."""
    model = models.ResNet(8, stem="cifar", num_classes=2)
    model.compile("sgd", LOSS, steps_per_execution=steps_per_execution)
    good = (np.zeros((2, 8, 8, 3), "float32"), TARGETS)
    model.fit(*good, verbose=0)
    for batches in ([], [good], [good] * 2, [good] * 3):
        with pytest.raises(OSError, match="no such file"):
            getattr(model, method)(broken(batches), verbose=0)
        assert all(np.isfinite(w).all() for w in model.get_weights())
    with pytest.raises(KeyboardInterrupt):
        getattr(model, method)(
            good[0], *good[1:] * (method != "predict"), verbose=0, callbacks=[Fails()]
        )
    assert all(np.isfinite(w).all() for w in model.get_weights())
    before = [np.array(w) for w in model.get_weights()]
    with pytest.raises(OSError):
        getattr(model, method)(broken([]), verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
