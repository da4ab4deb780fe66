"""What a residual network refuses, in words that say what to do."""

import keras


def check_arguments(blocks, filters, stride_in, pooling, include_top, num_classes, class_names):
    """Refuse arguments of `ResNet` that do not go together.

    Args:
        blocks: Number of blocks of each stage.
        filters: As given to the constructor, and so are the others.
        stride_in: See above.
        pooling: See above.
        include_top: See above.
        num_classes: See above.
        class_names: See above.

    Raises:
        ValueError: For what is not allowed.
    """
    if not isinstance(filters, (tuple, list)) or len(filters) != len(blocks):
        raise ValueError(
            "`filters` must hold a number for each stage. "
            f"Received: filters={filters} for {len(blocks)} stages"
        )
    if stride_in not in ("1x1", "3x3"):
        raise ValueError(
            "`stride_in` must be '1x1' (the paper) or '3x3' (v1.5). "
            f"Received: stride_in={stride_in!r}"
        )
    if pooling not in ("avg", "max", None):
        raise ValueError(f"`pooling` must be 'avg', 'max' or None. Received: pooling={pooling!r}")
    if include_top and (not isinstance(num_classes, int) or num_classes < 1):
        raise ValueError(
            f"`num_classes` must be a positive integer. Received: num_classes={num_classes!r}"
        )
    if class_names is not None and len(class_names) != num_classes:
        raise ValueError(
            "`class_names` must hold a name for each class. "
            f"Received: {len(class_names)} names for num_classes={num_classes}"
        )


def read_image_shape(shape, data_format, stem, num_stages):
    """Check the shape of an image.

    Args:
        shape: As given to the constructor.
        data_format: `"channels_last"` or `"channels_first"`.
        stem: `"imagenet"` or `"cifar"`.
        num_stages: Number of stages.

    Returns:
        The shape as a tuple, and the axis of the channels.

    Raises:
        ValueError: If it has not three sizes, no channels, or too few pixels.
    """
    last = data_format == "channels_last"
    shape = ((None, None, 3) if last else (3, None, None)) if shape is None else shape
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    if len(shape) != 3:
        raise ValueError(
            f"`image_shape` must have three sizes ({data_format}). Received: image_shape={shape}"
        )
    channels = shape[-1] if last else shape[0]
    if channels is None:
        raise ValueError(f"`image_shape` must tell the channels. Received: image_shape={shape}")
    _check_size(shape, data_format, stem, num_stages)
    return shape, -1 if last else 1


def check_images(inputs, image_shape, data_format, stem, num_stages):
    """Refuse images of another shape than the net's, too small ones, and integers.

    Args:
        inputs: What the net is called with.
        image_shape: Of the net.
        data_format: `"channels_last"` or `"channels_first"`.
        stem: `"imagenet"` or `"cifar"`.
        num_stages: Number of stages.

    Raises:
        ValueError: For what is not allowed.
    """
    images = inputs
    if isinstance(inputs, dict | list | tuple) and len(inputs) == 1:  # `{"images": images}` as well
        images = keras.tree.flatten(inputs)[0]
    if not hasattr(images, "shape"):
        raise ValueError(
            "Images must be one array or tensor; a preprocessor, `checkpoints.ImageProcessor`, "
            f"makes it of images of any kind. Received: a {type(inputs).__name__}"
        )
    shape, wanted = tuple(images.shape), (None, *image_shape)
    fits = len(shape) == 4 and all(
        n in (None, known) or known is None for n, known in zip(shape, wanted, strict=True)
    )
    if not fits:
        raise ValueError(f"Images must have the shape {wanted}. Received: shape={shape}")
    _check_size(shape[1:], data_format, stem, num_stages)
    dtype = keras.backend.standardize_dtype(images.dtype)
    if not keras.backend.is_float_dtype(dtype):
        raise ValueError(
            f"Images must be floats, normalized as in training. Received: dtype={dtype}. For "
            "raw pixels put a `kerasmodels.layers.ImagePreprocessing` before the model, or "
            "divide by 255 (or use `keras.layers.Rescaling(1 / 255)`)"
        )


def _check_size(shape, data_format, stem, num_stages):
    """Refuse images with fewer pixels a side than the net halves them down to one."""
    least = 2 ** (num_stages + 1 if stem == "imagenet" else num_stages - 1)
    sides = shape[:2] if data_format == "channels_last" else shape[1:]
    if any(isinstance(n, int) and n < least for n in sides):  # others are free, in an export
        hint = "; stem='cifar' takes smaller ones" if stem == "imagenet" else ""
        raise ValueError(
            f"Images must have at least {least} pixels a side for a net with stem={stem!r} and "
            f"{num_stages} stages{hint}. Received: {sides[0]} x {sides[1]} ({data_format})"
        )
