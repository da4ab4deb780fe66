"""Deep Residual Learning for Image Recognition.

Kaiming He, Xiangyu Zhang, Shaoqing Ren, Jian Sun, CVPR 2016, arXiv:1512.03385.

Implemented: the ImageNet nets of table 1 and the CIFAR-10 nets of section 4.2, with each of the
shortcuts A, B and C of section 3.3, and their plain counterparts. By arguments also the
pre-activation of the authors' second paper (Identity Mappings in Deep Residual Networks, ECCV 2016,
arXiv:1603.05027), the stride on the 3x3 convolutions ("v1.5"), and blocks that start as the
identity (Goyal et al. 2017).

Departures: any size of image and any number of channels. With pre-activation the first block's
identity takes its input as it is, where the second paper activates it first.
"""

import keras
import numpy as np
from keras import ops

from kerasmodels import checkpoints
from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.data_format import standardize_data_format
from kerasmodels.layers import (
    BasicBlock,
    BatchNormalization,
    BottleneckBlock,
    Conv2D,
    SymmetricMaxPooling2D,
)
from kerasmodels.listing import strings_of
from kerasmodels.models.base import BaseModel
from kerasmodels.models.resnet_checks import check_arguments, check_images, read_image_shape
from kerasmodels.models.resnet_sizes import DEFAULTS, SIZES, read_depth
from kerasmodels.training.checked_inputs import ChecksInputs
from kerasmodels.training.input_checks import check_labels

BLOCKS = {"basic": BasicBlock, "bottleneck": BottleneckBlock}


@keras.saving.register_keras_serializable(package="kerasmodels")
class ResNet(ChecksInputs, BaseModel):
    """A residual network: images in, logits or features out.

    Args:
        depth: The paper's number of layers: 18, 34, 50, 101 or 152 with the stem for ImageNet,
            6n + 2 with that for CIFAR (with bottlenecks 9n + 2, as in the second paper). Or the
            number of blocks of each stage; then `block` too.
        stem: `"imagenet"`: 7x7, stride 2, then a pooling with stride 2 (table 1). `"cifar"`: 3x3
            without stride (section 4.2), for images from 4 pixels on.
        block: `"basic"` or `"bottleneck"`. Defaults to the paper's for `depth`.
        filters: Of the blocks of each stage. Defaults to (64, 128, 256, 512) or (16, 32, 64).
        shortcut: `"A"`, `"B"` or `"C"` (section 3.3), `None` for the plain net, or `"paper"`: `"B"`
            for ImageNet and `"A"` for CIFAR.
        stride_in: Which convolution of a bottleneck block has the stride: `"1x1"` as in the paper,
            or `"3x3"` ("v1.5") as in most published checkpoints.
        normalize_first: Whether the blocks have pre-activation (the second paper).
        zero_init: Whether each block starts as its shortcut.
        image_shape: `(height, width, channels)`, or `(channels, height, width)` with
            `data_format="channels_first"`; height and width may be `None`, any size. Defaults to
            any size and 3 channels.
        include_top: Whether the output is logits. Otherwise it is features.
        num_classes: Number of classes. Defaults to that of `class_names`, else to 1000 for ImageNet
            and 10 for CIFAR.
        pooling: The output without top: `"avg"` or `"max"` over all pixels, or `None`, the last
            stage as it is.
        class_names: A name for each class, for `decode_predictions`.
        folded: Whether normalizations have become biases of the convolutions before them; see
            `fold_batch_normalization`.
        data_format: `"channels_last"` or `"channels_first"`. Defaults to Keras's setting.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Call arguments:
        inputs: Float images `(batch, height, width, channels)` as the recipe or the checkpoint
            wants them, usually normalized by a mean and a deviation a channel.

    Returns:
        float32 logits `(batch, num_classes)`. Without top, features in the compute dtype:
        `(batch, channels)`, or with `pooling=None` `(batch, height / 32, width / 32, channels)`,
        for CIFAR `height / 4`, rounded up.

    Raises:
        ValueError: For a depth that is not the paper's, an unknown stem, block, shortcut or
            `stride_in`, an image that is smaller than the net can halve, images of integers, or
            another number of class names than of classes.

    Example:
    ```python
    import keras
    from kerasmodels import models

    model = models.ResNet(20, stem="cifar")
    logits = model(keras.random.normal((2, 32, 32, 3)))  # (2, 10)
    model.count_params()  # 271098, of which 269722 are trained
    ```
    """

    companion_name = "preprocessor"

    @takes_numpy_numbers
    def __init__(
        self,
        depth,
        stem="imagenet",
        block=None,
        filters=None,
        shortcut="paper",
        stride_in="1x1",
        normalize_first=False,
        zero_init=False,
        image_shape=None,
        include_top=True,
        num_classes=None,
        pooling="avg",
        class_names=None,
        folded=False,
        data_format=None,
        dtype=None,
        name=None,
    ):
        blocks, kind = read_depth(depth, stem, block)
        filters_, shortcut_, classes_ = DEFAULTS[stem]
        filters = filters_ if filters is None else filters
        shortcut = shortcut_ if shortcut == "paper" else shortcut
        if num_classes is None:
            num_classes = len(class_names) if class_names else classes_
        check_arguments(blocks, filters, stride_in, pooling, include_top, num_classes, class_names)
        filters = tuple(filters)
        data_format = standardize_data_format(data_format)
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        common = dict(data_format=data_format, dtype=policy)
        shape, axis = read_image_shape(image_shape, data_format, stem, len(blocks))

        # === The stem ===
        images = keras.Input(shape, name="images")  # (batch, height, width, channels)
        norm_name = "norm" if normalize_first else "stem_norm"
        norm = None
        if normalize_first or not folded:
            norm = BatchNormalization(axis, dtype=policy, name=norm_name)
        relu = keras.layers.ReLU(dtype=policy, name=f"{norm_name}_relu")
        stem_convolution = Conv2D(
            filters[0],
            7 if stem == "imagenet" else 3,
            strides=2 if stem == "imagenet" else 1,
            padding="same",
            symmetric=True,
            use_bias=folded and not normalize_first,
            kernel_initializer="he_normal",
            name="stem_convolution",
            **common,
        )
        x = stem_convolution(images)
        if not normalize_first:
            x = relu(x if norm is None else norm(x))
        if stem == "imagenet":
            x = SymmetricMaxPooling2D(3, 2, name="stem_pool", **common)(x)
        levels = {"stem": x}

        # === The stages: each but the first halves the image ===
        block_arguments = dict(
            shortcut=shortcut,
            normalize_first=normalize_first,
            zero_init=zero_init,
            folded=folded,
            **common,
        )
        if kind == "bottleneck":
            block_arguments["stride_in"] = stride_in
        residual_blocks = []
        for stage, (width, count) in enumerate(zip(filters, blocks, strict=True), start=1):
            for i in range(count):
                layer = BLOCKS[kind](
                    width,
                    strides=2 if stage > 1 and i == 0 else 1,
                    name=f"stage{stage}_block{i}",
                    **block_arguments,
                )
                x = layer(x)
                residual_blocks.append(layer)
            levels[f"stage{stage}"] = x
        if normalize_first:
            levels[f"stage{len(blocks)}"] = x = relu(norm(x))

        # === The top ===
        classifier = None
        if include_top or pooling == "avg":
            x = keras.layers.GlobalAveragePooling2D(name="pool", **common)(x)
        elif pooling == "max":
            x = keras.layers.GlobalMaxPooling2D(name="pool", **common)(x)
        if include_top:
            classifier = keras.layers.Dense(
                num_classes, kernel_initializer="he_normal", dtype=policy, name="classifier"
            )
            x = classifier(x)
            if policy.compute_dtype != "float32":
                x = keras.layers.Activation("linear", dtype="float32", name="logits")(x)
        super().__init__(inputs=images, outputs=x, name=name)

        self.stem_convolution = stem_convolution
        self.stem_norm, self.norm = (None, norm) if normalize_first else (norm, None)
        self.blocks = residual_blocks
        self.classifier = classifier
        self.preprocessor = None  # of the images that a checkpoint was trained on
        self._levels = levels
        self._keep_arguments(
            policy,
            depth=depth,
            stem=stem,
            block=block,
            filters=filters,
            shortcut=shortcut,
            stride_in=stride_in,
            normalize_first=normalize_first,
            zero_init=zero_init,
            image_shape=shape,
            include_top=include_top,
            num_classes=num_classes,
            pooling=pooling,
            class_names=None if class_names is None else strings_of("class_names", class_names),
            folded=folded,
            data_format=data_format,
        )

    def __call__(self, inputs, *args, **kwargs):
        """Applies the model; see the class for the arguments."""
        # Here too: Keras prints all pixels below what is raised in `call`.
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """Applies the model; see the class for the arguments."""
        self._check(inputs)  # on JAX `fit` and `predict` begin here
        return super().call(inputs, training=training, mask=mask)

    @property
    def _instead_of_text(self):
        if self.preprocessor is not None:
            return "read image files by `model.preprocessor(paths)`"
        return (
            "read image files by the preprocessor of the model's checkpoint, by "
            "`checkpoints.ImageProcessor` or by `data.ImageFolder`"
        )

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        settings = self.image_shape, self.data_format, self.stem, len(self.filters)
        check_images(inputs, *settings)
        one_a_row = tuple(getattr(targets, "shape", (0, 0))[1:]) in ((), (1,))
        if self.include_top and self.num_classes > 1 and one_a_row:  # else one-hot, or numbers
            check_labels("y", targets, self.num_classes, loss=self._loss_of("y", loss))

    # === Features ===

    def feature_extractor(self, levels=None):
        """A model of the features between the stages, for detectors and captioners.

        Args:
            levels: Names of levels: `"stem"`, and `"stage1"` to the last stage. Defaults to all.

        Returns:
            A `keras.Model` of images that shares this one's weights; its output is a dictionary
            of features by level, each `(batch, height / n, width / n, channels)`: for ImageNet n is
            4, 4, 8, 16, 32, for CIFAR 1, 1, 2, 4. With pre-activation the last level comes after
            the last normalization and ReLU, the others are sums as they are.

        Raises:
            ValueError: For a level that the model has not.

        Example:
        ```python
        import keras
        from kerasmodels import models

        resnet = models.ResNet(18)
        extractor = resnet.feature_extractor(["stage3", "stage4"])
        images = keras.random.normal((1, 224, 224, 3))
        features = extractor(images)["stage4"]  # (1, 7, 7, 512)
        ```
        """
        names = list(self._levels) if levels is None else list(levels)
        unknown = [name for name in names if name not in self._levels]
        if unknown or not names:
            raise ValueError(
                f"`levels` must be names among {list(self._levels)}. Received: levels={levels}"
            )
        outputs = {name: self._levels[name] for name in names}
        return keras.Model(self.input, outputs, name=f"{self.name}_features")

    def layer_responses(self, images):
        """What every convolution of the blocks answers, for `plots.residual_responses`.

        Section 4.2, "Analysis of layer responses": after the normalization, before the
        non-linearity and the addition.

        Args:
            images: As the model takes them.

        Returns:
            A list of numpy arrays, from the first block to the last.
        """
        self._check(images)
        x, found = self.feature_extractor(["stem"])(images)["stem"], []
        for block in self.blocks:
            responses, x = block.responses(x)
            found += [ops.convert_to_numpy(response) for response in responses]
        return found

    # === Classes ===

    def decode_predictions(self, logits, top=5):
        """The most likely classes by name.

        Args:
            logits: `(batch, num_classes)`.
            top: Number of classes.

        Returns:
            For each image a list of pairs (name, probability), the likeliest first; without
            `class_names` the number stands for the name.

        Raises:
            ValueError: If the logits are not those of this model, or `top` is not positive.
        """
        logits = np.asarray(ops.convert_to_numpy(logits), "float64")
        if not self.include_top or logits.ndim != 2 or logits.shape[1] != self.num_classes:
            raise ValueError(
                f"`logits` must have the shape (batch, {self.num_classes}), from a model with "
                f"`include_top=True`. Received: shape={logits.shape}"
            )
        if top < 1:
            raise ValueError(f"`top` must be positive. Received: top={top}")
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = odds / odds.sum(axis=1, keepdims=True)
        names = self.class_names or list(range(self.num_classes))
        order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
        return [
            [(names[i], float(row[i])) for i in best]
            for row, best in zip(probabilities, order, strict=True)
        ]

    # === Inference ===

    def fold_batch_normalization(self):
        """A copy for inference, in which convolutions have taken in the normalizations after them.

        In inference gamma (x - mean) / sqrt(variance + epsilon) + beta is linear, so that kernel
        and bias of the convolution before can do it.

        Returns:
            A `ResNet` of the same outputs with fewer layers.

        Raises:
            ValueError: If it is folded already.
        """
        if self.folded:
            raise ValueError("The model's normalizations are folded already: `folded=True`")
        model = self.from_config({**self.get_config(), "folded": True})
        model.preprocessor = self.preprocessor
        weights = {v.path: v for v in model.weights}
        for variable in self.weights:
            if variable.path in weights:
                weights[variable.path].assign(variable.value)
        pairs = [] if self.normalize_first else [(self.stem_convolution, self.stem_norm)]
        for convolution, norm in sum((block.folds for block in self.blocks), pairs):
            gamma, beta, mean, variance = (
                ops.convert_to_numpy(v)
                for v in (norm.gamma, norm.beta, norm.moving_mean, norm.moving_variance)
            )
            scale = gamma / np.sqrt(variance + norm.epsilon)
            path = convolution.kernel.path
            weights[path].assign(ops.convert_to_numpy(convolution.kernel) * scale)
            weights[path.removesuffix("kernel") + "bias"].assign(beta - mean * scale)
        return model

    # === Saving ===

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a published model.

        Args:
            preset: A folder as transformers or timm writes it, `"hf://organisation/name"`
                (`"hf://microsoft/resnet-50"`, `"hf://timm/resnet50.a1_in1k"`), a file of weights
                with torchvision's names, or a size named in the paper: `"resnet_50"`,
                `"resnet_20_cifar"` and so on.
            load_weights: Whether to load the weights. The named sizes have none: say `False`.
            **kwargs: Constructor's arguments that replace the preset's. Another `num_classes` or
                other `class_names` than the checkpoint's ask for a new head, with the weights that
                it is initialized with; `include_top=False` leaves the head out. `depth`, `block`,
                `filters`, `stem`, `shortcut`, `normalize_first` and `folded` are the checkpoint's.

        Returns:
            The model. Its `preprocessor` is what the preset says about images, or `None`.

        Raises:
            FileNotFoundError: If a folder or one of its files is not there.
            ValueError: If the preset is of another family, of another net than the arguments say,
                or its tensors do not fit.
        """
        model = checkpoints.load_preset(
            cls, preset, checkpoints.resnet.FAMILY, SIZES, load_weights=load_weights, **kwargs
        )
        if model.preprocessor is not None:
            model.preprocessor.data_format = model.data_format
        return model

    def save_to_preset(self, folder, layout="transformers"):
        """Writes a folder that `from_preset` and the library of the layout read.

        It does not hold `pooling`, `zero_init` and the size of images: say them again on loading.

        Args:
            folder: Where to write; what was there before a failed save is still there after it.
            layout: `"transformers"` (for `ResNetForImageClassification`), or `"timm"`; the
                weights of the latter have torchvision's names, too.

        Raises:
            ValueError: If the library has no such net: another stem than ImageNet's, another
                shortcut than B, pre-activation, folded normalizations; for timm also the stride in
                the paper's place.
        """
        checkpoints.save_preset(self, folder, checkpoints.resnet.FAMILY, layout)
