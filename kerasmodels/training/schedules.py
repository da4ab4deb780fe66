"""Learning-rate schedules: the Transformer's, BERT's, and an end for any of them.

Keras asks a schedule for the rate of update n with step n - 1: it counts from 0, the papers from 1.
The value at step s is the paper's formula at s here, and the value at 0 is that of 1, so the first
two updates use the same rate.

Steps may be Python or numpy numbers or backend tensors, integer or floating, scalars or arrays.
The relative error is below 1e-6 up to step 2**31 - 1.
"""

import math
from numbers import Real

import keras
import numpy as np
from keras import ops

_LAST_STEP = 2**31 - 1


def _positive_integer(name, value):
    whole = _is_finite(value) and not isinstance(value, bool) and value % 1 == 0
    if not whole or not 0 < value <= _LAST_STEP:
        raise ValueError(
            f"`{name}` must be a whole number from 1 to 2**31 - 1. Received: {name}={value}"
        )
    return int(value)


def _is_finite(value):
    return isinstance(value, Real) and math.isfinite(value)


def _as_step(step):
    """The step as an int32 or float32 tensor of at least 1 (0 counts as 1)."""
    if isinstance(step, (int, np.integer)):
        step = np.array(min(step, _LAST_STEP), "int32")
    elif isinstance(step, float):
        step = np.array(step, "float32")
    step = ops.convert_to_tensor(step)
    dtype = keras.backend.standardize_dtype(step.dtype)
    # int32 keeps every step exactly; a float keeps 24 bits of it.
    step = ops.cast(step, "float32" if "float" in dtype else "int32")
    return ops.where(step > 0, step, ops.ones_like(step))


def _until(last, step):
    """`last - step` in float32 without losing digits where the two are close."""
    if "int" in keras.backend.standardize_dtype(step.dtype):
        return ops.cast(last - step, "float32")
    # The whole part is subtracted as an integer: float32 holds no `last` above 2**24.
    floor = ops.floor(step)
    below = ops.minimum(floor, float(2**31 - 2**7))  # the last float32 before 2**31
    whole = ops.where(floor > below, _LAST_STEP, ops.cast(below, "int32"))
    return ops.cast(last - whole, "float32") - (step - floor)


class _Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """Turns the step into a tensor and leaves the formula to `rate`."""

    def __call__(self, step):
        """The learning rate at `step`: a float32 tensor of `step`'s shape."""
        return self.rate(_as_step(step))


@keras.saving.register_keras_serializable(package="kerasmodels")
class WarmupInverseSqrt(_Schedule):
    """Linear warm-up, then the inverse square root of the step.

    "Attention Is All You Need", section 5.3, equation 3:

        rate(s) = scale * hidden_dim**-0.5 * min(s**-0.5, s * warmup_steps**-1.5)

    The peak, `scale / sqrt(hidden_dim * warmup_steps)`, is at `warmup_steps`.

    Args:
        hidden_dim: The model's width, a positive integer.
        warmup_steps: The step of the peak, a positive integer.
        scale: A factor on the whole. The paper's is 1.

    Returns:
        When called with a step: a float32 tensor, the learning rate.

    Raises:
        ValueError: If an argument is not positive.

    Example:
    ```python
    import keras
    from kerasmodels import training

    schedule = training.WarmupInverseSqrt(512, warmup_steps=4000)
    float(schedule(4000))  # 6.9877e-4
    optimizer = keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    ```
    """

    def __init__(self, hidden_dim, warmup_steps=4000, scale=1.0):
        self.hidden_dim = _positive_integer("hidden_dim", hidden_dim)
        self.warmup_steps = _positive_integer("warmup_steps", warmup_steps)
        if not _is_finite(scale) or not scale > 0:
            raise ValueError(f"`scale` must be positive and finite. Received: scale={scale!r}")
        self.scale = float(scale)

    def rate(self, step):
        """The formula at `step`, a tensor of at least 1."""
        step = ops.cast(step, "float32")
        # The constants are Python floats: a power in float32 would lose digits.
        factor = self.scale * self.hidden_dim**-0.5
        return ops.minimum(factor / ops.sqrt(step), step * (factor * self.warmup_steps**-1.5))

    def get_config(self):
        """The constructor's arguments."""
        return {
            "hidden_dim": self.hidden_dim,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class WarmupLinear(_Schedule):
    """Linear warm-up to a peak, then linear decay to an end (BERT, appendix A.2).

        rate(s) = peak * s / warmup_steps                      up to warmup_steps, then
        rate(s) = peak + (final - peak) * (s - warmup_steps) / (total_steps - warmup_steps)

    and `final` from `total_steps` on.

    Args:
        peak: The largest rate, reached at `warmup_steps`; positive.
        warmup_steps: A positive integer. BERT's is 10,000.
        total_steps: The step of the end, an integer above `warmup_steps`. BERT's is 1,000,000.
        final: The rate at the end, not negative.

    Returns:
        When called with a step: a float32 tensor, the learning rate.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
    ```python
    from kerasmodels import training

    schedule = training.WarmupLinear(1e-4, warmup_steps=10_000, total_steps=1_000_000)
    float(schedule(10_000))  # 1e-4
    ```
    """

    def __init__(self, peak, warmup_steps, total_steps, final=0.0):
        if not _is_finite(peak) or not peak > 0:
            raise ValueError(f"`peak` must be positive and finite. Received: peak={peak!r}")
        if not _is_finite(final) or not final >= 0:
            raise ValueError(f"`final` must be finite, not negative. Received: final={final!r}")
        self.peak = float(peak)
        self.warmup_steps = _positive_integer("warmup_steps", warmup_steps)
        self.total_steps = _positive_integer("total_steps", total_steps)
        if self.total_steps <= self.warmup_steps:
            raise ValueError(
                "`total_steps` must be larger than `warmup_steps`. Received: "
                f"total_steps={total_steps}, warmup_steps={warmup_steps}"
            )
        self.final = float(final)

    def rate(self, step):
        """The formula at `step`, a tensor of at least 1."""
        # Two terms that are never negative, so that nothing cancels near the end.
        left = ops.maximum(_until(self.total_steps, step), 0.0)
        decayed = ops.maximum(-_until(self.warmup_steps, step), 0.0)
        decay_steps = self.total_steps - self.warmup_steps
        decayed = ops.minimum(decayed, float(decay_steps))
        falling = left * (self.peak / decay_steps) + decayed * (self.final / decay_steps)
        rising = ops.cast(step, "float32") * (self.peak / self.warmup_steps)
        return ops.where(step <= self.warmup_steps, rising, falling)

    def get_config(self):
        """The constructor's arguments."""
        return {
            "peak": self.peak,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "final": self.final,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class LinearCooldown(_Schedule):
    """Any schedule with an end: its last steps fall linearly to 0.

        rate(s) = schedule(s) * min(1, (total_steps - s) / cooldown_steps)

    and 0 from `total_steps` on. For a run of a fixed budget: the inverse square root never ends by
    itself, and a rate near 0 at the end is worth a good part of the final error.

    Args:
        schedule: A `LearningRateSchedule`.
        total_steps: The step at which the rate is 0, a positive integer.
        cooldown_steps: How many steps the fall takes, a positive integer, at most `total_steps`.

    Returns:
        When called with a step: a float32 tensor, the learning rate.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
    ```python
    from kerasmodels import training

    schedule = training.WarmupInverseSqrt(128, warmup_steps=2000)
    schedule = training.LinearCooldown(schedule, 20_000, cooldown_steps=5_000)
    ```
    """

    def __init__(self, schedule, total_steps, cooldown_steps):
        if not isinstance(schedule, keras.optimizers.schedules.LearningRateSchedule):
            raise ValueError(
                f"`schedule` must be a LearningRateSchedule. Received: schedule={schedule!r}"
            )
        self.schedule = schedule
        self.total_steps = _positive_integer("total_steps", total_steps)
        self.cooldown_steps = _positive_integer("cooldown_steps", cooldown_steps)
        if self.cooldown_steps > self.total_steps:
            raise ValueError(
                "`cooldown_steps` must be at most `total_steps`. Received: "
                f"cooldown_steps={cooldown_steps}, total_steps={total_steps}"
            )

    def rate(self, step):
        """The formula at `step`, a tensor of at least 1."""
        left = _until(self.total_steps, step) * (1.0 / self.cooldown_steps)
        factor = ops.clip(left, 0.0, 1.0)
        return ops.cast(self.schedule(step), "float32") * factor

    def get_config(self):
        """The constructor's arguments; the inner schedule serialized."""
        return {
            "schedule": keras.saving.serialize_keras_object(self.schedule),
            "total_steps": self.total_steps,
            "cooldown_steps": self.cooldown_steps,
        }

    @classmethod
    def from_config(cls, config):
        """Builds the schedule from `get_config()`."""
        schedule = keras.saving.deserialize_keras_object(config["schedule"])
        return cls(**{**config, "schedule": schedule})
