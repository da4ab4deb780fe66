"""The Transformer's encoder and decoder blocks (Vaswani et al. 2017, section 3.1, figure 1)."""

import inspect

import keras
from keras import ops

from kerasmodels.arguments import flag, integer, positive_number, rate
from kerasmodels.layers.attention import MultiHeadAttention
from kerasmodels.layers.feed_forward import FeedForward, get_activation, serialize_activation
from kerasmodels.layers.initializers import get_initializer
from kerasmodels.layers.layer_normalization import LayerNormalization
from kerasmodels.layers.masks import check_mask, with_implicit_mask
from kerasmodels.layers.sublayers import KeepsSublayers


class _Block(KeepsSublayers, keras.layers.Layer):
    """What both blocks share: their arguments, their sub-layers and the residual connection."""

    _masks = {}  # arguments that are padding masks, each with the argument it belongs to

    def __init__(
        self,
        num_heads,
        intermediate_dim,
        dropout=0.1,
        attention_dropout=0.0,
        activation="relu",
        normalize_first=False,
        layer_norm_epsilon=1e-5,
        window=None,
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = integer("num_heads", num_heads)
        self.intermediate_dim = integer("intermediate_dim", intermediate_dim)
        self.dropout = rate("dropout", dropout)
        self.attention_dropout = rate("attention_dropout", attention_dropout)
        self.activation = get_activation(activation)
        self.normalize_first = flag("normalize_first", normalize_first)
        self.layer_norm_epsilon = positive_number("layer_norm_epsilon", layer_norm_epsilon)
        self.window = None if window is None else integer("window", window, least=0)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)
        self.feed_forward = FeedForward(
            self.intermediate_dim,
            self.activation,
            self.kernel_initializer,
            dtype=self.dtype_policy,
            name="feed_forward",
        )
        self.feed_forward_norm = self._norm("feed_forward_norm")
        self.residual_dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

    def _norm(self, name):
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def _attention(self, hidden_dim, name, window=None):
        if hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be divisible by `num_heads`. "
                f"Received: hidden_dim={hidden_dim}, num_heads={self.num_heads}"
            )
        return MultiHeadAttention(
            self.num_heads,
            hidden_dim // self.num_heads,
            dropout=self.attention_dropout,
            window=window,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name=name,
        )

    def _add(self, x, sub_layer, norm, training):
        """`LayerNorm(x + Dropout(Sublayer(x)))`, or `x + Dropout(Sublayer(LayerNorm(x)))`."""
        y = sub_layer(norm(x) if self.normalize_first else x)
        # Nothing to cast but in a symbolic call on PyTorch, where Keras does not cast the weights.
        y = x + ops.cast(self.residual_dropout(y, training=training), x.dtype)
        return y if self.normalize_first else norm(y)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """As Keras's, for `keras.RematScope`, with floats alone as the recomputed arguments.

        JAX would trace a flag such as `training`; TensorFlow takes no keywords in a graph, and
        wants a gradient of a mask.
        """
        names = [k for k, v in kwargs.items() if _is_float(v)]
        fixed = {k: v for k, v in kwargs.items() if k not in names}

        def call(*tensors):
            named = dict(zip(names, tensors[len(args) :], strict=True))
            return layer_call(*tensors[: len(args)], **named, **fixed)

        recomputed = super().rematerialized_call(call, *args)
        return lambda *args, **kwargs: recomputed(*args, *(kwargs[name] for name in names))

    def _check_masks(self, given):
        for mask, owner in self._masks.items():
            check_mask(mask, given.get(mask), given[owner].shape[:2])

    def compute_output_spec(self, *args, **kwargs):
        """Tells the output without going through `call`, so that models are built much faster.

        For scores, caches, masks of attention and another's `call` it does as Keras.
        """
        given = inspect.signature(self.call).bind(*args, **kwargs).arguments
        asked = ("return_attention_scores", "attention_mask", "cache")
        if type(self).call.__module__ != __name__ or any(
            given.get(name) not in (None, False) for name in asked
        ):
            return super().compute_output_spec(*args, **kwargs)
        self._check_masks(given)
        return keras.KerasTensor(next(iter(given.values())).shape, dtype=self.compute_dtype)

    def compute_mask(self, inputs, previous_mask=None):
        """The output carries the mask of the input."""
        return previous_mask

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "intermediate_dim": self.intermediate_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "activation": serialize_activation(self.activation),
            "normalize_first": self.normalize_first,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "window": self.window,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def _is_float(value):
    return hasattr(value, "dtype") and keras.backend.is_float_dtype(value.dtype)


@keras.saving.register_keras_serializable(package="kerasmodels")
class TransformerEncoderBlock(_Block):
    """Self-attention and a feed-forward network, each with residual, dropout and LayerNorm.

    Args:
        num_heads: Number of attention heads; it must divide the input's last dimension.
        intermediate_dim: Size of the feed-forward network's inner layer.
        dropout: Of each sub-layer's output before the addition (section 5.4).
        attention_dropout: Of the attention weights (not in the paper).
        activation: Of the feed-forward network.
        normalize_first: `False`: LayerNorm after the addition, as in the paper. `True`: before the
            sub-layer; then the stack needs a LayerNorm at its end.
        layer_norm_epsilon: Of each LayerNorm.
        window: Restricts self-attention to keys at most so far away.
        kernel_initializer: Of the kernels of attention and feed-forward network.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        padding_mask: `(batch, length)`, 1 = keep; combined by AND with an implicit Keras mask.
        attention_mask: `(batch, length, length)` or with an axis of heads, 1 = keep.
        training: Whether dropout acts.
        return_attention_scores: Whether to return the attention weights too.

    Returns:
        `(batch, length, hidden_dim)`; then the scores `(batch, heads, length, length)` if asked.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size, or a mask does not fit.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    block = layers.TransformerEncoderBlock(num_heads=8, intermediate_dim=2048)
    y = block(keras.random.normal((2, 10, 512)))  # (2, 10, 512)
    ```
    """

    _masks = {"padding_mask": "inputs"}

    def build(self, inputs_shape):
        """Builds the sub-layers."""
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: inputs_shape[-1]})
        self.self_attention = self._attention(inputs_shape[-1], "self_attention", self.window)
        self.self_attention.build(inputs_shape, inputs_shape)
        self.self_attention_norm = self._norm("self_attention_norm")
        for layer in (self.self_attention_norm, self.feed_forward, self.feed_forward_norm):
            layer.build(inputs_shape)

    def call(
        self,
        inputs,
        padding_mask=None,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
    ):
        """Applies the block; see the class for the arguments."""
        self._check_masks({"inputs": inputs, "padding_mask": padding_mask})
        padding_mask = with_implicit_mask(inputs, padding_mask)
        scores = []

        def attend(x):
            out = self.self_attention(
                x,
                x,
                value_mask=padding_mask,
                attention_mask=attention_mask,
                return_attention_scores=return_attention_scores,
                training=training,
            )
            if return_attention_scores:
                out, weights = out
                scores.append(weights)
            return out

        x = self._add(inputs, attend, self.self_attention_norm, training)
        x = self._add(x, self.feed_forward, self.feed_forward_norm, training)
        x = ops.cast(x, self.compute_dtype)
        return (x, *scores) if scores else x


@keras.saving.register_keras_serializable(package="kerasmodels")
class TransformerDecoderBlock(_Block):
    """Causal self-attention, attention over the encoder's output, and a feed-forward network.

    Args:
        num_heads: Number of attention heads; it must divide the input's last dimension.
        intermediate_dim: Size of the feed-forward network's inner layer.
        dropout: Of each sub-layer's output before the addition (section 5.4).
        attention_dropout: Of the attention weights (not in the paper).
        activation: Of the feed-forward network.
        normalize_first: `False`: LayerNorm after the addition, as in the paper. `True`: before the
            sub-layer; then the stack needs a LayerNorm at its end.
        layer_norm_epsilon: Of each LayerNorm.
        window: Restricts self-attention to keys at most so far back.
        kernel_initializer: Of the kernels of attention and feed-forward network.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        decoder_sequence: `(batch, target, hidden_dim)`.
        encoder_sequence: `(batch, source, encoder_dim)`; may be `None` beside a `cache`.
        decoder_padding_mask: `(batch, target)`, 1 = keep; combined by AND with an implicit mask.
        encoder_padding_mask: `(batch, source)`, likewise.
        training: Whether dropout acts.
        return_attention_scores: Whether to return the attention weights too.
        cache: `{"self": (keys, values), "cross": (keys, values)}` while decoding, as
            `MultiHeadAttention` describes. With one new token a row, the decoder may have a
            multiple of the rows of `cross`, the hypotheses of a source adjacent: the memory of
            a source is not copied for each.
        cache_index: Position of the first new token.

    Returns:
        `(batch, target, hidden_dim)`; then the scores of self- and cross-attention, if asked for;
        then the new cache, if one was given.

    Raises:
        ValueError: If `num_heads` does not divide the hidden size, or a mask does not fit.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    block = layers.TransformerDecoderBlock(num_heads=8, intermediate_dim=2048)
    y = block(keras.random.normal((2, 7, 512)), keras.random.normal((2, 10, 512)))  # (2, 7, 512)
    ```
    """

    _masks = {
        "decoder_padding_mask": "decoder_sequence",
        "encoder_padding_mask": "encoder_sequence",
    }

    def build(self, decoder_sequence_shape, encoder_sequence_shape):
        """Builds the sub-layers."""
        shape = decoder_sequence_shape
        self.input_spec = keras.layers.InputSpec(ndim=3, axes={-1: shape[-1]})
        self.self_attention = self._attention(shape[-1], "self_attention", self.window)
        self.self_attention.build(shape, shape)
        self.self_attention_norm = self._norm("self_attention_norm")
        self.cross_attention = self._attention(shape[-1], "cross_attention")
        self.cross_attention.build(shape, encoder_sequence_shape)
        self.cross_attention_norm = self._norm("cross_attention_norm")
        for layer in (
            self.self_attention_norm,
            self.cross_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        ):
            layer.build(shape)

    def call(
        self,
        decoder_sequence,
        encoder_sequence=None,
        decoder_padding_mask=None,
        encoder_padding_mask=None,
        training=None,
        return_attention_scores=False,
        cache=None,
        cache_index=None,
    ):
        """Applies the block; see the class for the arguments."""
        if cache is None:
            self._check_masks(
                {
                    "decoder_sequence": decoder_sequence,
                    "decoder_padding_mask": decoder_padding_mask,
                    "encoder_sequence": encoder_sequence,
                    "encoder_padding_mask": encoder_padding_mask,
                }
            )
        decoder_padding_mask = with_implicit_mask(decoder_sequence, decoder_padding_mask)
        encoder_padding_mask = with_implicit_mask(encoder_sequence, encoder_padding_mask)
        scores, new_cache = [], {}

        def unpack(name, out):
            # out or (out, scores) or (out, cache) or (out, scores, cache)
            if not isinstance(out, tuple):
                return out
            if return_attention_scores:
                scores.append(out[1])
            if cache is not None:
                new_cache[name] = out[-1]
            return out[0]

        def attend_self(x):
            out = self.self_attention(
                x,
                x,
                value_mask=decoder_padding_mask,
                use_causal_mask=True,
                return_attention_scores=return_attention_scores,
                training=training,
                cache=None if cache is None else cache["self"],
                cache_index=cache_index,
            )
            return unpack("self", out)

        def attend_cross(x):
            rows = ops.shape(x)
            memory = None
            if cache is not None:
                memory = cache["cross"]
                # (batch * beams, 1, hidden) -> (batch, beams, hidden): one memory, many queries
                x = ops.reshape(x, (ops.shape(memory[0])[0], -1, x.shape[-1]))
            out = self.cross_attention(
                x,
                encoder_sequence if memory is None else None,
                value_mask=encoder_padding_mask,
                return_attention_scores=return_attention_scores,
                training=training,
                cache=memory,
            )
            out = unpack("cross", out)
            return out if memory is None else ops.reshape(out, rows)

        x = self._add(decoder_sequence, attend_self, self.self_attention_norm, training)
        x = self._add(x, attend_cross, self.cross_attention_norm, training)
        x = self._add(x, self.feed_forward, self.feed_forward_norm, training)
        x = ops.cast(x, self.compute_dtype)
        outputs = (x, *scores) if cache is None else (x, *scores, new_cache)
        return outputs if len(outputs) > 1 else x
