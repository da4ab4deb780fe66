"""Whatever Keras takes for an array is checked as one of numpy is, in every model."""

import functools

import keras
import numpy as np
import pandas
import pytest
import scipy.sparse

from kerasmodels import models, training
from tests.kit import backend

SIZES = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=8)
IDS = np.array([[2, 5, 3], [2, 4, 3], [2, 6, 3], [2, 7, 3]], "int32")
BERT = {"token_ids": IDS, "segment_ids": 0 * IDS, "padding_mask": IDS > 0}
SPARSE = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def bert():
    return models.Bert(9, **SIZES, max_sequence_length=4)


def classifier(num_classes=3):
    return models.BertClassifier(bert(), num_classes)


def tagger():
    return models.BertTokenClassifier(bert(), 3)


def spans():
    return models.BertSpanClassifier(bert())


def accumulating():
    return training.GradientAccumulation(classifier(), 2)


def transformer():
    return models.Transformer(9, **SIZES)


def resnet():
    return models.ResNet(8, stem="cifar", num_classes=3)


def gan():
    generator = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])
    discriminator = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    generator, discriminator = (
        keras.Model(
            [network.inputs[0], label := keras.Input((), dtype="int32")],
            network(network.inputs[0]) + 0 * keras.ops.cast(label[:, None], "float32"),
        )
        for network in (generator, discriminator)
    )
    return models.GAN(generator, discriminator, latent_dim=2, num_classes=3)


SEQUENCES = {name: IDS for name in ("encoder_token_ids", "decoder_token_ids")} | {
    name: IDS > 0 for name in ("encoder_padding_mask", "decoder_padding_mask")
}
IMAGES = np.zeros((4, 8, 8, 3), "float32")
LABELS = np.array([1, 2, 0, 1])
ROWS = np.ones((4, 3), "float32")
# A model, its inputs, and good targets.
CASES = {
    "classifier": (classifier, BERT, LABELS),
    "regression": (lambda: classifier(1), BERT, LABELS / 2),
    "tagger": (tagger, BERT, IDS % 3),
    "spans": (spans, BERT, {"start": LABELS, "end": LABELS}),
    "accumulating": (accumulating, BERT, LABELS),
    "transformer": (transformer, SEQUENCES, IDS),
    "resnet": (resnet, IMAGES, LABELS),
    "gan": (gan, ROWS, LABELS),
}


@functools.cache
def compiled(name):
    """A model for tests that leave its weights as they are."""
    model = CASES[name][0]()
    if name == "gan":
        model.compile(optimizer={"generator": "sgd", "discriminator": "sgd"})
    elif name == "spans":
        model.compile("sgd", {"start": SPARSE, "end": SPARSE})
    else:
        model.compile("sgd", "mse" if name == "regression" else SPARSE)
    return model


def other_tensors(array):
    """A tensor of a backend that is not in use."""
    if backend() == "torch":
        jax = pytest.importorskip("jax")
        return jax.numpy.asarray(array)
    return pytest.importorskip("torch").tensor(array)


class Wrapped:
    """Keras looks for a method `__array__`."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)

    def __getitem__(self, rows):
        return self.array[rows]

    def __len__(self):
        return len(self.array)


KINDS = {
    "numpy": np.asarray,
    "list of one": lambda y: [y],
    "series": lambda y: pandas.Series(y) if y.ndim == 1 else pandas.DataFrame(y),
    "frame": pandas.DataFrame,
    "tensor": keras.ops.convert_to_tensor,
    "tensor of another backend": other_tensors,
    "array-like": Wrapped,
}


def spoilt(targets, change):
    if isinstance(targets, dict):
        return {**targets, "end": change(targets["end"])}
    return change(targets)


def greatest(y):
    """One target is none of the classes, or no number where any number is allowed."""
    y = y.astype("float32") if y.dtype.kind == "f" else y.copy()
    y.reshape(-1)[-1] = np.nan if y.dtype.kind == "f" else 99
    return y


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CASES)
def test_targets(name, kind):
    """No container hides a bad label, in whatever argument it comes, and none is trained on."""
    _, x, y = CASES[name]
    model = compiled(name)
    bad = spoilt(y, lambda part: KINDS[kind](greatest(part)))
    before = [np.array(w) for w in model.get_weights()]
    for given in (
        lambda: model.fit(x, bad, batch_size=2, verbose=0),
        lambda: model.fit(x, y, validation_data=(x, bad), batch_size=2, verbose=0),
        lambda: model.evaluate(x, bad, verbose=0),
        lambda: model.train_on_batch(x, bad),
    ):
        with pytest.raises(ValueError, match="must be|from 0 to 2"):
            given()
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", CASES)
def test_good_targets_are_those_of_numpy(name):
    """The loss is the same; a GAN's is of fresh noise, so that it only runs."""
    _, x, y = CASES[name]
    model = compiled(name)
    expected = model.evaluate(x, y, batch_size=2, verbose=0)
    kinds = set(KINDS) - {"frame"} - ({"list of one"} if name == "spans" else set())
    for kind in kinds:
        found = model.evaluate(x, spoilt(y, KINDS[kind]), batch_size=2, verbose=0)
        if name != "gan":
            np.testing.assert_allclose(found, expected, rtol=1e-5, err_msg=kind)
    if name == "classifier":  # another rank is another program
        other = compiled.__wrapped__(name)
        other.set_weights(model.get_weights())
        found = other.evaluate(x, pandas.DataFrame(y), batch_size=2, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "column",
    [
        pandas.Series([1, None, 2, 0]),
        pandas.Series([1, None, 2, 0], dtype="Int64"),
        pandas.Series([1, "2", 2, 0], dtype=object),
        pandas.Series(["good", "bad", "bad", "good"]),
        pandas.Series(["good", "bad", "bad", "good"], dtype="category"),
        np.array([1, None, 2, 0]),
        scipy.sparse.csr_array([[1.0], [np.nan], [2.0], [0.0]]),
        [1, 2, 0, 1],
        (1, 2, None, 1),
        [[1], [2], [0], [1]],
        ["good", "bad", "bad", "good"],
    ],
    ids=lambda column: f"{type(column).__name__}-{getattr(column, 'dtype', '')}",
)
@pytest.mark.parametrize("name", ["classifier", "regression", "resnet", "gan"])
def test_what_is_no_array_of_finite_numbers(name, column):
    _, x, y = CASES[name]
    model = compiled(name)
    for given in (
        lambda: model.fit(x, column, verbose=0),
        lambda: model.fit(x, y, validation_data=(x, column), verbose=0),
        lambda: model.evaluate(x, column, verbose=0),
    ):
        with pytest.raises(ValueError, match=r"must be (finite|an array|integers)|from 0 to 2"):
            given()


@pytest.mark.parametrize("name", ["classifier", "regression", "tagger", "resnet", "transformer"])
@pytest.mark.parametrize(
    "weights",
    [
        pandas.Series([1.0, None, 1.0, 1.0]),
        np.array([1.0, np.inf, 1.0, 1.0]),
        np.array([1, None, 1, 1]),
        ["a", "b", "c", "d"],
        [1.0, 1.0, 1.0, 1.0],
    ],
    ids=["series", "inf", "none", "strings", "list"],
)
def test_weights(name, weights):
    _, x, y = CASES[name]
    model = compiled(name)
    for given in (
        lambda: model.fit(x, y, sample_weight=weights, verbose=0),
        lambda: model.fit(x, y, validation_data=(x, y, weights), verbose=0),
        lambda: model.evaluate(x, y, sample_weight=weights, verbose=0),
    ):
        with pytest.raises(ValueError, match=r"`sample_weight` must be (finite|an array)"):
            given()


@pytest.mark.parametrize("kind", ["frame", "tensor", "tensor of another backend", "array-like"])
@pytest.mark.parametrize("name", ["classifier", "transformer", "accumulating"])
def test_inputs(name, kind):
    """Ids are looked at whatever holds them, in a dictionary and in a list by position."""
    _, x, y = CASES[name]
    model, convert = compiled(name), KINDS[kind]
    ids = sorted(x)[-1] if name != "transformer" else "encoder_token_ids"
    bad = x | {ids: convert(np.where(x[ids] == 3, 9, x[ids]))}
    for inputs in (bad, [bad[key] for key in sorted(bad)]):
        with pytest.raises(ValueError, match=rf"`{ids}` must be in \[0, 9\), the vocabulary"):
            model.fit(inputs, y, verbose=0)
        with pytest.raises(ValueError, match=rf"`{ids}` must be in \[0, 9\), the vocabulary"):
            model.predict(inputs, verbose=0)


def test_a_loss_of_ones_own_may_know_missing_targets():
    def loss(y, y_pred):
        known = keras.ops.isfinite(y)
        return keras.ops.sum(keras.ops.abs(keras.ops.where(known, y, y_pred) - y_pred))

    model = resnet()
    model.compile("sgd", loss)
    y = np.array([[0.0, np.nan, 1.0]] * 4, "float32")
    model.fit(IMAGES, pandas.DataFrame(y), verbose=0)
    assert all(np.isfinite(w).all() for w in model.get_weights())


def test_a_tensor_that_is_differentiated_is_looked_at():
    torch = pytest.importorskip("torch")
    model = compiled("regression")
    bad = torch.tensor([1.0, float("nan"), 0.0, 0.0], requires_grad=True)
    with pytest.raises(ValueError, match="must be finite numbers"):
        model.fit(BERT, bad, verbose=0)
