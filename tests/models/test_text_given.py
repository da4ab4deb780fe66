"""Strings, paths and ragged lists where numbers belong: the error says what makes the numbers."""

import pathlib

import keras
import numpy as np
import pandas
import pytest
from PIL import Image

from kerasmodels import checkpoints, data, decoding, models, training
from tests.decoding.toys import TableDecoder
from tests.training.test_array_likes import BERT, CASES, IDS, IMAGES, compiled

TEXTS = {
    "list": ["a text", "another"],
    "string": "a text",
    "tuple": ("a text", "another"),
    "pairs": [["a text", "another"], ["b", "c"]],
    "numpy": np.array(["a text", "another"]),
    "objects": np.array(["a text", "another"], dtype=object),
    "series": pandas.Series(["a text", "another"]),
    "frame": pandas.DataFrame({"text": ["a text", "another"]}),
    "bytes": [b"a text"],
    "set": {"a text"},
}


def tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "text", "b", "c"]
    return data.BertTokenizer(words, max_sequence_length=4)


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("name", [name for name in CASES if name != "gan"])
def test_text(name, kind):
    model, texts = compiled(name), TEXTS[kind]
    y = CASES[name][2]
    advice = "ImageProcessor.*ImageFolder" if name == "resnet" else "by a tokenizer.*BertTokenizer"
    calls = [
        lambda x: model.fit(x, y, verbose=0),
        lambda x: model.fit(CASES[name][1], y, validation_data=(x, y), verbose=0),
        lambda x: model.evaluate(x, y, verbose=0),
        lambda x: model.predict(x, verbose=0),
        lambda x: model.predict_on_batch(x),
        lambda x: model.train_on_batch(x, y),
        lambda x: model(x),
    ]
    if name == "transformer":
        calls += [lambda x: model.generate(x), lambda x: model.attention_scores(x)]
    if name == "resnet":
        calls += [model.layer_responses]
    if name == "accumulating":  # its call is the model's own
        calls.pop()
    for call in calls:
        with pytest.raises(ValueError, match=rf"must be numbers: .*{advice}.*Received: b?'"):
            call(texts)
    if isinstance(CASES[name][1], dict):
        key = "encoder_token_ids" if name == "transformer" else "token_ids"
        for call in calls:
            with pytest.raises(ValueError, match=f"must be numbers: .*{advice}"):
                call({**CASES[name][1], key: texts})


def test_a_tokenizer_that_is_there_is_named():
    bert = CASES["classifier"][0]().backbone
    bert.tokenizer = tokenizer()
    for model in (
        models.BertClassifier(bert, 2),
        models.BertSentenceEncoder(bert),
        models.BertPretraining(bert),
        models.BertSpanClassifier(bert),
        training.GradientAccumulation(models.BertClassifier(bert, 2), 2),
    ):
        with pytest.raises(ValueError, match=r"by `model.tokenizer\(texts\)`.*Received: 'a text'"):
            model.predict(["a text"], verbose=0)
    with pytest.raises(ValueError, match=r"by `model.tokenizer\(texts\)`"):
        bert.hidden_states(["a text"])
    with pytest.raises(ValueError, match=r"by `model.tokenizer\(texts\)`"):
        bert.attention_scores("a text")
    assert models.BertClassifier(bert, 2).predict(bert.tokenizer(["a text"])).shape == (1, 2)


def test_images_as_files_name_the_preprocessor():
    model = CASES["resnet"][0]()
    model.preprocessor = checkpoints.ImageProcessor(image_size=(8, 8))
    for images in (["cat.jpg"], [pathlib.Path("cat.jpg")], pathlib.Path("cat.jpg"), "cat.jpg"):
        with pytest.raises(ValueError, match=r"model.preprocessor\(paths\)"):
            model.predict(images, verbose=0)
    picture = Image.new("RGB", (8, 8))
    with pytest.raises(ValueError, match="Images must be one array .*ImageProcessor"):
        model.predict([picture, picture], verbose=0)
    with pytest.raises(ValueError, match="Images must be one array .*ImageProcessor"):
        model.predict([IMAGES[0].tolist(), IMAGES[1].tolist()], verbose=0)
    with pytest.raises(ValueError, match="Images must be one array .*list"):
        model.predict(list(IMAGES), verbose=0)
    assert model.predict(model.preprocessor([picture]), verbose=0).shape == (1, 3)


@pytest.mark.parametrize("kind", TEXTS)
def test_a_gan_names_what_reads_images(kind):
    gan = compiled("gan")
    for given in (
        lambda x: gan.fit(x, verbose=0),
        lambda x: gan.evaluate(x, verbose=0),
        lambda x: gan.train_on_batch(x, CASES["gan"][2]),
    ):
        with pytest.raises(ValueError, match="must be numbers: .*ImageFolder"):
            given(TEXTS[kind])


def streams():
    batch = (np.array(["a text", "another"]), np.array([0, 1]))

    class Stream(keras.utils.PyDataset):
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return batch

    yield Stream()
    yield (batch for _ in range(1))
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        yield tf.data.Dataset.from_tensors(batch)


@pytest.mark.parametrize("name", ["classifier", "transformer", "resnet", "gan"])
def test_streams_of_text(name):
    model = compiled(name)
    for method in ("fit",) if name == "gan" else ("fit", "evaluate", "predict"):
        for stream in streams():
            with pytest.raises(ValueError, match="must be numbers: "):
                getattr(model, method)(stream, verbose=0)


RAGGED = [[2, 5, 3], [2, 3]]


@pytest.mark.parametrize("name", ["classifier", "transformer", "accumulating"])
def test_ragged_rows(name):
    model = compiled(name)
    x, y = CASES[name][1:]
    objects = np.array([np.array(row) for row in RAGGED], dtype=object)
    for rows in (RAGGED, objects, pandas.Series(RAGGED), tuple(RAGGED)):
        with pytest.raises(ValueError, match="must have the keys"):
            model.predict(rows, verbose=0)
        key = "encoder_token_ids" if name == "transformer" else "token_ids"
        with pytest.raises(ValueError, match=f"`{key}` must be .* rows have one length"):
            model.fit({**x, key: rows}, y, verbose=0)


@pytest.mark.parametrize("given", [RAGGED, {"encoder_token_ids": RAGGED}])
def test_ragged_sources(given):
    model = compiled("transformer")
    with pytest.raises(ValueError, match="rows of one length: pad them"):
        model.generate(given)
    with pytest.raises(ValueError, match="rows of one length: pad them"):
        decoding.generate(model, {"encoder_token_ids": RAGGED})
    assert model.generate([[2, 5, 3]], max_length=2).shape == (1, 2)  # rows of one length are fine


def test_a_decoder_of_ones_own():
    table = TableDecoder(np.full((5, 5), 0.2))
    with pytest.raises(ValueError, match="must be numbers; of texts a tokenizer makes token ids"):
        decoding.generate(table, {"encoder_token_ids": ["a text"]}, max_length=2)
    with pytest.raises(ValueError, match="must be numbers; of texts a tokenizer makes token ids"):
        decoding.generate(table, np.array(["a text"]), max_length=2)


def test_a_dictionary_is_asked_for():
    model = compiled("classifier")
    with pytest.raises(ValueError, match="must have the keys .*Received: ndarray"):
        model.predict(IDS, verbose=0)
    with pytest.raises(ValueError, match="must have the keys .*Received: list"):
        model.predict(IDS.tolist(), verbose=0)
    with pytest.raises(ValueError, match="must have the keys .*Received: list"):
        model.predict([BERT["token_ids"], BERT["segment_ids"]], verbose=0)
