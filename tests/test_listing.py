"""Several texts come as a list or in anything that has an order; one text, or a set, does not."""

import numpy as np
import pandas
import pytest

from kerasmodels import checkpoints, data, models
from kerasmodels.listing import files_below

TEXTS = ["a b", "b"]
SEVERAL = {
    "tuple": lambda: tuple(TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "map": lambda: map(str, TEXTS),
    "keys": lambda: dict.fromkeys(TEXTS).keys(),
    "values": lambda: dict(enumerate(TEXTS)).values(),
    "numpy": lambda: np.array(TEXTS),
    "objects": lambda: np.array(TEXTS, dtype=object),
    "series": lambda: pandas.Series(TEXTS, index=[3, 4]),
    "index": lambda: pandas.Index(TEXTS),
}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]


def bert():
    tokenizer = data.BertTokenizer(WORDS, max_sequence_length=8)
    sizes = dict(num_layers=1, num_heads=1, hidden_dim=4, intermediate_dim=4)
    backbone = models.Bert(7, **sizes, max_sequence_length=8)
    backbone.tokenizer = tokenizer
    return backbone


@pytest.fixture(scope="module")
def takers():
    """Functions of several texts, and what they make of them as lists of numbers."""
    tokenizer = bert().tokenizer
    encoder, words = models.BertSentenceEncoder(bert()), data.Vocabulary.build([["a", "b"]])
    marian = checkpoints.MarianTokenizer.train(["a b c", "b"] * 9, ["a b", "c"] * 9, 12)
    return {
        "BertTokenizer": lambda texts: tokenizer(texts)["token_ids"],
        "pairs": lambda texts: tokenizer(["a", "b"], texts)["token_ids"],
        "encode_batch": tokenizer.encode_batch,
        "embed": lambda texts: encoder.embed(texts).round(5),
        "Vocabulary": words.encode_batch,
        "MarianTokenizer": lambda texts: marian(texts)["encoder_token_ids"],
        "Marian's encode": marian.encode,
    }


NAMES = ["BertTokenizer", "pairs", "encode_batch", "embed", "Vocabulary"]
NAMES += ["MarianTokenizer", "Marian's encode"]


@pytest.mark.parametrize("name", NAMES)
def test_several_texts(takers, name):
    def numbers(found):
        return [np.asarray(row).tolist() for row in found]

    expected = numbers(takers[name](TEXTS))
    for kind, several in SEVERAL.items():
        assert numbers(takers[name](several())) == expected, kind


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong",
    [
        "a b",
        b"a b",
        {"a", "b"},
        frozenset("ab"),
        {"a": 1, "b": 2},
        3,
        np.array("a b"),
        pandas.DataFrame({"text": TEXTS}),
    ],
    ids=lambda wrong: type(wrong).__name__,
)
def test_what_is_not_several_texts(takers, name, wrong):
    with pytest.raises(ValueError, match="must be a list of"):
        takers[name](wrong)


def test_fill_mask_of_an_iterator():
    model = models.BertPretraining(bert())
    texts = ["a [MASK]", "[MASK] b"]
    assert model.fill_mask((text for text in texts), 1) == model.fill_mask(texts, 1)
    with pytest.raises(ValueError, match="must be a list of"):
        model.fill_mask(set(texts))


def test_class_names_of_a_dictionary_and_of_numpy():
    names = {"bad": 0, "good": 1}
    for given in (names.keys(), np.unique(["good", "bad"]), pandas.Series(["bad", "good"])):
        model = models.BertClassifier(bert(), 2, class_names=given)
        assert model.get_config()["class_names"] == ["bad", "good"]
        assert {type(name) for name in model.get_config()["class_names"]} == {str}


def test_files_below(tmp_path):
    for name in ("b.txt", "a/c.txt", "a/.hidden/d.txt", ".e/f.txt", "a/.g.txt", "h.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = [str(path.relative_to(tmp_path)) for path in files_below(tmp_path, "*.txt")]
    assert found == ["a/c.txt", "b.txt"]
