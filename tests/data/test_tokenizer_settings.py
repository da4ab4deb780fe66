"""Each setting of a tokenizer's folder gives the ids of transformers, or an error."""

import json

import pytest
import transformers

from kerasmodels.checkpoints import MarianTokenizer
from kerasmodels.data import BertTokenizer
from tests.checkpoints.test_marian_text import SOURCE, TARGET, train, vocabulary

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "on", "##s", "mat"]
WORDS += ["a", "The", "é", "e", "中", "[X]", "dog", "中国"]
TEXTS = [
    "The cats sat on the mat [X] é 中国 [MASK]",
    "a cat",
    "the mat a cat sat on the mat the dog",
]
PAIRS = ["a dog sat", "the cat on the mat", "a"]
LEFT = {"direction": "Left", "max_length": 6, "strategy": "LongestFirst", "stride": 0}
PADDED = {
    "strategy": "BatchLongest",
    "direction": "Left",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "[PAD]",
}
ADDED = dict(special=True, single_word=False, lstrip=False, rstrip=False, normalized=False)


def changed(folder, file, **fields):
    path = folder / file
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(content | fields))


def assert_same_or_refused(ours, theirs, folder, is_refused, names):
    if is_refused:
        with pytest.raises(ValueError, match=f"({'|'.join(names)})"):
            ours(folder)
    else:
        assert ours(folder) == theirs(folder)


BERT = [  # a file, what it says, and whether it is refused
    ("tokenizer_config.json", {}, False),
    ("tokenizer_config.json", {"truncation_side": "left"}, True),
    ("tokenizer_config.json", {"padding_side": "left"}, True),
    ("tokenizer_config.json", {"padding_side": "right", "truncation_side": "right"}, False),
    ("tokenizer_config.json", {"model_max_length": 8}, False),
    ("tokenizer_config.json", {"do_lower_case": False}, False),
    ("tokenizer_config.json", {"strip_accents": False}, False),
    ("tokenizer_config.json", {"tokenize_chinese_chars": False}, False),
    ("tokenizer_config.json", {"split_special_tokens": True}, False),
    ("tokenizer_config.json", {"additional_special_tokens": ["[X]"]}, True),
    ("tokenizer_config.json", {"extra_special_tokens": ["[X]"]}, True),
    ("tokenizer_config.json", {"never_split": ["cats"], "do_basic_tokenize": False}, False),
    ("tokenizer_config.json", {"cls_token": "dog"}, True),
    ("tokenizer_config.json", {"eos_token": "dog", "add_bos_token": True}, False),
    ("tokenizer_config.json", {"added_tokens_decoder": {"16": {"content": "[X]", **ADDED}}}, True),
    ("tokenizer_config.json", {"pad_to_multiple_of": 8, "padding": "max_length"}, False),
    ("tokenizer.json", {"truncation": LEFT}, True),
    ("tokenizer.json", {"truncation": {**LEFT, "direction": "Right"}}, False),
    ("tokenizer.json", {"padding": PADDED}, True),
    ("tokenizer.json", {"padding": {**PADDED, "direction": "Right"}}, False),
    ("tokenizer.json", {"post_processor": None}, False),  # BERT's class makes its own
    ("special_tokens_map.json", {"cls_token": "[CLS]", "x_token": "dog"}, False),
    ("added_tokens.json", {"dogs": 19}, True),
]
GENERIC = [  # with the class that does what tokenizer.json says
    ("tokenizer_config.json", {}, False),
    ("tokenizer_config.json", {"do_lower_case": False, "strip_accents": False}, False),
    ("tokenizer.json", {"post_processor": None}, True),
    ("tokenizer.json", {"truncation": LEFT}, True),
    ("tokenizer.json", {"padding": PADDED}, True),
]


@pytest.mark.parametrize(
    "kind, file, fields, is_refused",
    [("BertTokenizer", *case) for case in BERT]
    + [(kind, *c) for c in GENERIC for kind in ("PreTrainedTokenizerFast", "TokenizersBackend")],
)
def test_bert(kind, file, fields, is_refused, tmp_path):
    def ours(folder):
        tokenizer = BertTokenizer.from_folder(folder)
        calls = [tokenizer(TEXTS, truncation=True), tokenizer(TEXTS, PAIRS, truncation=True)]
        calls += [tokenizer(TEXTS, max_length=6, truncation=True)]
        return [call["token_ids"].tolist() for call in calls]

    def theirs(folder):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        calls = [
            tokenizer(TEXTS, padding=True, truncation=True),
            tokenizer(TEXTS, PAIRS, padding=True, truncation=True),
            tokenizer(TEXTS, padding=True, truncation=True, max_length=6),
        ]
        return [call["input_ids"] for call in calls]

    for name, content in BertTokenizer(WORDS).files.items():
        (tmp_path / name).write_bytes(content)
    changed(tmp_path, "tokenizer_config.json", tokenizer_class=kind)
    changed(tmp_path, file, **fields)
    names = [*fields, "truncation_side", "padding_side", "adds tokens"]
    assert_same_or_refused(ours, theirs, tmp_path, is_refused, names)


MARIAN = [
    ("tokenizer_config.json", {}, False),
    ("tokenizer_config.json", {"truncation_side": "left", "model_max_length": 5}, True),
    ("tokenizer_config.json", {"padding_side": "left"}, True),
    ("tokenizer_config.json", {"padding_side": "right", "model_max_length": 5}, False),
    ("tokenizer_config.json", {"split_special_tokens": True}, True),
    ("tokenizer_config.json", {"sp_model_kwargs": {"reverse": True}}, True),
    ("tokenizer_config.json", {"sp_model_kwargs": {}}, False),
    ("tokenizer_config.json", {"additional_special_tokens": [">>deu<<"]}, False),
    ("tokenizer_config.json", {"extra_special_tokens": ["hill"]}, True),
    ("tokenizer_config.json", {"added_tokens_decoder": {"9": {"content": "hill"}}}, True),
    ("tokenizer_config.json", {"source_lang": "eng", "do_lower_case": True}, False),
    ("special_tokens_map.json", {"eos_token": "▁the"}, True),
    ("special_tokens_map.json", {"pad_token": {"content": "</s>"}}, False),
    ("added_tokens.json", {"hill": 60}, True),
]


@pytest.mark.parametrize("file, fields, is_refused", MARIAN)
def test_marian(file, fields, is_refused, tmp_path):
    texts = ["the cat sat", "a dog ran over the hill and cats", ">>deu<< the mat </s> dog"]
    texts += ["a >>deu<< b hills"]

    def ours(folder):
        tokenizer = MarianTokenizer.from_folder(folder)
        source = tokenizer(texts)["encoder_token_ids"].tolist()
        return [source, tokenizer.encode(texts, target=True)]

    def theirs(folder):
        tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        source = tokenizer(texts, padding=True)["input_ids"]
        return [source, tokenizer(text_target=texts)["input_ids"]]

    pieces = train(SOURCE, tmp_path / "source.spm"), train(TARGET, tmp_path / "target.spm")
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary(*pieces)))
    changed(tmp_path, "tokenizer_config.json", separate_vocabs=False)
    changed(tmp_path, file, **fields)
    names = [*fields, "adds tokens", "lacks the eos token"]
    assert_same_or_refused(ours, theirs, tmp_path, is_refused, names)
