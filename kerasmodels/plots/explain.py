"""Which pixels a class stands on: Grad-CAM and saliency maps."""

import contextlib
import functools

import keras
import numpy as np
from keras import ops

from kerasmodels.plots.figures import new_figure, to_numpy
from kerasmodels.training.gradients import value_and_grad


def grad_cam_map(model, image, class_index=None, layer=None):
    """Where in a layer's feature maps the evidence for a class is.

    Selvaraju et al. 2017, "Grad-CAM: Visual Explanations from Deep Networks via Gradient-based
    Localization", section 3: the gradient of the class's score y, averaged over all pixels of
    feature map A_k, is the weight of this map (equation 1); the weighted maps are added up and what
    is negative is cut (equation 2):

        alpha_k = mean over i, j of dy / dA_k[i, j]
        map = relu(sum over k of alpha_k A_k)

    The score is the logit: a softmax or sigmoid at the end of the model is left out.

    Args:
        model: A Keras model of images that gives one score a class, `(batch, classes)`.
        image: One image as the model takes it, `(height, width, channels)` or
            `(1, height, width, channels)`; for a model with `data_format="channels_first"` in
            that order.
        class_index: Of which class; by default the one with the highest score.
        layer: A layer of the model with feature maps (rank 4): its name, or the layer itself, also
            one inside of another. By default the last of those with more than one pixel.

    Returns:
        float32 `(map height, map width)`, at least 0, in the units of the score.

    Raises:
        ValueError: If there are several images or another rank, the class is out of range, the
            model does not give one score a class, or the layer has no feature maps, is not there
            or is called more than once.

    Example:
    ```python
    import keras
    from kerasmodels import models, plots

    resnet = models.ResNet(8, stem="cifar")
    image = keras.random.normal((32, 32, 3))
    where = plots.grad_cam_map(resnet, image)  # (8, 8)
    ```
    """
    return _grad_cam(model, _one_image(image), class_index, layer)[0]


def grad_cam(model, image, class_index=None, layer=None, title=None):
    """Draws an image, and over it where the evidence for a class is; see `grad_cam_map`.

    The map is spread over the whole image, which is right for models that do not crop it.

    Args:
        model: As for `grad_cam_map`. Its `class_names`, if it has any, name the class.
        image: As for `grad_cam_map`. Floats outside of 0 to 1, such as normalised images, are
            scaled to their own range for show.
        class_index: As for `grad_cam_map`.
        layer: As for `grad_cam_map`.
        title: The figure's title; by default the class and the layer.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: As `grad_cam_map`.

    Example:
    ```python
    import keras
    from kerasmodels import models, plots

    resnet = models.ResNet(8, stem="cifar")
    image = keras.random.normal((32, 32, 3))
    figure = plots.grad_cam(resnet, image, class_index=3)
    figure.savefig("cat.png")
    ```
    """
    image = _one_image(image)
    values, class_index, layer = _grad_cam(model, image, class_index, layer)
    title = title or f"Grad-CAM: {_class_name(model, class_index)}, {layer.name}"
    return _side_by_side(_for_show(model, image), values, title, over=True)


def saliency_map(model, image, class_index=None):
    """How much a class's score depends on each pixel.

    Simonyan, Vedaldi and Zisserman 2014, "Deep Inside Convolutional Networks: Visualising Image
    Classification Models and Saliency Maps", section 3.1: the greatest over the channels of
    |d score / d pixel|. The score is the logit: a softmax or sigmoid at the end of the model is
    left out.

    Args:
        model: As for `grad_cam_map`.
        image: As for `grad_cam_map`; integers become floats of the same values.
        class_index: As for `grad_cam_map`.

    Returns:
        float32 `(height, width)`, at least 0.

    Raises:
        ValueError: If there are several images or another rank, the class is out of range, or the
            model does not give one score a class.

    Example:
    ```python
    import keras
    from kerasmodels import models, plots

    resnet = models.ResNet(8, stem="cifar")
    image = keras.random.normal((32, 32, 3))
    slope = plots.saliency_map(resnet, image)  # (32, 32)
    ```
    """
    return _saliency(model, _one_image(image), class_index)[0]


def saliency(model, image, class_index=None, title=None):
    """Draws an image, and beside it how much a class depends on each pixel; see `saliency_map`.

    Args:
        model: As for `grad_cam`.
        image: As for `grad_cam`.
        class_index: As for `grad_cam_map`.
        title: The figure's title; by default the class.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: As `saliency_map`.

    Example:
    ```python
    import keras
    from kerasmodels import models, plots

    resnet = models.ResNet(8, stem="cifar")
    image = keras.random.normal((32, 32, 3))
    figure = plots.saliency(resnet, image)
    figure.savefig("saliency.png")
    ```
    """
    image = _one_image(image)
    values, class_index = _saliency(model, image, class_index)
    title = title or f"Saliency: {_class_name(model, class_index)}"
    return _side_by_side(_for_show(model, image), values, title, over=False)


def _grad_cam(model, image, class_index, layer):
    layers = _layers(model)
    if isinstance(layer, str):
        named = [entry for entry in layers if entry.name == layer]
        if not named:
            raise ValueError(
                f"`layer` must be one of {[entry.name for entry in layers]}. "
                f"Received: layer={layer!r}"
            )
        layer = named[0]
    outputs = []  # (layer, its output), in the order of the calls

    def record(entry, output):
        outputs.append((entry, output))
        return output

    with contextlib.ExitStack() as stack:
        for entry in layers if layer is None else [layer]:
            stack.enter_context(_output_through(entry, functools.partial(record, entry)))
        logits = _logits(model, image)
    class_index = _check_class(class_index, logits)
    layer, maps, axis = _pick(layers, layer, outputs)

    def score(shift):  # added to the feature maps: its gradient is theirs
        with _output_through(layer, lambda x: x + shift):
            return ops.cast(_logits(model, image)[0, class_index], "float32")

    _, (gradient,) = value_and_grad(score, [ops.zeros_like(maps)])
    maps, gradient = (np.moveaxis(to_numpy(x)[0], axis, -1) for x in (maps, gradient))
    weights = gradient.mean(axis=(0, 1))  # (channels,)
    return np.maximum(maps @ weights, 0), class_index, layer


def _pick(layers, layer, outputs):
    """The layer whose feature maps are looked at, these, and the axis of their channels."""
    for entry, maps in reversed(outputs):
        if len(getattr(maps, "shape", ())) == 4:
            place = layers.index(entry) if entry in layers else 0
            axis = _channel_axis([entry, *reversed(layers[:place]), *layers])
            once = sum(other is entry for other, _ in outputs) == 1
            # More than one pixel: some nets keep the rank when they pool.
            if once and (layer or np.prod(maps.shape[1:]) > maps.shape[1:][axis]):
                return entry, maps, axis
    if layer is None:
        raise ValueError(
            "The model has no layer that is called once and gives feature maps (rank 4, more than "
            f"one pixel). Received a model with the layers {[entry.name for entry in layers]}"
        )
    raise ValueError(
        "`layer` must be called once, with feature maps (rank 4) as its output. Received: "
        f"layer={layer.name!r} with the outputs {[_shape(x) for _, x in outputs]}"
    )


def _saliency(model, image, class_index):
    image = ops.cast(image, "float32")
    class_index = _check_class(class_index, _logits(model, image))

    def score(image):
        return ops.cast(_logits(model, image)[0, class_index], "float32")

    _, (gradient,) = value_and_grad(score, [image])
    axis = _channel_axis(_layers(model))
    return np.abs(to_numpy(gradient)[0]).max(axis=axis), class_index


# === Models ===


def _layers(model):
    """The layers of a model in their order; a model inside of it stands behind its own layers."""
    layers = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            layers += _layers(layer)
        layers.append(layer)
    return layers


def _channel_axis(layers):
    """The axis of the channels in an image without its batch, by the first layer that tells."""
    formats = [getattr(layer, "data_format", None) for layer in layers]
    known = [name for name in formats if name] or [keras.config.image_data_format()]
    return -1 if known[0] == "channels_last" else 0


@contextlib.contextmanager
def _replaced(owner, name, value):
    """Gives an object another attribute for a while, unseen by Keras's tracking of attributes."""
    own = vars(owner)
    before = {name: own[name]} if name in own else {}
    own[name] = value
    try:
        yield
    finally:
        del own[name]
        own.update(before)


def _output_through(layer, fn):
    """Sends what a layer returns through a function, wherever in a model the layer is."""
    call = layer.call
    return _replaced(layer, "call", lambda *args, **kwargs: fn(call(*args, **kwargs)))


def _logits(model, image):
    """The scores `(1, classes)`, before a softmax or sigmoid at the end of the model."""
    last = _layers(model)[-1]
    while isinstance(last, keras.Model):
        last = last.layers[-1]
    if isinstance(last, keras.layers.Softmax):
        without = _replaced(last, "call", lambda inputs, mask=None: inputs)
    elif getattr(last, "activation", None) in (
        keras.activations.softmax,
        keras.activations.sigmoid,
    ):
        without = _replaced(last, "activation", keras.activations.linear)
    else:
        without = contextlib.nullcontext()
    with without:
        logits = model(image, training=False)
    if len(getattr(logits, "shape", ())) != 2:
        raise ValueError(
            f"`model` must give one score a class, (batch, classes). Received: {_shape(logits)}"
        )
    return logits


def _shape(output):
    """The shape of a tensor for a message; of anything else, what it is."""
    return tuple(output.shape) if hasattr(output, "shape") else type(output).__name__


def _check_class(class_index, logits):
    logits = to_numpy(logits)[0]
    if class_index is None:
        return int(logits.argmax())
    if not isinstance(class_index, (int, np.integer)) or not 0 <= class_index < len(logits):
        raise ValueError(
            f"`class_index` must be an integer from 0 to {len(logits) - 1}. "
            f"Received: class_index={class_index!r}"
        )
    return int(class_index)


def _class_name(model, class_index):
    names = getattr(model, "class_names", None)
    return names[class_index] if names else f"class {class_index}"


# === Images ===


def _one_image(image):
    """`(1, height, width, channels)`, floats as float32."""
    image = np.asarray(ops.convert_to_numpy(image))
    batch = image[None] if image.ndim == 3 else image
    if batch.ndim != 4 or len(batch) != 1 or 0 in batch.shape:
        raise ValueError(
            "`image` must be one image, (height, width, channels) or (1, height, width, "
            f"channels). Received: shape {image.shape}"
        )
    return batch.astype("float32") if batch.dtype.kind == "f" else batch


def _for_show(model, image):
    """`(height, width)` or `(height, width, 3)` in 0 to 1."""
    pixels = np.moveaxis(image[0], _channel_axis(_layers(model)), -1)
    if pixels.dtype.kind in "iu":
        pixels = pixels / 255
    elif pixels.min() < 0 or pixels.max() > 1:
        low, high = pixels.min(), pixels.max()
        pixels = (pixels - low) / ((high - low) or 1)
    return pixels if pixels.shape[-1] == 3 else pixels.mean(axis=-1)


def _side_by_side(pixels, values, title, over):
    """The image, and beside it the map: over the image again, or alone."""
    height, width = pixels.shape[:2]
    figure = new_figure((6.4, 0.4 + 3.0 * height / width))
    left, right = figure.subplots(1, 2)
    top = float(values.max()) or 1.0
    extent = (-0.5, width - 0.5, height - 0.5, -0.5)  # the map's pixels are larger
    left.imshow(pixels, cmap="gray", vmin=0, vmax=1)
    if over:
        right.imshow(pixels, cmap="gray", vmin=0, vmax=1)
        right.imshow(
            values, cmap="jet", vmin=0, vmax=top, alpha=0.5, extent=extent, interpolation="bilinear"
        )
    else:
        right.imshow(values, cmap="inferno", vmin=0, vmax=top)
    for axis in (left, right):
        axis.set_axis_off()
    figure.suptitle(title, fontsize=11, parse_math=False)
    return figure
