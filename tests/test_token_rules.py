"""Special tokens: one object of the model or its tokenizer, the same wherever it is handed over."""

import json

import keras
import numpy as np
import pytest

from kerasmodels import data, models
from kerasmodels.decoding import TokenRules

MARIAN = {"pad_id": 19, "start_id": 19, "end_id": [0, 4], "suppress_ids": [19], "forced_end": True}


def transformer(generation=None):
    return models.Transformer(20, 1, 2, 8, 8, generation=generation)


@pytest.mark.parametrize("number", [int, np.int32, np.int64, np.uint8])
def test_numbers_of_any_kind_make_the_same_rules(number):
    rules = TokenRules(
        pad_id=number(19),
        start_id=number(19),
        end_id=np.array([0, 4], np.dtype(number) if number is not int else "int64"),
        forced_end=np.bool_(True),
        suppress_ids=[number(19)],
    )
    assert rules == TokenRules(**MARIAN) and hash(rules) == hash(TokenRules(**MARIAN))
    assert rules.end_ids == (0, 4) and TokenRules(end_id=number(3)).end_ids == (3,)
    assert json.loads(json.dumps(rules.get_config())) == {**MARIAN, "renormalize": False}


def test_round_trips():
    for rules in (TokenRules(), TokenRules(**MARIAN), TokenRules(end_id=[5])):
        assert TokenRules.from_config(rules.get_config()) == rules
        config = json.loads(json.dumps(keras.saving.serialize_keras_object(rules)))
        assert keras.saving.deserialize_keras_object(config) == rules
    assert TokenRules(end_id=[5]) == TokenRules(end_id=5)


def test_of_whatever_has_some():
    rules = TokenRules(**MARIAN)
    model = transformer(rules)
    batches = data.BucketedPairs([[5]], [[6]], rules=model)
    for owner in (rules, model, batches):
        assert TokenRules.of(owner) == rules
    vocabulary = data.Vocabulary("ab")
    word_pieces = data.WordPieceTokenizer([*vocabulary.tokens[:4], "go"])
    for owner in (vocabulary, word_pieces, data.BucketedPairs([[5]], [[6]]), transformer()):
        assert TokenRules.of(owner) == TokenRules(pad_id=0, start_id=1, end_id=2)
    bert = data.BertTokenizer(["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[PAD]", "a"])
    assert TokenRules.of(bert) == TokenRules(pad_id=4, start_id=1, end_id=2)
    for nothing in (None, 0, {"pad_id": 0}, object()):
        with pytest.raises(ValueError, match="`rules` must be a `decoding.TokenRules`"):
            TokenRules.of(nothing)


def test_in_the_config_and_the_file_of_a_model(tmp_path):
    model = transformer({**MARIAN, "num_beams": np.int64(3), "length_penalty": np.float32(0.5)})
    json.dumps(model.get_config())
    assert model.token_rules == TokenRules(**MARIAN)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.token_rules == model.token_rules and loaded.generation == model.generation
    # What was written before there were rules, and what names only some of them.
    before = {**model.get_config(), "generation": {"end_id": 3, "suppress_ids": [1]}}
    assert models.Transformer.from_config(before).token_rules == TokenRules(
        end_id=3, suppress_ids=[1]
    )


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"end_id": []}, "`end_id` must name at least one"),
        ({"end_id": None}, "`end_id` must name at least one"),
        ({"end_id": 2.0}, "`end_id` must hold integers.*2.0"),
        ({"end_id": "</s>"}, "`end_id` must hold integers.*</s>"),
        ({"end_id": True}, "`end_id` must hold integers.*True"),
        ({"end_id": [2, -1]}, "`end_id` must be >= 0"),
        ({"start_id": -1}, "`start_id` must be >= 0.*-1"),
        ({"start_id": [1]}, "`start_id` must be one integer"),
        ({"pad_id": None}, "`pad_id` must be one integer"),
        ({"suppress_ids": [1.5]}, "`suppress_ids` must hold integers"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        TokenRules(**arguments)
    with pytest.raises(ValueError, match=message):
        transformer(arguments)
