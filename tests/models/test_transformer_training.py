"""The Transformer in `fit`: weights of samples and classes (C34), every kind of input (C36).

Case C35, replicas, is in `tests/test_distribution.py`.
"""

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import models, training

BACKEND = keras.backend.backend()
VOCABULARY, ROWS = 13, 10


class Counting(models.Transformer):
    """Counts its training calls."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.calls = self.add_weight(
            name="calls", shape=(), initializer="zeros", dtype="int32", trainable=False
        )

    def call(self, inputs, training=None, mask=None):
        if training:
            self.calls.assign_add(1)
        return super().call(inputs, training=training, mask=mask)


def make(loss=None, rate=0.5, **kwargs):
    keras.utils.set_random_seed(5)
    model = Counting(
        VOCABULARY, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=16, dropout=0.0
    )
    model.compile(
        keras.optimizers.SGD(rate),
        loss or training.SmoothedCrossEntropy(0.1),
        jit_compile=BACKEND == "jax",  # XLA would compile for longer than these steps take
        **kwargs,
    )
    return model


def data(rows=ROWS):
    """Inputs and targets, sources padded unequally, targets of 2 to 5 tokens."""
    rng = np.random.default_rng(3)
    source, target = (rng.integers(3, VOCABULARY, (rows, 5)).astype("int32") for _ in range(2))
    source *= np.arange(5) < rng.integers(1, 6, rows)[:, None]
    target *= np.arange(5) < rng.integers(2, 6, rows)[:, None]
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": source != 0,
        "decoder_token_ids": target,
        "decoder_padding_mask": target != 0,
    }
    return inputs, np.pad(target[:, 1:], ((0, 0), (0, 1)), constant_values=2) * (target != 0)


X, Y = data()


def rows_of(x, rows):
    return {name: array[rows] for name, array in x.items()}


def token_losses(logits, smoothing):
    """The cross-entropy of each token against the smoothed target, in float64."""
    logits = logits.astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    picked = np.take_along_axis(log_p, Y[..., None], -1)[..., 0]
    return -(1 - smoothing) * picked - smoothing * log_p.mean(-1)


WEIGHTS = {
    "none": None,
    "rows": np.array([1, 0, 3, 0.5, 2, 0, 1, 1, 0.1, 4], "float32"),
    "tokens": np.random.default_rng(1).uniform(size=Y.shape).astype("float32"),
}


@pytest.mark.parametrize("loss", ["ours", "keras"])
def test_c34_sample_weight(loss):
    of_keras = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = make(
        None if loss == "ours" else of_keras, rate=0.0, weighted_metrics=[training.TokenLoss()]
    )
    logits = model.predict_on_batch(X)
    losses = token_losses(logits, 0.1 if loss == "ours" else 0.0)
    plain = token_losses(logits, 0.0)
    for kind, given in WEIGHTS.items():
        if loss == "keras" and kind == "rows":
            given = given[:, None]  # it wants the targets' rank
        weight = np.ones(Y.shape) if given is None else given.reshape(ROWS, -1) * np.ones(Y.shape)
        real = weight * (Y != 0)
        # Ours is the mean over the real tokens; Keras's divides by all, padding included.
        expected = (losses * real).sum() / real.sum()
        if loss == "keras":
            expected = (losses * weight).sum() / Y.size
        metric = (plain * real).sum() / real.sum()
        history = model.fit(X, Y, sample_weight=given, batch_size=ROWS, verbose=0).history
        logs = model.evaluate(X, Y, sample_weight=given, batch_size=ROWS, verbose=0)
        for found in ([history["loss"][0], history["token_loss"][0]], logs):
            np.testing.assert_allclose(found, [expected, metric], rtol=1e-5, err_msg=kind)


def test_c34_a_row_without_weight_is_not_learned_from():
    kept = np.arange(ROWS) % 2 == 0
    weighted, alone = make(), make()
    weighted.fit(X, Y, sample_weight=kept.astype("float32"), batch_size=ROWS, verbose=0)
    alone.fit(rows_of(X, kept), Y[kept], batch_size=ROWS, verbose=0)
    moved = 0.0
    for a, b, c in zip(*(m.get_weights() for m in (weighted, alone, make())), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        moved = max(moved, np.abs(a - c).max())
    assert moved > 0.01


def test_c34_class_weight_is_refused():
    # Keras takes the class of a row of ids where the greatest of them stands.
    model = make()
    with pytest.raises(ValueError, match="class_weight.*sample_weight"):
        model.fit(X, Y, class_weight={3: 2.0}, verbose=0)
    with pytest.raises(ValueError, match="class_weight.*sample_weight"):
        model.fit(Batches(5), class_weight={3: 2.0}, verbose=0)


class Batches(keras.utils.PyDataset):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def __len__(self):
        return -(-ROWS // self.batch_size)

    def __getitem__(self, index):
        rows = slice(index * self.batch_size, (index + 1) * self.batch_size)
        return rows_of(X, rows), Y[rows]


def kinds(batch_size):
    """The arguments of `fit` for the same batches in every form."""
    import tensorflow as tf
    import torch

    samples = [(rows_of(X, row), Y[row]) for row in range(ROWS)]
    return {
        "numpy": {"x": X, "y": Y, "batch_size": batch_size},
        "PyDataset": {"x": Batches(batch_size)},
        "tf.data": {"x": tf.data.Dataset.from_tensor_slices((X, Y)).batch(batch_size)},
        "DataLoader": {"x": torch.utils.data.DataLoader(samples, batch_size=batch_size)},
    }


@pytest.mark.parametrize("accumulated", [False, True])
def test_c36_every_kind_of_input(accumulated):
    model = make()
    start = model.get_weights()
    trained = model
    if accumulated:  # the Transformer in a training step of the library's own
        trained = training.GradientAccumulation(model, 2)
        trained.compile(
            keras.optimizers.SGD(0.5),
            training.SmoothedCrossEntropy(0.1),
            jit_compile=BACKEND == "jax",
        )
    # 2 and 2 batches; 4, 4 and 2 rows; every epoch goes on where the last one ended.
    for batch_size, steps, epochs, calls in (
        (5, None, 2, 4),
        (5, 2, 2, 4),
        (4, None, 1, 3),
        (4, 3, 1, 3),
        (5, 1, 2, 2),
    ):
        model.set_weights(start)
        for _ in range(epochs if steps != 1 else 1):
            for row in range(0, ROWS, batch_size):
                rows = slice(row, row + batch_size)
                trained.train_on_batch(rows_of(X, rows), Y[rows])
        expected = model.get_weights()
        assert max(np.abs(a - b).max() for a, b in zip(start, expected, strict=True)) > 0.01
        for kind, arguments in kinds(batch_size).items():
            message = f"{kind}, batch {batch_size}, steps {steps}"
            model.set_weights(start)
            trained.fit(**arguments, steps_per_epoch=steps, epochs=epochs, shuffle=False, verbose=0)
            found = int(ops.convert_to_numpy(model.calls))
            assert found == calls * (2 if accumulated else 1), message
            for a, b in zip(expected, model.get_weights(), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5, err_msg=message)
