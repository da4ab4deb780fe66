"""A discriminator's last layer (Miyato and Koyama 2018, "cGANs with projection discriminator")."""

import math

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasmodels")
class LabelProjection(keras.layers.Layer):
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
    layer = kerasmodels.layers.LabelProjection(10)
    logits = layer(keras.ops.ones((2, 64)), np.array([3, 9]))  # (2, 1)
    ```
    """

    def __init__(self, num_classes, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        if int(num_classes) != num_classes or num_classes < 1:
            raise ValueError(
                f"`num_classes` must be a positive integer. Received: num_classes={num_classes}"
            )
        self.num_classes = num_classes
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

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
            embeddings_initializer=self.kernel_initializer.clone(),
            dtype=self.dtype_policy,
            name="embedding",
        )
        self.embedding.build(labels_shape)

    def call(self, inputs, labels):
        """Applies the layer; see the class for the arguments."""
        vectors = ops.cast(self.embedding(labels), inputs.dtype)  # (batch, features)
        return self.dense(inputs) + ops.sum(vectors * inputs, axis=-1, keepdims=True)

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
