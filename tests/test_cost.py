"""What a model costs: against formulas of the papers, loops that count, and PyTorch's counter."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import layers, models, training
from kerasmodels.cost import LayerCost, ModelCost, model_cost
from kerasmodels.cost.calls import Call
from kerasmodels.cost.formulas import multiply_adds_of
from tests.kit import backend, normal, token_ids


def cost_of(layer, *shapes, **kwargs):
    """Of a functional model of one layer, batch 1."""
    inputs = [keras.Input(shape) for shape in shapes]
    return model_cost(keras.Model(inputs, layer(*inputs, **kwargs)))


@pytest.fixture
def no_draws(monkeypatch):
    """Weights of zero, since drawing many millions takes seconds."""

    def zeros(self, shape, dtype=None):
        return ops.zeros(shape, dtype=dtype)

    for initializer in (keras.initializers.VarianceScaling, keras.initializers.RandomNormal):
        monkeypatch.setattr(initializer, "__call__", zeros)


# === The models of the house ===


def test_transformer_base(no_draws):
    """Sections 3 and 5.1: 65M parameters, and the sizes of table 1 with the constants written out.

    Of b rows of n source and m target tokens: 4 d^2 of projections and 2 n d of attention in each
    encoder layer, twice that in a decoder layer, 2 d f in each feed-forward network, d V at the
    end.
    """
    model = models.Transformer(37000)
    b, n, m, d, f, layers_, vocabulary = 2, 7, 5, 512, 2048, 6, 37000
    shapes = {"encoder_token_ids": (b, n), "decoder_token_ids": (b, m)}
    cost = model_cost(model, shapes)
    assert cost.parameters == cost.trainable_parameters == 63_082_496
    encoder = n * (4 * d * d + 2 * n * d + 2 * d * f)
    cross = m * (2 * d * d + 2 * n * d) + n * 2 * d * d
    decoder = m * (4 * d * d + 2 * m * d) + cross + m * 2 * d * f
    assert cost.multiply_adds == b * (layers_ * (encoder + decoder) + m * d * vocabulary)
    assert cost.by_layer["embedding"] == (
        (b, m, vocabulary),
        vocabulary * d,
        b * m * d * vocabulary,
    )
    cross = cost.by_layer["decoder_block_5/cross_attention"]
    assert cross == LayerCost((b, m, d), 0, b * 2 * n * m * d)
    # An optional input may be given, and changes nothing.
    assert model_cost(model, {**shapes, "encoder_padding_mask": (b, n)}) == cost


def test_residual_network_of_keras(no_draws):
    """The paper's count for its first stride, by convolutions and classifier (3.8 x 10^9)."""
    cost = model_cost(keras.applications.ResNet50(weights=None))
    assert cost.multiply_adds == 3_857_973_248
    # Keras's convolutions have a bias for each filter; without them it is the paper's network.
    filters = sum(
        row.output_shape[-1] for path, row in cost.by_layer.items() if path.endswith("conv")
    )
    assert cost.trainable_parameters - filters == 25_557_032
    averages = 2 * filters
    assert cost.parameters == cost.trainable_parameters + averages


# Trainable parameters and multiply-adds of table 1 for images of 224 pixels, counted.
IMAGENET = {
    18: (11_689_512, 1_814_073_344),
    34: (21_797_672, 3_663_761_408),
    50: (25_557_032, 3_857_973_248),
    101: (44_549_160, 7_570_194_432),
    152: (60_192_808, 11_282_415_616),
}


@pytest.mark.parametrize("depth", IMAGENET)
def test_residual_networks(depth, no_draws):
    cost = model_cost(models.ResNet(depth), (1, 224, 224, 3))
    assert (cost.trainable_parameters, cost.multiply_adds) == IMAGENET[depth]


def test_small_residual_networks(no_draws):
    """Table 6 in millions, and option B; a convolution 3x3 on 32, 16 and 8 pixels is 9 c^2 each."""
    for depth, millions in ((20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)):
        cost = model_cost(models.ResNet(depth, "cifar"), (1, 32, 32, 3))
        assert round(cost.trainable_parameters / 1e6, 2 if depth < 110 else 1) == millions
        n = (depth - 2) // 6
        stage = 9 * (32 * 16) ** 2  # the same in each: half the pixels a side, twice the filters
        first = 32 * 32 * 9 * 3 * 16
        assert cost.multiply_adds == first + 3 * 2 * n * stage - 2 * stage // 2 + 64 * 10
    for shortcut, parameters in (("A", 269_722), ("B", 272_474)):
        model = models.ResNet(20, "cifar", shortcut=shortcut)
        assert model_cost(model, (1, 32, 32, 3)).trainable_parameters == parameters


def test_gan_is_its_networks_each_once():
    latent, kernel = 100, 25
    gan = models.GAN(
        models.dcgan_generator((28, 28, 1), latent), models.dcgan_discriminator((28, 28, 1)), latent
    )
    cost = model_cost(gan)
    # From a pixel to each tap of the next layer, or the other way about.
    generator = latent * 7 * 7 * 128 + 7 * 7 * 128 * kernel * 64 + 14 * 14 * 64 * kernel * 1
    discriminator = 14 * 14 * 64 * kernel * 1 + 7 * 7 * 128 * kernel * 64 + 7 * 7 * 128
    assert cost.multiply_adds == generator + discriminator
    assert cost == model_cost(gan, {"images": (1, 28, 28, 1)})
    assert {path.split("/")[0] for path in cost.by_layer} == {"generator", "discriminator"}
    assert cost.parameters == gan.count_params()
    assert model_cost(gan.generator).multiply_adds == generator
    three = {"images": (3, 28, 28, 1)}
    assert model_cost(gan.discriminator, three).multiply_adds == 3 * discriminator
    accumulation = training.GradientAccumulation(gan.discriminator, 2)
    accumulation.built = True
    assert model_cost(accumulation).multiply_adds == discriminator


def test_layers_of_the_house():
    assert cost_of(layers.Maxout(6, 3), (8,)).multiply_adds == 8 * 18
    assert cost_of(layers.FeedForward(16), (5, 8)).multiply_adds == 5 * 2 * 8 * 16
    assert cost_of(layers.PatchEmbedding(4, 10), (8, 8, 3)).multiply_adds == 4 * 48 * 10
    for free in (layers.ClassToken(), layers.PositionEmbedding(5), layers.LogitBias()):
        cost = cost_of(free, (5, 8))
        assert cost.parameters == free.count_params() > 0
        assert cost.multiply_adds == 0
    inputs = keras.Input((8,)), keras.Input((), dtype="int32")
    cost = model_cost(keras.Model(inputs, layers.LabelProjection(3)(*inputs)))
    assert cost.multiply_adds == 8 + 8  # w . h and v_y . h
    embedding = layers.TokenEmbedding(50, 8)
    ids = keras.Input((5,), dtype="int32")
    assert model_cost(keras.Model(ids, embedding(ids))).multiply_adds == 0
    hidden = embedding(ids)
    for _ in range(2):
        hidden = embedding(embedding(hidden, reverse=True)[..., 0])
    assert model_cost(keras.Model(ids, hidden)).multiply_adds == 2 * 5 * 8 * 50
    assert model_cost(keras.Model(ids, hidden)).parameters == 50 * 8


def test_attention():
    heads, key, value = 2, 3, 5
    layer = layers.MultiHeadAttention(heads, key, value, output_dim=7)
    cost = cost_of(layer, (6, 4), (9, 8))  # 6 queries of 4, 9 values of 8
    products = heads * 6 * 9 * (key + value)
    projections = heads * (6 * 4 * key + 9 * 8 * key + 9 * 8 * value + 6 * value * 7)
    assert cost.multiply_adds == products + projections
    layer = keras.layers.MultiHeadAttention(heads, key, output_shape=7)
    want = heads * key * (2 * 6 * 9 + 6 * 4 + 2 * 9 * 8 + 6 * 7)
    assert cost_of(layer, (6, 4), (9, 8)).multiply_adds == want
    layer = keras.layers.GroupQueryAttention(3, 4, 2)
    projections = 6 * 8 * 12 + 2 * 9 * 8 * 6 + 6 * 12 * 8
    assert cost_of(layer, (6, 8), (9, 8)).multiply_adds == projections + 4 * 6 * 9 * 2 * 3
    inputs = [keras.Input((6, 4)), keras.Input((9, 4))]
    for layer in (keras.layers.Attention(), keras.layers.AdditiveAttention()):
        assert model_cost(keras.Model(inputs, layer(inputs))).multiply_adds == 2 * 6 * 9 * 4


def test_windowed_attention_goes_by_blocks():
    """100 queries in 4 blocks of 32, each with 96 keys; with scores or across, all by all."""
    x, other = keras.Input((100, 8)), keras.Input((100, 8))
    projections = 4 * 100 * 8 * 8
    by_blocks, dense = 2 * 8 * 128 * 96, 2 * 8 * 100 * 100
    for want, value, options in (
        (by_blocks, x, {}),
        (by_blocks, x, dict(use_causal_mask=True)),
        (dense, x, dict(return_attention_scores=True)),
        (dense, x, dict(attention_mask=np.ones((1, 100, 100), bool))),
        (dense, other, {}),
    ):
        outputs = layers.MultiHeadAttention(2, 4, window=5)(x, value, **options)
        assert model_cost(keras.Model([x, other], outputs)).multiply_adds == projections + want


# === Convolutions, counted in loops ===


def count_convolution(sides, channels, filters, kernel, strides=1, padding="valid", **options):
    """One by one: for every output, filter and tap, each channel of the filter's group."""
    dilation, groups = options.get("dilation_rate", 1), options.get("groups", 1)
    reach = [dilation * (k - 1) for k in kernel]
    added = reach if padding in ("same", "causal") else [0] * len(kernel)
    places = [
        [at for at in range(0, n + more - far, strides)]
        for n, more, far in zip(sides, added, reach, strict=True)
    ]
    count = 0
    for _ in itertools.product(*places, *map(range, kernel), range(filters)):
        count += channels // groups
    return count


CONVOLUTIONS = [
    ((9,), 4, 6, (3,), dict(strides=2, padding="same")),
    ((9,), 4, 6, (3,), dict(dilation_rate=2, padding="causal", groups=2)),
    ((9, 8), 4, 6, (3, 2), dict(strides=2)),
    ((9, 8), 4, 6, (3, 2), dict(strides=3, padding="same", groups=2, use_bias=False)),
    ((9, 8), 4, 6, (3, 2), dict(dilation_rate=2)),
    ((5, 4, 6), 2, 3, (3, 2, 1), dict(strides=2, padding="same")),
]


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
def test_convolutions(data_format):
    x = total = 0
    models_ = []
    for sides, channels, filters, kernel, options in CONVOLUTIONS:
        layer = getattr(keras.layers, f"Conv{len(sides)}D")
        if data_format == "channels_first" and options.get("padding") == "causal":
            options = {**options, "padding": "valid"}  # Keras has no other
        shape = (*sides, channels) if data_format == "channels_last" else (channels, *sides)
        x = keras.Input(shape)
        y = layer(filters, kernel, data_format=data_format, **options)(x)
        models_.append((x, y))
        total += count_convolution(sides, channels, filters, kernel, **options)
    model = keras.Model(*zip(*models_, strict=True))
    cost = model_cost(model)
    assert cost.multiply_adds == total
    assert cost.parameters == model.count_params()


def test_other_convolutions():
    def places(n, k, stride):  # "valid"
        return len(range(0, n - k + 1, stride))

    x = keras.Input((9, 8, 4))
    at = places(9, 3, 2) * places(8, 3, 2)
    depthwise = keras.layers.DepthwiseConv2D(3, 2, depth_multiplier=5)
    assert model_cost(keras.Model(x, depthwise(x))).multiply_adds == at * 9 * 4 * 5
    separable = keras.layers.SeparableConv2D(6, 3, 2, depth_multiplier=5)
    assert model_cost(keras.Model(x, separable(x))).multiply_adds == at * (9 * 4 * 5 + 4 * 5 * 6)
    at, sequence = places(9, 3, 1), keras.Input((9, 4))
    depthwise = keras.layers.DepthwiseConv1D(3)
    assert model_cost(keras.Model(sequence, depthwise(sequence))).multiply_adds == at * 3 * 4
    separable = keras.layers.SeparableConv1D(6, 3)
    assert model_cost(keras.Model(sequence, separable(sequence))).multiply_adds == at * 4 * (3 + 6)
    for layer in (keras.layers.Conv2DTranspose, layers.Conv2DTranspose):
        y = layer(6, 5, strides=2, padding="same")(x)
        assert model_cost(keras.Model(x, y)).multiply_adds == 9 * 8 * 4 * 25 * 6
    y = layers.Conv2D(6, 5, strides=2, padding="same")(x)
    assert model_cost(keras.Model(x, y)).multiply_adds == 5 * 4 * 4 * 25 * 6
    y = keras.layers.Conv1DTranspose(6, 5, strides=2)(sequence)
    assert model_cost(keras.Model(sequence, y)).multiply_adds == 9 * 4 * 5 * 6


# === Recurrent layers and other loops ===


@keras.saving.register_keras_serializable(package="tests")
class Cell(keras.layers.Layer):
    """A cell made of other layers."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = self.output_size = units
        self.input_dense = keras.layers.Dense(units)
        self.inner = keras.layers.GRUCell(units)

    def build(self, inputs_shape):
        self.input_dense.build(inputs_shape)
        self.inner.build((None, self.units))

    def call(self, inputs, states):
        outputs, states = self.inner(self.input_dense(inputs), states)
        return outputs, states


def test_recurrent_layers():
    steps, width, units, rows = 7, 3, 5, 2
    x = keras.Input((None, width), name="x")
    one = units * (width + units)
    two = units * (units + units)
    cells = [keras.layers.LSTMCell(units), keras.layers.GRUCell(units)]
    for layer, each in (
        (keras.layers.LSTM(units, return_sequences=True), 4 * one),
        (keras.layers.GRU(units, reset_after=False), 3 * one),
        (keras.layers.SimpleRNN(units, unroll=False, return_state=True), one),
        (keras.layers.Bidirectional(keras.layers.LSTM(units)), 8 * one),
        (keras.layers.RNN(cells), 4 * one + 3 * two),
        (keras.layers.RNN(Cell(units)), width * units + 3 * two),
        (keras.layers.TimeDistributed(keras.layers.Dense(units)), width * units),
        (keras.layers.TimeDistributed(layers.Maxout(units, 2)), width * units * 2),
    ):
        model = keras.Model(x, layer(x))
        cost = model_cost(model, (rows, steps, width))
        assert cost.multiply_adds == rows * steps * each, layer
        assert cost.parameters == model.count_params(), layer
        assert all(row.output_shape is not None for row in cost.by_layer.values())
    images = keras.Input((4, 6, 6, 3))
    y = keras.layers.TimeDistributed(keras.layers.TimeDistributed(keras.layers.Dense(2)))(images)
    assert model_cost(keras.Model(images, y)).multiply_adds == 4 * 6 * 6 * 3 * 2


# === Models in models, products without layers ===


def test_models_in_models_and_what_is_called_twice():
    inner = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, name="a")], name="inner")
    shared = keras.layers.Dense(8, use_bias=False, name="shared")
    x, y = keras.Input((8,), name="x"), keras.Input((8,), name="y")
    join = keras.layers.Add()([shared(inner(x)), shared(inner(inner(y)))])
    cost = model_cost(keras.Model([x, y], keras.layers.Dense(1, name="last")(join)))
    assert cost.by_layer == {
        "inner/a": ((1, 8), 72, 3 * 64),
        "shared": ((1, 8), 64, 2 * 64),
        "last": ((1, 1), 9, 8),
    }
    assert (cost.parameters, cost.multiply_adds) == (145, 5 * 64 + 8)
    shared.trainable = False
    assert model_cost(shared, (3, 4, 8)) == cost_like(shared, (3, 4, 8), 64, 0, 12 * 64)
    assert model_cost(inner).by_layer == {"a": ((1, 8), 72, 64)}


def cost_like(layer, shape, parameters, trainable, multiply_adds):
    row = LayerCost(shape, parameters, multiply_adds)
    return ModelCost(parameters, trainable, multiply_adds, {layer.name: row})


def test_layer_by_argument():
    block = layers.TransformerDecoderBlock(2, 16)
    x, memory = normal(1, 5, 8), normal(1, 7, 8)
    block(x, memory)
    cost = model_cost(block, {"decoder_sequence": (2, 5, 8), "encoder_sequence": (2, 7, 8)})
    attention = 5 * (4 * 64 + 2 * 5 * 8) + 5 * (2 * 64 + 2 * 7 * 8) + 7 * 2 * 64
    assert cost.multiply_adds == 2 * (attention + 5 * 2 * 8 * 16)


def test_products():
    x, y = keras.Input((5, 4)), keras.Input((4, 6))
    shape = (2, 5, 4)

    def count(outputs):
        return model_cost(keras.Model([x, y], outputs)).multiply_adds

    assert count(ops.matmul(x, y)) == count(x @ y) == 5 * 4 * 6
    assert count(ops.einsum("bij,bjk->bki", x, y)) == 5 * 4 * 6
    assert count([ops.einsum("bij->bji", x), y]) == 0
    assert count(keras.layers.Dot((2, 1))([x, y])) == 5 * 4 * 6
    for equation, output in (("abc,cde->abde", (None, 2, 3)), ("...c,cde->...de", (2, 3))):
        layer = keras.layers.EinsumDense(equation, output)
        layer.build((None, 5, 4))
        assert model_cost(layer, shape).multiply_adds == 2 * 5 * 4 * 6
    heads = keras.Input((5, 2, 4))
    attend = ops.dot_product_attention(heads, heads, heads)
    assert model_cost(keras.Model(heads, attend)).multiply_adds == 2 * 5 * 5 * (4 + 4)
    with pytest.raises(ValueError, match="two operands"):
        count(ops.einsum("bij,bjk,bkl->bil", x, y, ops.ones((1, 6, 2))))
    with pytest.raises(ValueError, match="Tensordot"):
        count(ops.tensordot(x, y, axes=[[2], [1]]))


# === Layers that nobody knows ===


class Scaled(keras.layers.Layer):
    """A product that `model_cost` cannot know."""

    def build(self, inputs_shape):
        self.matrix = self.add_weight(shape=(inputs_shape[-1], 3), name="matrix")

    def call(self, inputs):
        return ops.matmul(inputs, self.matrix)


class Known(Scaled):
    def multiply_adds(self, arguments, outputs):
        return math.prod(arguments["inputs"].shape) * outputs.shape[-1]


class Around(keras.layers.Layer):
    """Calls one layer and looks into another."""

    def __init__(self, inner, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.unused = inner, keras.layers.Dense(4, name="unused")

    def build(self, inputs_shape):
        self.inner.build(inputs_shape)
        self.unused.build(inputs_shape)

    def call(self, inputs):
        return self.inner(inputs)


def test_unknown_layers():
    before = keras.Operation.__call__
    with pytest.raises(ValueError, match=r"'odd'.*Scaled.*matrix.*multiply_adds"):
        cost_of(Scaled(name="odd"), (5, 4))
    with pytest.raises(ValueError, match="ConvLSTM1D"):
        cost_of(keras.layers.ConvLSTM1D(2, 3), (4, 6, 3))
    with pytest.warns(UserWarning, match="unused"):
        cost = cost_of(Around(Known(name="known")), (5, 4))
    assert cost.multiply_adds == 5 * 4 * 3
    assert cost.parameters == 4 * 3 + 4 * 4 + 4
    (unused,) = [row for path, row in cost.by_layer.items() if path.endswith("unused")]
    assert unused == (None, 20, 0)
    assert "not called" in str(cost)
    twins = Around(keras.layers.Dense(4, name="unused"), name="around")
    with pytest.warns(UserWarning, match="unused"):
        cost = cost_of(twins, (5, 4))
    assert list(cost.by_layer) == ["around/unused", "around/unused (2)"]
    call = Call("somewhere", twins.inner, {"inputs": keras.KerasTensor((None, 4))}, None)
    with pytest.raises(ValueError, match=r"'somewhere'.*\(None, 4\)"):
        multiply_adds_of(call)
    assert keras.Operation.__call__ is before


def test_an_error_in_the_model_leaves_keras_as_it_was():
    class Broken(keras.layers.Layer):
        def call(self, inputs):
            raise RuntimeError("broken")

    before = keras.Operation.__call__
    layer = Broken()
    layer.built = True
    with pytest.raises(RuntimeError, match="broken"):
        model_cost(layer, (1, 2))
    assert keras.Operation.__call__ is before


# === Bad input ===


def test_bad_shapes():
    ids = [keras.Input((None,), dtype="int32", name=f"{side}_ids") for side in ("source", "target")]
    mask = keras.Input((None,), dtype="bool", name="mask", optional=True)
    embedding = keras.layers.Embedding(10, 4)
    model = keras.Model([*ids, mask], [embedding(x) for x in ids])
    both = {"source_ids": (1, 3), "target_ids": (1, 4)}
    assert model_cost(model, both).parameters == 40
    for shapes, match in (
        (None, r"free dimensions.*source_ids \(None, None\), target_ids \(None, None\)"),
        ({"source_ids": (1, 3)}, r"first: target_ids \(None, None\)"),
        ((1, 3), r"dictionary.*source_ids.*\(1, 3\)"),
        ({**both, "ids": (1, 3)}, r"names.*source_ids.*'ids'"),
        ({**both, "source_ids": (3,)}, r"'source_ids'.*\(None, None\).*\(3,\)"),
        ({**both, "source_ids": (2, 3)}, r"one batch.*\(2, 3\)"),
        ({**both, "source_ids": (None, 3)}, r"positive.*source_ids=\(None, 3\)"),
        ({**both, "source_ids": (1, 0)}, r"positive.*source_ids=\(1, 0\)"),
    ):
        with pytest.raises(ValueError, match=match):
            model_cost(model, shapes)
    dense = keras.layers.Dense(3)
    with pytest.raises(ValueError, match="built"):
        model_cost(dense, (1, 4))
    dense.build((None, 4))
    with pytest.raises(ValueError, match="input_shapes"):
        model_cost(dense)
    with pytest.raises(ValueError, match="`model`"):
        model_cost("resnet50")


def test_table():
    inputs = keras.Input((4,))
    outputs = keras.layers.Dense(1000, name="dense")(inputs)
    outputs = keras.layers.BatchNormalization(name="norm")(outputs)
    assert str(model_cost(keras.Model(inputs, outputs))).split("\n") == [
        "layer      output shape  parameters  multiply-adds",
        "dense      (1, 1000)          5,000          4,000",
        "norm       (1, 1000)          4,000              0",
        "total                         9,000          4,000",
        "trainable                     7,000",
    ]


# === PyTorch's own count ===


@pytest.mark.skipif(backend() != "torch", reason="PyTorch counts its own operations")
@pytest.mark.parametrize("kind", ["convolutions", "transformer", "windowed", "recurrent"])
def test_as_pytorch_counts(kind):
    import torch
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    if kind == "convolutions":
        x = keras.Input((12, 10, 3))
        y = keras.layers.Conv2D(8, 3, strides=2, padding="same")(x)
        y = keras.layers.BatchNormalization()(y)
        y = keras.layers.Conv2D(8, 3, groups=2, dilation_rate=2, padding="same")(y)
        y = keras.layers.SeparableConv2D(6, 3, padding="same", depth_multiplier=2)(y)
        y = layers.Conv2DTranspose(4, 5, strides=2, padding="same")(y)
        y = keras.layers.Dense(5)(keras.layers.GlobalAveragePooling2D()(y))
        model, shapes, inputs = keras.Model(x, y), (2, 12, 10, 3), normal(2, 12, 10, 3)
    elif kind == "recurrent":
        x = keras.Input((6, 3))
        y = keras.layers.Bidirectional(keras.layers.GRU(4, return_sequences=True))(x)
        model = keras.Model(x, keras.layers.LSTM(5)(y))
        shapes, inputs = (2, 6, 3), normal(2, 6, 3)
    elif kind == "windowed":
        x = keras.Input((70, 8))
        model = keras.Model(x, layers.MultiHeadAttention(2, 4, window=3)(x, x))
        shapes, inputs = (2, 70, 8), normal(2, 70, 8)
    else:
        sizes = dict(num_layers=2, num_heads=2, hidden_dim=8, intermediate_dim=16)
        model = models.Transformer(11, **sizes)
        inputs = {
            "encoder_token_ids": token_ids(2, 7),
            "encoder_padding_mask": np.ones((2, 7), bool),
            "decoder_token_ids": token_ids(2, 5),
            "decoder_padding_mask": np.ones((2, 5), bool),
        }
        shapes = {name: x.shape for name, x in inputs.items()}
    # The kernel of the CPU is not among those it knows.
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    known = {kernel: lambda query, key, value, **kwargs: sdpa_flop_count(query, key, value)}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        model(inputs)
    assert 2 * model_cost(model, shapes).multiply_adds == counter.get_total_flops()
