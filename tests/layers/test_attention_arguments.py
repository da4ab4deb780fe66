"""The arguments that `MultiHeadAttention` has of Keras's layer, and what comes of them."""

import inspect
import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import MultiHeadAttention
from tests.kit import assert_close, normal, padding_mask, randomize, to_numpy

EVERY_ARGUMENT = {
    "value_dim": np.int64(3),
    "dropout": np.float32(0.25),
    "use_bias": np.bool_(True),
    "scale": np.float32(0.5),
    "kernel_initializer": keras.initializers.RandomNormal(stddev=0.3),
    "bias_initializer": keras.initializers.Constant(0.2),
    "kernel_regularizer": keras.regularizers.L2(0.125),
    "bias_regularizer": keras.regularizers.L1(0.25),
    "activity_regularizer": keras.regularizers.L2(0.5),
    "kernel_constraint": keras.constraints.MaxNorm(3.0),
    "bias_constraint": keras.constraints.NonNeg(),
    "output_shape": (np.int64(3), 2),
    "sliding_window": np.int32(3),
    "flash_attention": False,
    "use_gate": True,
    "seed": np.int64(7),
}


def test_a_config_holds_every_argument():
    layer = MultiHeadAttention(np.int64(2), np.int32(4), dtype="mixed_bfloat16", **EVERY_ARGUMENT)
    config = json.loads(json.dumps(keras.saving.serialize_keras_object(layer)))
    arguments = set(inspect.signature(MultiHeadAttention).parameters) - {"kwargs"}
    assert arguments <= set(config["config"])
    again = keras.saving.deserialize_keras_object(config)
    assert again.get_config() == layer.get_config()
    assert (again.num_heads, again.key_dim, again.value_dim) == (2, 4, 3)
    assert (again.window, again.dropout, again.scale, again.seed) == (2, 0.25, 0.5, 7)
    assert again.use_gate and again.flash_attention is False
    for name in ("kernel_regularizer", "bias_regularizer", "kernel_constraint", "bias_constraint"):
        assert getattr(again, name).get_config() == getattr(layer, name).get_config()
    again.build((2, 5, 8), (2, 6, 8))
    for name in ("query", "key", "gate", "value", "output"):
        dense = getattr(again, f"{name}_dense")
        assert dense.compute_dtype == "bfloat16"
        assert dense.kernel_regularizer.l2 == 0.125 and dense.bias_regularizer.l1 == 0.25
        assert dense.activity_regularizer.l2 == 0.5 and dense.kernel_constraint.max_value == 3.0
        assert (to_numpy(dense.bias.value) == np.float32(0.2)).all()
        assert 0.1 < to_numpy(dense.kernel.value).std() < 0.5


def test_a_config_of_keras_builds_the_layer_and_its_weights_fit():
    """With every argument that both layers have, and the same outputs."""
    given = {"value_dim": 4, "output_shape": (3, 2), "use_gate": True, "use_bias": True}
    theirs = keras.layers.MultiHeadAttention(2, 4, sliding_window=2, **given)
    query, value = normal(2, 5, 8), normal(2, 6, 7, seed=1)
    theirs(query, value)
    randomize(theirs)
    ours = MultiHeadAttention.from_config(theirs.get_config())
    ours(query, value)
    ours.set_weights(theirs.get_weights())
    for masks in ({}, {"use_causal_mask": True}, {"value_mask": padding_mask(5, 6)}):
        assert_close(ours(query, value, **masks), theirs(query, value, **masks))
    with pytest.raises(ValueError, match="shape"):  # turned round, it is no kernel of Keras's
        ours.set_weights([np.transpose(w) for w in ours.get_weights()])


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [5, 70])
def test_sliding_window_is_keras_word_for_window(causal, length):
    ours = MultiHeadAttention(2, 4, sliding_window=3)
    theirs = keras.layers.MultiHeadAttention(2, 4, sliding_window=3)
    x = ops.convert_to_tensor(normal(2, length, 8))
    theirs(x, x)
    randomize(theirs)
    ours(x, x)
    ours.set_weights(theirs.get_weights())
    assert ours.window == 2
    given = {"use_causal_mask": causal}
    assert_close(ours(x, x, **given), theirs(x, x, **given))


def test_the_regularizers_add_to_the_loss():
    options = {"kernel_regularizer": "l2", "bias_regularizer": "l1", "activity_regularizer": "l2"}
    ours = MultiHeadAttention(2, 4, use_gate=True, **options)
    theirs = keras.layers.MultiHeadAttention(2, 4, use_gate=True, **options)
    x = normal(2, 5, 8)
    theirs(x, x)
    randomize(theirs)
    ours(x, x)
    ours.set_weights(theirs.get_weights())
    losses = []
    for layer in (ours, theirs):
        layer(x, x)
        assert len(layer.losses) == 15  # a kernel, a bias and an output of five projections
        losses.append(float(to_numpy(sum(layer.losses))))
    assert_close(*losses)


def test_dropout_repeats_by_its_seed():
    x = normal(1, 4, 8)
    layers = [MultiHeadAttention(2, 4, dropout=0.5, seed=seed) for seed in (3, 3, 4)]
    outputs = []
    for layer in layers:
        layer(x, x)
        layer.set_weights(layers[0].get_weights())
        outputs.append(to_numpy(layer(x, x, training=True)))
    assert_close(outputs[0], outputs[1])
    assert np.abs(outputs[0] - outputs[2]).max() > 1e-3


@pytest.mark.parametrize("given,globally", [(None, True), (None, False), (False, True)])
def test_flash_attention_as_the_layer_or_keras_is_told(given, globally, monkeypatch):
    seen, kernel = [], ops.dot_product_attention

    def noted(*args, **kwargs):
        seen.append(kwargs["flash_attention"])
        return kernel(*args, **kwargs)

    monkeypatch.setattr(ops, "dot_product_attention", noted)
    x = ops.convert_to_tensor(normal(2, 5, 8))
    try:
        if not globally:
            keras.config.disable_flash_attention()
        for window in (None, 1):
            MultiHeadAttention(2, 4, window=window, flash_attention=given)(x, x)
    finally:
        keras.config.enable_flash_attention()
    assert seen == [None if globally and given is None else False] * 2


@pytest.mark.parametrize(
    "mask", [{}, {"use_causal_mask": True}, {"value_mask": padding_mask(3, 5)}]
)
@pytest.mark.parametrize("window", [None, 1])
def test_a_subclass_may_compute_attention_in_its_own_way(mask, window):
    class Own(MultiHeadAttention):
        def _compute_attention(self, query, key, value, attention_mask=None, training=None, *rest):
            masks.append(attention_mask)
            return super()._compute_attention(query, key, value, attention_mask, training, *rest)

    masks = []
    x = normal(2, 5, 8)
    layers = [cls(2, 4, window=window) for cls in (Own, MultiHeadAttention)]
    for layer in layers:
        layer(x, x)
    layers[1].set_weights(layers[0].get_weights())
    masks.clear()
    x = ops.convert_to_tensor(x)
    assert_close(layers[0](x, x, **mask), layers[1](x, x, **mask))
    assert [None if m is None else len(m.shape) for m in masks] == [3 if mask or window else None]


def test_the_gate_equals_the_formula():
    layer = MultiHeadAttention(2, 4, value_dim=3, use_gate=True)
    query, value = normal(2, 4, 8), normal(2, 6, 7, seed=1)
    layer(query, value)
    randomize(layer)
    plain = MultiHeadAttention(2, 4, value_dim=3, output_dim=6)
    plain(query, value)
    for name in ("query", "key", "value"):
        weights = getattr(layer, f"{name}_dense").get_weights()
        getattr(plain, f"{name}_dense").set_weights(weights)
    plain.output_dense.set_weights([np.eye(6), np.zeros(6)])
    heads = to_numpy(plain(query, value))
    kernel, bias = layer.gate_dense.get_weights()
    gate = 1 / (1 + np.exp(-(query @ kernel + bias)))
    kernel, bias = layer.output_dense.get_weights()
    assert_close(layer(query, value), (heads * gate) @ kernel + bias)


def test_each_projection_may_have_a_policy_of_its_own():
    """And the output has that of the layer, whichever of them is the odd one."""
    query, value = normal(2, 4, 8), normal(2, 5, 8, seed=1)
    whole = MultiHeadAttention(2, 4, use_gate=True, name="attention")
    expected = to_numpy(whole(query, value))
    for odd in ("query", "key", "value", "gate", "output"):
        policies = keras.dtype_policies.DTypePolicyMap("float32")
        policies[f"attention/{odd}"] = "mixed_bfloat16"
        layer = MultiHeadAttention(2, 4, use_gate=True, dtype=policies, name="attention")
        layer(query, value)
        layer.set_weights(whole.get_weights())
        for scores in (False, True):
            out = layer(query, value, return_attention_scores=scores)
            out = out[0] if scores else out
            assert keras.backend.standardize_dtype(out.dtype) == "float32"
            assert 0 < np.abs(to_numpy(out) - expected).max() < 5e-2
        dense = {n: getattr(layer, f"{n}_dense") for n in ("query", "key", "value", "output")}
        assert all((d.compute_dtype == "bfloat16") == (n == odd) for n, d in dense.items())
