"""Every private name of Keras and of the backends that this package leans on.

None of them is promised to anybody: a new version may move or drop it. So each stands here alone,
with the reason why no public name does, and with a canary in `tests/test_keras_internals.py` that
fails when the name changes and says what to look at. A private name that can be done without does
not belong here; a public one takes its place as soon as there is one.
"""

# A layer's implicit mask travels as an attribute of its output. Keras lets a layer receive it (an
# argument called `mask`), but a loss, a metric or a layer with several inputs cannot ask for it.
from keras.src.backend.common.masking import get_keras_mask, set_keras_mask

# Under `tf.distribute` all losses of Keras are divided by the number of replicas, by a function of
# this module that has no switch. `training/replicas.py` gives it one.
from keras.src.losses import loss as loss_module

__all__ = ["get_keras_mask", "loss_module", "set_keras_mask"]
