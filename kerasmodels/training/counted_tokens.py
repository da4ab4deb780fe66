"""Which targets of a batch count, told to the losses and metrics that a model is compiled with.

Keras hands sample weights to losses and to `weighted_metrics`, and nothing to `metrics`; and what a
model knows of its targets (the pad id, the mask of its decoder) it hands to nobody. Both are said
here while a step runs, and the losses and metrics of this package listen. Keras's own do as Keras
says.
"""

import contextlib
import threading

import keras
from keras import ops

_thread = threading.local()  # replicas of MirroredStrategy run in threads of their own


def counted(y_true):
    """The masks of the targets that count, while a model's step runs.

    Args:
        y_true: Targets, the very object that the step has.

    Returns:
        A tuple of masks, with one value a target or one a row: what all of them keep counts.
    """
    found = getattr(_thread, "masks", ())
    return tuple(mask for y, masks in found if y is y_true for mask in masks)


class CountsTokens:
    """A mixin for `keras.Model`s: losses and metrics of `training` leave out what does not count.

    These are targets whose sample weight is 0, in `metrics` too, which Keras gives no weights; and
    those that the model itself knows to be padding, by `_counted`.
    """

    def _counted(self, x, y):
        """Which targets count, by what the model knows of them.

        Args:
            x: A batch of inputs.
            y: The targets; this is asked where they are one tensor.

        Returns:
            A list of masks, with one value a target or one a row: what all of them keep counts.
        """
        return []

    @contextlib.contextmanager
    def _counting(self, x, y, sample_weight=None):
        """Inside, `counted` knows the targets of this batch."""
        if keras.tree.is_nested(y):
            found = [(y, [_has_weight(w)]) for y, w in _pairs(y, sample_weight) if w is not None]
        else:
            masks = [] if y is None else self._counted(x, y)
            if sample_weight is not None and not keras.tree.is_nested(sample_weight):
                masks = [*masks, _has_weight(sample_weight)]
            found = [(y, masks)]
        before = getattr(_thread, "masks", ())
        _thread.masks = found
        try:
            yield
        finally:
            _thread.masks = before

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """As `keras.Model.compute_loss`."""
        with self._counting(x, y):  # a loss is given the weights themselves
            return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """As `keras.Model.compute_metrics`."""
        with self._counting(x, y, sample_weight):
            return super().compute_metrics(x, y, y_pred, sample_weight)


def _pairs(y, sample_weight):
    """The targets of several outputs, each with its weights."""
    if isinstance(y, dict) and isinstance(sample_weight, dict):
        return [(y[name], sample_weight.get(name)) for name in y]
    if isinstance(y, list | tuple) and isinstance(sample_weight, list | tuple):
        return list(zip(y, sample_weight, strict=False))
    return []


def _has_weight(sample_weight):
    return ops.not_equal(ops.convert_to_tensor(sample_weight), 0)
