import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import models
from kerasmodels.training import (
    ErrorRate,
    GenerationCallback,
    GradientAccumulation,
    KeepLastCheckpoints,
    SmoothedCrossEntropy,
    average_checkpoints,
)
from tests.kit.replicas import two_replicas

BACKEND = keras.backend.backend()
VOCABULARY, ROWS, LENGTH = 11, 10, 6


def data(rows=ROWS):
    """Ids with very unequal padding: row i has 1 to 6 real tokens, and some rows none."""
    rng = np.random.default_rng(0)
    inputs = rng.integers(1, VOCABULARY, size=(rows, LENGTH)).astype("int32")
    targets = rng.integers(1, VOCABULARY, size=(rows, LENGTH)).astype("int32")
    lengths = (np.arange(rows) * 5) % (LENGTH + 1)
    keep = np.arange(LENGTH) < lengths[:, None]
    return {"ids": inputs * keep, "mask": keep}, targets * keep


X, Y = data()
WEIGHT = np.random.default_rng(1).uniform(0.2, 3.0, size=Y.shape).astype("float32")


def network(seed=1):
    ids = keras.Input((None,), dtype="int32", name="ids")
    mask = keras.Input((None,), dtype="bool", name="mask")

    def uniform(i):
        return keras.initializers.RandomUniform(-0.5, 0.5, seed=seed + i)

    x = keras.layers.Embedding(VOCABULARY, 8, embeddings_initializer=uniform(0))(ids)
    x = x * ops.expand_dims(ops.cast(mask, "float32"), -1)
    x = keras.layers.Dense(
        8, "tanh", kernel_initializer=uniform(1), kernel_regularizer=keras.regularizers.L2(0.01)
    )(x)
    x = x + ops.mean(x, axis=1, keepdims=True)
    logits = keras.layers.Dense(VOCABULARY, kernel_initializer=uniform(2))(x)
    return keras.Model({"ids": ids, "mask": mask}, logits)


def compiled(model, loss=None, **kwargs):
    model.compile(
        keras.optimizers.SGD(0.5, momentum=0.9),
        loss=loss or SmoothedCrossEntropy(0.1),
        metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy("entropy", from_logits=True)],
        **kwargs,
    )
    return model


def assert_same_weights(a, b, atol=1e-6):
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=atol)


def fit(model, x=X, y=Y, batch_size=ROWS, epochs=3, **kwargs):
    return model.fit(
        x, y, batch_size=batch_size, epochs=epochs, shuffle=False, verbose=0, **kwargs
    ).history


# 10 rows in 5 equal parts; in parts of 3, 3, 2 and 2 rows; one by one.
@pytest.mark.parametrize("steps, weight", [(5, None), (4, WEIGHT), (50, None)])
def test_equals_the_unsplit_batch(steps, weight):
    whole = compiled(network())
    split = compiled(GradientAccumulation(network(), steps))
    kwargs = {"sample_weight": weight, "validation_data": (X, Y)}
    expected = fit(whole, **kwargs)
    history = fit(split, **kwargs)
    assert_same_weights(split.model, whole)
    assert int(split.optimizer.iterations) == 3
    assert set(history) == set(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(history[key], values, rtol=1e-5, err_msg=key)


def test_a_mean_over_rows_a_jitted_step_and_a_smaller_last_batch():
    def loss():
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    kwargs = {} if BACKEND == "torch" else {"jit_compile": True}
    whole = compiled(network(), loss())
    split = compiled(GradientAccumulation(network(), 3), loss(), **kwargs)
    fit(whole, sample_weight=WEIGHT, batch_size=8, epochs=1)  # 8 and 2 rows
    fit(split, sample_weight=WEIGHT, batch_size=8, epochs=1)
    assert_same_weights(split.model, whole)


@pytest.mark.parametrize("several", [False, True])
def test_a_class_that_keras_ignores(several):
    """Its mean is over the others: micro-batches count by how many they have."""

    def loss():
        one = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=0)
        return {"tokens": one} if several else one

    def model():
        base = network()
        return keras.Model(base.input, {"tokens": base.output}) if several else base

    y = {"tokens": Y} if several else Y
    whole, split = model(), GradientAccumulation(model(), 4)
    for one in (whole, split):
        one.compile(keras.optimizers.SGD(0.5), loss())
    expected, history = fit(whole, y=y), fit(split, y=y)
    assert_same_weights(split.model, whole)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)


def test_several_outputs_each_with_its_own_weight():
    """As BERT's pre-training: masked positions of unequal number, and a class for each row."""

    def two_outputs():
        base = network()
        pooled = keras.layers.GlobalAveragePooling1D()(base.output)
        zeros = keras.initializers.Zeros()
        classes = keras.layers.Dense(2, kernel_initializer=zeros, name="classes")(pooled)
        return keras.Model(base.input, {"tokens": base.output, "classes": classes})

    def compiled(model):
        losses = {
            "tokens": SmoothedCrossEntropy(0.1),
            "classes": keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        }
        metrics = {"classes": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]}
        optimizer = keras.optimizers.SGD(0.5, momentum=0.9)
        weights = {"tokens": 0.5, "classes": 2.0}
        model.compile(optimizer, losses, weights, weighted_metrics=metrics)
        return model

    whole, split = compiled(two_outputs()), compiled(GradientAccumulation(two_outputs(), 4))
    y = {"tokens": Y, "classes": (np.arange(ROWS) % 3 == 0).astype("int32")}
    weight = {"tokens": WEIGHT, "classes": np.linspace(0.5, 2, ROWS).astype("float32")}
    expected = fit(whole, y=y, sample_weight=weight, validation_data=(X, y))
    history = fit(split, y=y, sample_weight=weight, validation_data=(X, y))
    assert_same_weights(split.model, whole)
    for key in ("loss", "val_loss", "classes_accuracy", "val_classes_accuracy"):
        np.testing.assert_allclose(history[key], expected[key], rtol=1e-5, err_msg=key)
    with pytest.raises(ValueError, match="keys of `loss`, .'classes', 'tokens'"):
        split.train_on_batch(X, {"tokens": Y})


def test_padding_alone_changes_nothing():
    model = GradientAccumulation(network(), 2)
    model.compile("sgd", loss=SmoothedCrossEntropy(0.1))
    before = model.get_weights()
    history = fit(model, sample_weight=np.zeros(Y.shape, "float32"))
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert history["loss"] == [0.0] * 3


def test_a_mask_that_the_predictions_carry():
    def masked():
        ids = keras.Input((None,), dtype="int32")
        x = keras.layers.Embedding(
            VOCABULARY,
            8,
            mask_zero=True,
            embeddings_initializer=keras.initializers.Orthogonal(seed=2),
        )(ids)
        return keras.Model(
            ids, keras.layers.Dense(VOCABULARY, kernel_initializer=keras.initializers.Zeros())(x)
        )

    targets = np.maximum(Y, 1)  # no pad id among them: only the mask knows
    whole, split = masked(), GradientAccumulation(masked(), 3)
    for model in (whole, split):
        model.compile(keras.optimizers.SGD(1.0), loss=SmoothedCrossEntropy(0.1))
        fit(model, X["ids"], targets)
    assert_same_weights(split.model, whole)
    split.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(ValueError, match="carry a mask"):
        fit(split, X["ids"], targets)


def test_every_micro_batch_moves_state_and_sees_its_rows():
    inputs = keras.Input((3,))
    x = keras.layers.BatchNormalization(momentum=0.5)(inputs)
    x = keras.layers.Dropout(0.5, seed=4)(x)
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    rows = np.random.default_rng(2).normal(size=(4, 3)).astype("float32")
    split = GradientAccumulation(model, 2)
    split.compile(keras.optimizers.SGD(0.0), loss="mse")
    fit(split, rows, np.zeros((4, 1), "float32"), batch_size=4, epochs=1)
    first, second = rows[0::2].mean(0), rows[1::2].mean(0)
    np.testing.assert_allclose(
        ops.convert_to_numpy(model.layers[1].moving_mean), 0.25 * first + 0.5 * second, rtol=1e-5
    )
    seed = ops.convert_to_numpy(model.layers[2].seed_generator.state.value)
    np.testing.assert_array_equal(seed, [4, 2])


def test_file_round_trip(tmp_path):
    model = compiled(GradientAccumulation(network(), 4))
    fit(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.steps == 4 and int(loaded.optimizer.iterations) == 3
    np.testing.assert_array_equal(model.predict(X, verbose=0), model.model.predict(X, verbose=0))


@pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow's")
def test_replicas_equal_one_device():
    single = compiled(network())
    expected = fit(single)
    with two_replicas().scope():
        split = compiled(GradientAccumulation(network(), 2))
    history = fit(split)
    assert_same_weights(split.model, single)
    np.testing.assert_allclose(history["loss"], expected["loss"], rtol=1e-5)


@pytest.mark.skipif(BACKEND != "jax", reason="XLA says how much memory a program needs")
def test_memory_is_that_of_one_micro_batch():
    import jax

    def temporary_bytes(steps):
        inputs = keras.Input((64,))
        x = inputs
        for _ in range(6):
            x = keras.layers.Dense(64, "tanh")(x)
        model = GradientAccumulation(keras.Model(inputs, x), steps)
        model.compile("sgd", loss="mse")
        model.optimizer.build(model.trainable_variables)
        state = [
            [v.value for v in group]
            for group in (
                model.trainable_variables,
                model.non_trainable_variables,
                model.optimizer.variables,
                model.metrics_variables,
            )
        ]
        batch = (np.zeros((2048, 64), "float32"), np.zeros((2048, 64), "float32"))
        program = jax.jit(model.train_step).lower(tuple(state), batch).compile()
        return program.memory_analysis().temp_size_in_bytes

    assert temporary_bytes(8) < 0.4 * temporary_bytes(1)


def test_callbacks_generate_with_the_model_and_keep_its_files(tmp_path):
    def transformer(seed):
        keras.utils.set_random_seed(seed)
        return models.Transformer(
            VOCABULARY, num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8, dropout=0.0
        )

    source = np.random.default_rng(0).integers(3, VOCABULARY, (8, 4))
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": np.ones(source.shape, bool),
        "decoder_token_ids": np.pad(source, ((0, 0), (1, 0)), constant_values=1),
        "decoder_padding_mask": np.ones((8, 5), bool),
    }
    targets = np.pad(source, ((0, 0), (0, 1)), constant_values=2)
    model = transformer(0)
    split = GradientAccumulation(model, 2)
    split.compile(
        keras.optimizers.Adam(0.05), loss=SmoothedCrossEntropy(), jit_compile=BACKEND == "jax"
    )
    generation = GenerationCallback((inputs, targets), ErrorRate(), max_length=5)
    keep = KeepLastCheckpoints(tmp_path, keep=3)
    history = fit(split, inputs, targets, batch_size=4, callbacks=[generation, keep])
    assert history["val_per"][0] != history["val_per"][2]  # it learns: the answers change

    # Each file loads into a Transformer, which then says what the callback heard in that epoch.
    assert len(keep.paths) == 3
    fresh, weights = transformer(1), []
    generation.set_model(fresh)
    for path, value in zip(keep.paths, history["val_per"], strict=True):
        fresh.load_weights(path)
        weights.append(fresh.get_weights())
        np.testing.assert_allclose(generation.evaluate()["per"], value)
    assert_same_weights(fresh, model, atol=0)
    average_checkpoints(keep.paths, model)
    for found, of_files in zip(model.get_weights(), zip(*weights, strict=True), strict=True):
        np.testing.assert_allclose(found, np.mean(of_files, axis=0), rtol=1e-5, atol=1e-6)


def test_c34_weights_of_classes_and_samples():
    # y = [0, 1] with probabilities [.8, .2] and [.6, .4]: sums of w * l over the rows
    inputs = keras.Input((2,))
    fixed = keras.layers.Dense(2, use_bias=False, kernel_initializer="identity")
    x, y = np.log([[0.8, 0.2], [0.6, 0.4]]).astype("float32"), np.array([0, 1])
    split = GradientAccumulation(keras.Model(inputs, fixed(inputs)), 2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    split.compile(keras.optimizers.SGD(0.0), loss=loss, weighted_metrics=["accuracy"])
    for weights, expected, accuracy in (
        ({}, 0.569717, 0.5),
        ({"class_weight": {0: 1.0, 1: 3.0}}, 1.486008, 0.25),
        ({"sample_weight": np.array([1.0, 0.0])}, 0.111572, 1.0),
    ):
        history = fit(split, x, y, epochs=1, **weights)
        np.testing.assert_allclose(history["loss"], [expected], rtol=1e-5)
        np.testing.assert_allclose(history["accuracy"], [accuracy], rtol=1e-5)


def test_bad_input():
    model = network()
    for steps in (0, -1, 1.5, True, None):
        with pytest.raises(ValueError, match="`steps` must be a positive integer"):
            GradientAccumulation(model, steps)
    with pytest.raises(ValueError, match="`model` must be a keras.Model"):
        GradientAccumulation("model", 2)
    split = GradientAccumulation(model, 2)
    for loss in (None, ["mse"], {"a": None}, keras.losses.MeanSquaredError(reduction="sum")):
        with pytest.raises(ValueError, match="`loss` must be one loss"):
            split.compile("sgd", loss=loss)
    split.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match="without targets"):
        split.training_step((X,))
