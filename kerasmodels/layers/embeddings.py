"""Embeddings of tokens, which also read the answer off, and of segments.

Vaswani et al. 2017, section 3.4, and Devlin et al. 2019, section 3.
"""

import keras
from keras import ops

from kerasmodels.arguments import flag, integer
from kerasmodels.keras_internals import get_keras_mask, set_keras_mask
from kerasmodels.layers.indices import check_ids, check_rank
from kerasmodels.layers.initializers import fresh, get_initializer


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
        initializer: Of the matrix. Defaults to the normal distribution above.
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
    import numpy as np
    from kerasmodels import layers

    embedding = layers.TokenEmbedding(1000, 64)
    x = embedding(np.array([[5, 7]]))  # (1, 2, 64)
    logits = embedding(x, reverse=True)  # (1, 2, 1000)
    ```
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        scale=True,
        mask_zero=False,
        initializer=None,
        **kwargs,
    ):
        vocabulary_size = integer("vocabulary_size", vocabulary_size)
        hidden_dim = integer("hidden_dim", hidden_dim)
        initializer = get_initializer("initializer", initializer)
        if initializer is None:
            initializer = keras.initializers.RandomNormal(stddev=hidden_dim**-0.5)
        super().__init__(
            vocabulary_size,
            hidden_dim,
            embeddings_initializer=initializer,
            mask_zero=flag("mask_zero", mask_zero),
            **kwargs,
        )
        # Keras casts no embedding inside another layer of mixed precision; the way back must be.
        self.reverse_dtype = self.compute_dtype
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scale = flag("scale", scale)

    def call(self, inputs, reverse=False):
        """Embeds, or projects back; see the class for the arguments."""
        if reverse:
            return super().call(inputs, reverse=True)
        check_ids("inputs", inputs, self.vocabulary_size)
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
            "initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class SegmentEmbedding(keras.layers.Layer):
    """Adds a learned vector for the segment that a token belongs to (BERT, section 3, figure 2).

    Args:
        num_segments: Number of segments.
        initializer: Of the table. Defaults to a normal distribution of deviation 0.02.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        segment_ids: Integers `(batch, length)`; `None`: all tokens are of segment 0.

    Returns:
        `(batch, length, hidden_dim)` in the compute dtype.

    Raises:
        ValueError: If `num_segments` is not a positive integer.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import layers

    layer = layers.SegmentEmbedding(2)
    x = layer(keras.ops.zeros((1, 3, 64)), np.array([[0, 0, 1]]))  # (1, 3, 64)
    ```
    """

    def __init__(self, num_segments, initializer=None, **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.supports_masking = True
        self.num_segments = integer("num_segments", num_segments)
        self.initializer = get_initializer("initializer", initializer)
        if self.initializer is None:
            self.initializer = keras.initializers.RandomNormal(stddev=0.02)

    def build(self, inputs_shape, segment_ids_shape=None):
        """Builds the table, `(num_segments, hidden_dim)`."""
        self.embedding = keras.layers.Embedding(
            self.num_segments,
            inputs_shape[-1],
            embeddings_initializer=fresh(self.initializer),
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.embedding.build(None)

    def call(self, inputs, segment_ids=None):
        """Adds the vectors; see the class for the arguments."""
        if segment_ids is None:
            segment_ids = ops.zeros((1, 1), dtype="int32")
        check_rank("segment_ids", segment_ids, 2)
        check_ids("segment_ids", segment_ids, self.num_segments)
        return inputs + ops.cast(self.embedding(segment_ids), inputs.dtype)

    def compute_output_shape(self, inputs_shape, segment_ids_shape=None):
        """The input's shape."""
        return inputs_shape

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_segments": self.num_segments,
            "initializer": keras.initializers.serialize(self.initializer),
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
    import keras
    from kerasmodels import layers

    logits = layers.LogitBias()(keras.ops.zeros((2, 10, 1000)))  # (2, 10, 1000)
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

    def get_config(self):
        """The constructor's arguments."""
        return super().get_config()
