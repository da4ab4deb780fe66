"""The batches inside `fit`, on each backend: every pair once, in the order drawn, no shape refused.

Includes the data half of case C36.
"""

import keras
import numpy as np
import pytest

from kerasmodels import data

VOCABULARY = 64
PRIME = 10_007


@keras.saving.register_keras_serializable(package="tests")
class Recorder(keras.layers.Layer):
    """Counts what training reads: the calls, each id, and a checksum that depends on the order."""

    def build(self, _):
        def counter(name, shape=()):
            return self.add_weight(
                name=name, shape=shape, initializer="zeros", dtype="int32", trainable=False
            )

        self.calls, self.order = counter("calls"), counter("order")
        self.seen = counter("seen", (VOCABULARY,))

    def call(self, ids, mask, training=False):
        if training:
            real = keras.ops.one_hot(ids, VOCABULARY, dtype="int32") * mask[..., None]
            self.calls.assign_add(1)
            self.seen.assign_add(keras.ops.cast(keras.ops.sum(real, axis=(0, 1)), "int32"))
            rows = keras.ops.sum(ids * mask, axis=1)
            place = keras.ops.arange(1, keras.ops.shape(ids)[0] + 1)
            total = self.order * 31 + keras.ops.cast(keras.ops.sum(rows * place), "int32")
            self.order.assign(keras.ops.mod(total, PRIME))
        return ids


def checksum(order, dataset):
    """The `order` of `Recorder` in numpy, after a pass over `dataset`."""
    for inputs, *_ in dataset:
        rows = (inputs["encoder_token_ids"] * inputs["encoder_padding_mask"]).sum(1)
        order = (order * 31 + (rows * np.arange(1, len(rows) + 1)).sum()) % PRIME
    return int(order)


def small_model(seed=0):
    keras.utils.set_random_seed(seed)
    inputs = {
        name: keras.Input((None,), dtype="int32", name=name)
        for name in (
            "encoder_token_ids",
            "encoder_padding_mask",
            "decoder_token_ids",
            "decoder_padding_mask",
        )
    }
    recorder = Recorder()
    ids = recorder(inputs["encoder_token_ids"], inputs["encoder_padding_mask"])
    embedding = keras.layers.Embedding(VOCABULARY, 4)
    mask = keras.ops.cast(inputs["encoder_padding_mask"], "float32")[..., None]
    source = keras.ops.sum(embedding(ids) * mask, axis=1, keepdims=True)
    mask = keras.ops.cast(inputs["decoder_padding_mask"], "float32")[..., None]
    logits = keras.layers.Dense(VOCABULARY)(
        (embedding(inputs["decoder_token_ids"]) + source) * mask
    )
    model = keras.Model(inputs, logits)
    # The mean over what has a weight, as a training loss for these batches is.
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    model.compile(keras.optimizers.SGD(0.1), loss)
    return model, recorder


def pairs_of_lengths(*lengths):
    """One pair a length, each of one id of its own, so that `seen` says which pairs were read."""
    return [[4 + i] * n for i, n in enumerate(lengths)], [
        [4 + i] * n for i, n in enumerate(lengths)
    ]


def times_read(recorder, lengths):
    seen = keras.ops.convert_to_numpy(recorder.seen)
    assert (seen[:4] == 0).all() and (seen[4 + len(lengths) :] == 0).all()
    return (seen[4 : 4 + len(lengths)] / lengths).tolist()


@pytest.mark.parametrize("shuffle", [True, False])
def test_lengths_3_3_5(shuffle):
    # Two batches of length 3, one of 5: TensorFlow would fix the length at 3 and fail at 5.
    lengths = [3, 3, 3, 3, 5]
    options = {"tokens_per_batch": 8, "num_buckets": 2, "shuffle": shuffle}
    train = data.BucketedPairs(*pairs_of_lengths(*lengths), **options)
    dev = data.BucketedPairs(*pairs_of_lengths(5, 3, 3, 3, 3), **options)
    assert len(train) == 3
    model, recorder = small_model()
    history = model.fit(train, epochs=2, validation_data=dev, verbose=0).history
    assert times_read(recorder, lengths) == [2.0] * 5
    assert np.isfinite(history["val_loss"]).all()


@pytest.mark.parametrize("lengths", [[3], [3, 3, 3, 3]])
def test_one_bucket_or_one_batch(lengths):
    train = data.BucketedPairs(*pairs_of_lengths(*lengths), tokens_per_batch=12, num_buckets=2)
    model, recorder = small_model()
    model.fit(train, epochs=3, verbose=0)
    assert times_read(recorder, lengths) == [3.0] * len(lengths)


@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pair_once_an_epoch(shuffle):
    lengths = np.random.default_rng(0).integers(1, 7, 30).tolist()
    train = data.BucketedPairs(*pairs_of_lengths(*lengths), tokens_per_batch=20, num_buckets=2)
    model, recorder = small_model()
    model.fit(train, epochs=1, shuffle=shuffle, verbose=0)
    assert times_read(recorder, lengths) == [1.0] * 30
    assert int(recorder.calls) == len(train)
    model.fit(train, epochs=3, shuffle=shuffle, verbose=0)
    assert times_read(recorder, lengths) == [4.0] * 30


@pytest.mark.parametrize("shuffle", [True, False])
def test_steps_per_epoch_does_not_cut_a_pass(shuffle):
    lengths = [2] * 30
    train = data.BucketedPairs(*pairs_of_lengths(*lengths), tokens_per_batch=15, num_buckets=1)
    assert len(train) == 6
    model, recorder = small_model()
    model.fit(train, epochs=6, steps_per_epoch=2, shuffle=shuffle, verbose=0)
    assert times_read(recorder, lengths) == [2.0] * 30
    model.fit(train, epochs=3, steps_per_epoch=6, shuffle=shuffle, verbose=0)
    assert times_read(recorder, lengths) == [5.0] * 30


def test_the_same_batches_on_every_backend():
    lengths = np.random.default_rng(1).integers(1, 7, 50).tolist()
    train, twin = (
        data.BucketedPairs(*pairs_of_lengths(*lengths), tokens_per_batch=30, num_buckets=2, seed=5)
        for _ in range(2)
    )
    model, recorder = small_model()
    model.fit(train, epochs=3, shuffle=False, verbose=0)
    expected = 0
    for _ in range(3):
        twin.on_epoch_end()  # fit resets the dataset once before the first epoch
        expected = checksum(expected, twin)
    assert int(recorder.order) == expected


@pytest.mark.parametrize("steps", [None, 2])
def test_counter_and_weights_are_those_of_arrays(steps):
    # case C36: 10 samples, batch 5, without shuffling; numpy, PyDataset, tf.data, DataLoader
    random = np.random.default_rng(0)
    source = random.integers(4, VOCABULARY, (10, 3))
    target = random.integers(4, VOCABULARY, (10, 2))
    pairs = data.BucketedPairs(list(source), list(target), tokens_per_batch=15, shuffle=False)
    assert [len(y) for _, y, _ in pairs] == [5, 5]
    batches = list(pairs)
    x, y, weight = (
        ({k: np.concatenate([b[0][k] for b in batches]) for k in batches[0][0]}),
        *(np.concatenate([b[part] for b in batches]) for part in (1, 2)),
    )
    kinds = {"pairs": pairs, "arrays": (x, y, weight)}
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        kinds["tf.data"] = tf.data.Dataset.from_tensor_slices((x, y, weight)).batch(5)
    if keras.backend.backend() == "torch":
        import torch

        rows = [({k: v[i] for k, v in x.items()}, y[i], weight[i]) for i in range(10)]
        kinds["loader"] = torch.utils.data.DataLoader(rows, batch_size=5)
    weights = {}
    for kind, given in kinds.items():
        model, recorder = small_model()
        arguments = {"x": given}
        if kind == "arrays":
            arguments = {"x": x, "y": y, "sample_weight": weight, "batch_size": 5}
        model.fit(**arguments, steps_per_epoch=steps, shuffle=False, verbose=0)
        assert int(recorder.calls) == 2
        weights[kind] = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
    for kind in kinds:
        for ours, theirs in zip(weights["pairs"], weights[kind], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_a_partial_batch_counts_once_and_its_padding_nothing():
    # case C36 with batch 4: 10 samples in 3 batches of 4 rows, two of them padding only
    lengths = [3] * 10
    pairs = data.BucketedPairs(*pairs_of_lengths(*lengths), tokens_per_batch=16, shuffle=False)
    rows = [pairs.rows(i) for i in range(len(pairs))]
    assert [(r >= 0).sum() for r in rows] == [4, 3, 3] and {len(r) for r in rows} == {4}
    model, recorder = small_model()
    model.fit(pairs, shuffle=False, verbose=0)
    assert int(recorder.calls) == 3 and times_read(recorder, lengths) == [1.0] * 10

    # the same three updates from batches without the rows of padding
    other, _ = small_model()
    for (inputs, targets, weight), kept in zip(pairs, rows, strict=True):
        real = kept >= 0
        inputs = {k: v[real] for k, v in inputs.items()}
        other.train_on_batch(inputs, targets[real], sample_weight=weight[real])
    for ours, theirs in zip(model.trainable_variables, other.trainable_variables, strict=True):
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(ours),
            keras.ops.convert_to_numpy(theirs),
            rtol=1e-5,
            atol=1e-6,
        )
