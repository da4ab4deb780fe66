"""Marian's tokenizer against transformers', with SentencePiece models trained on the spot."""

import json
import shutil

import numpy as np
import pytest

from kerasmodels.checkpoints import MarianTokenizer
from kerasmodels.models import Transformer

SOURCE = ["the cat sat on the mat", "a dog ran over the hill", "cats and dogs, hills and mats!"]
TARGET = ["die Katze saß auf der Matte", "ein Hund lief über den Hügel", "Katzen und Hunde!"]
TEXTS = [
    "the dog sat",
    "",
    "  a   cat on a hill!  ",
    ">>deu<< the mat",
    "zebra Ω 😀",
    "the end</s> of <unk> it<pad>",
    "a >>deu<< b",
    ">>deu the cat",
]


def train(sentences, path):
    import io

    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 20),
        model_writer=model,
        vocab_size=45,
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    path.write_bytes(model.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    return [pieces.id_to_piece(i) for i in range(3, pieces.get_piece_size())]


def vocabulary(*pieces):
    names = dict.fromkeys(["</s>", "<unk>", "<pad>", *sum(pieces, []), ">>deu<<"])
    return {name: index for index, name in enumerate(names)}


@pytest.fixture(scope="module", params=["one", "two"])
def folder(request, tmp_path_factory):
    """A folder with tokenizer files: one vocabulary for both languages, or one for each."""
    folder = tmp_path_factory.mktemp("text")
    source, target = (
        train(SOURCE, folder / "source.spm"),
        train(TARGET, folder / "target.spm"),
    )
    settings = {"tokenizer_class": "MarianTokenizer", "separate_vocabs": request.param == "two"}
    if request.param == "one":
        (folder / "vocab.json").write_text(json.dumps(vocabulary(source, target)))
    else:
        (folder / "vocab.json").write_text(json.dumps(vocabulary(source)))
        (folder / "target_vocab.json").write_text(json.dumps(vocabulary(target)))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def tokenizer(folder):
    return MarianTokenizer.from_folder(folder)


@pytest.fixture
def original(folder):
    from transformers import MarianTokenizer

    return MarianTokenizer.from_pretrained(folder)


def test_ids_and_texts_are_those_of_transformers(tokenizer, original):
    assert tokenizer.encode(TEXTS) == original(TEXTS)["input_ids"]
    assert tokenizer.encode(TARGET, target=True) == original(text_target=TARGET)["input_ids"]
    assert tokenizer.encode([]) == []
    rng = np.random.default_rng(0)
    ids = rng.integers(0, len(tokenizer.target_vocabulary), (6, 9))
    for rows in (ids, tokenizer.encode(TARGET, target=True)):
        assert tokenizer.decode(rows) == original.batch_decode(rows, skip_special_tokens=True)
    assert tokenizer.decode(ids.reshape(2, 3, 9)) == [
        tokenizer.decode(ids[:3]),
        tokenizer.decode(ids[3:]),
    ]


def test_there_and_back(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TARGET, target=True)) == TARGET


def test_inputs_are_padded(tokenizer):
    inputs = tokenizer(TEXTS)
    rows = tokenizer.encode(TEXTS)
    ids, mask = inputs["encoder_token_ids"], inputs["encoder_padding_mask"]
    assert ids.dtype == "int32" and mask.dtype == bool
    assert ids.shape == mask.shape == (len(TEXTS), max(map(len, rows)))
    assert [row[kept].tolist() for row, kept in zip(ids, mask, strict=True)] == rows
    assert set(ids[~mask]) == {tokenizer.vocabulary["<pad>"]}


@pytest.mark.parametrize("folder", ["one"], indirect=True)
def test_text_in_text_out(folder, tokenizer, original, tmp_path):
    size = len(tokenizer.vocabulary)
    Transformer(size, 1, 2, 8, 8, generation=tokenizer.token_rules).save_to_preset(
        tmp_path / "model"
    )
    shutil.copytree(folder, tmp_path / "model", dirs_exist_ok=True)
    model = Transformer.from_preset(tmp_path / "model")
    ids = model.generate(model.tokenizer(TEXTS[:3]), max_length=5)
    texts = model.tokenizer.decode(ids)
    assert texts == original.batch_decode(ids, skip_special_tokens=True)


def test_the_files_are_kept(folder, tokenizer, tmp_path):
    Transformer(50, 1, 2, 8, 8).save_to_preset(tmp_path / "model")
    shutil.copytree(folder, tmp_path / "model", dirs_exist_ok=True)
    model = Transformer.from_preset(tmp_path / "model")
    assert model.tokenizer.encode(TEXTS) == tokenizer.encode(TEXTS)
    shutil.rmtree(tmp_path / "model")  # the model needs it no longer
    model.save_to_preset(tmp_path / "again")
    for path in folder.iterdir():
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes()


def test_a_trained_tokenizer_is_one_that_transformers_reads(tmp_path):
    tokenizer = MarianTokenizer.train(iter(SOURCE * 5), TARGET * 5, vocabulary_size=45)
    assert tokenizer.encode(TARGET, target=True) == MarianTokenizer.train(
        SOURCE * 5, TARGET * 5, 45
    ).encode(TARGET, target=True)
    assert tokenizer.decode(tokenizer.encode(TARGET, target=True)) == TARGET
    assert tokenizer.pad_id == tokenizer.vocabulary_size - 1
    for name, content in tokenizer.files.items():
        (tmp_path / name).write_bytes(content)
    from transformers import MarianTokenizer as Original

    original = Original.from_pretrained(tmp_path)
    assert tokenizer.encode(SOURCE) == original(SOURCE)["input_ids"]
    assert tokenizer.encode(TARGET, target=True) == original(text_target=TARGET)["input_ids"]
    assert original.pad_token_id == tokenizer.pad_id and original.eos_token_id == 0


def test_ids_of_every_rank_are_decoded(tokenizer):
    rows = tokenizer.encode(TARGET, target=True)
    assert tokenizer.decode(rows[0]) == tokenizer.decode(np.array(rows[0])) == TARGET[0]
    assert tokenizer.decode([rows[:1], rows[1:]]) == [TARGET[:1], TARGET[1:]]
    assert tokenizer.decode([]) == "" and tokenizer.decode(np.zeros((0, 3), int)) == []


def test_ids_beyond_the_vocabulary(tokenizer):
    with pytest.raises(ValueError, match="token id 999"):
        tokenizer.decode([[999]])
    with pytest.raises(ValueError, match="token id -1"):
        tokenizer.decode([[-1]])


@pytest.mark.parametrize("texts", ["a text", [1], [b"bytes"]])
def test_texts_are_lists_of_strings(tokenizer, texts):
    with pytest.raises(ValueError, match="`texts` must (be a list of|hold) strings"):
        tokenizer.encode(texts)
    with pytest.raises(ValueError, match="at least one"):
        tokenizer([])


def test_folders_that_lack_something(folder, tmp_path):
    assert MarianTokenizer.from_folder(tmp_path) is None
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "vocab.json").write_text('{"</s>": 0, "<unk>": 1}')
    with pytest.raises(ValueError, match="pad token '<pad>'"):
        MarianTokenizer.from_folder(broken)
    (broken / "vocab.json").write_text("{")
    with pytest.raises(ValueError, match="vocab.json.*not valid JSON"):
        MarianTokenizer.from_folder(broken)
    (broken / "vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match="vocab.json"):
        MarianTokenizer.from_folder(broken)


def test_a_model_loads_without_sentencepiece(tokenizer, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentencepiece", None)
    with pytest.raises(ImportError, match=r"kerasmodels\[text\]"):
        tokenizer.encode(["a"])
