"""Weight decay as the papers have it, with exceptions that survive saving and loading."""

import math
import re
from collections.abc import Iterable
from numbers import Real

import keras
import numpy as np
from keras import ops

from kerasmodels.keras_internals import KerasAdamW, KerasSGD, OptimizerHooks, fused_adam


class _SelectiveWeightDecay(OptimizerHooks):
    """What the optimizers below share: which variables are decayed, as a part of the config."""

    def __init__(self, *, learning_rate, weight_decay, undecayed, **kwargs):
        for name, value in (("weight_decay", weight_decay), ("learning_rate", learning_rate)):
            if name == "learning_rate" and not isinstance(value, str | Real):
                continue  # a schedule, a function or a tensor
            if not isinstance(value, Real) or not 0 <= value < math.inf:
                raise ValueError(
                    f"`{name}` must not be negative, and finite. Received: {name}={value!r}"
                )
        if isinstance(undecayed, str) or not isinstance(undecayed, Iterable):
            raise ValueError(
                "`undecayed` must be a list of regular expressions, not one string. "
                f"Received: undecayed={undecayed!r}"
            )
        undecayed = list(undecayed)
        for pattern in undecayed:
            try:
                re.compile(pattern)
            except (re.error, TypeError) as error:
                raise ValueError(
                    f"`undecayed` must hold regular expressions. Received: {pattern!r} ({error})"
                ) from error
        if isinstance(learning_rate, Real):
            learning_rate = float(learning_rate)
        # Keras takes no numbers of numpy here.
        kwargs = {k: v.item() if isinstance(v, np.generic) else v for k, v in kwargs.items()}
        super().__init__(learning_rate=learning_rate, weight_decay=float(weight_decay), **kwargs)
        self.undecayed = undecayed

    def build(self, var_list):
        """Makes the moments of `var_list` and notes which of them are not decayed."""
        if self.built:
            return
        # Keras's own patterns look at a variable's name, not at its path.
        paths = [(v, v.path) for v in var_list]
        undecayed = [v for v, path in paths if any(re.search(p, path) for p in self.undecayed)]
        super().exclude_from_weight_decay(var_list=undecayed)
        super().build(var_list)

    def add_variable_from_reference(self, reference_variable, *args, **kwargs):
        """Makes a moment, as Keras does; on PyTorch it lies in memory as its variable does."""
        slot = super().add_variable_from_reference(reference_variable, *args, **kwargs)
        if keras.backend.backend() == "torch":
            # `layers.Conv2D` keeps kernels in another order: sums of tensors that lie differently
            # take three times as long.
            like = reference_variable.value.detach().to(slot.value.dtype)
            if like.stride() != slot.value.stride():
                slot.value.data = like.clone().copy_(slot.value.data)
        return slot

    def exclude_from_weight_decay(self, var_list=None, var_names=None):
        """Leaves more variables out of weight decay; to be called before the optimizer is built.

        Args:
            var_list: Not supported: a config cannot name variables, only their paths.
            var_names: Regular expressions that are matched against variables' paths.

        Raises:
            ValueError: If `var_list` is given or the optimizer is built already.
        """
        if var_list:
            raise ValueError(
                "`var_list` would be lost in a saved file: give patterns of the variables' paths "
                f"as `var_names`. Received: var_list={var_list}"
            )
        if self.built:
            raise ValueError(
                "`exclude_from_weight_decay` must be called before the optimizer is built."
            )
        self.undecayed = [*self.undecayed, *(var_names or [])]

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "undecayed": list(self.undecayed)}


@keras.saving.register_keras_serializable(package="kerasmodels")
class AdamW(_SelectiveWeightDecay, KerasAdamW):
    """Adam with decoupled weight decay that leaves biases and normalisation weights alone.

    Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019; the exceptions are those
    of BERT's training ("We use Adam with ... L2 weight decay of 0.01", appendix A.2, and its code).
    Unlike `keras.optimizers.AdamW` the exceptions are part of the config, so that a model loaded
    from a `.keras` file decays the same weights as before, and they are matched against a
    variable's whole path.

    Args:
        learning_rate: A float, a schedule or a callable.
        weight_decay: The decay: each update subtracts `learning_rate * weight_decay * weight`.
        undecayed: Regular expressions; a variable whose path (`"encoder_block_0/norm/gamma"`)
            contains a match of one of them is not decayed. The default leaves out biases and the
            scale and offset of Keras's normalisation layers. A path may start with the model's name
            and lose it when the model is loaded: do not tie a pattern to a path's start.
        **kwargs: What `keras.optimizers.AdamW` takes: `beta_1`, `beta_2`, `epsilon`, `amsgrad`,
            `clipnorm`, `global_clipnorm`, `clipvalue`, `use_ema`, `ema_momentum`,
            `ema_overwrite_frequency`, `loss_scale_factor`, `gradient_accumulation_steps`, `name`.

    Raises:
        ValueError: If `weight_decay` is negative or `undecayed` is one string or no valid pattern.

    Example:
    ```python
    import keras
    from kerasmodels import training

    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])
    optimizer = training.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    model.compile(optimizer, loss="mse")
    ```
    """

    def __init__(
        self,
        learning_rate=0.001,
        weight_decay=0.01,
        undecayed=("bias$", "beta$", "gamma$", "scale$"),
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            undecayed=undecayed,
            **kwargs,
        )

    def update_all(self, gradients, variables, learning_rate):
        """Updates all variables at once (PyTorch), on a CPU in one pass over memory, not twelve."""
        import torch

        values = [v.value for v in variables]
        first, second = ([m.value for m in kind] for kind in self.moments(variables))
        # The kernel goes through memory, whatever the order of the axes there.
        grads = [
            g if g.stride() == x.stride() else torch.empty_like(x).copy_(g)
            for g, x in zip(gradients, values, strict=True)
        ]
        fits = all(
            y.device.type == "cpu" and y.dtype == torch.float32 and y.stride() == x.stride()
            for x, *others in zip(values, grads, first, second, strict=True)
            for y in (x, *others)
        )
        # Nor can PyTorch's compiler read the numbers below; it makes a kernel of its own.
        if self.amsgrad or not fits or torch.compiler.is_compiling():
            return super().update_all(grads, variables, learning_rate)
        step = ops.cast(self.iterations, "float32") + 1
        fused_adam(
            values,
            grads,
            first,
            second,
            [step] * len(values),
            lr=float(learning_rate),
            beta1=self.beta_1,
            beta2=self.beta_2,
            weight_decay=0.0,  # Keras has taken it off before
            # Keras adds it to the root before the correction of its bias, PyTorch after.
            eps=self.epsilon / float(1 - self.beta_2**step) ** 0.5,
            amsgrad=False,
            maximize=False,
        )


@keras.saving.register_keras_serializable(package="kerasmodels")
class SGD(_SelectiveWeightDecay, KerasSGD):
    """Gradient descent with momentum and the weight decay of the papers: an L2 term.

    He et al. 2016, "Deep Residual Learning for Image Recognition", sections 3.4 and 4.2, and nearly
    every convolutional net since AlexNet:

        g = gradient + weight_decay * weight
        velocity = momentum * velocity - learning_rate * g
        weight = weight + velocity

    The decay goes through the momentum, as in Caffe, where the authors published their nets, and in
    `torch.optim.SGD`. In `keras.optimizers.SGD(weight_decay=...)` it does not (it is decoupled):
    with a momentum of 0.9 the same number decays about ten times less there. All parameters are
    decayed, biases and normalizations included, unless `undecayed` says otherwise.

    The term is added after clipping, which sees the gradient of the loss alone, and after the loss
    scale is taken out. Where the learning rate changes, the velocity keeps the rates it was built
    with, as in Caffe and Keras; `torch.optim.SGD` multiplies all of it by the new rate.

    Args:
        learning_rate: A float, a schedule or a callable.
        momentum: A float from 0 to 1.
        nesterov: Whether to use Nesterov's momentum.
        weight_decay: The factor of the L2 term; 0 leaves it out.
        undecayed: Regular expressions; a variable whose path (`"stage1_block0/norm_1/gamma"`)
            contains a match of one of them is not decayed. `["bias$", "beta$", "gamma$"]` leaves
            the kernels. A path may start with the model's name and lose it when the model is
            loaded: do not tie a pattern to a path's start.
        **kwargs: What else `keras.optimizers.SGD` takes: `clipnorm`, `global_clipnorm`,
            `clipvalue`, `use_ema`, `ema_momentum`, `ema_overwrite_frequency`, `loss_scale_factor`,
            `gradient_accumulation_steps`, `name`.

    Raises:
        ValueError: If `weight_decay` is negative or `undecayed` is one string or no valid pattern.

    Example:
    The recipe for CIFAR-10 (section 4.2): 64,000 steps of 128 images, the rate divided by 10 after
    32,000 and 48,000 steps. Keras's boundary is the last step with the value before it, and it
    counts from 0: hence the 31,999.

    ```python
    import keras
    from kerasmodels import training

    rate = keras.optimizers.schedules.PiecewiseConstantDecay([31_999, 47_999], [0.1, 0.01, 0.001])
    optimizer = training.SGD(rate, momentum=0.9, weight_decay=1e-4)
    ```

    For 110 layers the paper warms up at 0.01 until the training error is below 80 %, which took
    about 400 steps:

    ```python
    import keras

    rate = keras.optimizers.schedules.PiecewiseConstantDecay(
        [399, 31_999, 47_999], [0.01, 0.1, 0.01, 0.001]
    )
    ```
    """

    def __init__(
        self,
        learning_rate=0.1,
        momentum=0.9,
        nesterov=False,
        weight_decay=1e-4,
        undecayed=(),
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            momentum=momentum,
            nesterov=nesterov,
            weight_decay=weight_decay,
            undecayed=undecayed,
            **kwargs,
        )

    def decay(self, variables):
        """Nothing: Keras decays the weights here, before the update."""

    def update_step(self, gradient, variable, learning_rate):
        """Updates one variable (TensorFlow, where replicas' gradients are summed by now; JAX)."""
        if self.weight_decay and self.is_decayed(variable):
            decay = ops.multiply(variable, ops.cast(self.weight_decay, variable.dtype))
            gradient = ops.add(ops.cast(gradient, variable.dtype), decay)
        super().update_step(gradient, variable, learning_rate)

    def update_all(self, gradients, variables, learning_rate):
        """Updates all variables at once (PyTorch)."""
        import torch

        gradients = [
            torch.add(g, v.value, alpha=self.weight_decay)
            if self.weight_decay and self.is_decayed(v)
            else g
            for g, v in zip(gradients, variables, strict=True)
        ]
        super().update_all(gradients, variables, learning_rate)
