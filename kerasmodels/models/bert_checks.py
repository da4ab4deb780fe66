"""What BERT refuses, in words that say what to do; see also `named_inputs`."""

import numpy as np

from kerasmodels.data.arguments import class_names_of
from kerasmodels.training.input_checks import visible_array

_IDS, _SEGMENTS, _MASK, _POSITIONS = "token_ids", "segment_ids", "padding_mask", "mask_positions"


def check_sizes(**sizes):
    """Refuse sizes that are not positive integers, and heads that do not divide the hidden size.

    Args:
        **sizes: Constructor's arguments of `Bert`, `num_heads` and `hidden_dim` among them.

    Returns:
        The sizes as Python's integers.

    Raises:
        ValueError: For what is not allowed.
    """
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 1:
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size!r}")
    if sizes["hidden_dim"] % sizes["num_heads"]:
        raise ValueError(
            "`hidden_dim` must be divisible by `num_heads`. "
            f"Received: hidden_dim={sizes['hidden_dim']}, num_heads={sizes['num_heads']}"
        )
    return {name: int(size) for name, size in sizes.items()}


def check_positive(**numbers):
    """Refuse what is no positive number.

    Args:
        **numbers: Constructor's arguments of `Bert`.

    Raises:
        ValueError: For what is not allowed.
    """
    for name, number in numbers.items():
        if not _is_number(number) or not 0 < number < np.inf:
            raise ValueError(f"`{name}` must be a positive number. Received: {name}={number!r}")


def check_tokenizer(tokenizer, vocabulary_size, where=""):
    """Refuse a tokenizer with more tokens than the embedding has rows.

    Args:
        tokenizer: Of a model.
        vocabulary_size: Of the model.
        where: What stands before the message.

    Raises:
        ValueError: For what is not allowed.
    """
    if tokenizer.vocabulary_size > vocabulary_size:
        raise ValueError(
            f"{where}the tokenizer has {tokenizer.vocabulary_size} tokens, more than the embedding "
            f"has rows, vocabulary_size={vocabulary_size}"
        )


def check_rates(**rates):
    """Refuse rates of dropout outside of [0, 1).

    Args:
        **rates: Constructor's arguments.

    Raises:
        ValueError: For what is not allowed.
    """
    for name, rate in rates.items():
        if not _is_number(rate) or not 0 <= rate < 1:
            raise ValueError(f"`{name}` must be a number in [0, 1). Received: {name}={rate!r}")


def _is_number(value):
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def check_classes(num_classes, class_names):
    """Refuse another number of names than of classes.

    Args:
        num_classes: As given to the constructor.
        class_names: As given to the constructor, or `None`.

    Returns:
        The number as Python's integer, and the names as a list of strings or `None`.

    Raises:
        ValueError: For what is not allowed.
    """
    number = isinstance(num_classes, int | np.integer) and not isinstance(num_classes, bool)
    if not number or num_classes < 1:
        raise ValueError(
            f"`num_classes` must be a positive integer. Received: num_classes={num_classes!r}"
        )
    names = None if class_names is None else class_names_of(class_names, num_classes)
    return int(num_classes), names


def check_shapes(arrays):
    """Refuse inputs that do not fit one another.

    Args:
        arrays: What can be seen of a model's inputs, a dictionary of numpy arrays.

    Raises:
        ValueError: For what is not allowed.
    """
    if _IDS not in arrays:
        return
    shape = arrays[_IDS].shape
    if len(shape) != 2 or 0 in shape:
        raise ValueError(
            f"`{_IDS}` must have the shape (batch, length), with at least one row and one token. "
            f"Received: shape={shape}"
        )
    for name in (_SEGMENTS, _MASK):
        if name in arrays and arrays[name].shape != shape:
            raise ValueError(
                f"`{name}` must have the shape of `{_IDS}`, {shape}. "
                f"Received: shape={arrays[name].shape}"
            )
    mask = arrays.get(_MASK)
    if mask is not None and mask.dtype != bool and not np.isin(mask, (0, 1)).all():
        raise ValueError(f"`{_MASK}` must be boolean or 0/1. Received: {np.unique(mask)[:5]}")
    positions = arrays.get(_POSITIONS)
    if positions is not None and (positions.ndim != 2 or len(positions) != shape[0]):
        raise ValueError(
            f"`{_POSITIONS}` must have the shape (batch, predictions), with {shape[0]} rows as "
            f"`{_IDS}` has. Received: shape={positions.shape}"
        )


def check_places(name, places, mask):
    """Refuse targets that are positions of padding, whose logits say that it is impossible.

    Args:
        name: Of the targets, for the message.
        places: An array with a position for each row, or anything else, which is not looked at.
        mask: The padding mask, a numpy array, or `None`.

    Raises:
        ValueError: For what is not allowed.
    """
    places = visible_array(places)
    if mask is None or places is None or places.size != len(mask):
        return
    places = places.reshape(-1).astype(int)
    inside = (places >= 0) & (places < mask.shape[1])  # the others are ignored by the loss
    padding = inside & ~mask.astype(bool)[np.arange(len(mask)), places * inside]
    if padding.any():
        row = int(padding.argmax())
        raise ValueError(
            f"`{name}` must be positions of tokens, not of padding. "
            f"Received: {places[row]} in row {row}, which has {int(mask[row].sum())} tokens"
        )
