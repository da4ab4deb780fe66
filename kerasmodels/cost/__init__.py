"""What a model costs: its parameters, and the multiply-adds of a forward pass, layer by layer.

The model is run once without numbers, every call of a layer is noted with the shapes that go in and
come out (`calls`), and a formula of the layer's kind tells the multiply-adds of the call
(`formulas`). A layer of another kind states its own count by a method:

    def multiply_adds(self, arguments, outputs):
        return math.prod(arguments["inputs"].shape) * self.units

`arguments` are those of `call` by name, with a `keras.KerasTensor` for each tensor (equal objects
for the same tensor), `outputs` is what the call returned, likewise. The layers that it calls are
counted by themselves.
"""

import dataclasses
import math
import typing
import warnings

from keras import layers, tree

from kerasmodels.cost.calls import all_calls
from kerasmodels.cost.formulas import multiply_adds_of, own_weights
from kerasmodels.cost.inputs import call_arguments, given_shapes
from kerasmodels.training import PortableModel

__all__ = ["LayerCost", "ModelCost", "model_cost"]


class LayerCost(typing.NamedTuple):
    """What one layer costs; a row of `ModelCost.by_layer`.

    Attributes:
        output_shape: Of the layer's last call; a structure of shapes where it returns several
            tensors, `None` if it was never called.
        parameters: Number of weights that the layer itself holds.
        multiply_adds: Of all its calls, without those of layers within it.
    """

    output_shape: tuple | None
    parameters: int
    multiply_adds: int


@dataclasses.dataclass(frozen=True)
class ModelCost:
    """What `model_cost` found; `print` shows a table.

    Attributes:
        parameters: Number of weights, those that no optimizer trains among them (such as the moving
            averages of batch normalization).
        trainable_parameters: Number of weights that an optimizer trains.
        multiply_adds: Of one forward pass.
        by_layer: A dictionary from a layer's path, such as `"encoder_block_0/self_attention/query"`
            to its `LayerCost`, for every layer that holds weights or multiplies. Rows add up to
            `parameters` and `multiply_adds`.
    """

    parameters: int
    trainable_parameters: int
    multiply_adds: int
    by_layer: dict

    def __str__(self):
        rows = [("layer", "output shape", "parameters", "multiply-adds")]
        for path, cost in self.by_layer.items():
            shape = "not called" if cost.output_shape is None else str(cost.output_shape)
            rows.append((path, shape, f"{cost.parameters:,}", f"{cost.multiply_adds:,}"))
        rows.append(("total", "", f"{self.parameters:,}", f"{self.multiply_adds:,}"))
        rows.append(("trainable", "", f"{self.trainable_parameters:,}", ""))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = zip(row, widths, ("<", "<", ">", ">"), strict=True)
            lines.append("  ".join(f"{text:{side}{width}}" for text, width, side in cells).rstrip())
        return "\n".join(lines)


def model_cost(model, input_shapes=None):
    """Counts the parameters and the multiply-adds of one forward pass (in inference).

    A multiply-add is one product and one sum: two floating-point operations. Counted are
    convolutions of all kinds, dense layers (`Dense`, `EinsumDense`, an embedding in reverse),
    attention's two products, recurrent layers, dot products (`Dot`, and in a functional model
    `ops.matmul`, `ops.einsum` of two operands, `ops.dot_product_attention`), and what a layer
    states by itself (see the module). Not counted are biases, normalization, activations, softmax,
    pooling, additions, products number by number, and looking up an embedding.

    As is usual, a convolution counts every tap of its kernel at every output, where it meets
    padding too, and a transposed one every tap at every input; attention counts masked pairs too,
    and the blocks that it really computes under a `window`. A layer that is called twice counts
    twice, its parameters once.

    A training procedure without inputs of its own, such as `models.GAN`, is counted as its
    networks, each run once: one sample and one judgement of the discriminator.

    A loop in a layer's own code (`ops.scan`, `ops.while_loop`) cannot be seen from outside: layers
    called there count as often as the backend traces them. Keras's recurrent layers and
    `TimeDistributed` count each step.

    Args:
        model: A built `keras.Model`, or any built layer.
        input_shapes: Shapes with the batch, without which the batch is 1: a dictionary by name of
            the input, or the tuple of the one input that is not optional. It must give the inputs
            that have free dimensions (`None`); optional ones (padding masks) may be left out. For a
            layer, or a model without symbolic inputs: the tuple of its one tensor, or a dictionary
            by argument of `call`.

    Returns:
        A `ModelCost`.

    Raises:
        ValueError: If `model` is no built layer; if shapes are missing, unknown or do not fit; if a
            layer holds weights and neither its kind is known nor has it a method `multiply_adds`.

    Example:
    ```python
    import kerasmodels
    from kerasmodels import models

    model = models.Transformer(1000, num_layers=2, num_heads=4, hidden_dim=64, intermediate_dim=256)
    cost = kerasmodels.model_cost(
        model, {"encoder_token_ids": (1, 30), "decoder_token_ids": (1, 30)}
    )
    cost.parameters, cost.multiply_adds  # 297472, 9492480
    print(cost)
    ```
    """
    if not isinstance(model, layers.Layer):
        raise ValueError(f"`model` must be a Keras model or layer. Received: model={model}")
    if not model.built:
        raise ValueError(
            f"`model` must be built: call it once, or give it an Input. Received: {model.name}, "
            "which is not."
        )
    networks = [model]
    if isinstance(model, PortableModel) and not hasattr(model, "inputs"):
        networks = [part for part in model.layers if hasattr(part, "inputs")] or [model]
    given = given_shapes(networks, input_shapes)
    calls = []
    for network in networks:
        path = "" if network is model else network.name
        calls += all_calls(network, call_arguments(network, given), path)
    by_layer = _rows(model, calls)
    return ModelCost(
        parameters=sum(cost.parameters for cost in by_layer.values()),
        trainable_parameters=sum(math.prod(w.shape) for w in model.trainable_weights),
        multiply_adds=sum(cost.multiply_adds for cost in by_layer.values()),
        by_layer=by_layer,
    )


def _rows(model, calls):
    """The table: a row for every layer that holds weights or multiplies."""
    found, owned = {}, set()  # a weight belongs to the first layer that holds it
    for call in calls:
        layer = call.operation
        if id(layer) not in found:
            weights = [w for w in own_weights(layer) if id(w) not in owned]
            owned.update(map(id, weights))
            parameters = sum(math.prod(w.shape) for w in weights)
            found[id(layer)] = call.path, LayerCost(None, parameters, 0)
        path, cost = found[id(layer)]
        shape = tree.map_structure(lambda x: getattr(x, "shape", None), call.outputs)
        multiply_adds = cost.multiply_adds + call.times * multiply_adds_of(call)
        found[id(layer)] = path, LayerCost(shape, cost.parameters, multiply_adds)
    rows = [(path, cost) for path, cost in found.values() if cost.parameters or cost.multiply_adds]

    left = {}
    for weight in model.weights:
        if id(weight) not in owned:
            path = weight.path.rpartition("/")[0]
            left[path] = left.get(path, 0) + math.prod(weight.shape)
    if left:
        warnings.warn(
            f"The forward pass of {model.name!r} calls no layer that holds these weights, so that "
            f"they count as parameters and with 0 multiply-adds: {list(left)}",
            stacklevel=3,
        )
    rows += [(path, LayerCost(None, parameters, 0)) for path, parameters in left.items()]

    by_layer = {}
    for path, cost in rows:
        name, count = path, 1
        while name in by_layer:  # another layer of the same name in the same place
            count += 1
            name = f"{path} ({count})"
        by_layer[name] = cost
    return by_layer
