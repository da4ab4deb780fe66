"""A callback that ends a run whose losses are no numbers any more."""

import warnings

import keras
import numpy as np

from kerasmodels.arguments import integer


class NonFiniteGuard(keras.callbacks.Callback):
    """Stops `fit` when a log is not finite, and says which one and when.

    `keras.callbacks.TerminateOnNaN` looks at a log named `loss` alone; a GAN has `d_loss` and
    `g_loss`, and one network can be lost long before the other shows it. Here every log counts.

    Logs are means over the epoch so far, so one that was not finite once stays so until the epoch
    ends: looking at every tenth batch misses nothing.

    Args:
        every: The number of batches from one look to the next; the end of an epoch is looked at
            always.

    Raises:
        ValueError: If `every` is not positive.

    Attributes:
        stopped: `None`, or what was said.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, training

    gan = models.GAN(
        models.mlp_generator((28, 28, 1), latent_dim=100),
        models.maxout_discriminator((28, 28, 1)),
        latent_dim=100,
    )
    gan.compile(optimizer={"generator": "adam", "discriminator": "adam"})
    images = np.random.default_rng(0).uniform(-1, 1, (256, 28, 28, 1))
    guard = training.NonFiniteGuard()
    gan.fit(images, epochs=100, callbacks=[guard])
    if guard.stopped:
        print(guard.stopped)  # `g_loss` is nan at epoch 3, batch 20: training was stopped. ...
    ```
    """

    def __init__(self, every=10):
        super().__init__()
        self.every = integer("every", every)
        self.stopped = None

    def on_train_begin(self, logs=None):
        """Forgets an earlier run."""
        self.stopped = None
        self._epoch = 0

    def on_epoch_begin(self, epoch, logs=None):
        """Remembers the epoch for what it may have to say."""
        self._epoch = epoch
        self._next = self.every - 1

    def on_train_batch_end(self, batch, logs=None):
        """Looks at the logs of every `every`-th batch."""
        if batch >= self._next:  # with `steps_per_execution` batches come in strides
            self._next = batch + self.every
            self._look(logs, f"epoch {self._epoch + 1}, batch {batch + 1}")

    def on_epoch_end(self, epoch, logs=None):
        """Looks at the logs of the whole epoch, of the validation too."""
        self._look(logs, f"the end of epoch {epoch + 1}")

    def _look(self, logs, when):
        if self.stopped:
            return
        lost = [f"`{key}` is {value}" for key, value in (logs or {}).items() if _is_lost(value)]
        if not lost:
            return
        self.stopped = (
            f"{', '.join(lost)} at {when}: training was stopped. A smaller learning rate, clipped "
            "gradients (`clipnorm`) or float32 instead of float16 are what usually helps."
        )
        warnings.warn(self.stopped, stacklevel=2)
        self.model.stop_training = True


def _is_lost(value):
    value = np.asarray(value)
    return value.dtype.kind == "f" and not np.isfinite(value).all()
