"""Last layers: a discriminator's, and that of a model which finds answers in a text.

Miyato and Koyama 2018, "cGANs with projection discriminator"; Devlin et al. 2019, section 4.2.
"""

import math

import keras
from keras import ops

from kerasmodels.arguments import integer
from kerasmodels.layers.indices import check_ids, check_rank
from kerasmodels.layers.initializers import fresh, get_initializer
from kerasmodels.layers.masks import check_mask
from kerasmodels.layers.sublayers import KeepsSublayers


@keras.saving.register_keras_serializable(package="kerasmodels")
class LabelProjection(KeepsSublayers, keras.layers.Layer):
    """A logit that depends on a label: `w . h + b + v_y . h` with a vector v for each label.

    `w . h + b` says whether the features h look real, `v_y . h` whether they look like the label
    y (equation 4 of the paper). It is the `Dense` layer `dense` and the `Embedding` `embedding`.

    Args:
        num_classes: Number of labels.
        kernel_initializer: Of `w` and of the vectors.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: Features `(batch, features)`.
        labels: Integers `(batch,)`.

    Returns:
        Logits `(batch, 1)` in the compute dtype.

    Raises:
        ValueError: If `num_classes` is not a positive integer.

    Example:
    ```python
    import keras
    import numpy as np
    from kerasmodels import layers

    layer = layers.LabelProjection(10)
    logits = layer(keras.ops.ones((2, 64)), np.array([3, 9]))  # (2, 1)
    ```
    """

    def __init__(self, num_classes, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=2)
        self.num_classes = integer("num_classes", num_classes)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)

    def build(self, inputs_shape, labels_shape=None):
        """Builds the two parts."""
        self.dense = keras.layers.Dense(
            1,
            kernel_initializer=self.kernel_initializer,
            dtype=self.dtype_policy,
            name="dense",
        )
        self.dense.build(inputs_shape)
        self.embedding = keras.layers.Embedding(
            self.num_classes,
            inputs_shape[-1],
            embeddings_initializer=fresh(self.kernel_initializer),
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.embedding.build(labels_shape)

    def call(self, inputs, labels):
        """Applies the layer; see the class for the arguments."""
        check_rank("labels", labels, 1)
        check_ids("labels", labels, self.num_classes)
        vectors = ops.cast(self.embedding(labels), inputs.dtype)  # (batch, features)
        logits = ops.cast(self.dense(inputs), self.compute_dtype)
        return logits + ops.cast(ops.sum(vectors * inputs, axis=-1, keepdims=True), logits.dtype)

    def multiply_adds(self, arguments, outputs):
        """Those of `v_y . h`, for `kerasmodels.model_cost`; it counts `w . h`.

        Args:
            arguments: Of `call`, by name.
            outputs: What `call` returned.

        Returns:
            An integer.
        """
        return math.prod(arguments["inputs"].shape)

    def compute_output_shape(self, inputs_shape, labels_shape=None):
        """One logit a row."""
        return (inputs_shape[0], 1)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class SpanProjection(KeepsSublayers, keras.layers.Layer):
    """Two logits a position: that a span starts there, and that it ends there.

    `S . T_i` and `E . T_i` of BERT's section 4.2, each with a bias. Padding gets -1e9, so that no
    softmax over the positions gives it a share. It is the `Dense` layer `dense` with two units.

    Args:
        kernel_initializer: Of S and E.
        **kwargs: Of `keras.layers.Layer`.

    Call arguments:
        inputs: `(batch, length, hidden_dim)`.
        padding_mask: `(batch, length)`, 1 = keep, or `None`: all is real.

    Returns:
        float32 logits of start and end, each `(batch, length)`.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    layer = layers.SpanProjection()
    start, end = layer(keras.random.normal((2, 50, 64)))  # (2, 50), (2, 50)
    ```
    """

    def __init__(self, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.kernel_initializer = get_initializer("kernel_initializer", kernel_initializer)

    def build(self, inputs_shape, padding_mask_shape=None):
        """Builds the projection."""
        self.dense = keras.layers.Dense(
            2, kernel_initializer=self.kernel_initializer, dtype=self.dtype_policy, name="dense"
        )
        self.dense.build(inputs_shape)

    def call(self, inputs, padding_mask=None):
        """Applies the layer; see the class for the arguments."""
        logits = ops.cast(self.dense(inputs), "float32")  # (batch, length, 2)
        if padding_mask is not None:
            check_mask("padding_mask", padding_mask, inputs.shape[:2])
            mask = ops.expand_dims(ops.cast(padding_mask, "bool"), -1)
            logits = ops.where(mask, logits, ops.cast(-1e9, "float32"))
        return logits[..., 0], logits[..., 1]

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
