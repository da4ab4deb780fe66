"""Position-wise feed-forward network (Vaswani et al. 2017, section 3.3), and its activations."""

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.layers.dense import Dense
from kerasmodels.layers.initializers import check_writable, fresh, get_initializer
from kerasmodels.layers.sublayers import KeepsSublayers

# What libraries compute alike under one name; "gelu" or "leaky_relu" they do not.
_SAME_EVERYWHERE = ("relu", "relu6", "silu", "swish", "tanh", "sigmoid", "softplus", "selu", "mish")


@keras.saving.register_keras_serializable(package="kerasmodels")
def gelu_tanh(x):
    """GELU by its approximation with tanh (Hendrycks and Gimpel 2016, section 2).

    `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`; Keras's `"gelu"` is the exact one.

    Args:
        x: A tensor of floats.

    Returns:
        A tensor of the same shape and dtype.
    """
    return ops.gelu(x, approximate=True)


def get_activation(activation):
    """As `keras.activations.get`, which does not know the name `"gelu_tanh"`.

    Args:
        activation: A name, a function, or what `serialize_activation` returned.

    Returns:
        A function.

    Raises:
        ValueError: If there is no activation of this name, or a function goes by the name of
            another one, which would take its place in a saved model.
    """
    # `ops.gelu` goes by tanh, and `keras.activations.gelu`, of the same name, does not.
    if activation is ops.gelu or (isinstance(activation, str) and activation == "gelu_tanh"):
        return gelu_tanh
    function = keras.activations.get(activation)
    check_writable("activation", function)
    name, module = getattr(function, "__name__", ""), getattr(function, "__module__", "")
    known = getattr(keras.activations, name, function)
    others = known is not function and module.partition(".")[0] != "keras"
    if others and name not in _SAME_EVERYWHERE:
        raise ValueError(
            f"`activation` must have another name than one of Keras's: {module}.{name} would be "
            f"saved as {name!r}, and loaded as keras.activations.{name}. Say which one is meant by "
            f'its name ("gelu" is exact, "gelu_tanh" is not). Received: activation={activation}'
        )
    return function


def serialize_activation(activation):
    """As `keras.activations.serialize`, with a name for `gelu_tanh`."""
    return "gelu_tanh" if activation is gelu_tanh else keras.activations.serialize(activation)


@keras.saving.register_keras_serializable(package="kerasmodels")
class FeedForward(KeepsSublayers, keras.layers.Layer):
    """`FFN(x) = activation(x W_1 + b_1) W_2 + b_2`, the same at every position.

    Args:
        intermediate_dim: Size of the inner layer, the paper's d_ff.
        activation: Of the inner layer, the paper's `"relu"`. Besides Keras's names there is
            `"gelu_tanh"`, where `"gelu"` is exact.
        kernel_initializer: Of both kernels.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.

    Returns:
        `(batch, length, hidden_dim)` in the compute dtype.

    Raises:
        ValueError: If `intermediate_dim` is not a positive integer.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    y = layers.FeedForward(2048)(keras.ops.ones((2, 10, 512)))  # (2, 10, 512)
    ```
    """

    def __init__(
        self, intermediate_dim, activation="relu", kernel_initializer="glorot_uniform", **kwargs
    ):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(min_ndim=2)
        self.supports_masking = True
        self.intermediate_dim = integer("intermediate_dim", intermediate_dim)
        self.activation = get_activation(activation)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)

    def build(self, inputs_shape):
        """Builds the two projections."""
        self.intermediate_dense = Dense(
            self.intermediate_dim,
            activation=self.activation,
            kernel_initializer=fresh(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="intermediate",
        )
        self.intermediate_dense.build(inputs_shape)
        self.output_dense = Dense(
            inputs_shape[-1],
            kernel_initializer=fresh(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="output",
        )
        self.output_dense.build((*inputs_shape[:-1], self.intermediate_dim))

    def call(self, inputs):
        """Applies the network; see the class for the arguments."""
        outputs = self.output_dense(self.intermediate_dense(inputs))
        return ops.cast(outputs, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        """The input's shape."""
        return inputs_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "intermediate_dim": self.intermediate_dim,
            "activation": serialize_activation(self.activation),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
