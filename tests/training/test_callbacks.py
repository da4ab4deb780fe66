import keras
import numpy as np
import pytest

from kerasmodels.decoding import TokenRules
from kerasmodels.training import Bleu, ErrorRate, GenerationCallback


@keras.saving.register_keras_serializable(package="tests")
class Copier(keras.Model):
    """Generates its source with as many errors at the start as it has epochs left."""

    def __init__(self, start=3, **kwargs):
        super().__init__(**kwargs)
        self.errors = start
        self.dense = keras.layers.Dense(1)
        self.calls = []

    def call(self, inputs):
        return self.dense(keras.ops.cast(inputs, "float32"))

    def generate(self, inputs, search=None, max_length=8):
        source = inputs["token_ids"] if isinstance(inputs, dict) else inputs
        source = np.array(source)
        self.calls.append((len(source), search, max_length))
        source[:, : self.errors] = 9
        source = np.pad(source, ((0, 0), (0, max_length - source.shape[1])))
        if search == "n-best":
            return np.stack([source, np.full_like(source, 8)], axis=1)
        return source


# Every target ends with 2; after it there is padding, which counts nothing.
TARGETS = np.array([[3, 4, 5, 6, 2, 0], [4, 5, 6, 7, 8, 2], [5, 6, 7, 2, 0, 0]])
X, Y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")


class ErrorsFall(keras.callbacks.Callback):
    """The model gets better for three epochs, then worse."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model.errors = [3, 2, 0, 1, 2, 3][epoch]


def fit(callbacks, epochs=5):
    model = Copier()
    model.compile("sgd", loss="mse")
    history = model.fit(X, Y, epochs=epochs, verbose=0, callbacks=[ErrorsFall(), *callbacks])
    return model, history.history


def test_stopping_and_checkpoints_after_it_find_the_values(tmp_path):
    generation = GenerationCallback(
        ({"token_ids": TARGETS}, TARGETS), [ErrorRate(), ErrorRate("sequence"), Bleu(max_order=1)]
    )
    stopping = keras.callbacks.EarlyStopping("val_per", mode="min", patience=2)
    checkpoint = keras.callbacks.ModelCheckpoint(
        str(tmp_path / "{epoch}-{val_per:.2f}.weights.h5"),
        monitor="val_bleu",
        mode="max",
        save_best_only=True,
        save_weights_only=True,
    )
    model, history = fit([generation, stopping, checkpoint])
    # 4 + 5 + 3 tokens; errors in the first 3, 2, 0, 1, 2 of each row
    np.testing.assert_allclose(history["val_per"], [9 / 12, 6 / 12, 0, 3 / 12, 6 / 12])
    np.testing.assert_allclose(history["val_wer"], [1, 1, 0, 1, 1])
    np.testing.assert_allclose(history["val_bleu"][2], 100)
    assert all(type(value) is float for values in history.values() for value in values)
    assert stopping.stopped_epoch == 4
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "1-0.75.weights.h5",
        "2-0.50.weights.h5",
        "3-0.00.weights.h5",
    ]
    assert generation.samples[1] == ([9, 9, 6, 7, 8], [[4, 5, 6, 7, 8]])
    assert model.calls == [(3, None, 8)] * 5


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(0, 2) if index == 0 else slice(2, 3)
        return {"token_ids": TARGETS[rows], "mask": None}, TARGETS[rows], np.ones(2)


def test_every_form_of_data_gives_the_same():
    values = []
    for data in (
        (TARGETS, TARGETS),
        [TARGETS, keras.ops.convert_to_tensor(TARGETS)],
        ({"token_ids": TARGETS, "mask": None}, TARGETS, np.ones(3)),
        Batches(),
        [Batches()[0], Batches()[1]],
    ):
        callback = GenerationCallback(
            data, ErrorRate(), batch_size=2, search="n-best", max_length=7
        )
        model = Copier(start=2)
        callback.set_model(model)
        values.append(callback.evaluate())
        assert model.calls == [(2, "n-best", 7), (1, "n-best", 7)]
    assert values == [{"per": 6 / 12}] * 5


def test_every_n_epochs_repeats_the_last_value_between():
    callback = GenerationCallback((TARGETS, TARGETS), ErrorRate(), every=2)
    model, history = fit([callback], epochs=5)
    np.testing.assert_allclose(history["val_per"], [6 / 12, 6 / 12, 3 / 12, 3 / 12])
    assert len(model.calls) == 2


def test_decoded_text_and_several_references():
    def decode(ids):
        return " ".join("abcdefghij"[i] for i in ids)

    rules = TokenRules(end_id=[2, 7])
    references = [["d e f g", "d"], ["e f g h i"], ["j f"]]
    callback = GenerationCallback(
        (TARGETS, TARGETS), ErrorRate(), decode=decode, references=references, rules=rules
    )
    callback.set_model(Copier(start=0))
    # The second row ends at 7 now (e f g), the third too (f g against j f).
    assert callback.evaluate() == {"per": (0 + 2 + 2) / (4 + 5 + 2)}
    assert callback.samples[1] == ("e f g", ["e f g h i"])
    for wrong in (references[:2], references + [["a"]]):
        callback.references = wrong
        with pytest.raises(ValueError, match="references"):
            callback.evaluate()


def test_the_model_says_where_a_sequence_ends():
    class Marian(Copier):
        token_rules = TokenRules(pad_id=9, start_id=9, end_id=0)

    targets = np.array([[3, 2, 5, 0, 9, 9], [4, 2, 6, 7, 8, 0]])  # 2 is a word here
    callback = GenerationCallback((targets, targets), Bleu(), max_length=6)
    callback.set_model(Marian(start=0))
    assert callback.evaluate() == {"bleu": pytest.approx(100)}
    assert callback.samples == [([3, 2, 5], [[3, 2, 5]]), ([4, 2, 6, 7, 8], [[4, 2, 6, 7, 8]])]

    class Others(Batches):
        token_rules = TokenRules()

    callback = GenerationCallback(Others(), Bleu())
    callback.set_model(Marian())
    with pytest.raises(ValueError, match="validation_data.*pad_id=9.*Received: pad_id=0"):
        callback.evaluate()
    with pytest.raises(ValueError, match="`rules` must be"):
        GenerationCallback(Others(), Bleu(), rules=2)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"metrics": []}, "metrics"),
        ({"every": 0}, "every"),
        ({"batch_size": 0}, "batch_size"),
    ],
)
def test_bad_input(options, message):
    with pytest.raises(ValueError, match=message):
        GenerationCallback((TARGETS, TARGETS), **{"metrics": ErrorRate(), **options})
    callback = GenerationCallback((TARGETS[:0], TARGETS[:0]), ErrorRate())
    callback.set_model(Copier())
    with pytest.raises(ValueError, match="validation_data"):
        callback.evaluate()


def test_rows_that_only_fill_a_batch_are_left_out():
    mask = np.array([[1, 1, 1, 1, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 0, 0]])
    batch = {"token_ids": TARGETS, "encoder_padding_mask": mask}, TARGETS
    generation = GenerationCallback([batch, batch], ErrorRate("sequence"))
    generation.set_model(Copier(start=0))
    assert generation.evaluate() == {"wer": 0.0}
    assert [rows for rows, _, _ in generation.model.calls] == [2, 2]
    assert len(generation.samples) == 4
