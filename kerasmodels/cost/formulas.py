"""How many multiply-adds a call of a layer takes, by the layer's kind."""

import functools
import math

import keras
from keras import layers, tree

from kerasmodels.keras_internals import own_layers
from kerasmodels.layers import ClassToken, LogitBias, PositionEmbedding


def first(arguments):
    """The first of a call's arguments by name."""
    return next(iter(arguments.values()))


def _size(tensor):
    return math.prod(tensor.shape)


def _convolution(layer, arguments, outputs):
    axis = -1 if layer.data_format == "channels_last" else 1
    channels = first(arguments).shape[axis] // layer.groups
    return _size(outputs) * channels * math.prod(layer.kernel_size)


def _depthwise(layer, arguments, outputs):
    return _size(outputs) * math.prod(layer.kernel_size)


def _separable(layer, arguments, outputs):
    axis = -1 if layer.data_format == "channels_last" else 1
    channels = first(arguments).shape[axis] * layer.depth_multiplier
    positions = _size(outputs) // layer.filters
    return positions * channels * (math.prod(layer.kernel_size) + layer.filters)


def _transposed(layer, arguments, outputs):
    return _size(first(arguments)) * math.prod(layer.kernel_size) * layer.filters


def _dense(layer, arguments, outputs):
    return _size(first(arguments)) * layer.units


def _einsum_dense(layer, arguments, outputs):
    return _einsum(layer.equation, first(arguments).shape, layer.kernel.shape)


def _reversible_embedding(layer, arguments, outputs):
    return _size(arguments["inputs"]) * layer.input_dim if arguments["reverse"] else 0


def _keras_attention(layer, arguments, outputs):
    query, value, config = arguments["query"], arguments["value"], layer.get_config()
    axes = config["attention_axes"] or range(1, len(value.shape) - 1)
    sources = math.prod(value.shape[axis] for axis in axes)
    heads = config["num_heads"] * (config["key_dim"] + config["value_dim"])
    return math.prod(query.shape[:-1]) * sources * heads


def _grouped_attention(layer, arguments, outputs):
    (batch, target), source = arguments["query"].shape[:2], arguments["value"].shape[1]
    return batch * target * source * layer.num_query_heads * 2 * layer.head_dim


def _plain_attention(layer, arguments, outputs):
    """Query and key by product or, added, by a vector of their width; then scores by value."""
    query, value = arguments["inputs"][:2]
    return _size(query) // query.shape[-1] * value.shape[1] * (query.shape[-1] + value.shape[-1])


def _dot(layer, arguments, outputs):
    axes = layer.axes if isinstance(layer.axes, (tuple, list)) else (layer.axes,)
    return _size(outputs) * arguments["inputs"][0].shape[axes[0]]


def _cell(gates):
    def count(layer, arguments, outputs):
        rows, width = first(arguments).shape
        return rows * gates * layer.units * (width + layer.units)

    return count


def _matmul(operation, arguments, outputs):
    return _size(outputs) * arguments["x1"].shape[-1]


def _einsum_op(operation, arguments, outputs):
    operands = arguments["operands"]
    if len(operands) > 2:
        raise ValueError(
            "`model_cost` counts `ops.einsum` of two operands: with more, the order of the "
            f"products is not known. Received: {operation.subscripts!r}"
        )
    return _einsum(operation.subscripts, *(x.shape for x in operands)) * (len(operands) - 1)


def _einsum(equation, *shapes):
    """The product of the sizes of all indices; an ellipsis stands for those left over."""
    sizes = {}
    for labels, shape in zip(equation.split("->")[0].split(","), shapes, strict=True):
        before, _, after = labels.replace(" ", "").partition("...")
        rest = range(len(shape) - len(before) - len(after))
        names = [*before, *reversed(rest), *after]
        for name, size in zip(names, shape, strict=True):
            sizes[name] = max(size, sizes.get(name, 1))
    return math.prod(sizes.values())


def _attention_op(operation, arguments, outputs):
    query, key, value = (arguments[name] for name in ("query", "key", "value"))
    return math.prod(query.shape[:3]) * key.shape[1] * (key.shape[-1] + value.shape[-1])


_FORMULAS = {
    (layers.Conv1D, layers.Conv2D, layers.Conv3D): _convolution,
    (layers.DepthwiseConv1D, layers.DepthwiseConv2D): _depthwise,
    (layers.SeparableConv1D, layers.SeparableConv2D): _separable,
    (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose): _transposed,
    layers.Dense: _dense,
    layers.EinsumDense: _einsum_dense,
    layers.ReversibleEmbedding: _reversible_embedding,
    layers.MultiHeadAttention: _keras_attention,
    layers.GroupQueryAttention: _grouped_attention,
    (layers.Attention, layers.AdditiveAttention): _plain_attention,
    layers.Dot: _dot,
    layers.LSTMCell: _cell(gates=4),
    layers.GRUCell: _cell(gates=3),
    layers.SimpleRNNCell: _cell(gates=1),
}
# They hold weights and multiply by none of them, or number by number alone.
_FREE = (
    layers.BatchNormalization,
    layers.GroupNormalization,
    layers.LayerNormalization,
    layers.RMSNormalization,
    layers.SpectralNormalization,
    layers.Normalization,
    layers.PReLU,
    layers.Embedding,
    ClassToken,
    LogitBias,
    PositionEmbedding,
)
# Their weights are in a cell, which makes no layer's call of its own convolutions.
UNKNOWN_LAYERS = (layers.ConvLSTM1D, layers.ConvLSTM2D, layers.ConvLSTM3D)
# Operations in a functional model's graph, of which Keras exports no class.
_OPERATIONS = {"Matmul": _matmul, "Einsum": _einsum_op, "DotProductAttention": _attention_op}
_UNKNOWN_OPERATIONS = (
    *("Conv", "ConvTranspose", "DepthwiseConv", "SeparableConv"),
    *("Dot", "Inner", "Tensordot", "Vdot"),
)


def multiply_adds_of(call):
    """Multiply-adds of one call of a layer or operation, without those of the layers within it.

    Args:
        call: A `Call`.

    Returns:
        An integer.

    Raises:
        ValueError: If the layer or operation is not known, or a shape is not.
    """
    operation, kind = call.operation, type(call.operation).__name__
    formula = getattr(operation, "multiply_adds", None)
    if formula is None:
        formula = _formula(operation)
        if formula is None:
            return 0
        formula = functools.partial(formula, operation)
    tensors = [
        x for x in tree.flatten((call.arguments, call.outputs)) if isinstance(x, keras.KerasTensor)
    ]
    if any(None in x.shape for x in tensors if keras.backend.is_float_dtype(x.dtype)):
        raise ValueError(
            f"The shapes at {call.path!r} ({kind}) are not known before the model runs: "
            f"{[x.shape for x in tensors]}"
        )
    return formula(call.arguments, call.outputs)


def _formula(operation):
    """The formula of a layer's or operation's kind; None for one that multiplies nothing."""
    kind = type(operation).__name__
    if not isinstance(operation, layers.Layer):
        if kind in _UNKNOWN_OPERATIONS:
            raise ValueError(
                f"`model_cost` does not count the operation {operation.name!r} ({kind}) in a "
                "functional model's graph. Use a layer in its place."
            )
        return _OPERATIONS.get(kind)
    for classes, formula in _FORMULAS.items():
        if isinstance(operation, classes):
            return formula
    unknown = [] if isinstance(operation, _FREE) else own_weights(operation)
    if unknown or isinstance(operation, UNKNOWN_LAYERS):
        raise ValueError(
            f"`model_cost` does not know what the layer {operation.name!r} ({kind}) does with its "
            f"weights {[w.name for w in unknown]}. Give its class a method "
            "`multiply_adds(self, arguments, outputs)`; see `kerasmodels.cost`."
        )
    return None


def own_weights(layer):
    """Weights that none of the layers within it holds."""
    if not isinstance(layer, layers.Layer):
        return []
    inner = {id(w) for part in own_layers(layer) for w in part.weights}
    return [w for w in layer.weights if id(w) not in inner]
