"""Models whose inputs are a dictionary take exactly its keys, wherever it enters."""

import keras
import numpy as np
import pytest

from kerasmodels import models

SIZES = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=8)
IDS = np.array([[2, 5, 3]], "int32")


def bert():
    return models.Bert(9, **SIZES, max_sequence_length=4)


def transformer():
    return models.Transformer(9, **SIZES)


def pretraining():
    return models.BertPretraining(bert())


@pytest.mark.parametrize("make", [bert, transformer, pretraining])
def test_keys(make):
    model = make()
    inputs = {name: IDS * (name != "mask_positions") for name in model.input}
    inputs = {name: x > 0 if name.endswith("padding_mask") else x for name, x in inputs.items()}
    if "segment_ids" in inputs:
        inputs["segment_ids"] = 0 * IDS
    model(inputs)
    model.compile("sgd", lambda y, y_pred: keras.ops.sum(y_pred))
    # Keras would take the first for the mask that follows it in the alphabet.
    for more in ("a", "offsets", "zeta"):
        wrong = {**inputs, more: IDS}
        with pytest.raises(ValueError, match=f"must have the keys .*padding_mask.*{more}"):
            model(wrong)
        with pytest.raises(ValueError, match=f"must have the keys .*padding_mask.*{more}"):
            model.predict(wrong, verbose=0)
    with pytest.raises(ValueError, match="must have the keys .*zeta"):
        model.fit(wrong, IDS, verbose=0)
    if make is bert:
        with pytest.raises(ValueError, match="must have the keys .*zeta"):
            model.hidden_states(wrong)
    inputs.popitem()
    with pytest.raises(ValueError, match="must have the keys"):
        model(inputs)


@pytest.mark.parametrize("method", ["fit", "evaluate", "predict"])
@pytest.mark.parametrize("kind", ["pipeline", "generator"])
def test_streams(method, kind):
    tf = pytest.importorskip("tensorflow")
    model = bert()
    model.compile("sgd", {"pooled_output": "mse"})

    def stream(**more):
        row = {"token_ids": IDS, "segment_ids": 0 * IDS, "padding_mask": IDS > 0, **more}
        batch = (row, {"pooled_output": np.zeros((1, 4), "float32")})
        batch = batch[:1] if method == "predict" else batch
        if kind == "pipeline":
            return tf.data.Dataset.from_tensors(batch)
        return (batch for _ in range(1))

    getattr(model, method)(stream(), verbose=0)
    with pytest.raises(ValueError, match="must have the keys .*offsets"):
        getattr(model, method)(stream(offsets=IDS), verbose=0)
    if kind == "pipeline":  # an error within Keras's step takes a model's weights on JAX
        model(next(iter(stream()))[0])
