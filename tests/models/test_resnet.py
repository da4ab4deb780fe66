"""Residual networks: the paper's table and counts, whole nets in numpy and against Keras's own."""

import json

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.layers import BottleneckBlock
from kerasmodels.models import ResNet
from tests.kit import (
    assert_close,
    assert_equal,
    backend,
    model_contracts,
    normal,
    randomize,
    to_numpy,
)
from tests.layers.test_residual import block_by_paper, convolve, normalize, relu


def tiny(**kwargs):
    """ImageNet's stem and four stages."""
    arguments = {"block": "basic", "filters": (4, 4, 4, 8), "num_classes": 5}
    return ResNet((1, 1, 1, 1), **{**arguments, **kwargs})


def tiny_cifar(**kwargs):
    """Of 8 layers."""
    arguments = {"depth": 8, "stem": "cifar", "filters": (3, 4, 6), "num_classes": 5}
    return ResNet(**{**arguments, **kwargs})


# A ReLU has a corner, so no finite differences. The least side is 32 pixels, or 4.
test_contracts = model_contracts(
    lambda **kw: tiny(class_names=list("abcde"), **kw),
    options={"numeric": False, "free": (0,), "output_dtype": "float32"},
    images=normal(2, 32, 32, 3),
)
test_contracts_cifar = model_contracts(
    lambda **kw: ResNet(
        [1, 1, 1],
        stem="cifar",
        block="bottleneck",
        filters=(2, 2, 3),
        normalize_first=True,
        include_top=False,
        pooling="max",
        image_shape=(8, None, 2),
        **kw,
    ),
    without=("half", "jit", "weights_file"),
    options={"numeric": False, "free": (0,)},
    images=normal(2, 8, 7, 2),
)


@pytest.fixture
def quick_draws(monkeypatch):
    """Kernels by numpy, since each backend's own draws of many millions take seconds."""
    rng = np.random.default_rng(0)

    def draw(self, shape, dtype=None):
        scale = np.float32(np.sqrt(2 / np.prod(shape[:-1])))
        return ops.convert_to_tensor(scale * rng.standard_normal(shape, "float32"))

    monkeypatch.setattr(keras.initializers.VarianceScaling, "__call__", draw)


def randomized(model):
    """All weights and averages away from their start."""
    randomize(model)
    rng = np.random.default_rng(5)
    for weight in model.non_trainable_weights:
        value = rng.normal(size=weight.shape)
        weight.assign(value if weight.name == "moving_mean" else 0.5 + value**2)
    return model


# === Table 1 and section 4.2 ===


@pytest.mark.parametrize(
    "depth,blocks,kind",
    [
        (18, [2, 2, 2, 2], "BasicBlock"),
        (50, [3, 4, 6, 3], "BottleneckBlock"),
        (20, [3, 3, 3], "BasicBlock"),
        (29, [3, 3, 3], "BottleneckBlock"),
    ],
)
def test_layers_of_the_paper(depth, blocks, kind):
    """As many weighted layers as the name says; the first block of each later stage halves."""
    stem = "cifar" if len(blocks) == 3 else "imagenet"
    block = "bottleneck" if kind == "BottleneckBlock" else "basic"
    shortcut = "B" if depth == 29 else "paper"  # A takes no channels away: 4 filters, then 1
    model = ResNet(depth, stem=stem, block=block, filters=[1] * len(blocks), shortcut=shortcut)
    names = [f"stage{s}_block{i}" for s, count in enumerate(blocks, 1) for i in range(count)]
    assert [block.name for block in model.blocks] == names
    assert {type(block).__name__ for block in model.blocks} == {kind}
    assert sum(len(layer.convolutions) for layer in model.blocks) + 2 == depth
    for block in model.blocks:
        first, second = block.convolutions[:2]
        halves = block.name.endswith("block0") and not block.name.startswith("stage1")
        assert first.strides == ((2, 2) if halves else (1, 1)) and second.strides == (1, 1)
        assert block.shortcut == ("A" if depth == 20 else "B")


def test_levels_of_the_paper():
    """Table 1's sizes of the output at 224 pixels, section 4.2's at 32; and of odd images."""
    for make, image, sides in (
        (tiny, 224, (56, 56, 28, 14, 7)),
        (tiny, 45, (12, 12, 6, 3, 2)),
        (tiny_cifar, 32, (32, 32, 16, 8)),
        (tiny_cifar, 7, (7, 7, 4, 2)),
    ):
        model = make(image_shape=(image, None, 1))
        found = model.feature_extractor().output
        assert list(found) == ["stem", *(f"stage{i}" for i in range(1, len(sides)))]
        widths = (model.filters[0], *model.filters)
        for level, side, width in zip(found.values(), sides, widths, strict=True):
            assert level.shape == (None, side, None, width)


def cifar_parameters(n, shortcut):
    """Of 6n + 2 layers on images of 3 channels in 10 classes, by hand; trainable ones."""
    convolutions = 9 * 3 * 16 + 2 * n * 9 * 16 * 16
    convolutions += 9 * 16 * 32 + (2 * n - 1) * 9 * 32 * 32
    convolutions += 9 * 32 * 64 + (2 * n - 1) * 9 * 64 * 64
    norms = 2 * 16 * (2 * n + 1) + 2 * 32 * 2 * n + 2 * 64 * 2 * n
    count = convolutions + norms + 64 * 10 + 10
    if shortcut in ("B", "C"):
        count += 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    if shortcut == "C":  # every other block too
        count += n * (16 * 16 + 2 * 16) + (n - 1) * (32 * 32 + 2 * 32 + 64 * 64 + 2 * 64)
    return count


@pytest.mark.parametrize("shortcut", ["A", "B", "C", None])
def test_parameters_of_cifar_nets(shortcut, quick_draws):
    """ResNet-20 with option A has 269,722, with B 272,474 (case C25); a plain net as many as A."""
    model = ResNet(20, stem="cifar", shortcut=shortcut)
    trainable = sum(int(np.prod(w.shape)) for w in model.trainable_weights)
    assert trainable == cifar_parameters(3, shortcut)
    known = {"A": 269_722, "B": 272_474, None: 269_722}
    assert trainable == known.get(shortcut, trainable)
    # Table 6: 1202 layers have 19.4 million.
    assert round(cifar_parameters(200, "A") / 1e6, 1) == 19.4


def test_parameters_of_a_plain_net(quick_draws):
    """The paper's without the projections, each with a normalization."""
    plain = ResNet(18, shortcut=None)
    count = sum(int(np.prod(w.shape)) for w in plain.trainable_weights)
    pairs = ((64, 128), (128, 256), (256, 512))
    assert count == 11_689_512 - sum(a * b + 2 * b for a, b in pairs)
    averages = sum(2 * w.shape[0] for w in plain.trainable_weights if w.name == "gamma")
    assert plain.count_params() == count + averages


# === Numbers ===


def net_by_paper(model, x, training=False):
    """Section 4.2 in numpy: logits, and the responses of the blocks' convolutions."""
    x, found = convolve(model.stem_convolution, x.astype("float64")), []
    x = x if model.stem_norm is None else relu(normalize(model.stem_norm, x, training))
    for block in model.blocks:
        responses, x = block_by_paper(block, x, training)
        found += responses
    x = x if model.norm is None else relu(normalize(model.norm, x, training))
    kernel, bias = (to_numpy(w.value) for w in model.classifier.weights)
    return x.mean((1, 2)) @ kernel + bias, found


@pytest.mark.parametrize(
    "kwargs", [{}, {"shortcut": None}, {"shortcut": "B", "normalize_first": True}]
)
def test_equals_numpy(kwargs):
    """The CIFAR nets as a whole, their plain counterparts, and pre-activation."""
    model, x = randomized(tiny_cifar(**kwargs)), normal(2, 9, 8, 3)
    expected, responses = net_by_paper(model, x)
    assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    found = model.layer_responses(x)
    assert len(found) == 6 and all(isinstance(response, np.ndarray) for response in found)
    assert_close(found, responses, rtol=1e-4, atol=1e-5)
    if not kwargs:
        expected = net_by_paper(model, x, training=True)[0]
        assert_close(model(x, training=True), expected, rtol=1e-4, atol=1e-4)


def test_equals_keras_applications(quick_draws):
    """Keras's ResNet-50 has the paper's stride, and biases that change nothing: they start at 0.

    Its epsilon is 1.001e-5, which is a choice and no weight: it takes ours for this.
    """
    theirs = keras.applications.ResNet50(
        weights=None, classifier_activation=None, input_shape=(64, 64, 3)
    )
    ours = ResNet(50, stride_in="1x1")
    rng = np.random.default_rng(1)

    def convolution(one, name):
        layer = theirs.get_layer(f"{name}_conv")
        assert layer.use_bias and not to_numpy(layer.bias.value).any()
        one.kernel.assign(to_numpy(layer.kernel.value))

    def norm(one, name):
        layer = theirs.get_layer(f"{name}_bn")
        assert layer.epsilon == 1.001e-5
        layer.epsilon = one.epsilon
        # The last gamma of a block is small, that numbers keep their size over 50 layers.
        gamma, beta, mean, variance = rng.normal(size=(4, *layer.gamma.shape))
        size = 0.2 if name.endswith("_3") else 1.0
        values = (size * (1 + 0.2 * gamma), 0.2 * beta, 0.2 * mean, 0.5 + variance**2)
        for value, a, b in zip(values, layer.variables, one.variables, strict=True):
            assert a.name == b.name
            a.assign(value)
            b.assign(value)

    convolution(ours.stem_convolution, "conv1")
    norm(ours.stem_norm, "conv1")
    for block in ours.blocks:
        stage, number = (int(part) for part in block.name[5:].split("_block"))
        name = f"conv{stage + 1}_block{number + 1}"
        for i in range(3):
            convolution(block.convolutions[i], f"{name}_{i + 1}")
            norm(block.norms[i], f"{name}_{i + 1}")
        if block.shortcut_convolution is not None:
            convolution(block.shortcut_convolution, f"{name}_0")
            norm(block.shortcut_norm, f"{name}_0")
    for one, other in zip(
        ours.classifier.variables, theirs.get_layer("predictions").variables, strict=True
    ):
        one.assign(to_numpy(other.value))
    x = normal(1, 64, 64, 3)
    logits = to_numpy(theirs(x))
    assert 0.1 < logits.std() < 10
    assert_close(ours(x), logits, rtol=1e-4, atol=1e-4)


def test_pre_activation_equals_keras_applications(quick_draws):
    """A whole stage of Keras's ResNet-50 v2.

    It halves the image in the last block of a stage, whose identity takes every second pixel: our
    option A without new channels.
    """
    theirs = keras.applications.ResNet50V2(weights=None, include_top=False)
    stage = keras.Model(
        theirs.get_layer("pool1_pool").output, theirs.get_layer("conv2_block3_out").output
    )
    rng = np.random.default_rng(1)
    x = normal(1, 9, 8, 64)
    expected = x
    common = {"stride_in": "3x3", "normalize_first": True}
    for number, (strides, shortcut) in enumerate(((1, "B"), (1, "B"), (2, "A")), start=1):
        block, name = BottleneckBlock(64, strides, shortcut, **common), f"conv2_block{number}"
        block.build(expected.shape)
        norms = [f"{name}_{part}_bn" for part in ("preact", "1", "2")]
        for one, other in zip(block.norms, norms, strict=True):
            other = stage.get_layer(other)
            other.epsilon = one.epsilon
            for a, b in zip(one.variables, other.variables, strict=True):
                value = 0.5 + rng.random(a.shape)
                a.assign(value)
                b.assign(value)
        convolutions = [*block.convolutions, block.shortcut_convolution]
        for one, part in zip(convolutions, "1230", strict=True):
            if one is not None:
                one.kernel.assign(to_numpy(stage.get_layer(f"{name}_{part}_conv").kernel.value))
        expected = to_numpy(block(expected))
    assert expected.shape == (1, 5, 4, 256)
    assert_close(expected, stage(x), rtol=1e-4, atol=1e-4)


def test_any_size_in_one_graph():
    """Free sides and batch; one channel; the same numbers channels first."""
    model = randomized(tiny(image_shape=(None, None, 1)))
    first = tiny(image_shape=(1, None, None), data_format="channels_first")
    assert [w.path for w in first.weights] == [w.path for w in model.weights]
    for one, other in zip(first.weights, model.weights, strict=True):
        one.assign(other.value)
    call = model
    if backend() == "tensorflow":
        import tensorflow as tf

        signature = [tf.TensorSpec((None, None, None, 1), tf.float32)]
        call = tf.function(model, input_signature=signature)
    for shape in ((2, 32, 33, 1), (1, 51, 40, 1)):
        x = normal(*shape)
        y = to_numpy(call(x))
        assert y.shape == (shape[0], 5) and np.abs(y).max() > 1e-2
        assert_close(first(x.transpose(0, 3, 1, 2)), y, rtol=1e-4, atol=1e-5)


# === Features ===


def test_feature_extractor():
    model, x = randomized(tiny_cifar()), normal(2, 9, 8, 3)
    features = to_numpy(model.feature_extractor()(x))
    assert set(features) == {"stem", "stage1", "stage2", "stage3"}
    assert_close(features["stage1"], model.blocks[0](features["stem"]), atol=1e-5)
    pooled = features["stage3"].mean((1, 2))
    assert_close(model.classifier(pooled), model(x), rtol=1e-4, atol=1e-5)
    # It shares the weights.
    extractor = model.feature_extractor(["stage2"])
    before = to_numpy(extractor(x)["stage2"])
    model.stem_convolution.kernel.assign(2 * to_numpy(model.stem_convolution.kernel.value))
    assert np.abs(to_numpy(extractor(x)["stage2"]) - before).max() > 1e-2
    for levels in (["stage4"], [], "stage1"):
        with pytest.raises(ValueError, match=r"\['stem', 'stage1', 'stage2', 'stage3'\]. Received"):
            model.feature_extractor(levels)


@pytest.mark.parametrize("normalize_first", [False, True])
def test_without_top(normalize_first):
    """Pooled over all pixels, or the last stage as it is, which is after a ReLU in both forms."""
    x, outputs = normal(2, 9, 8, 3), {}
    for pooling in ("avg", "max", None):
        keras.utils.set_random_seed(3)
        model = tiny_cifar(include_top=False, pooling=pooling, normalize_first=normalize_first)
        assert model.classifier is None
        outputs[pooling] = to_numpy(randomized(model)(x))
    features = outputs[None]
    assert features.shape == (2, 3, 2, 6) and features.min() == 0
    assert_close(outputs["avg"], features.mean((1, 2)))
    assert_close(outputs["max"], features.max((1, 2)))
    assert_close(model.feature_extractor(["stage3"])(x)["stage3"], features)


# === Classes ===


def test_decode_predictions():
    logits = np.log([[0.1, 0.2, 0.4, 0.2, 0.1], [0.6, 0.1, 0.1, 0.1, 0.1]]) + [[7.0], [1e4]]
    numbers = tiny_cifar()
    found = numbers.decode_predictions(ops.convert_to_tensor(logits), top=3)
    # Of equal ones the first.
    assert [[name for name, _ in row] for row in found] == [[2, 1, 3], [0, 1, 2]]
    assert_close(
        np.array([[p for _, p in row] for row in found]),
        np.array([[0.4, 0.2, 0.2], [0.6, 0.1, 0.1]]),
        atol=1e-3,
    )
    named = tiny_cifar(num_classes=None, class_names=["ant", "bee", "cat", "dog", "eel"])
    found = named.decode_predictions(logits)
    assert [name for name, _ in found[0]] == ["cat", "bee", "dog", "ant", "eel"]
    assert_close(sum(p for _, p in found[1]), 1.0)
    assert len(named.decode_predictions(logits, top=9)[0]) == 5
    headless = tiny_cifar(include_top=False)
    for model, bad, top, message in (
        (named, logits[:, :4], 5, r"shape \(batch, 5\).* Received: shape=\(2, 4\)"),
        (named, logits[0], 5, r"Received: shape=\(5,\)"),
        (headless, logits, 5, "`include_top=True`"),
        (named, logits, 0, "`top` must be positive. Received: top=0"),
    ):
        with pytest.raises(ValueError, match=message):
            model.decode_predictions(bad, top)


# === Inference ===


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"block": "bottleneck", "filters": (1, 1, 1, 2), "stride_in": "3x3", "shortcut": "C"},
        {"normalize_first": True},
    ],
)
def test_fold_batch_normalization(kwargs, tmp_path):
    """The same outputs to 1e-5 of their size, from fewer layers; and from a file."""
    model, x = randomized(tiny(**kwargs)), normal(2, 32, 33, 3)
    model.preprocessor = object()
    folded = model.fold_batch_normalization()
    assert folded.preprocessor is model.preprocessor
    expected = to_numpy(model(x))
    size = float(np.abs(expected).max())
    assert size > 0.1
    assert_close(folded(x), expected, rtol=0, atol=1e-5 * max(size, 1.0))
    if kwargs.get("normalize_first"):
        # Only what follows a convolution folds: the first of each block and the last stay.
        assert sum(w.name == "gamma" for w in folded.weights) == 5
    else:
        assert {w.name for w in folded.weights} == {"kernel", "bias"}
    assert folded.get_config() == {**model.get_config(), "folded": True}
    folded.save(tmp_path / "folded.keras")
    assert_equal(keras.saving.load_model(tmp_path / "folded.keras")(x), folded(x))
    with pytest.raises(ValueError, match="folded already"):
        folded.fold_batch_normalization()


# === Training ===


def test_zero_init_starts_as_the_shortcuts():
    """With option A and no new channels every second pixel of the stem's output is all there is."""
    x = normal(2, 9, 8, 3)
    for normalize_first in (False, True):
        model = tiny_cifar(filters=(3, 3, 3), zero_init=True, normalize_first=normalize_first)
        features = to_numpy(model.feature_extractor()(x))
        for level, step in (("stage1", 1), ("stage2", 2)):
            assert_equal(features[level], features["stem"][:, ::step, ::step])
    with pytest.raises(ValueError, match="`zero_init` needs a shortcut"):
        tiny_cifar(shortcut=None, zero_init=True)


def test_fit_moves_every_weight():
    """In training mode a gradient reaches every weight, and every average moves.

    With `zero_init` those of a branch move from the second step on.
    """
    net = {"depth": 11, "block": "bottleneck", "shortcut": "B", "filters": (2, 3, 4)}
    model = tiny_cifar(**net, zero_init=True)
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    before = [to_numpy(w.value).copy() for w in model.weights]
    history = model.fit(normal(12, 8, 8, 3), np.arange(12) % 5, batch_size=4, verbose=0)
    assert np.isfinite(history.history["loss"][0])
    for weight, value in zip(model.weights, before, strict=True):
        assert np.abs(to_numpy(weight.value) - value).max() > 1e-7, weight.path


def test_mixed_precision():
    """Logits are float32, features in the compute dtype; every layer has the policy."""
    model = tiny_cifar(dtype="mixed_bfloat16", zero_init=True, shortcut="B")
    x = normal(2, 8, 8, 3)
    assert model.dtype_policy.name == "mixed_bfloat16"
    assert keras.backend.standardize_dtype(model(x).dtype) == "float32"
    layers = [x for x in model._flatten_layers() if x.weights]
    assert {layer.dtype_policy.name for layer in layers} == {"mixed_bfloat16"}
    assert {w.dtype for w in model.weights} == {"float32"}
    feature = model.feature_extractor(["stage2"])(x)["stage2"]
    assert keras.backend.standardize_dtype(feature.dtype) == "bfloat16"
    keras.config.set_dtype_policy("mixed_float16")
    model = tiny_cifar()
    assert model.dtype_policy.name == "mixed_float16" and model.output.dtype == "float32"


def test_config_is_readable_and_complete():
    arguments = dict(
        depth=[1, 2],
        stem="cifar",
        block="bottleneck",
        filters=[2, 3],
        shortcut="C",
        stride_in="3x3",
        normalize_first=True,
        zero_init=True,
        image_shape=[8, None, 1],
        include_top=True,
        num_classes=2,
        pooling="max",
        class_names=["no", "yes"],
        folded=True,
        data_format="channels_last",
        name="reader",
    )
    model = ResNet(**arguments, dtype="mixed_bfloat16")
    config = json.loads(json.dumps(model.get_config()))
    assert {k: config[k] for k in arguments} == arguments
    again = ResNet.from_config(config)
    assert json.loads(json.dumps(again.get_config())) == config
    assert again.blocks[0].stride_in == "3x3" and again.blocks[0].shortcut == "C"
    assert model.class_names == ["no", "yes"]
    first = ResNet(8, "cifar", image_shape=(3, 8, 8), data_format="channels_first")
    assert {layer.data_format for layer in first.blocks} == {"channels_first"}


# === Bad input ===


@pytest.mark.parametrize(
    "kwargs,message",
    [
        (
            {"depth": 20},
            r"one of \[18, 34, 50, 101, 152\] .* take stem='cifar'. Received: depth=20",
        ),
        ({"depth": "50"}, "Received: depth='50'"),
        (
            {"depth": 21, "stem": "cifar"},
            r"6n \+ 2 with stem='cifar' and basic blocks \(20, .* Received: depth=21",
        ),
        ({"depth": 2, "stem": "cifar"}, "Received: depth=2"),
        ({"depth": 22, "stem": "cifar", "block": "bottleneck"}, r"9n \+ 2 .*164.* depth=22"),
        ({"block": "bottleneck"}, "has basic blocks.* Received: depth=18, block='bottleneck'"),
        ({"depth": (1, 0), "block": "basic"}, r"positive number of blocks.* depth=\(1, 0\)"),
        ({"depth": (1, 1)}, r"With the list depth=\(1, 1\) `block` must be given"),
        ({"stem": "mnist"}, "`stem` must be 'imagenet' or 'cifar'. Received: stem='mnist'"),
        ({"block": "wide"}, "`block` must be 'basic' or 'bottleneck'. Received: block='wide'"),
        ({"filters": (64, 128)}, r"for each stage. Received: filters=\(64, 128\) for 4 stages"),
        ({"filters": 64}, "filters=64 for 4 stages"),
        ({"shortcut": "D"}, r"None \(a plain net\). Received: shortcut='D'"),
        ({"shortcut": "A", "filters": (4, 2, 2, 2)}, "gives 2 channels, for an input of 4"),
        ({"stride_in": "7x7"}, r"'3x3' \(v1.5\). Received: stride_in='7x7'"),
        ({"image_shape": 32}, r"three sizes \(channels_last\). Received: image_shape=\(32,\)"),
        ({"image_shape": (32, 32, None)}, r"channels. Received: image_shape=\(32, 32, None\)"),
        ({"image_shape": (31, 32, 3)}, "at least 32 pixels .* takes smaller .* Received: 31 x 32"),
        ({"depth": 8, "stem": "cifar", "image_shape": (8, 3, 3)}, "at least 4 .* Received: 8 x 3"),
        ({"num_classes": 0}, "`num_classes` must be a positive integer. Received: num_classes=0"),
        ({"pooling": "mean"}, "`pooling` must be 'avg', 'max' or None. Received: pooling='mean'"),
        ({"class_names": ["a"], "num_classes": 2}, "Received: 1 names for num_classes=2"),
        ({"data_format": "NCHW"}, "Received: data_format='NCHW'"),
    ],
)
def test_bad_arguments(kwargs, message):
    with pytest.raises(ValueError, match=message):
        ResNet(**{"depth": 18, **kwargs})


def test_bad_images():
    """Said in a line, without the pixels; before the first layer, symbolic images too."""
    model, x = tiny_cifar(image_shape=(None, 8, 3)), normal(2, 8, 8, 3)
    raw = np.zeros((2, 8, 8, 3), "uint8")
    for images, message in (
        (raw, "must be floats, normalized as in training. Received: dtype=uint8"),
        (keras.KerasTensor((None, 8, 8, 3), "uint8"), "Received: dtype=uint8. For raw pixels put"),
        (x[0], r"the shape \(None, None, 8, 3\). Received: shape=\(8, 8, 3\)"),
        (x[None], r"Received: shape=\(1, 2, 8, 8, 3\)"),
        (x[..., :1], r"the shape \(None, None, 8, 3\). Received: shape=\(2, 8, 8, 1\)"),
        (keras.KerasTensor((None, 8, 8, 4)), r"Received: shape=\(None, 8, 8, 4\)"),
        (normal(2, 8, 9, 3), r"Received: shape=\(2, 8, 9, 3\)"),
        (x[:, :3], "at least 4 pixels a side .* stem='cifar' and 3 stages. Received: 3 x 8"),
        (x.tolist(), "must be one array or tensor.*Received: a list"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            model(images)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="Received: dtype=uint8"):
        model.layer_responses(raw)
    with pytest.warns(UserWarning, match="structure"):  # Keras's, which takes it all the same
        assert_equal(model({"images": x}), model(x))
    # Last, since JAX's trainer leaves a model empty after an error.
    with pytest.raises(ValueError, match="Received: dtype=uint8"):
        model.predict(raw, verbose=0)
