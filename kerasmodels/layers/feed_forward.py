"""Position-wise feed-forward network (Vaswani et al. 2017, section 3.3)."""

import keras


@keras.saving.register_keras_serializable(package="kerasmodels")
class FeedForward(keras.layers.Layer):
    """`FFN(x) = activation(x W_1 + b_1) W_2 + b_2`, the same at every position.

    Args:
        intermediate_dim: Size of the inner layer, the paper's d_ff.
        activation: Of the inner layer, the paper's `"relu"`.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, length, hidden_dim)` in the compute dtype.

    Raises:
        ValueError: If `intermediate_dim` is not a positive integer.

    Example:
    ```python
    y = kerasmodels.layers.FeedForward(2048)(keras.ops.ones((2, 10, 512)))  # (2, 10, 512)
    ```
    """

    def __init__(self, intermediate_dim, activation="relu", **kwargs):
        super().__init__(**kwargs)
        if int(intermediate_dim) != intermediate_dim or intermediate_dim < 1:
            raise ValueError(
                "`intermediate_dim` must be a positive integer. "
                f"Received: intermediate_dim={intermediate_dim}"
            )
        self.supports_masking = True
        self.intermediate_dim = intermediate_dim
        self.activation = keras.activations.get(activation)

    def build(self, inputs_shape):
        """Builds the two projections."""
        self.intermediate_dense = keras.layers.Dense(
            self.intermediate_dim,
            activation=self.activation,
            dtype=self.dtype_policy,
            name="intermediate",
        )
        self.intermediate_dense.build(inputs_shape)
        self.output_dense = keras.layers.Dense(
            inputs_shape[-1], dtype=self.dtype_policy, name="output"
        )
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_dim))

    def call(self, inputs):
        """Applies the network; see the class for the arguments."""
        return self.output_dense(self.intermediate_dense(inputs))

    def compute_output_shape(self, inputs_shape):
        """The input's shape."""
        return inputs_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
        }
