"""What a loss means on one of several replicas of `tf.distribute`.

Keras's losses return a replica's *share* of the global loss: the mean over its rows divided by the
number of replicas, so that shares add up. A loss written with `ops.mean` returns the whole mean. A
step that is written once must work with both, so inside `whole_losses()` Keras's losses return
whole means as well, and whoever applies the gradients divides once. On one device, on JAX and on
PyTorch there is one replica and nothing to do.
"""

import contextlib
import functools
import threading

import keras

from kerasmodels.keras_internals import loss_module

_thread = threading.local()  # MirroredStrategy runs every replica in a thread of its own


def num_replicas():
    """The number of replicas that `tf.distribute` keeps in step; 1 on other backends."""
    if keras.backend.backend() != "tensorflow":
        return 1
    import tensorflow as tf

    return tf.distribute.get_strategy().num_replicas_in_sync


def strategy_of(model):
    """The `tf.distribute` strategy that a `keras.Model` is trained under; None without one."""
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    strategy = model.distribute_strategy
    with strategy.scope():
        return strategy if tf.distribute.has_strategy() else None


def share_to_whole(loss):
    """Turns a loss that is this replica's share into what `whole_losses` asks for.

    For losses that know the replicas themselves: outside `whole_losses` the share is returned as
    it is.
    """
    return loss * num_replicas() if getattr(_thread, "whole", False) else loss


@contextlib.contextmanager
def whole_losses():
    """Inside, losses on a replica are means over its rows instead of shares."""
    if num_replicas() == 1:
        yield
        return
    _let_keras_listen()
    before = getattr(_thread, "whole", False)
    _thread.whole = True
    try:
        yield
    finally:
        _thread.whole = before


@functools.cache
def _let_keras_listen():
    """Wraps the two functions through which all of Keras scales losses; it has no switch."""

    def unless_whole(scale):
        @functools.wraps(scale)
        def wrapped(value):
            return value if getattr(_thread, "whole", False) else scale(value)

        return wrapped

    for name in ("scale_loss_for_distribution", "unscale_loss_for_distribution"):
        setattr(loss_module, name, unless_whole(getattr(loss_module, name)))
