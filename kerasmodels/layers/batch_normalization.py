"""Batch normalization with the numbers that papers and PyTorch take, by each backend's own kernel.

Ioffe and Szegedy, "Batch Normalization", 2015, algorithm 1. Keras writes it out as sums, squares
and products: six passes over the images. TensorFlow and PyTorch have one kernel for it, which the
layer below calls; on TensorFlow that is also what lets the graph optimizer melt convolution,
normalization and ReLU into one. XLA does the like with Keras's form on JAX.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasmodels")
class BatchNormalization(keras.layers.BatchNormalization):
    """`keras.layers.BatchNormalization` with momentum 0.9 and epsilon 1e-5, in one kernel.

    These are the values of the residual networks and of PyTorch; Keras's own are 0.99 and 1e-3.
    The moving variance is the biased one, as in Keras. With a mask, `renorm` or `synchronized`,
    weights that are not float32, or another axis than the last on TensorFlow, it is Keras's layer
    in everything.

    Args:
        axis: The axis of the channels.
        momentum: Of the moving averages: what stays of them at each step of training.
        epsilon: Added to the variance.
        **kwargs: As in Keras.

    Call arguments:
        inputs: `(batch, ..., channels)`.
        training: Whether to normalize by the batch and to move the averages.
        mask: As in Keras.

    Returns:
        What Keras's layer returns, of the shape of `inputs`, in the layer's compute dtype.

    Raises:
        ValueError: As Keras does.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    layer = layers.BatchNormalization()
    y = layer(keras.random.normal((8, 4, 4, 16)), training=True)  # mean 0, variance 1 a channel
    ```
    """

    def __init__(self, axis=-1, momentum=0.9, epsilon=1e-5, **kwargs):
        super().__init__(axis=axis, momentum=momentum, epsilon=epsilon, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """Applies the layer; see the class for the arguments."""
        kernel = self._kernel(inputs) if mask is None else None
        if kernel is None:
            return super().call(inputs, training=training, mask=mask)
        training = bool(training) and self.trainable
        size = self.moving_mean.shape
        gamma = ops.convert_to_tensor(self.gamma) if self.scale else ops.ones(size)
        beta = ops.convert_to_tensor(self.beta) if self.center else ops.zeros(size)
        averages = [ops.convert_to_tensor(v) for v in (self.moving_mean, self.moving_variance)]
        outputs, moments = kernel(inputs, gamma, beta, averages, training)
        if training:
            for average, old, new in zip(
                (self.moving_mean, self.moving_variance), averages, moments, strict=True
            ):
                average.assign(old * self.momentum + new * (1.0 - self.momentum))
        return outputs

    def _kernel(self, inputs):
        # The kernels take a float32 mean beside images of half precision, and no other mixture.
        dtype = keras.backend.standardize_dtype(inputs.dtype)
        plain = self.variable_dtype == "float32" and dtype == self.compute_dtype
        if self.renorm or self.synchronized or not plain:
            return None
        name, rank = keras.backend.backend(), len(inputs.shape)
        if name == "tensorflow" and rank == 4 and self.axis in (-1, 3):
            return self._tensorflow
        if name == "torch" and rank > 1:
            return self._torch
        return None

    def _tensorflow(self, inputs, gamma, beta, averages, training):
        import tensorflow as tf

        empty = tf.zeros((0,))
        mean, variance = (empty, empty) if training else averages
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=gamma,
            offset=beta,
            mean=mean,
            variance=variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        # The kernel gives the unbiased variance: times n / (n - 1).
        count = tf.cast(tf.reduce_prod(tf.shape(inputs)[:3]), variance.dtype)
        return outputs, (mean, variance * (1.0 - 1.0 / count))

    def _torch(self, inputs, gamma, beta, averages, training):
        import torch

        x = inputs.movedim(self.axis, 1)  # a view: (batch, channels, ...)
        known = (None, None) if training else averages
        outputs, mean, scale = torch.native_batch_norm(
            x, gamma, beta, *known, training, 0.0, self.epsilon
        )
        outputs = outputs.movedim(1, self.axis)
        return outputs, ((mean, scale.pow(-2) - self.epsilon) if training else ())
