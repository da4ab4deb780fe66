"""Convolutions by a fast way on each backend, and padded as in PyTorch where that is asked for.

Weights, arguments and numbers are those of Keras's layers. On PyTorch Keras copies the images twice
around each convolution; here they stay where they are. With JAX on a CPU the gradients are derived
in another way. JAX writes the transposed convolution as a convolution of an input spread out with
zeros, and the gradient with respect to the kernel slides whole images over that spread-out input:
on CPU some forty times slower than it need be. But the transposed convolution is the gradient of a
strided one, and in

    t(y, k, x) = sum(convolve(y, k) * x)

convolution, transposed convolution and gradient of the kernel are the derivatives of one number
that is linear in each of its three arguments. So the gradient of each is made of the other two,
whatever the order of the derivative: a penalty on a gradient is fast as well. A 1x1 convolution is
a matrix product and its gradients are two more: as convolutions they take five times as long.
"""

import functools

import keras
import numpy as np
from keras import ops


@functools.cache
def _family(strides, symmetric=False):
    """JAX's convolution with "same" padding and its transpose, each with a gradient of its own."""
    import jax

    def plain(y, k):
        layout = ("NHWC", "HWIO", "NHWC")
        padding = [(n // 2, n // 2) for n in k.shape[:2]] if symmetric else "SAME"
        return jax.lax.conv_general_dilated(y, k, strides, padding, dimension_numbers=layout)

    @jax.custom_vjp
    def convolve(y, k):
        return plain(y, k)

    # `size`: height and width of the images y, which the strides leave open
    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def transposed(x, k, size):
        return _in_phases(x, k, size, strides, symmetric)

    # `size`: height and width of the kernel
    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def kernel_gradient(y, x, size):
        k = jax.ShapeDtypeStruct((*size, y.shape[3], x.shape[3]), x.dtype)
        return jax.linear_transpose(lambda k: plain(y, k), k)(x)[0]

    convolve.defvjp(
        lambda y, k: (convolve(y, k), (y, k)),
        lambda kept, g: (
            transposed(g, kept[1], kept[0].shape[1:3]),
            kernel_gradient(kept[0], g, kept[1].shape[:2]),
        ),
    )
    transposed.defvjp(
        lambda x, k, size: (transposed(x, k, size), (x, k)),
        lambda size, kept, g: (
            convolve(g, kept[1]),
            kernel_gradient(g, kept[0], kept[1].shape[:2]),
        ),
    )
    kernel_gradient.defvjp(
        lambda y, x, size: (kernel_gradient(y, x, size), (y, x)),
        lambda size, kept, g: (
            transposed(kept[1], g, kept[0].shape[1:3]),
            convolve(kept[0], g),
        ),
    )
    return convolve, transposed


def _in_phases(x, k, size, strides, symmetric):
    """The transposed convolution without a zero: each phase of the pixels by a convolution.

    The pixels whose row and column leave given remainders by the strides see only every so many
    rows and columns of the kernel.
    """
    import jax
    from jax import numpy as jnp

    batch, rows, columns, _ = x.shape
    pixels = []
    for row_taps, row_padding in _phases(k.shape[0], rows, size[0], strides[0], symmetric):
        for column_taps, column_padding in _phases(
            k.shape[1], columns, size[1], strides[1], symmetric
        ):
            pixels.append(
                jax.lax.conv_general_dilated(
                    x,
                    k[row_taps][:, column_taps],
                    (1, 1),
                    (row_padding, column_padding),
                    dimension_numbers=("NHWC", "HWOI", "NHWC"),
                )
            )
    y = jnp.stack(pixels, axis=3).reshape(batch, rows, columns, *strides, -1)
    y = y.transpose(0, 1, 3, 2, 4, 5)  # (batch, rows, stride, columns, stride, channels)
    y = y.reshape(batch, rows * strides[0], columns * strides[1], -1)
    return y[:, : size[0], : size[1]]


def _phases(kernel_size, count, size, stride, symmetric):
    """Along one side: for each phase, which rows of the kernel and how much padding.

    Row t of the kernel carries pixel i of the input to pixel `i stride + t - before` of the
    output. Pixel `q stride + r` of it so hears from `i = q + (r + before - t) / stride`.
    """
    before = max((count - 1) * stride + kernel_size - size, 0) // 2
    before = kernel_size // 2 if symmetric else before
    for r in range(stride):
        most, first = divmod(r + before, stride)
        taps = list(range(first, kernel_size, stride))[::-1]
        yield np.array(taps, "int32"), (len(taps) - 1 - most, most)


def _on_cpu():
    # Elsewhere the vendors' libraries know the spread-out forms.
    import jax

    return jax.default_backend() == "cpu"


def _is_plain(layer):
    """Whether JAX computes the layer on a CPU, in one group, channels last and without dilation."""
    return (
        keras.backend.backend() == "jax"
        and _on_cpu()
        and layer.data_format == "channels_last"
        and set(layer.dilation_rate) == {1}
        and getattr(layer, "groups", 1) == 1
    )


def _has_family(layer):
    """Whether the layer is one that the functions above compute."""
    return (
        _is_plain(layer)
        and layer.padding == "same"
        and all(k >= n for k, n in zip(layer.kernel_size, layer.strides, strict=True))
        and getattr(layer, "output_padding", None) is None
    )


@functools.cache
def _compiles_well():
    """Whether XLA is the faster way: not for TensorFlow on a CPU, whose own kernels take half."""
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    return any(device.device_type != "CPU" for device in tf.config.list_physical_devices())


@keras.saving.register_keras_serializable(package="kerasmodels")
class Conv2D(keras.layers.Conv2D):
    """`keras.layers.Conv2D` by a faster way on JAX and PyTorch, and with PyTorch's padding.

    With padding "same" and strides Keras pads right and below first, so that a kernel looks at
    other pixels than in PyTorch, from where most published weights come. `symmetric=True` pads
    half the kernel on each side. It makes no difference without strides, or for images of odd size
    with strides of 2.

    The fast way on JAX, on a CPU, takes padding `"same"`, channels last, one group and no
    dilation; larger kernels than 1x1 have no forward-mode derivative (`jax.jvp`) then. It is
    Keras's layer otherwise.

    Args:
        *args: As in Keras.
        symmetric: Whether padding `"same"` is half the kernel on each side; kernels must then be of
            odd size.
        **kwargs: As in Keras.

    Call arguments:
        inputs: `(batch, height, width, channels)`, or with `data_format="channels_first"`
            `(batch, channels, height, width)`.

    Returns:
        `(batch, ceil(height / stride), ceil(width / stride), filters)` with padding `"same"`.

    Raises:
        ValueError: As Keras does, for sizes that are not positive; for `symmetric=True` with
            another padding than `"same"`, dilation, or a kernel of even size.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    layer = layers.Conv2D(64, 5, strides=2, padding="same", symmetric=True)
    y = layer(keras.ops.ones((1, 28, 28, 1)))  # (1, 14, 14, 64)
    ```
    """

    def __init__(self, *args, symmetric=False, **kwargs):
        super().__init__(*args, **kwargs)
        # What Keras looks at for `jit_compile="auto"`: see `_compiles_well`.
        self.supports_jit = _compiles_well()
        if symmetric and (
            self.padding != "same"
            or any(n % 2 == 0 for n in self.kernel_size)
            or set(self.dilation_rate) != {1}
        ):
            raise ValueError(
                "`symmetric=True` takes padding='same', a kernel of odd size and no dilation. "
                f"Received: padding={self.padding!r}, kernel_size={self.kernel_size}, "
                f"dilation_rate={self.dilation_rate}"
            )
        self.symmetric = symmetric
        self.input_spec = keras.layers.InputSpec(ndim=4)

    def build(self, input_shape):
        """Makes the weights."""
        super().build(input_shape)
        # Keras lets more axes pass, which then fail somewhere in the backend.
        self.input_spec = keras.layers.InputSpec(ndim=4, axes=self.input_spec.axes)
        if keras.backend.backend() == "torch":
            # Keras's shape (height, width, inputs, outputs), but in memory as PyTorch multiplies:
            # outputs first, inputs last. Otherwise each call would copy the kernel.
            parameter = self._kernel.value
            parameter.data = parameter.data.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0)

    def convolution_op(self, inputs, kernel):
        """Keras's hook: the convolution itself, without bias and activation."""
        kernel = ops.convert_to_tensor(kernel)
        if self.kernel_size == (1, 1) and _is_plain(self):
            rows, columns = self.strides
            return ops.matmul(inputs[:, ::rows, ::columns], kernel[0, 0])
        if _has_family(self):
            return _family(self.strides, self.symmetric)[0](inputs, kernel)
        symmetric = self.symmetric and set(self.strides) != {1}
        if self._has_torch_way():
            return self._torch(inputs, kernel)
        if not symmetric:
            return super().convolution_op(inputs, kernel)
        widths = [[0, 0], *([n // 2, n // 2] for n in self.kernel_size), [0, 0]]
        if self.data_format == "channels_first":
            widths.insert(1, widths.pop())
        return ops.conv(
            ops.pad(inputs, widths) if max(self.kernel_size) > 1 else inputs,
            kernel,
            strides=list(self.strides),
            padding="valid",
            data_format=self.data_format,
        )

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        if _loses_bias(self):
            return _add_bias(self, self.convolution_op(inputs, self.kernel))
        if not (self.use_bias and self._has_torch_way()):
            return super().call(inputs)
        bias = ops.convert_to_tensor(self.bias)  # in the same kernel: a pass over the images less
        outputs = self._torch(inputs, ops.convert_to_tensor(self.kernel), bias)
        return outputs if self.activation is None else self.activation(outputs)

    def _has_torch_way(self):
        """Whether PyTorch computes it, and the padding is the same on all sides at any size."""
        if keras.backend.backend() != "torch":
            return False
        if self.padding == "valid" or self.symmetric:
            return True
        even = (d * (n - 1) % 2 for n, d in zip(self.kernel_size, self.dilation_rate, strict=True))
        return set(self.strides) == {1} and not any(even)

    def _torch(self, inputs, kernel, bias=None):
        # Channels last in memory is a view for PyTorch; Keras copies to channels first and back.
        import torch

        last = self.data_format == "channels_last"
        padding = [
            0 if self.padding == "valid" else d * (n - 1) // 2
            for n, d in zip(self.kernel_size, self.dilation_rate, strict=True)
        ]
        outputs = torch.nn.functional.conv2d(
            inputs.permute(0, 3, 1, 2) if last else inputs,
            kernel.permute(3, 2, 0, 1),
            bias,
            stride=self.strides,
            padding=padding,
            dilation=self.dilation_rate,
            groups=self.groups,
        )
        return outputs.permute(0, 2, 3, 1) if last else outputs

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "symmetric": self.symmetric}


def _loses_bias(layer):
    """Whether Keras may add the bias along the wrong axis.

    On TensorFlow `keras.ops.add` takes a vector for the bias of the last axis wherever the sizes
    agree: with channels first, images as wide as there are filters get it along their width.
    """
    first = layer.use_bias and layer.data_format == "channels_first"
    return first and keras.backend.backend() == "tensorflow"


def _add_bias(layer, outputs):
    """The outputs with the bias on axis 1, and the activation."""
    bias = ops.cast(ops.reshape(layer.bias, (1, layer.filters, 1, 1)), outputs.dtype)
    outputs = outputs + bias
    return outputs if layer.activation is None else layer.activation(outputs)


@keras.saving.register_keras_serializable(package="kerasmodels")
class Conv2DTranspose(keras.layers.Conv2DTranspose):
    """`keras.layers.Conv2DTranspose`; with padding "same", fast gradients of all orders on JAX.

    It is Keras's layer on the other backends, on JAX anywhere but on a CPU, and with arguments
    other than padding `"same"`, channels last, no dilation, no `output_padding`, and strides no
    larger than the kernel. On JAX and CPU it has no forward-mode derivative (`jax.jvp`).

    Args:
        *args: As in Keras.
        **kwargs: As in Keras.

    Call arguments:
        inputs: `(batch, height, width, channels)`.

    Returns:
        `(batch, height * stride, width * stride, filters)` with padding `"same"`.

    Raises:
        ValueError: As Keras does, for sizes that are not positive.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    layer = layers.Conv2DTranspose(64, 5, strides=2, padding="same")
    y = layer(keras.ops.ones((1, 7, 7, 128)))  # (1, 14, 14, 64)
    ```
    """

    def build(self, input_shape):
        """Makes the weights."""
        super().build(input_shape)
        # Keras lets more axes pass, which then fail somewhere in the backend.
        self.input_spec = keras.layers.InputSpec(ndim=4, axes=self.input_spec.axes)

    def call(self, inputs):
        """Applies the layer; see the class for the arguments."""
        if _loses_bias(self):
            outputs = ops.conv_transpose(
                inputs,
                self.kernel,
                strides=list(self.strides),
                padding=self.padding,
                output_padding=self.output_padding,
                dilation_rate=self.dilation_rate,
                data_format=self.data_format,
            )
            return _add_bias(self, outputs)
        if not _has_family(self):
            return super().call(inputs)
        size = tuple(n * stride for n, stride in zip(inputs.shape[1:3], self.strides, strict=True))
        outputs = _family(self.strides)[1](inputs, ops.convert_to_tensor(self.kernel), size)
        if self.use_bias:
            outputs = outputs + ops.convert_to_tensor(self.bias)
        return outputs if self.activation is None else self.activation(outputs)
