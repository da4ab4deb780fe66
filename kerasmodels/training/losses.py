"""Cross-entropy over tokens with label smoothing ("Attention Is All You Need", section 5.4).

Label smoothing is from Szegedy et al., "Rethinking the Inception Architecture for Computer
Vision", 2015, section 7: the target distribution is `(1 - eps) * one_hot(y) + eps / V` over all V
classes. Its cross-entropy needs neither the one-hot matrix nor the log-probabilities:

    loss = logsumexp(z) - (1 - eps) * z[y] - eps * mean(z)
"""

import warnings

import keras
import numpy as np
from keras import ops

from kerasmodels.keras_internals import get_keras_mask
from kerasmodels.training.counted_tokens import counted
from kerasmodels.training.replicas import share_to_whole


def as_targets_and_logits(y_true, y_pred):
    """Checks the shapes of targets and logits and casts them to int32 and float32.

    Args:
        y_true: Integer class ids `(...)`, or `(..., 1)`.
        y_pred: Logits `(..., classes)` of any float dtype; float64 stays float64.

    Returns:
        The targets `(...)` and the logits `(..., classes)`.

    Raises:
        ValueError: If the shapes do not belong together.
    """
    y_true, y_pred = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    shape, logits_shape = tuple(y_true.shape), tuple(y_pred.shape)
    if len(shape) == len(logits_shape) and shape[-1:] == (1,):
        y_true, shape = ops.squeeze(y_true, axis=-1), shape[:-1]
    fits = len(shape) + 1 == len(logits_shape) and all(
        None in (a, b) or a == b for a, b in zip(shape, logits_shape, strict=False)
    )
    if not fits:
        raise ValueError(
            "`y_true` must hold integer ids of shape (...) and `y_pred` logits of shape "
            f"(..., classes). Received: y_true.shape={tuple(y_true.shape)}, "
            f"y_pred.shape={logits_shape}"
        )
    # float16 holds no sum over a vocabulary and TensorFlow does not promote it.
    dtype = "float64" if keras.backend.standardize_dtype(y_pred.dtype) == "float64" else "float32"
    return ops.cast(y_true, "int32"), ops.cast(y_pred, dtype)


def token_losses(y_true, logits, label_smoothing=0.0):
    """The smoothed cross-entropy of every token, in nats.

    Args:
        y_true: int32 class ids `(...)`, each in `[0, classes)`.
        logits: float32 or float64 logits `(..., classes)`.
        label_smoothing: The share of the target's mass that is spread evenly over all classes.

    Returns:
        A tensor `(...)` of the logits' dtype.
    """
    index = ops.expand_dims(y_true, -1)  # (..., 1)
    # Everything is taken relative to the row's maximum: large logits then cost no digits.
    if keras.backend.backend() == "torch":
        # Without a compiler the fewest passes over (..., classes) win, and this is one kernel.
        logits = ops.log_softmax(logits, axis=-1)
        losses = 0.0
    else:
        logits = logits - ops.stop_gradient(ops.max(logits, axis=-1, keepdims=True))
        losses = ops.log(ops.sum(ops.exp(logits), axis=-1, keepdims=True))
    losses = losses - (1.0 - label_smoothing) * ops.take_along_axis(logits, index, axis=-1)
    if label_smoothing:
        losses = losses - label_smoothing * ops.mean(logits, axis=-1, keepdims=True)
    return ops.squeeze(losses, axis=-1)


def token_weights(y_true, ignore_id=None, sample_weight=None, masks=(), dtype="float32"):
    """How much every token counts: 0 for padding, else 1 or its sample weight.

    Args:
        y_true: Integer class ids `(batch, ...)`.
        ignore_id: The id that counts nothing; `None` if every id counts.
        sample_weight: `None`, or weights a row `(batch,)`, or ones that broadcast against `y_true`
            from the left: `(batch, length)`, `(batch, 1)`.
        masks: Masks of the same kinds, or `None`s; False or 0 counts nothing.
        dtype: The dtype of the result.

    Returns:
        A tensor of `y_true`'s shape.

    Raises:
        ValueError: If `sample_weight` or a mask does not fit `y_true`.
    """
    weights = ops.ones_like(y_true, dtype=dtype)
    if ignore_id is not None:
        weights = ops.cast(ops.not_equal(y_true, ignore_id), dtype)
    for mask in masks:
        if mask is not None:
            mask = _align(ops.cast(ops.convert_to_tensor(mask), "bool"), y_true, "mask")
            weights = weights * ops.cast(mask, dtype)
    if sample_weight is not None:
        sample_weight = ops.cast(ops.convert_to_tensor(sample_weight), dtype)
        weights = weights * _align(sample_weight, y_true, "sample_weight")
    # No gradient goes into weights: they are given, also when a model computed them.
    return ops.stop_gradient(weights)


def warn_if_padding_counts(name, y_true, ignore_id, sample_weight, masks):
    """Warns where nothing says which of several targets a row are padding.

    Args:
        name: Of the loss or the metric.
        y_true: Class ids `(batch, ...)`.
        ignore_id: As in `token_weights`.
        sample_weight: As in `token_weights`.
        masks: As in `token_weights`.
    """
    if ignore_id is not None or len(y_true.shape) < 2:
        return
    given = [getattr(x, "shape", np.shape(x)) for x in (sample_weight, *masks) if x is not None]
    # Of an unknown rank TensorFlow says nothing: it may be one a token.
    if any(getattr(s, "rank", 0) is None or len(s) > 1 and s[1] != 1 for s in given):
        return
    warnings.warn(
        f"`{name}` counts every target, padding too if there is some: nothing says which targets "
        "are padding. Give `sample_weight` with one weight a token, 0 on padding (as the pipelines "
        "of `kerasmodels.data` do; metrics then belong into `weighted_metrics`), or `ignore_id`.",
        stacklevel=3,
    )


def _align(values, y_true, name):
    """Appends axes of size 1 (or drops them) until `values` broadcasts against `y_true`."""
    if getattr(values.shape, "rank", 0) is None and len(y_true.shape) == 2:
        # TensorFlow, once a compiled step has seen weights a row and weights a token.
        values = ops.reshape(values, (ops.shape(y_true)[0], -1))
    shape, target = tuple(values.shape), tuple(y_true.shape)
    while len(shape) > len(target) and shape[-1] == 1:
        values, shape = ops.squeeze(values, axis=-1), shape[:-1]
    fits = len(shape) <= len(target) and all(
        a in (1, None) or b is None or a == b for a, b in zip(shape, target, strict=False)
    )
    if not fits:
        raise ValueError(
            f"`{name}` must have one value a row or one a token, shape {target[:1]} or {target}. "
            f"Received: {name}.shape={tuple(values.shape)}"
        )
    for _ in range(len(target) - len(shape)):
        values = ops.expand_dims(values, -1)
    return values


def sum_over_replicas(value):
    """The sum of `value` over all replicas of `tf.distribute`; elsewhere `value` itself.

    JAX's arrays are global under `keras.distribution`: there a sum is one over all devices already.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # None outside `strategy.run`, where a batch is not split either.
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            value = context.all_reduce(tf.distribute.ReduceOp.SUM, value)
    return value


@keras.saving.register_keras_serializable(package="kerasmodels")
class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy with label smoothing over the real tokens of a batch, in nats.

    `sum(w * l) / sum(w)`, where `l` is the cross-entropy of a token against
    `(1 - eps) * one_hot(y) + eps / V` over all V classes and `w` its `sample_weight`, else 1. The
    amount of padding changes nothing, a batch of padding alone gives 0, and no matrix of one-hot
    targets is made. Equal to PyTorch's
    `CrossEntropyLoss(ignore_index=ignore_id, label_smoothing=eps)`.

    **The batch says what counts.** Pipelines of `data` yield `(inputs, targets, sample_weight)`
    with weight 0 on padding. `w` is also 0 where the prediction's implicit Keras mask hides a
    position, and for targets that equal `ignore_id`, if there is one. A model of `models` that
    knows its pad id and its padding mask (`models.Transformer`) leaves out padding by itself, so
    that arrays without weights are right too. In a model of another kind, arrays that are padded
    need weights, a mask or `ignore_id`: without them every target counts, and a warning says so. A
    target of weight 0 may be any number, also one outside the vocabulary.

    On several replicas of `tf.distribute` the weights are summed over all of them, so that replicas
    with unequal padding give the loss and the gradients of a single device. A replica's result is
    its share of the global loss: the shares add up to it (Keras's convention, which its trainer
    undoes for the log).

    Over an epoch Keras weights the `loss` of its log by rows; `TokenLoss(label_smoothing=eps)`
    weights it by tokens. Keras's `class_weight` looks at one class a row and does not fit
    sequences: give `sample_weight` with one weight a token instead.

    Args:
        label_smoothing: eps, in `[0, 1)`. The paper's is 0.1.
        ignore_id: A target that counts nothing, for targets that mark it (-100, or a pad id that
            is no token); `None` if there is no such.
        name: The name of the loss.

    Calling it:
        y_true: Integer ids `(batch, length)`, or of any other shape `(batch, ...)`.
        y_pred: Logits `(batch, length, vocabulary)` of any float dtype, computed in float32.
        sample_weight: Optional weights, one a row `(batch,)` or one a token `(batch, length)`.

    Returns:
        A float32 scalar.

    Raises:
        ValueError: If `label_smoothing` is outside `[0, 1)` or shapes do not belong together.

    Example:
    ```python
    import numpy as np
    from kerasmodels import training

    loss = training.SmoothedCrossEntropy(label_smoothing=0.1)
    targets = np.array([[3, 1, 2, 0], [2, 2, 0, 0]])
    logits = np.zeros((2, 4, 5), "float32")
    loss(targets, logits, sample_weight=targets != 0)  # log(5) = 1.6094
    ```
    """

    def __init__(self, label_smoothing=0.1, ignore_id=None, name="smoothed_cross_entropy"):
        super().__init__(name=name, reduction="mean_with_sample_weight")
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                f"`label_smoothing` must be in [0, 1). Received: label_smoothing={label_smoothing}"
            )
        self.label_smoothing = float(label_smoothing)
        self.ignore_id = None if ignore_id is None else int(ignore_id)

    def call(self, y_true, y_pred):
        """The loss of every token, `(batch, length)` float32; an ignored one's is 0."""
        y_true, logits = as_targets_and_logits(y_true, y_pred)
        return self._losses(y_true, logits, token_weights(y_true, self.ignore_id))

    def _losses(self, y_true, logits, weights):
        # A target that counts nothing may lie outside the vocabulary and must not be looked up.
        real = ops.not_equal(weights, 0)
        losses = token_losses(ops.where(real, y_true, 0), logits, self.label_smoothing)
        return ops.where(real, losses, ops.zeros_like(losses))

    def __call__(self, y_true, y_pred, sample_weight=None):
        """The mean over the real tokens; see the class."""
        masks = *counted(y_true), get_keras_mask(y_pred)
        y_true, logits = as_targets_and_logits(y_true, y_pred)
        warn_if_padding_counts(self.name, y_true, self.ignore_id, sample_weight, masks)
        weights = token_weights(y_true, self.ignore_id, sample_weight, masks, logits.dtype)
        losses = self._losses(y_true, logits, weights)
        total_weight = sum_over_replicas(ops.sum(weights))
        return share_to_whole(ops.divide_no_nan(ops.sum(losses * weights), total_weight))

    def token_weight(self, y_true, sample_weight=None, mask=None):
        """The number of real tokens, or the sum of their weights: what the loss divides by.

        `loss(y_true, y_pred, sample_weight) * loss.token_weight(y_true, sample_weight)` is the sum
        over the tokens, so losses and gradients of several batches combine exactly. On replicas it
        is the sum over all of them.

        Args:
            y_true: Integer ids `(batch, length)`.
            sample_weight: Optional weights, one a row or one a token.
            mask: Optional mask `(batch, length)`, for predictions with an implicit Keras mask.

        Returns:
            A float32 scalar.
        """
        masks = *counted(y_true), mask
        y_true = ops.convert_to_tensor(y_true)
        weights = token_weights(y_true, self.ignore_id, sample_weight, masks)
        return sum_over_replicas(ops.sum(weights))

    def get_config(self):
        """The constructor's arguments."""
        return {
            "label_smoothing": self.label_smoothing,
            "ignore_id": self.ignore_id,
            "name": self.name,
        }


def loss_argument(loss, name):
    """What a loss was given for one of its arguments, such as `ignore_class`, or None.

    Keras 3.15 keeps it as an attribute, Keras 3.16 in the config alone.
    """
    value = getattr(loss, name, None)
    if value is None and isinstance(loss, keras.losses.Loss):
        value = loss.get_config().get(name)
    return value
