"""The blocks of residual networks: F(x) + x.

He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385
(figures 2 and 5), and "Identity Mappings in Deep Residual Networks", ECCV 2016, arXiv:1603.05027
(`normalize_first=True`: figure 4e).
"""

import operator

import keras
from keras import ops

from kerasmodels.arguments import flag, integer
from kerasmodels.data_format import standardize_data_format
from kerasmodels.layers.batch_normalization import BatchNormalization
from kerasmodels.layers.convolution import Conv2D
from kerasmodels.layers.sublayers import KeepsSublayers

SHORTCUTS = ("A", "B", "C", None)


def _frugal():
    """Sum and ReLU that may overwrite their (first) input, a fresh output of another layer.

    In inference on PyTorch a tensor of its own for each takes a tenth of the time. Where gradients
    are taken, autograd makes up for overwritten views by copies.
    """
    if keras.backend.backend() == "torch":
        import torch

        if not torch.is_grad_enabled():
            return torch.Tensor.add_, torch.relu_
    return operator.add, ops.relu


class _ResidualBlock(KeepsSublayers, keras.layers.Layer):
    """All of a block but its list of convolutions, which the two classes below give."""

    expansion = 1  # output channels per filter

    def __init__(
        self,
        filters,
        strides=1,
        shortcut="B",
        normalize_first=False,
        zero_init=False,
        folded=False,
        data_format=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        filters, strides = integer("filters", filters), integer("strides", strides)
        normalize_first = flag("normalize_first", normalize_first)
        zero_init, folded = flag("zero_init", zero_init), flag("folded", folded)
        if shortcut not in SHORTCUTS:
            raise ValueError(
                "`shortcut` must be 'A' (zeros for new channels), 'B' (a projection where the "
                "shape changes), 'C' (projections everywhere) or None (a plain net). "
                f"Received: shortcut={shortcut!r}"
            )
        if zero_init and shortcut is None:
            raise ValueError(
                "`zero_init` needs a shortcut: a plain net of zeros has no gradient. "
                f"Received: zero_init={zero_init}, shortcut=None"
            )
        self.input_spec = keras.layers.InputSpec(ndim=4)
        self.filters = filters
        self.strides = strides
        self.shortcut = shortcut
        self.normalize_first = normalize_first
        self.zero_init = zero_init
        self.folded = folded
        self.data_format = standardize_data_format(data_format)
        self.axis = -1 if self.data_format == "channels_last" else 1

        sizes = self._sizes()  # of each convolution: filters, kernel size, strides
        last = len(sizes) - 1
        self.convolutions, self.norms = [], []
        for i, size in enumerate(sizes):
            # Goyal et al. 2017, section 5.1: zeros at the end make the block start as the identity
            zeros = zero_init and i == last
            # Folded: the normalization after a convolution has become its bias.
            has_norm_after = not normalize_first or i < last
            self.convolutions.append(
                self._convolution(
                    *size,
                    use_bias=folded and has_norm_after,
                    kernel_initializer="zeros" if zeros and normalize_first else "he_normal",
                    name=f"convolution_{i + 1}",
                )
            )
            has_convolution_before = not normalize_first or i > 0
            gamma = "zeros" if zeros and not normalize_first else "ones"
            name = f"norm_{i + 1}"
            self.norms.append(
                None if folded and has_convolution_before else self._norm(name, gamma)
            )
        self.shortcut_convolution = self.shortcut_norm = None  # made in `build`, where need be

    def _convolution(self, filters, kernel_size, strides, use_bias, **kwargs):
        return Conv2D(
            filters,
            kernel_size,
            strides=strides,
            padding="same",
            symmetric=True,
            use_bias=use_bias,
            data_format=self.data_format,
            dtype=self.dtype_policy,
            **kwargs,
        )

    def _norm(self, name, gamma="ones"):
        return BatchNormalization(
            self.axis, gamma_initializer=gamma, dtype=self.dtype_policy, name=name
        )

    @property
    def folds(self):
        """Pairs (convolution, the normalization right after it), without those folded already."""
        after = self.norms[1:] if self.normalize_first else self.norms
        pairs = [*zip(self.convolutions, after, strict=False)]
        pairs.append((self.shortcut_convolution, self.shortcut_norm))
        return [(convolution, norm) for convolution, norm in pairs if norm is not None]

    def build(self, input_shape):
        """Makes the projection where one is needed, and the weights of all layers."""
        channels, outputs = input_shape[self.axis], self.filters * self.expansion
        if channels is None:
            raise ValueError(
                f"The channels of the input must be known. Received: input_shape={input_shape}"
            )
        changes = self.strides > 1 or channels != outputs
        if self.shortcut == "A" and channels > outputs:
            raise ValueError(
                "`shortcut='A'` adds channels of zeros and cannot take any away. Received: "
                f"filters={self.filters}, which gives {outputs} channels, for an input of "
                f"{channels}"
            )
        if self.shortcut == "C" or (self.shortcut == "B" and changes):
            has_norm = not self.normalize_first
            self.shortcut_convolution = self._convolution(
                outputs,
                1,
                self.strides,
                use_bias=self.folded and has_norm,
                kernel_initializer="he_normal",
                name="shortcut_convolution",
            )
            self.shortcut_convolution.build(input_shape)
            if has_norm and not self.folded:
                self.shortcut_norm = self._norm("shortcut_norm")
                shape = self.shortcut_convolution.compute_output_shape(input_shape)
                self.shortcut_norm.build(shape)
        shape = input_shape
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            after = convolution.compute_output_shape(shape)
            convolution.build(shape)
            if norm is not None:
                norm.build(shape if self.normalize_first else after)
            shape = after

    def call(self, inputs, training=None):
        """Applies the block; see the class for the arguments."""
        return self._forward(inputs, training)

    def responses(self, inputs, training=None):
        """The block with what figure 7 of the paper looks at.

        Args:
            inputs: As for a call.
            training: As for a call.

        Returns:
            The response of each convolution, after its normalization and before the non-linearity
            and the addition; and the output.
        """
        found = []
        output = self._forward(inputs, training, found)
        return found, output

    def _forward(self, inputs, training, responses=None):
        """The output; what the convolutions answer goes into the list `responses`, if any."""
        add, relu = (operator.add, ops.relu) if responses is not None else _frugal()
        shortcut = None if self.normalize_first else self._shortcut(inputs, training)
        x, last = inputs, len(self.convolutions) - 1
        for i, (convolution, norm) in enumerate(zip(self.convolutions, self.norms, strict=True)):
            if self.normalize_first:
                x = relu(x if norm is None else norm(x, training=training))
                if i == 0:
                    # A projection sees what the first convolution sees, the identity the input.
                    source = inputs if self.shortcut_convolution is None else x
                    shortcut = self._shortcut(source, training)
            x = convolution(x)
            if not self.normalize_first and norm is not None:
                x = norm(x, training=training)
            if responses is not None:
                responses.append(x)
            if not self.normalize_first and i < last:
                x = relu(x)
        x = x if shortcut is None else add(x, ops.cast(shortcut, x.dtype))
        return ops.cast(x if self.normalize_first else relu(x), self.compute_dtype)

    def _shortcut(self, x, training):
        if self.shortcut is None:
            return None
        if self.shortcut_convolution is not None:
            x = self.shortcut_convolution(x)
            norm = self.shortcut_norm
            return x if norm is None else norm(x, training=training)
        # The identity, or option A: every so many pixels, and zeros for the new channels.
        s, more = self.strides, self.filters * self.expansion - x.shape[self.axis]
        if s > 1:
            # The ends of the slices show JAX, where sizes are free (`export`), that what is left is
            # as large as what a convolution of these strides makes.
            rows, columns = ops.shape(x)[1:3] if self.axis == -1 else ops.shape(x)[2:]
            rows, columns = (slice(0, (n - 1) // s * s + 1, s) for n in (rows, columns))
            x = x[:, rows, columns, :] if self.axis == -1 else x[:, :, rows, columns]
        if more:
            widths = [[0, 0]] * 4
            widths[self.axis] = [0, more]
            x = ops.pad(x, widths)
        return x

    def compute_output_shape(self, input_shape):
        """`(batch, ceil(height / strides), ceil(width / strides), filters * expansion)`."""
        shape = list(input_shape)
        for i in (1, 2) if self.axis == -1 else (2, 3):
            shape[i] = None if shape[i] is None else -(-shape[i] // self.strides)
        shape[self.axis] = self.filters * self.expansion
        return tuple(shape)

    def get_config(self):
        """The constructor's arguments."""
        return {
            **super().get_config(),
            "filters": self.filters,
            "strides": self.strides,
            "shortcut": self.shortcut,
            "normalize_first": self.normalize_first,
            "zero_init": self.zero_init,
            "folded": self.folded,
            "data_format": self.data_format,
        }


@keras.saving.register_keras_serializable(package="kerasmodels")
class BasicBlock(_ResidualBlock):
    """Two 3x3 convolutions and a shortcut: the block of ResNet-18, -34 and of the CIFAR nets.

    He et al. 2016, figure 5 left. Batch normalization (momentum 0.9, epsilon 1e-5) follows each
    convolution, which has no bias, and ReLU each normalization but the last; that one comes after
    the addition. Images of odd size are padded by one pixel on each side, as in PyTorch, not as in
    Keras, which pads right and below first.

    Args:
        filters: Of both convolutions.
        strides: Of the first convolution, and of the shortcut.
        shortcut: Section 3.3: `"A"` takes every so many pixels and adds channels of zeros behind,
            without a parameter; `"B"` projects by a 1x1 convolution where the shape changes; `"C"`
            projects everywhere; `None` leaves the shortcut out (a plain net).
        normalize_first: Whether normalization and ReLU stand before each convolution and nothing
            after the addition (the pre-activation of the second paper).
        zero_init: Whether the branch starts at zero, so that the block starts as its shortcut: the
            last gamma is zero, with `normalize_first` the last kernel.
        folded: Whether each normalization that follows a convolution has become the bias of that
            convolution, for inference.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to Keras's setting.
        **kwargs: `name`, `dtype`, `trainable`.

    Call arguments:
        inputs: `(batch, height, width, channels)`.
        training: Whether to normalize by the batch.

    Returns:
        `(batch, ceil(height / strides), ceil(width / strides), filters)`.

    Raises:
        ValueError: For an unknown shortcut, `filters` or `strides` that are not positive,
            `zero_init` without a shortcut, images that have not four axes, and for option A when
            the input has more channels than the output.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    block = layers.BasicBlock(32, strides=2, shortcut="A")
    y = block(keras.random.normal((1, 7, 7, 16)))  # (1, 4, 4, 32)
    ```
    """

    def _sizes(self):
        return [(self.filters, 3, self.strides), (self.filters, 3, 1)]


@keras.saving.register_keras_serializable(package="kerasmodels")
class BottleneckBlock(_ResidualBlock):
    """1x1, 3x3 and 1x1 convolutions and a shortcut: the block of ResNet-50, -101 and -152.

    He et al. 2016, figure 5 right. As `BasicBlock`, but the output has four times `filters`
    channels.

    Args:
        filters: Of the first two convolutions.
        strides: Of the convolution that `stride_in` names, and of the shortcut.
        shortcut: See `BasicBlock`.
        stride_in: `"1x1"`, the paper's place, where three of four pixels are never looked at, or
            `"3x3"`, the "v1.5" of PyTorch and of most published checkpoints.
        **kwargs: The other arguments of `BasicBlock`.

    Call arguments:
        inputs: `(batch, height, width, channels)`.
        training: Whether to normalize by the batch.

    Returns:
        `(batch, ceil(height / strides), ceil(width / strides), 4 * filters)`.

    Raises:
        ValueError: As `BasicBlock`, and for an unknown `stride_in`.

    Example:
    ```python
    import keras
    from kerasmodels import layers

    block = layers.BottleneckBlock(64, stride_in="3x3")
    y = block(keras.random.normal((1, 8, 8, 64)))  # (1, 8, 8, 256)
    ```
    """

    expansion = 4

    def __init__(self, filters, strides=1, shortcut="B", stride_in="1x1", **kwargs):
        if stride_in not in ("1x1", "3x3"):
            raise ValueError(
                "`stride_in` must be '1x1' (the paper) or '3x3' (v1.5). "
                f"Received: stride_in={stride_in!r}"
            )
        self.stride_in = stride_in
        super().__init__(filters, strides, shortcut, **kwargs)

    def _sizes(self):
        first, second = (self.strides, 1) if self.stride_in == "1x1" else (1, self.strides)
        return [(self.filters, 1, first), (self.filters, 3, second), (4 * self.filters, 1, 1)]

    def get_config(self):
        """The constructor's arguments."""
        return {**super().get_config(), "stride_in": self.stride_in}
