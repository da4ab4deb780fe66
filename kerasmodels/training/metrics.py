"""Metrics over tokens: every real token weighs the same, in every batch and on every replica.

What is real says the batch, by sample weights, as for `SmoothedCrossEntropy`. In a model of
`models`, or in a `PortableModel` that uses Keras's `compute_metrics`, the metrics of this module
leave out tokens of weight 0 in both of `compile`'s arguments: in `weighted_metrics` a token counts
with its weight, in `metrics` it counts once. Any other Keras model hands weights to
`weighted_metrics` alone, and there these metrics belong; in `metrics` they warn that they were
given none.
"""

import keras
from keras import ops

from kerasmodels.keras_internals import better_when, get_keras_mask
from kerasmodels.training.counted_tokens import counted
from kerasmodels.training.losses import (
    as_targets_and_logits,
    token_losses,
    token_weights,
    warn_if_padding_counts,
)


class _TokenMean(keras.metrics.Metric):
    """The weighted mean of a value a token over all updates since the last reset."""

    def __init__(self, ignore_id=None, name=None):
        super().__init__(name=name, dtype="float32")
        self.ignore_id = None if ignore_id is None else int(ignore_id)
        # Summed over replicas: the defaults of a metric's variables.
        self.total = self.add_variable((), "zeros", dtype="float32", name="total")
        self.weight = self.add_variable((), "zeros", dtype="float32", name="weight")

    def token_values(self, y_true, logits):
        """The value of every token, `(batch, length)`; targets that do not count are 0."""
        raise NotImplementedError

    def update_state(self, y_true, y_pred, sample_weight=None):
        """Adds a batch.

        Args:
            y_true: Integer ids `(batch, length)`, or of any other shape `(batch, ...)`.
            y_pred: Logits `(batch, length, vocabulary)`. Their implicit Keras mask is honoured.
            sample_weight: Optional weights, one a row `(batch,)` or one a token `(batch, length)`.
        """
        masks = *counted(y_true), get_keras_mask(y_pred)
        y_true, logits = as_targets_and_logits(y_true, y_pred)
        warn_if_padding_counts(self.name, y_true, self.ignore_id, sample_weight, masks)
        weights = token_weights(y_true, self.ignore_id, sample_weight, masks)
        real = ops.not_equal(weights, 0)
        values = self.token_values(ops.where(real, y_true, 0), logits)
        values = ops.where(real, ops.cast(values, "float32"), 0.0)
        self.total.assign_add(ops.sum(values * weights))
        self.weight.assign_add(ops.sum(weights))

    def result(self):
        """The mean over all tokens so far, 0 without any."""
        return ops.divide_no_nan(self.total.value, self.weight.value)

    def get_config(self):
        """The constructor's arguments."""
        return {"ignore_id": self.ignore_id, "name": self.name}


@keras.saving.register_keras_serializable(package="kerasmodels")
@better_when("down")
class TokenLoss(_TokenMean):
    """The mean cross-entropy of a token in nats, exact over batches of any sizes and padding.

    Keras's own `loss` averages the batches' means by rows; this is `sum(w * l) / sum(w)` over all
    tokens since the last reset. With the loss's `label_smoothing` it equals the loss within a
    batch; without (the default) it is the negative log-likelihood that papers report.

    Args:
        label_smoothing: As in `SmoothedCrossEntropy`; 0 for the plain negative log-likelihood.
        ignore_id: A target that counts nothing; `None` if there is no such.
        name: The metric's name.

    Raises:
        ValueError: If `label_smoothing` is outside `[0, 1)` or shapes do not belong together.

    Without any token the result is 0.

    Example:
    ```python
    import numpy as np
    from kerasmodels import training

    metric = training.TokenLoss()
    targets, logits = np.array([[1, 2, 0]]), np.zeros((1, 3, 4), "float32")
    metric.update_state(targets, logits, sample_weight=targets != 0)
    float(metric.result())  # log(4) = 1.3863
    ```
    """

    def __init__(self, label_smoothing=0.0, ignore_id=None, name="token_loss"):
        super().__init__(ignore_id=ignore_id, name=name)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(
                f"`label_smoothing` must be in [0, 1). Received: label_smoothing={label_smoothing}"
            )
        self.label_smoothing = float(label_smoothing)

    def token_values(self, y_true, logits):
        """The cross-entropy of every token, `(batch, length)`."""
        return token_losses(y_true, logits, self.label_smoothing)

    def get_config(self):
        """The constructor's arguments."""
        return {"label_smoothing": self.label_smoothing, **super().get_config()}


@keras.saving.register_keras_serializable(package="kerasmodels")
@better_when("down")
class Perplexity(_TokenMean):
    """exp of the mean negative log-likelihood over all tokens since the last reset.

    Args:
        ignore_id: A target that counts nothing; `None` if there is no such.
        name: The metric's name.

    Without any token the result is 1, which is exp(0).

    Example:
    ```python
    import numpy as np
    from kerasmodels import training

    metric = training.Perplexity()
    targets, logits = np.array([[1, 2, 0]]), np.zeros((1, 3, 4), "float32")
    metric.update_state(targets, logits, sample_weight=targets != 0)
    float(metric.result())  # 4: a uniform guess among 4 classes
    ```
    """

    def __init__(self, ignore_id=None, name="perplexity"):
        super().__init__(ignore_id=ignore_id, name=name)

    def token_values(self, y_true, logits):
        """The negative log-likelihood of every token, `(batch, length)`."""
        return token_losses(y_true, logits)

    def result(self):
        """The perplexity of all tokens so far, 1 without any."""
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="kerasmodels")
@better_when("up")
class MaskedAccuracy(_TokenMean):
    """The share of real tokens whose largest logit is the target's.

    Args:
        ignore_id: A target that counts nothing; `None` if there is no such.
        name: The metric's name.

    Without any token the result is 0.

    Example:
    ```python
    import numpy as np
    from kerasmodels import training

    metric = training.MaskedAccuracy()
    targets = np.array([[1, 2, 0]])
    logits = np.array([[[0, 1, 0], [0, 1, 0], [0, 1, 0]]], "float32")
    metric.update_state(targets, logits, sample_weight=targets != 0)
    float(metric.result())  # 0.5
    ```
    """

    def __init__(self, ignore_id=None, name="masked_accuracy"):
        super().__init__(ignore_id=ignore_id, name=name)

    def token_values(self, y_true, logits):
        """1 where the prediction is right, else 0, `(batch, length)`."""
        return ops.equal(ops.cast(ops.argmax(logits, axis=-1), "int32"), y_true)
