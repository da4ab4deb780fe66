"""AdamW whose exceptions from weight decay survive saving and loading."""

import re

import keras

# On PyTorch Keras swaps its own class, and not a subclass, for one with multi-tensor kernels:
# `__new__` tells which class that is without making an optimizer (and with it, variables).
_KerasAdamW = type(keras.optimizers.AdamW.__new__(keras.optimizers.AdamW))


@keras.saving.register_keras_serializable(package="kerasmodels")
class AdamW(_KerasAdamW):
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
    optimizer = kerasmodels.training.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
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
        if weight_decay is None or not weight_decay >= 0:
            raise ValueError(
                f"`weight_decay` must not be negative. Received: weight_decay={weight_decay}"
            )
        if isinstance(undecayed, str):
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
        super().__init__(learning_rate=learning_rate, weight_decay=weight_decay, **kwargs)
        self.undecayed = undecayed
        self._undecayed_keys = set()

    def build(self, var_list):
        """Makes the moments of `var_list` and notes which of them are not decayed."""
        if self.built:
            return
        super().build(var_list)
        # By key, since TensorFlow's update sees its own variables, which have no path.
        self._undecayed_keys = {
            self._var_key(variable)
            for variable in var_list
            if any(re.search(pattern, variable.path) for pattern in self.undecayed)
        }

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

    def _use_weight_decay(self, variable):
        return self._var_key(variable) not in self._undecayed_keys

    def _apply_weight_decay(self, variables):
        # PyTorch's multi-tensor kernel refuses an empty list.
        variables = [v for v in variables if self._use_weight_decay(v)]
        if variables:
            super()._apply_weight_decay(variables)

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "undecayed": list(self.undecayed)}
