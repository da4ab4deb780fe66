"""What a model is called with: from `input_shapes` to the arguments of a call."""

import inspect

import keras
from keras import tree


def given_shapes(networks, input_shapes):
    """`input_shapes` as a dictionary of tuples by name.

    Args:
        networks: The models (or the layer) that will be called.
        input_shapes: Of `model_cost`.

    Returns:
        A dictionary, empty where nothing is given.

    Raises:
        ValueError: For names or shapes that the networks do not have.
    """
    tensors = [x for network in networks for x in getattr(network, "inputs", ())]
    names = list(dict.fromkeys(x.name for x in tensors))
    if not tensors:  # by argument of `call`
        names = list(inspect.signature(networks[0].call).parameters)
    if input_shapes is None:
        return {}
    if not isinstance(input_shapes, dict):
        optional = set().union(*(_optional_inputs(network) for network in networks))
        required = [x.name for x in tensors if x.name not in optional] or names[:1]
        if len(required) != 1:
            raise ValueError(
                f"`input_shapes` must be a dictionary by name of the inputs {names}. "
                f"Received: input_shapes={input_shapes}"
            )
        input_shapes = {required[0]: input_shapes}
    unknown = set(input_shapes) - set(names)
    if unknown:
        raise ValueError(
            f"`input_shapes` may have the names {names}. Received: {sorted(map(str, unknown))}"
        )
    given = {name: tuple(shape) for name, shape in input_shapes.items()}
    for name, shape in given.items():
        if any(not isinstance(size, int) or size < 1 for size in shape):
            raise ValueError(
                "`input_shapes` must give positive integers, the batch first. "
                f"Received: {name}={shape}"
            )
    for x in tensors:
        shape = given.get(x.name, x.shape)
        fits = len(shape) == len(x.shape) and all(
            want in (None, size) for size, want in zip(shape, x.shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"`input_shapes` does not fit the input {x.name!r}, which is {x.shape}. "
                f"Received: {shape}"
            )
    batches = {shape[0] for shape in given.values()}
    if tensors and len(batches) > 1:
        raise ValueError(
            f"`input_shapes` must have one batch. Received: input_shapes={input_shapes}"
        )
    return given


def call_arguments(network, given):
    """What a network is called with.

    Args:
        network: A model, or a layer.
        given: From `given_shapes`.

    Returns:
        `(args, kwargs)` with a `KerasTensor` for each tensor.

    Raises:
        ValueError: If a shape is missing.
    """
    if not hasattr(network, "inputs"):
        if not given:
            raise ValueError(
                f"{network.name!r} has no inputs of its own: `input_shapes` must give the shape of "
                "what it is called with. Received: input_shapes=None"
            )
        dtype = network.input_dtype
        return (), {name: keras.KerasTensor(shape, dtype) for name, shape in given.items()}
    batch = next((shape[0] for shape in given.values()), 1)
    specs, free, optional = {}, {}, _optional_inputs(network)
    for x in network.inputs:
        shape = given.get(x.name, (batch if x.shape[0] is None else x.shape[0], *x.shape[1:]))
        if x.name not in given and x.name in optional:
            specs[x.name] = None
        elif None in shape:
            free[x.name] = x.shape
        else:
            specs[x.name] = keras.KerasTensor(shape, x.dtype)
    if free:
        described = ", ".join(f"{name} {shape}" for name, shape in free.items())
        raise ValueError(
            "`input_shapes` must give the inputs with free dimensions (None), the batch first: "
            f"{described}. Received: input_shapes={given or None}"
        )
    structure = network.inputs[0] if isinstance(network, keras.Sequential) else network.input
    return (tree.map_structure(lambda x: specs[x.name], structure),), {}


def _optional_inputs(network):
    """The names of a functional model's inputs that may be None."""
    layers = getattr(network, "layers", ())
    return {layer.name for layer in layers if getattr(layer, "optional", False)}
