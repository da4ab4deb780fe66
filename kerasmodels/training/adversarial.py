"""Losses and metrics of adversarial training, all of them on logits.

A discriminator gives a logit `a`; its probability "this is real" is `D(x) = sigmoid(a)`, so that
`log D = -softplus(-a)` and `log(1 - D) = -softplus(a)`: no logarithm of 0 can occur, and no
gradient vanishes by rounding. Papers: Goodfellow et al. 2014 (minimax, non-saturating), Mao et al.
2017 (least squares), Arjovsky et al. 2017 and Gulrajani et al. 2017 (Wasserstein, its penalty).

The functions are pure. Logits have any shape, usually `(batch, 1)`; real and fake may differ in
their number of rows. Everything is computed in float32.

Example:
```python
import keras
from kerasmodels import training

real, fake = keras.ops.array([[2.0], [1.0]]), keras.ops.array([[-1.0], [0.5]])
training.binary_discriminator_loss(real, fake)  # equals -value_function(real, fake)
training.non_saturating_generator_loss(fake)
```
"""

import math

import keras
from keras import ops

from kerasmodels.training.gradients import value_and_grad


def _float32(logits):
    return ops.cast(logits, "float32")


def value_function(real_logits, fake_logits):
    """The game's value, equation 1: `V = E[log D(x)] + E[log(1 - D(G(z)))]`.

    The discriminator maximizes it. It is -log 4 = -1.386 where D is 1/2 everywhere, and never
    above 0.

    Args:
        real_logits: Of the discriminator on data.
        fake_logits: Of the discriminator on samples.

    Returns:
        A float32 scalar.
    """
    return -binary_discriminator_loss(real_logits, fake_logits)


def jensen_shannon(real_logits, fake_logits):
    """The Jensen-Shannon divergence in nats, as the discriminator sees it: `(V + log 4) / 2`.

    By theorem 1 this is the divergence between data and samples if D is optimal; any other D
    gives less. A lower bound then, and one that a poor D drives below 0 and chance above 0: it is
    clipped to `[0, log 2]`, where every divergence lies.

    Args:
        real_logits: Of the discriminator on data.
        fake_logits: Of the discriminator on samples.

    Returns:
        A float32 scalar.
    """
    return _divergence(value_function(real_logits, fake_logits))


def _divergence(value):
    return ops.clip((value + math.log(4)) / 2, 0.0, math.log(2))


def binary_discriminator_loss(real_logits, fake_logits):
    """What the discriminator of the original game minimizes: `-V`, a cross-entropy.

    Args:
        real_logits: Of the discriminator on data.
        fake_logits: Of the discriminator on samples.

    Returns:
        A float32 scalar.
    """
    real, fake = ops.softplus(-_float32(real_logits)), ops.softplus(_float32(fake_logits))
    return ops.mean(real) + ops.mean(fake)


def minimax_generator_loss(fake_logits):
    """`E[log(1 - D(G(z)))]`, as algorithm 1 states it; its gradient saturates early on.

    Args:
        fake_logits: Of the discriminator on samples.

    Returns:
        A float32 scalar.
    """
    return -ops.mean(ops.softplus(_float32(fake_logits)))


def non_saturating_generator_loss(fake_logits):
    """`-E[log D(G(z))]` (section 3): the same fixed point, and a strong gradient early on.

    Args:
        fake_logits: Of the discriminator on samples.

    Returns:
        A float32 scalar.
    """
    return ops.mean(ops.softplus(-_float32(fake_logits)))


def least_squares_discriminator_loss(real_logits, fake_logits):
    """`(E[(a(x) - 1)^2] + E[a(G(z))^2]) / 2`: Mao et al. 2017, equation 9.

    Args:
        real_logits: The discriminator's output on data, without an activation.
        fake_logits: Its output on samples.

    Returns:
        A float32 scalar.
    """
    real, fake = _float32(real_logits), _float32(fake_logits)
    return (ops.mean((real - 1.0) ** 2) + ops.mean(fake**2)) / 2.0


def least_squares_generator_loss(fake_logits):
    """`E[(a(G(z)) - 1)^2] / 2`: Mao et al. 2017, equation 9.

    Args:
        fake_logits: The discriminator's output on samples, without an activation.

    Returns:
        A float32 scalar.
    """
    return ops.mean((_float32(fake_logits) - 1.0) ** 2) / 2.0


def wasserstein_discriminator_loss(real_logits, fake_logits):
    """`E[a(G(z))] - E[a(x)]`: minus the distance, if `a` has slope 1; see `gradient_penalty`.

    Args:
        real_logits: The critic's output on data.
        fake_logits: Its output on samples.

    Returns:
        A float32 scalar.
    """
    return ops.mean(_float32(fake_logits)) - ops.mean(_float32(real_logits))


def wasserstein_generator_loss(fake_logits):
    """`-E[a(G(z))]`.

    Args:
        fake_logits: The critic's output on samples.

    Returns:
        A float32 scalar.
    """
    return -ops.mean(_float32(fake_logits))


def gradient_penalty(discriminator, real, fake, mix):
    """`E[(|grad a(x)| - 1)^2]` between data and samples: Gulrajani et al. 2017, equation 3.

    Taken at `x = mix * real + (1 - mix) * fake`. It can be differentiated again, by
    `value_and_grad` around it.

    Args:
        discriminator: A function of the inputs that returns one number a row.
        real: Data, float `(batch, ...)`.
        fake: Samples of the same shape.
        mix: Numbers in [0, 1), one a row: `(batch,)`. The paper draws them from U(0, 1).

    Returns:
        A float32 scalar.

    Example:
    ```python
    import keras
    from kerasmodels import models, training

    critic = models.dcgan_discriminator((28, 28, 1), filters=8)
    real, fake = keras.ops.ones((4, 28, 28, 1)), keras.ops.zeros((4, 28, 28, 1))
    mix = keras.random.uniform((len(real),), seed=1)
    penalty = 10.0 * training.gradient_penalty(critic, real, fake, mix)
    ```
    """
    mix = ops.reshape(mix, (-1, *[1] * (len(real.shape) - 1)))  # (batch, 1, ...)
    # The point is given: gradients go into the discriminator alone.
    between = ops.stop_gradient(mix * real + (1.0 - mix) * fake)
    _, (slope,) = value_and_grad(lambda x: ops.sum(_float32(discriminator(x))), [between])
    squares = ops.sum(_float32(slope) ** 2, axis=tuple(range(1, len(real.shape))))  # (batch,)
    # A root has no slope at 0.
    return ops.mean((ops.sqrt(squares + 1e-12) - 1.0) ** 2)


# (discriminator's loss, generator's loss) by name
ADVERSARIAL_LOSSES = {
    "non_saturating": (binary_discriminator_loss, non_saturating_generator_loss),
    "minimax": (binary_discriminator_loss, minimax_generator_loss),
    "least_squares": (least_squares_discriminator_loss, least_squares_generator_loss),
    "wasserstein": (wasserstein_discriminator_loss, wasserstein_generator_loss),
}


@keras.saving.register_keras_serializable(package="kerasmodels")
class ValueFunction(keras.metrics.Mean):
    """The mean of `value_function` over the batches, each weighted by its rows of data.

    Args:
        name: Name of the metric.
        dtype: Of the result.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, training

    discriminator = models.maxout_discriminator((28, 28, 1))
    images, samples = np.zeros((16, 28, 28, 1)), np.ones((16, 28, 28, 1))
    metric = training.ValueFunction()
    metric.update_state(discriminator(images), discriminator(samples))
    metric.result()  # -1.386 = -log 4 if nothing gives the samples away
    ```
    """

    def __init__(self, name="value", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def update_state(self, real_logits, fake_logits):
        """Adds a batch.

        Args:
            real_logits: Of the discriminator on data.
            fake_logits: Of the discriminator on samples.
        """
        value = value_function(real_logits, fake_logits)
        super().update_state(value, sample_weight=ops.shape(real_logits)[0])


@keras.saving.register_keras_serializable(package="kerasmodels")
class JensenShannon(ValueFunction):
    """`jensen_shannon` of all batches together; clipped to `[0, log 2]` once, at the end.

    Args:
        name: Name of the metric.
        dtype: Of the result.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, training

    discriminator = models.maxout_discriminator((28, 28, 1))
    images, samples = np.zeros((16, 28, 28, 1)), np.ones((16, 28, 28, 1))
    metric = training.JensenShannon()
    metric.update_state(discriminator(images), discriminator(samples))
    metric.result()  # 0 if nothing gives the samples away, log 2 = 0.693 if everything does
    ```
    """

    def __init__(self, name="jsd", dtype=None):
        super().__init__(name=name, dtype=dtype)

    def result(self):
        """The divergence in nats; 0 before the first batch."""
        # Without batches Keras's mean is 0, and 0 is the value of a perfect discriminator.
        divergence = _divergence(super().result())
        return ops.where(self.count > 0, divergence, ops.zeros_like(divergence))
