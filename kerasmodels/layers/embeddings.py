"""Token embeddings that also read the answer off (Vaswani et al. 2017, section 3.4)."""

import keras
from keras import ops
from keras.src.backend import get_keras_mask, set_keras_mask  # Keras has no public ones


@keras.saving.register_keras_serializable(package="kerasmodels")
class TokenEmbedding(keras.layers.ReversibleEmbedding):
    """One matrix that embeds tokens and, transposed, turns hidden states into logits.

    Embeddings are multiplied by `sqrt(hidden_dim)` on the way in, and only there (section 3.4);
    the matrix starts as N(0, 1/hidden_dim) so that they then have variance 1.

    Args:
        vocabulary_size: Number of tokens.
        hidden_dim: Size of an embedding.
        scale: Whether to multiply by `sqrt(hidden_dim)` on the way in.
        mask_zero: Whether token 0 is padding, told to later layers by Keras's implicit mask.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: Integer tokens `(batch, length)`, or with `reverse=True` hidden states
            `(batch, length, hidden_dim)`.
        reverse: Whether to compute logits.

    Returns:
        `(batch, length, hidden_dim)`, or logits `(batch, length, vocabulary_size)`.

    Raises:
        ValueError: If a size is not a positive integer.

    Example:
    ```python
    embedding = kerasmodels.layers.TokenEmbedding(1000, 64)
    x = embedding(np.array([[5, 7]]))  # (1, 2, 64)
    logits = embedding(x, reverse=True)  # (1, 2, 1000)
    ```
    """

    def __init__(self, vocabulary_size, hidden_dim, scale=True, mask_zero=False, **kwargs):
        for name, size in (("vocabulary_size", vocabulary_size), ("hidden_dim", hidden_dim)):
            if int(size) != size or size < 1:
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
        super().__init__(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=keras.initializers.RandomNormal(stddev=hidden_dim**-0.5),
            mask_zero=mask_zero,
            **kwargs,
        )
        # Keras casts no embedding inside another layer of mixed precision; the way back must be.
        self.reverse_dtype = self.compute_dtype
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scale = scale

    def call(self, inputs, reverse=False):
        """Embeds, or projects back; see the class for the arguments."""
        if reverse:
            return super().call(inputs, reverse=True)
        x = super().call(inputs)  # (batch, length, hidden_dim)
        mask = get_keras_mask(x)
        if self.scale:
            x = ops.multiply(x, ops.cast(self.hidden_dim**0.5, x.dtype))
        if mask is not None:
            set_keras_mask(x, mask)
        return x

    def get_config(self):
        """The constructor's arguments."""
        config = keras.layers.Layer.get_config(self)
        return {
            **config,
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
            "mask_zero": self.mask_zero,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class LogitBias(keras.layers.Layer):
    """Adds one learned number per token to the logits, as Marian's models do.

    Args:
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: Logits `(batch, length, vocabulary_size)`.

    Returns:
        Logits of the same shape and dtype.

    Example:
    ```python
    logits = kerasmodels.layers.LogitBias()(keras.ops.zeros((2, 10, 1000)))  # (2, 10, 1000)
    ```
    """

    def build(self, inputs_shape):
        """Creates the bias, `(vocabulary_size,)`, zero."""
        self.bias = self.add_weight(shape=(inputs_shape[-1],), initializer="zeros", name="bias")

    def call(self, inputs):
        """Adds the bias."""
        return inputs + ops.cast(self.bias, inputs.dtype)

    def compute_output_shape(self, inputs_shape):
        """The input's shape."""
        return inputs_shape
