"""The inputs of a model: their names, their free sizes, and the masks that ids imply."""

import re

import keras
from keras import tree


def input_specs(model):
    """The structure of the model's inputs, with a KerasTensor for each."""
    if not isinstance(model, keras.Model) or not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must be a functional keras.Model, built on keras.Input. "
            f"Received: {model!r} of class {type(model).__name__}"
        )
    return model.input


def names_of(specs):
    """The names of the inputs, in the structure of the inputs: keys where it is a dict."""
    if isinstance(specs, dict):
        return {key: key for key in specs}
    return tree.map_structure(lambda spec: spec.name, specs)


def dimensions_of(name, spec):
    """The sizes of an input; a name where the size is free, the same name for the same size.

    `encoder_token_ids` and `encoder_padding_mask` are as long as one another, `decoder_token_ids`
    is not.
    """
    name = re.sub(r"\W", "_", name)

    def name_of(axis):
        if axis == 0:
            return "batch"
        for suffix in ("token_ids", "segment_ids", "padding_mask"):
            if axis == 1 and name.endswith(suffix):
                return name.removesuffix(suffix) + "length"
        return f"{name}_{axis}"

    return tuple(name_of(axis) if size is None else size for axis, size in enumerate(spec.shape))


def masks_of(specs):
    """The names of the padding masks, if each stands beside the ids it belongs to."""
    masks = (
        [key for key in specs if key.endswith("padding_mask")] if isinstance(specs, dict) else []
    )
    return masks if all(_ids_of(mask) in specs for mask in masks) else []


def pad_id_of(model):
    """The id of padding: what the model generates with says it, else its tokenizer; else it is 0.

    Args:
        model: A model, which may have `token_rules`, `generation` or a `tokenizer`.

    Returns:
        An integer.
    """
    rules = getattr(model, "token_rules", None)
    if rules is not None:
        return rules.pad_id
    generation = getattr(model, "generation", {})
    return generation.get("pad_id", getattr(getattr(model, "tokenizer", None), "pad_id", 0))


def _ids_of(mask):
    return mask.removesuffix("padding_mask") + "token_ids"


def with_masks(inputs, specs, pad_id):
    """The inputs, with the masks that are missing built from the pad id (TensorFlow tensors)."""
    import tensorflow as tf

    missing = [mask for mask in masks_of(specs) if mask not in inputs]
    if not missing:
        return inputs
    inputs = dict(inputs)
    for name in missing:
        ids = inputs[_ids_of(name)]
        mask = tf.not_equal(ids, pad_id)
        if name.startswith("decoder_"):
            # Some decoders start with the pad id, and a start is no padding.
            mask = tf.logical_or(mask, tf.equal(tf.range(tf.shape(ids)[1]), 0)[None])
        inputs[name] = tf.cast(mask, specs[name].dtype)
    return inputs
