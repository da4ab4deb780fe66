"""Embeddings of tokens, which also read the answer off, and of segments.

Vaswani et al. 2017, section 3.4, and Devlin et al. 2019, section 3.
"""

import keras
from keras import ops

from kerasmodels.arguments import flag, integer
from kerasmodels.keras_internals import set_keras_mask
from kerasmodels.layers.indices import check_ids, check_rank
from kerasmodels.layers.initializers import fresh, get_initializer
from kerasmodels.layers.sublayers import KeepsSublayers


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
        self.vocabulary_size = vocabulary_size
        self.hidden_dim = hidden_dim
        self.scale = flag("scale", scale)

    @property
    def reverse_dtype(self):
        """The dtype of the way back, since Keras casts no embedding inside another layer."""
        return self.compute_dtype

    @reverse_dtype.setter
    def reverse_dtype(self, value):
        """Keras's constructor sets one; it follows from the policy here."""

    def call(self, inputs, reverse=False):
        """Embeds, or projects back; see the class for the arguments."""
        if not reverse:
            check_ids("inputs", inputs, self.vocabulary_size)
        return self._scaled(super().call(inputs, reverse=reverse), inputs, reverse)

    def quantized_call(self, inputs, reverse=False):
        """Does what `call` does, with quantized embeddings."""
        return self._scaled(super().quantized_call(inputs, reverse=reverse), inputs, reverse)

    def _scaled(self, outputs, inputs, reverse):
        if reverse:
            return outputs
        if self.scale:
            outputs = ops.multiply(outputs, ops.cast(self.hidden_dim**0.5, outputs.dtype))
        if self.mask_zero:
            set_keras_mask(outputs, ops.not_equal(inputs, 0))
        return outputs

    def quantize(self, mode=None, type_check=True, config=None):
        """Does what Keras's does, which leaves all but its own class as it is."""
        type_check = type_check and type(self) is not TokenEmbedding
        super().quantize(mode, type_check=type_check, config=config)

    def get_config(self):
        """Returns the constructor's arguments."""
        config = super().get_config()
        for name in ("input_dim", "output_dim", "embeddings_initializer", "reverse_dtype"):
            del config[name]  # these have other names here, or follow from the policy
        return {
            **config,
            "vocabulary_size": self.vocabulary_size,
            "hidden_dim": self.hidden_dim,
            "scale": self.scale,
            "mask_zero": self.mask_zero,
            "initializer": keras.initializers.serialize(self.embeddings_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class SegmentEmbedding(KeepsSublayers, keras.layers.Layer):
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
