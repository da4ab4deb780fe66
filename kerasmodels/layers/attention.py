"""Scaled dot-product attention with many heads (Vaswani et al. 2017, section 3.2)."""

import keras
from keras import ops

from kerasmodels.layers.dense import Dense
from kerasmodels.layers.fused_attention import fused_attention
from kerasmodels.layers.initializers import fresh
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

# The blocks of windowed attention are at least this long: below it the matrix products are so
# small that their overhead outweighs the keys that are computed for nothing.
_LEAST_BLOCK = 32


@keras.saving.register_keras_serializable(package="kerasmodels")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention, called as `keras.layers.MultiHeadAttention` is.

    `MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O` with
    `head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d_k)) V W_i^V` (section 3.2.2).

    What differs from Keras's layer: the fused kernel (`ops.dot_product_attention`) serves whenever
    no scores are asked for and no attention dropout is active, so also when a layer that is
    configured with dropout is evaluated; a query whose keys are all masked gets 0 (before the
    output projection) and passes no gradient; a `window` restricts attention at a cost that grows
    with length times window; a `cache` holds keys and values while decoding.

    Args:
        num_heads: Number of heads h.
        key_dim: Size of each head for queries and keys, d_k.
        value_dim: Size of each head for values, d_v. Defaults to `key_dim`.
        output_dim: Size of the output. Defaults to the last dimension of `query`.
        dropout: Rate of the dropout on the attention weights.
        use_bias: Whether the four projections have a bias.
        scale: Factor of the scores. Defaults to `1 / sqrt(key_dim)`.
        window: Keys further away than this from their query are not seen; `None` sees all.
        kernel_initializer: Of the four kernels.
        **kwargs: Of `keras.layers.Layer`: `name`, `dtype`, `trainable`.

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
        ValueError: At construction for arguments out of range; in a call for a mask whose rank or
            length does not fit.

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
        **kwargs,
    ):
        super().__init__(**kwargs)
        for name, size in (
            ("num_heads", num_heads),
            ("key_dim", key_dim),
            ("value_dim", value_dim),
            ("output_dim", output_dim),
        ):
            optional = name in ("value_dim", "output_dim")
            if not (optional and size is None) and (int(size) != size or size < 1):
                raise ValueError(f"`{name}` must be a positive integer. Received: {name}={size}")
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be in [0, 1). Received: dropout={dropout}")
        if window is not None and (int(window) != window or window < 0):
            raise ValueError(f"`window` must be None or an integer >= 0. Received: window={window}")
        self.supports_masking = True
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim or key_dim
        self.output_dim = output_dim
        self.dropout = dropout
        self.use_bias = use_bias
        self.scale = scale
        self.window = window
        self.kernel_initializer = kernel_initializer
        self._scale = key_dim**-0.5 if scale is None else float(scale)

    def build(self, query_shape, value_shape, key_shape=None):
        """Builds the four projections from the shapes of the inputs."""
        key_shape = key_shape or value_shape

        def dense(units, input_shape, name):
            layer = Dense(
                units,
                use_bias=self.use_bias,
                kernel_initializer=fresh(self.kernel_initializer),
                dtype=self.dtype_policy,
                name=name,
            )
            layer.build((*input_shape[:2], input_shape[-1]))
            return layer

        value_width = self.num_heads * self.value_dim
        self.query_dense = dense(self.num_heads * self.key_dim, query_shape, "query")
        self.key_dense = dense(self.num_heads * self.key_dim, key_shape, "key")
        self.value_dense = dense(value_width, value_shape, "value")
        output_dim = self.output_dim or query_shape[-1]
        self.output_dense = dense(output_dim, (*query_shape[:2], value_width), "output")
        self.weight_dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

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
        if self.window is not None:
            if not dense_only and cache is None and query is (value if key is None else key):
                out = self._windowed(q, keys, values, key_mask, use_causal_mask)
                return self._project(keep_rows(out, own_rows(query_mask)))
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

        scores = None
        if return_attention_scores or dropout_active:
            if use_causal_mask:
                mask = combine_masks(mask, ops.expand_dims(causal_mask(target, source), (0, 1)))
            out, scores = self._attend_with_scores(q, keys, values, mask, training)
            if return_attention_scores and rows is not None:
                scores = ops.where(ops.transpose(rows, (0, 2, 1))[..., None], scores, 0.0)
        else:
            out = fused_attention(q, keys, values, mask, self._scale, use_causal_mask)
        outputs = (self._project(keep_rows(out, rows)),)
        if return_attention_scores:
            outputs += (scores,)
        if cache is not None:
            outputs += (cache,)
        return outputs if len(outputs) > 1 else outputs[0]

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
            block = max(self.window, _LEAST_BLOCK)
            target, source = -(-target // block) * block, 3 * block
        return batch * target * source * self.num_heads * (self.key_dim + self.value_dim)

    def compute_mask(self, query, previous_mask=None):
        """The output carries the mask of the query; scores and cache carry none."""
        return previous_mask

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
            "window": self.window,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    def _split(self, x, head_dim):
        # (batch, length, heads * head_dim) -> (batch, length, heads, head_dim)
        return ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, head_dim))

    def _project(self, x):
        # (batch, target, heads, value_dim) -> (batch, target, output_dim)
        width = self.num_heads * self.value_dim
        y = self.output_dense(ops.reshape(x, (-1, ops.shape(x)[1], width)))
        # Nothing to do but in a symbolic call on PyTorch, where Keras does not cast the weights.
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

    def _attend_with_scores(self, q, keys, values, mask, training):
        q = ops.multiply(q, ops.cast(self._scale, q.dtype))
        logits = ops.einsum("bthd,bshd->bhts", q, keys)  # (batch, heads, target, source)
        logits = ops.cast(logits, "float32")  # the softmax is float32 whatever the policy
        if mask is not None:
            # As a choice, since a score is lost in 1e30; but the gradient takes no pass for a sum.
            logits = logits + ops.where(mask, ops.cast(0.0, "float32"), ops.cast(-1e30, "float32"))
        scores = ops.cast(ops.softmax(logits, axis=-1), self.compute_dtype)
        weights = self.weight_dropout(scores, training=training)
        return ops.einsum("bhts,bshd->bthd", weights, values), scores

    def _windowed(self, q, keys, values, key_mask, causal):
        """Self-attention in blocks: a block of queries sees its own and both neighbour blocks.

        A block is at least as long as the window, so nothing within reach lies outside the three
        blocks, and the cost is 3 * length * block instead of length^2.
        """
        block = max(self.window, _LEAST_BLOCK)
        length = ops.shape(q)[1]
        blocks = (length + block - 1) // block
        if key_mask is None:
            key_mask = ops.ones((ops.shape(q)[0], length), dtype="bool")
        fill = blocks * block - length

        def pad(x, before, after):
            def zeros(count):
                return ops.zeros((ops.shape(x)[0], count, *x.shape[2:]), dtype=x.dtype)

            return ops.concatenate([zeros(before), x, zeros(after)], axis=1)

        def neighbours(x):
            # (batch, length, ...) -> (batch, blocks, 3 * block, ...)
            rest = x.shape[2:]
            x = pad(x, block, fill + block)
            x = ops.reshape(x, (ops.shape(x)[0], blocks + 2, block, *rest))
            return ops.concatenate([x[:, :-2], x[:, 1:-1], x[:, 2:]], axis=2)

        def flat(x, width):
            # (batch, blocks, width, ...) -> (batch * blocks, width, ...)
            return ops.reshape(x, (-1, width, *x.shape[3:]))

        q_blocks = ops.reshape(pad(q, 0, fill), (-1, block, *q.shape[2:]))
        near = ops.arange(block)[:, None] + block - ops.arange(3 * block)[None, :]
        allowed = ops.abs(near) <= self.window  # (block, 3 * block), distance query - key
        if causal:
            allowed = ops.logical_and(allowed, near >= 0)
        mask = ops.logical_and(  # padding, inside and at both ends, is no key
            allowed[None], flat(neighbours(key_mask), 3 * block)[:, None, :]
        )
        out = fused_attention(
            q_blocks,
            flat(neighbours(keys), 3 * block),
            flat(neighbours(values), 3 * block),
            mask=mask[:, None],
            scale=self._scale,
        )
        out = keep_rows(out, ops.any(mask, axis=-1)[..., None])
        out = ops.reshape(out, (-1, blocks * block, self.num_heads, self.value_dim))
        return out[:, :length]
