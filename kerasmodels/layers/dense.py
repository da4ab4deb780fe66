"""A dense layer whose product is one of matrices, as the backends compute it fastest."""

import keras
from keras import ops

from kerasmodels.arguments import as_integer


@keras.saving.register_keras_serializable(package="kerasmodels")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense` by a product of two matrices, whatever the rank of the inputs.

    TensorFlow's graph optimizer melts such a product with the bias and the activation that follow:
    a BERT takes four fifths of the time for it in bfloat16. With JAX on a CPU the gradient of
    Keras's product with respect to the kernel takes up to twice as long. Weights and numbers are
    Keras's.

    Args:
        *args: As in Keras.
        **kwargs: As in Keras.

    Call arguments:
        inputs: `(batch, ..., input_dim)`.

    Returns:
        `(batch, ..., units)`.

    Raises:
        ValueError: As Keras does.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    y = layers.Dense(16, activation="gelu")(keras.ops.ones((2, 5, 8)))  # (2, 5, 16)
    ```
    """

    def __init__(self, units, *args, **kwargs):
        whole = as_integer(units)  # Keras takes no integers of numpy
        super().__init__(units if whole is None else whole, *args, **kwargs)

    def call(self, inputs, training=None):
        """Applies the layer; see the class for the arguments."""
        if len(inputs.shape) == 2 or keras.backend.backend() == "torch":  # which does so itself
            return super().call(inputs, training=training)
        # (batch, ..., input_dim) -> (rows, input_dim) -> (rows, units) -> (batch, ..., units)
        rows = ops.reshape(inputs, (-1, inputs.shape[-1]))
        outputs = super().call(rows, training=training)
        return ops.reshape(outputs, (*ops.shape(inputs)[:-1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's, which leaves all but its own class as it is, since `call` may be another."""
        super().quantize(mode, type_check=type_check and type(self) is not Dense, config=config)
