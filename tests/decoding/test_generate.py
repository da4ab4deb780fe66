import gc
import weakref

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels import decoding
from kerasmodels.decoding import compiled
from kerasmodels.decoding.inputs import round_up
from tests.decoding import toys


class Weighted:
    """A decoder with weights: the mean of the source's embeddings, and the last token's."""

    max_sequence_length = 10
    vocabulary_size = (20, 7)

    def __init__(self, seed=0):
        self.layers = [
            keras.layers.Embedding(
                size, 7, embeddings_initializer=keras.initializers.RandomNormal(0, 2, seed + size)
            )
            for size in self.vocabulary_size
        ]
        for layer in self.layers:
            layer.build((None, None))

    def start(self, inputs, max_length):
        assert max_length <= self.max_sequence_length
        mask = ops.cast(inputs["encoder_padding_mask"], "float32")[..., None]
        places = ops.arange(1, inputs["encoder_token_ids"].shape[1] + 1, dtype="float32")[:, None]
        x = self.layers[0](inputs["encoder_token_ids"]) * mask / places
        return {"source": ops.sum(x, axis=1)}

    def step(self, token_ids, state, index):
        return state["source"] + self.layers[1](token_ids), state

    def expected(self, source, length):
        table, last = (ops.convert_to_numpy(layer.embeddings) for layer in self.layers)
        context = sum(table[token] / (i + 1) for i, token in enumerate(source))
        tokens = [1]
        while len(tokens) <= length and (len(tokens) == 1 or tokens[-1] != 2):
            tokens.append(int((context + last[tokens[-1]]).argmax()))
        return tokens[1:] + [0] * (length + 1 - len(tokens))


def test_padding_on_both_sides():
    decoder = Weighted()
    ids = np.array([[0, 0, 5, 6, 7, 0], [4, 9, 3, 8, 0, 0], [0, 0, 0, 0, 0, 11]])
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": (ids > 0).astype("int32"),
        "decoder_token_ids": np.zeros((3, 1)),  # of no concern here
    }
    found = decoding.generate(decoder, inputs, max_length=6)
    for row, tokens in zip(found, ids, strict=True):
        np.testing.assert_array_equal(row, decoder.expected(tokens[tokens > 0], 6))
    # Without a mask every position counts; tensors do as well as arrays.
    inputs = {"encoder_token_ids": ops.convert_to_tensor(ids), "encoder_padding_mask": None}
    found = decoding.generate(decoder, inputs, max_length=6)
    np.testing.assert_array_equal(found, [decoder.expected(tokens, 6) for tokens in ids])


def test_default_length_is_within_positions():
    ids = decoding.generate(Weighted(), {"encoder_token_ids": np.array([[5, 6]])})
    assert ids.shape == (1, 10)
    decoder = Weighted()
    decoder.max_sequence_length = None
    decoder.start = lambda inputs, max_length: {"source": ops.zeros((1, 7))}
    ids = decoding.generate(decoder, {"encoder_token_ids": np.array([[5, 6]])})
    assert ids.shape == (1, 52)  # section 6.1 of the paper: the source's length plus 50


def test_programs_are_shared_and_follow_the_weights():
    decoder = Weighted()

    def check(rows, length, max_length):
        ids = np.random.default_rng(0).integers(3, 20, (rows, length))
        found = decoding.generate(decoder, {"encoder_token_ids": ids}, max_length=max_length)
        np.testing.assert_array_equal(found, [decoder.expected(row, max_length) for row in ids])
        return len(compiled._programs[id(decoder)])

    assert check(3, 4, 5) == 1
    assert check(3, 7, 8) == 1  # 8 and 8, all the same
    assert check(7, 7, 8) == 2
    assert check(8, 5, 6) == 2
    for layer in decoder.layers:
        layer.set_weights([-weight for weight in layer.get_weights()])
    assert check(3, 4, 5) == 2
    # Other variables in the place of these: another program.
    decoder.layers = Weighted(seed=5).layers
    assert check(3, 4, 5) == 3


def test_hidden_variables():
    class Hidden:
        def __init__(self):
            layer = keras.layers.Dense(4)
            layer.build((None, 1))
            self.call = lambda x: layer(x)
            self.weight = layer.kernel

        def start(self, inputs, max_length):
            return []

        def step(self, token_ids, state, index):
            return self.call(ops.ones((token_ids.shape[0], 1))), state

    decoder = Hidden()
    if keras.backend.backend() == "jax":  # its program could not see the bias change
        with pytest.raises(ValueError, match="`variables`.*bias"):
            decoding.generate(decoder, np.zeros((1, 1)), max_length=1)
    else:
        for best in (1, 3):
            decoder.weight.assign(np.eye(4)[best : best + 1])
            assert decoding.generate(decoder, np.zeros((1, 1)), max_length=1)[0, 0] == best


def test_programs_go_with_their_decoder():
    def generated():  # a frame of its own: whoever looks at its variables keeps them alive
        decoder = Weighted()
        decoding.generate(decoder, {"encoder_token_ids": np.array([[5, 6]])}, max_length=3)
        assert id(decoder) in compiled._programs
        return id(decoder), weakref.ref(decoder)

    number, gone = generated()
    gc.collect(2)
    assert gone() is None and number not in compiled._programs


def test_change_of_dtype_is_seen():
    inputs = keras.Input((), dtype="int32")
    model = keras.Model(inputs, keras.layers.Dense(4)(keras.layers.Embedding(6, 3)(inputs)))

    class Model:
        def __init__(self):
            self.model = model

        def start(self, inputs, max_length):
            return []

        def step(self, token_ids, state, index):
            return self.model(token_ids), state

    decoder = Model()
    for policy in ("float32", "mixed_bfloat16"):
        model.layers[2].dtype_policy = policy
        scores = decoding.generate(decoder, np.zeros((1, 1)), max_length=1, return_scores=True)[1]
        logits = ops.convert_to_numpy(ops.cast(model(np.array([1])), "float32"))
        expected = logits.max() - np.log(np.exp(logits).sum())
        np.testing.assert_allclose(scores, expected, atol=1e-5)


@pytest.mark.parametrize(
    "search", [decoding.GreedySearch(), decoding.BeamSearch(3), decoding.Sampling(seed=2)]
)
def test_compiled_equals_plain(search):
    # A vocabulary that takes more than one chunk.
    decoder = toys.HistoryDecoder(3, vocabulary=2500, spread=3.0, shared=True)
    inputs = {"source": np.arange(3)}
    compiled_ids, compiled_scores = search(decoder, inputs, 5, return_scores=True)
    if keras.backend.backend() == "jax":  # traced within the program of another
        import jax

        noise = search.noise(3, 5)
        run = jax.jit(lambda x: decoding.generate_tensors(decoder, x, search, 5, noise=noise))
        ids, scores = run(inputs)
    else:
        ids, scores = search(decoder, inputs, 5, return_scores=True, jit_compile=False)
    np.testing.assert_array_equal(compiled_ids, ids)
    np.testing.assert_allclose(compiled_scores, scores, atol=1e-5)


def test_decoder_that_cannot_be_traced():
    # On PyTorch a decoder may look at values; the loop then runs as it is written.
    if keras.backend.backend() != "torch":
        return

    class Looks(toys.TableDecoder):
        def step(self, token_ids, state, index):
            if index == 1:
                token_ids = token_ids * 0 + 4
            logits = self.table[np.asarray(token_ids)]
            return ops.convert_to_tensor(logits), state

    table = np.eye(5)[[3, 3, 3, 0, 1]]
    ids = decoding.generate(Looks(table), np.zeros((2, 1)), max_length=4)
    np.testing.assert_array_equal(ids, [[3, 1, 3, 0]] * 2)


def test_tensors_within_a_graph():
    # As an exported model holds it: batch and source length are not known when it is traced.
    ids = np.array([[0, 5, 6, 7], [4, 9, 3, 0], [11, 12, 0, 0]], "int32")
    beam = decoding.BeamSearch(2, num_return=2)

    class Dynamic(Weighted):
        def start(self, inputs, max_length):
            mask = ops.cast(inputs["encoder_padding_mask"], "float32")[..., None]
            places = ops.cumsum(ops.ones_like(mask), axis=1)
            x = self.layers[0](inputs["encoder_token_ids"]) * mask / places
            return {"source": ops.sum(x, axis=1)}

    decoder, forced = Dynamic(), decoding.TokenRules(forced_end=True)

    def function(ids, mask):
        inputs = {"encoder_token_ids": ids, "encoder_padding_mask": mask}
        return decoding.generate_tensors(decoder, inputs, beam, max_length=5, rules=forced)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        specs = [tf.TensorSpec((None, None), "int32"), tf.TensorSpec((None, None), "bool")]
        function = tf.function(function, input_signature=specs, autograph=False)
    elif keras.backend.backend() == "jax":
        import jax

        symbols = jax.export.symbolic_shape("b, s")
        exported = jax.export.export(jax.jit(function))(
            jax.ShapeDtypeStruct(symbols, "int32"), jax.ShapeDtypeStruct(symbols, "bool")
        )
        function = exported.call
    for rows in (3, 2):
        part = ids[:rows]
        found = function(ops.convert_to_tensor(part), ops.convert_to_tensor(part > 0))
        expected = decoding.generate(
            decoder,
            {"encoder_token_ids": part, "encoder_padding_mask": part > 0},
            beam,
            max_length=5,
            return_scores=True,
            rules=forced,
        )
        np.testing.assert_array_equal(ops.convert_to_numpy(found[0]), expected[0])
        np.testing.assert_allclose(ops.convert_to_numpy(found[1]), expected[1], atol=1e-5)


def test_round_up():
    assert [round_up(n) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 100)] == [
        *(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128)
    ]
    assert [round_up(n, least=8) for n in (1, 8, 9, 48)] == [8, 8, 12, 48]


TABLE = np.full((7, 7), 1 / 7)
SOURCE = {"encoder_token_ids": np.array([[5, 6]])}


def source(ids, mask=None):
    return {"encoder_token_ids": ids, "encoder_padding_mask": mask}


@pytest.mark.parametrize(
    ("inputs", "arguments", "message"),
    [
        (SOURCE, {"max_length": 0}, "max_length.*>= 1.*max_length=0"),
        (SOURCE, {"max_length": -1}, "max_length"),
        (SOURCE, {"max_length": 2.5}, "max_length"),
        (SOURCE, {"max_length": 11}, "max_length.*at most 10.*11"),
        (SOURCE, {"search": "greedy"}, "search.*'greedy'"),
        (SOURCE, {"search": decoding.BeamSearch(8)}, "num_beams.*7.*num_beams=8"),
        (SOURCE, {"rules": decoding.TokenRules(end_id=7)}, "end_id.*7"),
        (SOURCE, {"rules": decoding.TokenRules(start_id=8)}, "start_id.*8"),
        (SOURCE, {"rules": decoding.TokenRules(suppress_ids=[3, 9])}, "suppress_ids.*9"),
        (SOURCE, {"rules": {"end_id": 3}}, "rules.*TokenRules.*'end_id': 3"),
        (source(np.zeros((0, 3), int)), {}, "encoder_token_ids.*at least one row"),
        (source(np.zeros((2, 0), int)), {}, "encoder_token_ids.*one token"),
        (source(np.zeros((2,), int)), {}, "encoder_token_ids.*shape"),
        (source(np.zeros((2, 3))), {}, "encoder_token_ids.*integers"),
        (source(np.array([[5, 20]])), {}, r"encoder_token_ids.*\[0, 20\).*20"),
        (source(np.array([[5, -1]])), {}, "encoder_token_ids.*-1"),
        (source(np.array([[5, 1]]), np.ones((1, 3))), {}, "encoder_padding_mask.*shape"),
        (source(np.array([[5, 1]]), np.ones((2,))), {}, "encoder_padding_mask.*shape"),
        (source(np.array([[5, 1]]), np.array([[2, 1]])), {}, "encoder_padding_mask.*0/1"),
        (source(np.array([[5], [1]]), np.array([[1], [0]])), {}, r"encoder_padding_mask.*\[1\]"),
        (source(np.ones((1, 11), int)), {}, "encoder_token_ids.*at most 10.*11"),
    ],
)
def test_bad_input(inputs, arguments, message):
    with pytest.raises(ValueError, match=message):
        decoding.generate(Weighted(), inputs, **{"max_length": 3, **arguments})


def test_bad_input_of_any_decoder():
    decoder = toys.TableDecoder(TABLE)
    with pytest.raises(ValueError, match="max_length"):
        decoding.generate(decoder, np.zeros((2, 1)))
    with pytest.raises(ValueError, match="at least one row"):
        decoding.generate(decoder, np.zeros((0, 1)), max_length=3)
    with pytest.raises(ValueError, match="first axis is the batch"):
        decoding.generate(decoder, {"a": np.zeros((2, 1)), "b": np.zeros((3, 1))}, max_length=3)
    with pytest.raises(ValueError, match="num_beams.*7.*num_beams=8"):
        decoding.generate(decoder, np.zeros((2, 1)), decoding.BeamSearch(8), max_length=3)
    with pytest.raises(ValueError, match="suppress_ids.*7"):
        rules = decoding.TokenRules(suppress_ids=[7])
        decoding.generate(decoder, np.zeros((2, 1)), max_length=3, rules=rules)
    with pytest.raises(ValueError, match="noise"):
        decoding.generate_tensors(decoder, np.zeros((2, 1)), decoding.Sampling(), max_length=3)
    with pytest.raises(ValueError, match="not finite"):
        decoding.generate(
            toys.TableDecoder(np.full((3, 3), np.nan)), np.zeros((2, 1)), max_length=3
        )
