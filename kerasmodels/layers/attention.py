"""Scaled dot-product attention with many heads (Vaswani et al. 2017, section 3.2)."""

import math

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import flag, integer, number, rate
from kerasmodels.layers.attention_shapes import (
    check_cache,
    check_shapes,
    merges_into,
    output_sizes,
    size_of,
)
from kerasmodels.layers.dense import Dense
from kerasmodels.layers.fused_attention import fused_attention
from kerasmodels.layers.initializers import fresh, get_initializer
from kerasmodels.layers.masks import (
    causal_mask,
    check_attention_mask,
    check_mask,
    combine_masks,
    keep_rows,
    own_rows,
    rows_with_a_key,
    window_mask,
    with_implicit_mask,
)
from kerasmodels.layers.sublayers import KeepsSublayers
from kerasmodels.layers.windowed_attention import block_length, windowed_attention


@keras.saving.register_keras_serializable(package="kerasmodels")
class MultiHeadAttention(KeepsSublayers, keras.layers.Layer):
    """Multi-head attention, called as `keras.layers.MultiHeadAttention` is.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O` with
    `head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d_k)) V W_i^V` (section 3.2.2).

    What differs from Keras's layer: the fused kernel (`ops.dot_product_attention`) serves whenever
    no scores are asked for and no attention dropout is active, so also when a layer that is
    configured with dropout is evaluated; a query whose keys are all masked gets 0 (before the
    output projection) and passes no gradient; a `window` restricts attention at a cost that grows
    with length times window; a `cache` holds keys and values while decoding; kernels are matrices,
    `(input size, heads * head size)`. Attention is along one axis, so there is no `attention_axes`.

    Args:
        num_heads: Number of attention heads h.
        key_dim: Size of each head for queries and keys, d_k.
        value_dim: Size of each head for values, d_v. Defaults to `key_dim`.
        output_dim: Size of the output. Defaults to the last dimension of `query`.
        dropout: Rate of the dropout on the attention weights.
        use_bias: Whether the projections have a bias.
        scale: Factor of the scores. Defaults to `1 / sqrt(key_dim)`.
        window: Keys further away than this from their query are not seen; `None` sees all.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        activity_regularizer: Regularizer of what each projection gives.
        kernel_constraint: Constraint of the kernels.
        bias_constraint: Constraint of the biases.
        output_shape: Keras's name of `output_dim`: a size, or a tuple of sizes, for an output of
            several axes in place of the last. Only one of both names may be given.
        sliding_window: Keras's way to say `window`: `sliding_window=n` is `window=n - 1`. Only one
            of both may be given.
        flash_attention: Whether the backend's flash attention must be used (True) or must not
            (False). `None` does as `keras.config.enable_flash_attention` and
            `disable_flash_attention` have set it; by default it is used wherever it can be.
        use_gate: Whether the heads' outputs are multiplied by `sigmoid(W_G query)` before the
            output projection (gated attention, https://arxiv.org/abs/2505.06708).
        seed: Seed of the dropout.
        **kwargs: Arguments of `keras.layers.Layer`: `name`, `dtype`, `trainable`.

    Call arguments:
        query: `(batch, target, query_dim)`.
        value: `(batch, source, value_dim)`.
        key: `(batch, source, key_dim)`; defaults to `value`.
        query_mask: `(batch, target)`; a masked query gets 0.
        value_mask: `(batch, source)`; masked values are not seen.
        key_mask: `(batch, source)`; as `value_mask`.
        attention_mask: `(batch, target, source)` or `(batch, heads, target, source)`, the batch
            and heads axes may be 1. Masks are boolean or 0/1, 1 = keep, and combine by AND.
        return_attention_scores: Whether to return the weights too,
            `(batch, heads, target, source)`, before dropout.
        training: Whether attention dropout acts.
        use_causal_mask: Whether a query sees only keys up to its own position.
        cache: `(keys, values)`, each `(batch, heads, length, head size)`, from `new_cache` (to be
            filled) or from `project_memory` (filled).
        cache_index: Position, an integer or a scalar tensor, at which the new keys and values are
            written; queries then see the cache up to their own position. Without it a given
            cache is read as it is, all of it, and `value` may be `None`.

    Returns:
        `(batch, target, output_dim)` in the layer's compute dtype; then the scores if asked for;
        then the cache if one was given.

    Raises:
        ValueError: At construction for arguments out of range and for `attention_axes`; in a call
            for inputs that are not of rank 3 or do not belong together, for a mask whose rank or
            length does not fit, and for a position behind the end of the cache.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    attention = layers.MultiHeadAttention(num_heads=8, key_dim=64)
    x = keras.random.normal((2, 10, 512))
    y = attention(x, x, use_causal_mask=True)  # (2, 10, 512)
    ```
    """

    def __init__(
        self,
        num_heads,
        key_dim,
        value_dim=None,
        output_dim=None,
        dropout=0.0,
        use_bias=True,
        scale=None,
        window=None,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        output_shape=None,
        sliding_window=None,
        flash_attention=None,
        use_gate=False,
        seed=None,
        **kwargs,
    ):
        axes = kwargs.pop("attention_axes", None)
        if axes not in (None, 1, (1,), [1]):  # Keras writes (1,) into its config
            raise ValueError(
                "`attention_axes` must be None: attention is along axis 1 of inputs of rank 3 and "
                f"shape (batch, length, size). Received: attention_axes={axes}"
            )
        super().__init__(**kwargs)
        self.num_heads = size_of("num_heads", num_heads)
        self.key_dim = size_of("key_dim", key_dim)
        self.value_dim = self.key_dim if value_dim is None else size_of("value_dim", value_dim)
        self.output_dim = None if output_dim is None else size_of("output_dim", output_dim)
        self._output_shape = output_sizes(output_shape)
        if output_dim is not None and output_shape is not None:
            raise ValueError(
                "Only one of `output_dim` and `output_shape` may be given. "
                f"Received: output_dim={output_dim}, output_shape={output_shape}"
            )
        self.dropout = rate("dropout", dropout)
        self.use_bias = flag("use_bias", use_bias)
        self.scale = None if scale is None else number("scale", scale)
        self._scale = self.key_dim**-0.5 if scale is None else self.scale
        if window is not None and sliding_window is not None:
            raise ValueError(
                "Only one of `window` and `sliding_window` may be given. "
                f"Received: window={window}, sliding_window={sliding_window}"
            )
        self.window = None if window is None else integer("window", window, least=0)
        self._sliding_window = None
        if sliding_window is not None:
            self._sliding_window = integer("sliding_window", sliding_window)
            self.window = self._sliding_window - 1
        self.flash_attention = None
        if flash_attention is not None:
            self.flash_attention = flag("flash_attention", flash_attention)
        self._flash_attention = self.flash_attention
        if self._flash_attention is None:
            self._flash_attention = keras.config.is_flash_attention_enabled()
        if self._flash_attention and self.dropout > 0:
            raise ValueError(
                "Dropout is not supported when flash attention is enabled. "
                f"Received: flash_attention={flash_attention}, dropout={dropout}"
            )
        self.use_gate = flag("use_gate", use_gate)
        self.seed = None if seed is None else integer("seed", seed, least=0)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)
        self.bias_initializer = get_initializer("bias_initializer", bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        # As in Keras, this is not the layer's own (which would regularize the scores as well).
        self._activity_regularizer = keras.regularizers.get(activity_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.supports_masking = True

    def build(self, query_shape, value_shape, key_shape=None):
        """Builds the projections from the shapes of the inputs."""
        check_shapes(query_shape, value_shape, key_shape)
        key_shape = value_shape if key_shape is None else key_shape

        def dense(units, input_shape, name, activation=None):
            layer = Dense(
                units,
                activation=activation,
                use_bias=self.use_bias,
                kernel_initializer=fresh(self.kernel_initializer),
                bias_initializer=fresh(self.bias_initializer),
                kernel_regularizer=self.kernel_regularizer,
                bias_regularizer=self.bias_regularizer,
                activity_regularizer=self._activity_regularizer,
                kernel_constraint=self.kernel_constraint,
                bias_constraint=self.bias_constraint,
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build((*input_shape[:2], input_shape[-1]))
            return layer

        key_width, value_width = (self.num_heads * n for n in (self.key_dim, self.value_dim))
        self.query_dense = dense(key_width, query_shape, "query")
        self.key_dense = dense(key_width, key_shape, "key")
        if self.use_gate:
            self.gate_dense = dense(value_width, query_shape, "gate", "sigmoid")
        self.value_dense = dense(value_width, value_shape, "value")
        output_dim = math.prod(self._output_sizes(query_shape))
        self.output_dense = dense(output_dim, (*query_shape[:2], value_width), "output")
        self.weight_dropout = keras.layers.Dropout(
            self.dropout, seed=self.seed, dtype=self.dtype_policy
        )

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        training=None,
        use_causal_mask=False,
        cache=None,
        cache_index=None,
    ):
        """Attends; see the class for the arguments."""
        if value is None and (cache is None or cache_index is not None):
            raise ValueError("`value` may be None only beside a filled `cache`, without index.")
        check_shapes(*(None if x is None else x.shape for x in (query, value, key)))
        if cache is not None:
            check_cache(cache, self.num_heads, (self.key_dim, self.value_dim), query, cache_index)
        # Keras hands an implicit mask over only where no mask is given; here they combine.
        query_mask = with_implicit_mask(query, query_mask)
        value_mask = with_implicit_mask(value, value_mask)
        key_mask = with_implicit_mask(key, key_mask)
        q = self._split(self.query_dense(query), self.key_dim)  # (batch, target, heads, key_dim)
        if cache is not None and cache_index is None:
            keys, values = (ops.transpose(part, (0, 2, 1, 3)) for part in cache)
        else:
            keys = self._split(self.key_dense(value if key is None else key), self.key_dim)
            values = self._split(self.value_dense(value), self.value_dim)
        if cache is not None and cache_index is not None:
            cache, keys, values = self._write(cache, cache_index, keys, values)

        batch, target, source = query.shape[0], q.shape[1], keys.shape[1]
        check_mask("query_mask", query_mask, (batch, target))
        check_mask("value_mask", value_mask, (batch, source))
        check_mask("key_mask", key_mask, (batch, source))
        check_attention_mask(attention_mask, (batch, target, source), self.num_heads)
        key_mask = combine_masks(value_mask, key_mask)  # (batch, source)

        if attention_mask is not None:
            attention_mask = ops.cast(attention_mask, "bool")
            if len(attention_mask.shape) == 3:
                attention_mask = ops.expand_dims(attention_mask, 1)
        target, source = ops.shape(q)[1], ops.shape(keys)[1]
        if cache_index is not None:
            # The cache is longer than what has been written: what lies ahead is not there yet.
            seen = causal_mask(target, source, start_index=cache_index)
            attention_mask = combine_masks(attention_mask, ops.expand_dims(seen, (0, 1)))
            use_causal_mask = False

        dropout_active = bool(training) and self.dropout > 0
        dense_only = return_attention_scores or dropout_active or attention_mask is not None
        # Keras lets a subclass compute attention in its own way.
        custom = type(self)._compute_attention is not MultiHeadAttention._compute_attention
        if self.window is not None:
            plain = not dense_only and not custom and cache is None
            if plain and query is (value if key is None else key):
                out = windowed_attention(
                    q,
                    keys,
                    values,
                    key_mask,
                    self.window,
                    causal=use_causal_mask,
                    scale=self._scale,
                    flash_attention=self._flash_attention,
                )
                return self._project(keep_rows(out, own_rows(query_mask)), query)
            start = 0 if cache_index is None else cache_index
            near = window_mask(target, source, self.window, start_index=start)
            attention_mask = combine_masks(attention_mask, ops.expand_dims(near, (0, 1)))

        # `rows`: which queries have a key at all, (batch, target, heads), axes may be 1. Only a
        # causal mask leaves each its own, so that nothing must be mended.
        mask = None if key_mask is None else ops.expand_dims(key_mask, (1, 2))
        if attention_mask is not None:
            if use_causal_mask:
                attention_mask = combine_masks(attention_mask, causal_mask(target, source))
                use_causal_mask = False
            mask = combine_masks(attention_mask, mask)
            rows = ops.transpose(ops.any(mask, axis=-1), (0, 2, 1))
        else:
            rows = rows_with_a_key(key_mask, use_causal_mask, target)
        rows = combine_masks(rows, own_rows(query_mask))

        options = {"use_causal_mask": True} if use_causal_mask else {}
        if custom:  # what Keras hands over: (batch, target, source), and no flag
            if options:
                mask = combine_masks(mask, ops.expand_dims(causal_mask(target, source), (0, 1)))
            if mask is not None and mask.shape[1] == 1:
                mask = mask[:, 0]
            options = {}
        out, scores = self._compute_attention(
            q, keys, values, mask, training, return_attention_scores, **options
        )
        if return_attention_scores and rows is not None:
            scores = ops.where(ops.transpose(rows, (0, 2, 1))[..., None], scores, 0.0)
        outputs = (self._project(keep_rows(out, rows), query),)
        if return_attention_scores:
            outputs += (scores,)
        if cache is not None:
            outputs += (cache,)
        return outputs if len(outputs) > 1 else outputs[0]

    def _compute_attention(
        self,
        query,
        key,
        value,
        attention_mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        """Attends, all heads apart; Keras's layer has this method too, for subclasses to override.

        Args:
            query: `(batch, target, heads, key_dim)`, projected.
            key: `(batch, source, heads, key_dim)`, projected.
            value: `(batch, source, heads, value_dim)`, projected.
            attention_mask: `(batch, target, source)` or `(batch, heads, target, source)`.
            training: As in `call`.
            return_attention_scores: As in `call`.
            use_causal_mask: As in `call`.

        Returns:
            `(batch, target, heads, value_dim)`, and the scores or `None`.
        """
        if return_attention_scores and self._flash_attention:
            raise ValueError(
                "Returning attention scores is not supported when flash attention is enabled. "
                "Please disable flash attention to access attention scores."
            )
        mask = attention_mask
        if mask is not None and len(mask.shape) == 3:
            mask = ops.expand_dims(mask, 1)
        if not return_attention_scores and not (training and self.dropout > 0):
            options = {"is_causal": use_causal_mask, "flash_attention": self._flash_attention}
            return fused_attention(query, key, value, mask, self._scale, **options), None
        if use_causal_mask:
            seen = causal_mask(ops.shape(query)[1], ops.shape(key)[1])
            mask = combine_masks(mask, ops.expand_dims(seen, (0, 1)))
        q = ops.multiply(query, ops.cast(self._scale, query.dtype))
        logits = ops.einsum("bthd,bshd->bhts", q, key)  # (batch, heads, target, source)
        logits = ops.cast(logits, "float32")  # the softmax is float32 whatever the policy
        if mask is not None:
            # As a choice, since a score is lost in 1e30; but the gradient takes no pass for a sum.
            logits = logits + ops.where(mask, ops.cast(0.0, "float32"), ops.cast(-1e30, "float32"))
        scores = ops.cast(ops.softmax(logits, axis=-1), self.compute_dtype)
        weights = self.weight_dropout(scores, training=training)
        return ops.einsum("bhts,bshd->bthd", weights, value), scores

    def new_cache(self, batch_size, max_length):
        """An empty cache: zeros for `max_length` keys and values.

        Args:
            batch_size: Number of rows, an integer or a scalar tensor.
            max_length: Number of positions, an integer or a scalar tensor.

        Returns:
            `(keys, values)`, each `(batch_size, heads, max_length, head size)`, compute dtype.
        """
        return tuple(
            ops.zeros((batch_size, self.num_heads, max_length, size), dtype=self.compute_dtype)
            for size in (self.key_dim, self.value_dim)
        )

    def project_memory(self, value, key=None):
        """A filled cache from an encoder's output, so that decoding projects it only once.

        Args:
            value: `(batch, source, value_dim)`.
            key: `(batch, source, key_dim)`; defaults to `value`.

        Returns:
            `(keys, values)`, each `(batch, heads, source, head size)`.
        """
        check_shapes(None, value.shape, None if key is None else key.shape)
        keys = self._split(self.key_dense(value if key is None else key), self.key_dim)
        values = self._split(self.value_dense(value), self.value_dim)
        return ops.transpose(keys, (0, 2, 1, 3)), ops.transpose(values, (0, 2, 1, 3))

    def multiply_adds(self, arguments, outputs):
        """Those of the two products, for `kerasmodels.model_cost`; it counts the projections.

        Args:
            arguments: Of `call`, by name.
            outputs: What `call` returned.

        Returns:
            An integer; a masked pair of query and key counts too.
        """
        given = arguments.get
        query, value, cache = given("query"), given("value"), given("cache")
        batch, target = query.shape[:2]
        source = value.shape[1] if cache is None else cache[0].shape[2]
        dropout_active = given("training") and self.dropout > 0
        dense_only = given("return_attention_scores") or dropout_active
        dense_only = dense_only or given("attention_mask") is not None or cache is not None
        keys = value if given("key") is None else given("key")
        if self.window is not None and not dense_only and query is keys:  # `call` goes by blocks
            block = block_length(self.window)
            target, source = -(-target // block) * block, 3 * block
        return batch * target * source * self.num_heads * (self.key_dim + self.value_dim)

    def compute_mask(self, query, previous_mask=None):
        """The output carries the mask of the query; scores and cache carry none."""
        return previous_mask

    def compute_output_shape(self, query_shape, value_shape, key_shape=None):
        """The shape of the output, without scores and cache."""
        check_shapes(query_shape, value_shape, key_shape)
        return (*query_shape[:-1], *self._output_sizes(query_shape))

    def compute_output_spec(self, *args, **kwargs):
        """Tells shapes and dtypes of all that a call with these arguments returns."""
        # Keras would ask `compute_output_shape` alone, which knows of no scores and no cache.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def set_weights(self, weights):
        """Sets the weights from a list of arrays in the order of `weights`.

        Args:
            weights: Arrays of the shapes of this layer's weights, or those that `get_weights` of
                `keras.layers.MultiHeadAttention` returns, which have an axis for the heads.
        """
        if len(weights) == len(self.weights):
            weights = [
                np.reshape(array, variable.shape)
                if merges_into(np.shape(array), variable.shape)
                else array
                for array, variable in zip(weights, self.weights, strict=True)
            ]
        super().set_weights(weights)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "output_dim": self.output_dim,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
            "scale": self.scale,
            "window": self.window if self._sliding_window is None else None,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
            "kernel_regularizer": keras.regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": keras.regularizers.serialize(self.bias_regularizer),
            "activity_regularizer": keras.regularizers.serialize(self._activity_regularizer),
            "kernel_constraint": keras.constraints.serialize(self.kernel_constraint),
            "bias_constraint": keras.constraints.serialize(self.bias_constraint),
            "output_shape": self._output_shape,
            "sliding_window": self._sliding_window,
            "flash_attention": self.flash_attention,
            "use_gate": self.use_gate,
            "seed": self.seed,
        }

    def _output_sizes(self, query_shape):
        """Returns the sizes of the output's axes from the third on."""
        if self._output_shape is not None:
            return self._output_shape
        return (query_shape[-1] if self.output_dim is None else self.output_dim,)

    def _split(self, x, head_dim):
        # (batch, length, heads * head_dim) -> (batch, length, heads, head_dim)
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, head_dim))
        return ops.cast(x, self.compute_dtype)  # each projection may have a policy of its own

    def _project(self, x, query):
        # (batch, target, heads, value_dim) -> (batch, target, output_dim)
        x = ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads * self.value_dim))
        if self.use_gate:
            x = x * ops.cast(self.gate_dense(query), x.dtype)
        y = self.output_dense(x)
        if self._output_shape is not None and len(self._output_shape) != 1:
            y = ops.reshape(y, (-1, ops.shape(y)[1], *self._output_shape))
        # Nothing to do but in a symbolic call on PyTorch, where Keras does not cast the weights, or
        # for an output projection with a policy of its own.
        return ops.cast(y, self.compute_dtype)

    def _write(self, cache, index, keys, values):
        """Writes new keys and values at `index`; returns the cache and what attention reads."""
        index = ops.cast(index, "int32")
        zero = ops.zeros((), dtype="int32")

        def write(part, new):
            new = ops.cast(ops.transpose(new, (0, 2, 1, 3)), part.dtype)
            if keras.backend.backend() == "torch" and new.shape[2] == 1:
                # Keras writes at a tensor's place number by number there; a choice is faster.
                here = ops.equal(ops.arange(part.shape[2], dtype="int32"), index)
                return ops.where(ops.expand_dims(here, -1), new, part)
            return ops.slice_update(part, ops.stack([zero, zero, index, zero]), new)

        written = tuple(write(*pair) for pair in zip(cache, (keys, values), strict=True))
        return written, *(ops.transpose(part, (0, 2, 1, 3)) for part in written)
