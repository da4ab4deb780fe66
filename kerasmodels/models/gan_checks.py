"""What can be wrong with the networks and the data of `kerasmodels.models.GAN`."""

import math
import types
import warnings

import keras
import numpy as np
from keras import ops

from kerasmodels.keras_internals import all_layers, maker_of
from kerasmodels.training.adversarial import ADVERSARIAL_LOSSES
from kerasmodels.training.input_checks import visible_array
from kerasmodels.training.named_optimizers import NamedOptimizers

# Functions that end a network, and where their values lie.
_RANGES = {"sigmoid": (0.0, 1.0), "hard_sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}
_PROBABILITIES = ("sigmoid", "hard_sigmoid", "log_sigmoid", "softmax")
# Layers and operations that leave the values of their input as they are.
_SAME_VALUES = {"Flatten", "Reshape", "Identity", "Squeeze", "ExpandDims", "Cast", "Permute"}

_ROWS_SEEN = 1024  # of arrays that are given to `fit`, to find the range of the data


def check_integer(argument, value):
    """Raises ValueError unless the value is a positive integer."""
    is_integer = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_integer or value < 1:
        raise ValueError(f"`{argument}` must be a positive integer. Received: {argument}={value!r}")


def check_arguments(
    latent_dim, discriminator_steps, generator_loss, gradient_penalty, num_classes, noise
):
    """Raises ValueError if one of these arguments of `GAN` is not what it takes."""
    check_integer("latent_dim", latent_dim)
    check_integer("discriminator_steps", discriminator_steps)
    if num_classes is not None:
        check_integer("num_classes", num_classes)
    for argument, value, allowed in (
        ("generator_loss", generator_loss, list(ADVERSARIAL_LOSSES)),
        ("noise", noise, ["normal", "uniform"]),
    ):
        if value not in allowed:
            raise ValueError(
                f"`{argument}` must be one of {allowed}. Received: {argument}={value!r}"
            )
    if not gradient_penalty >= 0:
        raise ValueError(
            "`gradient_penalty` must be a number of at least 0. "
            f"Received: gradient_penalty={gradient_penalty}"
        )


def check_compile(gan, optimizer, options):
    """Raises ValueError if `compile` is given something that a GAN does not take.

    Args:
        gan: The model.
        optimizer: The first argument of `compile`.
        options: The others by name.
    """
    if isinstance(optimizer, NamedOptimizers):
        names = optimizer.names
    else:
        names = sorted(optimizer) if isinstance(optimizer, dict) else None
    if names != ["discriminator", "generator"]:
        raise ValueError(
            'A GAN takes two optimizers: compile(optimizer={"generator": ..., '
            f'"discriminator": ...}}). Received: optimizer={optimizer}'
        )
    for argument in ("loss", "loss_weights", "metrics", "weighted_metrics"):
        if options.get(argument) is not None:
            raise ValueError(
                f"A GAN has its own losses and metrics. Received: {argument}={options[argument]}"
            )
    compiles = keras.backend.backend() == "torch" and options.get("jit_compile") is True
    if compiles and gan.generator_loss == "wasserstein":
        raise ValueError(
            "PyTorch compiles no gradient of a gradient, which the penalty of the Wasserstein "
            "loss needs. Use `compile(jit_compile=False)`. Received: jit_compile=True"
        )


def check_networks(generator, discriminator, latent_dim, num_classes):
    """Sees what the networks make of symbolic inputs, which builds them if need be.

    Args:
        generator: As for `GAN`.
        discriminator: As for `GAN`.
        latent_dim: As for `GAN`.
        num_classes: As for `GAN`.

    Returns:
        The shape of a sample, without the batch axis.

    Raises:
        ValueError: If they do not belong together; see `GAN`.
    """
    for argument, network in (("generator", generator), ("discriminator", discriminator)):
        if not isinstance(network, keras.Layer):
            raise ValueError(
                f"`{argument}` must be a Keras model. Received: {argument}={network!r}"
            )
    theirs = {id(layer) for layer in _layers(generator)}
    shared = [layer.name for layer in _layers(discriminator) if id(layer) in theirs]
    if shared:
        raise ValueError(
            "`generator` and `discriminator` must not share a layer: each optimizer would move "
            f"what the other one holds still. Received: both contain {shared}"
        )

    def call(network, x):
        if num_classes is None:
            return network(x)
        return network([x, keras.KerasTensor((None,), "int32")])

    also = "" if num_classes is None else " and, since there are `num_classes`, labels (batch,)"
    try:
        fake = call(generator, keras.KerasTensor((None, latent_dim)))
    except Exception as error:
        raise ValueError(
            f"`latent_dim` must be the size of the noise that the generator takes{also}. Received: "
            f"latent_dim={latent_dim}, a generator of {_input_shape(generator)}"
        ) from error
    try:
        logits = call(discriminator, fake)
    except Exception as error:
        raise ValueError(
            f"`discriminator` must take what the generator makes{also}. Received: a generator that "
            f"makes {_shape(fake)}, a discriminator of {_input_shape(discriminator)}"
        ) from error
    if tuple(getattr(logits, "shape", ())) not in ((None, 1), (None,)):
        raise ValueError(
            "`discriminator` must return one logit a row, (batch, 1) or (batch,). Received: "
            f"an output of shape {_shape(logits)}"
        )
    last = last_activation(discriminator)
    if last in _PROBABILITIES:
        raise ValueError(
            "`discriminator` must return logits, and the losses apply the sigmoid: leave out the "
            f"activation of its last layer. Received: a discriminator that ends in {last!r}"
        )
    return tuple(fake.shape[1:])


def _layers(network):
    """The network and all layers within; one `keras.Input` may serve two networks."""
    inputs = keras.layers.InputLayer
    return [layer for layer in all_layers(network) if not isinstance(layer, inputs)]


def _shape(outputs):
    return keras.tree.map_structure(lambda x: tuple(x.shape), outputs)


def _input_shape(network):
    return _shape(getattr(network, "inputs", None) or "unknown inputs")


def last_activation(network):
    """The function that makes a network's output, as far as one can tell.

    Args:
        network: A model or layer.

    Returns:
        Its name, such as `"tanh"`, `"linear"` or, for an operation that is no activation, its
        class's name in lower case; `None` if nothing is known.
    """
    if getattr(network, "outputs", None):  # functional or sequential
        tensor = network.outputs[0]
        while True:
            operation, inputs = maker_of(tensor)
            name = _activation(operation)
            same = type(operation).__name__ in _SAME_VALUES
            if not same and not (
                isinstance(operation, keras.layers.Activation) and name == "linear"
            ):
                return name
            if not inputs:
                return name
            tensor = inputs[0]
    layers = getattr(network, "layers", None)
    if not layers:
        return None
    # Of a subclassed model the last layer is the output's only if it makes a single number.
    size = getattr(layers[-1], "units", getattr(layers[-1], "filters", 1))
    return _activation(layers[-1]) if size == 1 else None


def _activation(operation):
    if isinstance(operation, keras.Model):
        return last_activation(operation)
    function = getattr(operation, "activation", None)
    if function is None:
        return type(operation).__name__.lower()  # keras.ops.sigmoid is a "Sigmoid"
    return getattr(function, "__name__", None)


def check_weights(options):
    """Raises ValueError if there are weights among arguments by name."""
    for argument in ("sample_weight", "class_weight"):
        if options.get(argument) is not None:
            raise ValueError(
                f"A GAN has no use for weights: leave out `{argument}`. Received: {argument}="
                f"{type(options[argument]).__name__}"
            )


def check_rows(rows, discriminator_steps):
    """Raises ValueError if a batch of so many rows (`None`: unknown) has too few."""
    if rows is not None and rows < discriminator_steps:
        raise ValueError(
            "A batch must have at least `discriminator_steps` rows, one for each minibatch; of "
            "arrays the last batch has what remains. Received: a batch of "
            f"{rows} rows, discriminator_steps={discriminator_steps}"
        )


def check_sample_shape(x, sample_shape):
    """Raises ValueError if data `x` do not have the shape of samples; returns `x` as a tensor."""
    if isinstance(x, (dict, list, tuple)):
        raise ValueError(f"Data `x` must be one array. Received: {type(x).__name__}")
    shape = tuple(x.shape[1:])
    same = len(shape) == len(sample_shape) and all(
        None in pair or pair[0] == pair[1] for pair in zip(shape, sample_shape, strict=True)
    )
    if not same:
        raise ValueError(
            "Data must have the shape of what the generator makes. Received: data (batch, "
            f"{_sizes(shape)}), generator's output (batch, {_sizes(sample_shape)})"
        )
    return ops.convert_to_tensor(x)


def _sizes(shape):
    return ", ".join(map(str, shape))


def check_labels(labels, num_classes):
    """Raises ValueError unless an array holds integers from 0 to `num_classes - 1`."""
    whole = labels.dtype.kind in "iu"
    if not whole or labels.min() < 0 or labels.max() >= num_classes:
        numbers = labels.dtype.kind in "iuf"
        received = f"from {labels.min()} to {labels.max()}" if numbers else labels[:5].tolist()
        raise ValueError(
            f"Labels must be integers from 0 to {num_classes - 1}. Received: dtype {labels.dtype}, "
            f"{received}"
        )


def check_data(gan, x, y, batch_size, options):
    """Looks at the data before `fit` does, once.

    Of arrays, the size of the batches, the labels and up to 1,024 rows are seen; of what yields
    batches, the first one (of a PyTorch `DataLoader`, the first row of its dataset).

    Args:
        gan: The model.
        x: The first argument of `fit`.
        y: The second.
        batch_size: The third.
        options: The others by name.

    Returns:
        What is to be given to `fit` in place of `x`.

    Raises:
        ValueError: If a batch has too few rows, shapes differ, or a label is not one.
    """
    check_weights(options)
    gan._refuse_text(x)
    is_batch = True
    if hasattr(x, "shape"):
        rows = math.floor(len(x) * (1 - options.get("validation_split", 0.0)))
        size = min(batch_size or 32, rows)
        rest = rows % size if rows and not options.get("steps_per_epoch") else 0
        check_rows(rest or size, gan.discriminator_steps)
        seen = visible_array(x)
        # The labels are looked at where all arrays are; see `GAN._check`.
        batch = ((x if seen is None else seen)[:: max(1, len(x) // _ROWS_SEEN)], None)
    elif isinstance(x, keras.utils.PyDataset):
        batch = x[0]
    elif isinstance(x, types.GeneratorType):
        batch = next(x, None)
        x = _put_back(batch, x)
    elif hasattr(x, "element_spec") and hasattr(x, "take"):  # tf.data.Dataset
        batch = next(iter(x.take(1)), None)
    elif hasattr(getattr(x, "dataset", None), "__getitem__"):  # DataLoader
        batch, is_batch = x.dataset[0], False
    else:
        batch = None
    if batch is None:
        return x
    data, labels, _ = keras.utils.unpack_x_y_sample_weight(batch)
    gan._refuse_text(data)
    if is_batch:
        check_sample_shape(data, gan.sample_shape)
        if not hasattr(x, "shape"):
            check_rows(data.shape[0], gan.discriminator_steps)
    if labels is not None and gan.num_classes is not None:
        check_labels(ops.convert_to_numpy(labels), gan.num_classes)
    _check_range(gan.generator, ops.convert_to_numpy(data))
    return x


def _put_back(first, generator):
    if first is not None:
        yield first
    yield from generator


def _check_range(generator, data):
    last = last_activation(generator)
    if last not in _RANGES or not data.size:
        return
    low, high = _RANGES[last]
    if data.min() < low - 1e-3 or data.max() > high + 1e-3:
        advice = "x / 127.5 - 1" if low < 0 else "x / 255"
        warnings.warn(
            f"The generator ends in {last}: it makes values from {low:g} to {high:g}, and the data "
            f"go from {data.min():g} to {data.max():g}, which tells them apart. Scale the data, "
            f"images from 0 to 255 for example by `{advice}`.",
            stacklevel=4,
        )
