"""Copies of every public model: files, deepcopy, pickle and configs; see `tests.kit.models`."""

import copy
import json
import pickle

import keras
import numpy as np
import pytest

from kerasmodels import data, models
from kerasmodels.checkpoints.image_processor import ImageProcessor
from kerasmodels.keras_internals import all_layers
from tests.kit import assert_close, assert_equal, to_numpy
from tests.kit.models import CHECKS, add_lora, assert_copy, check_numpy, model_inputs, run, states

SIZES = dict(num_layers=1, num_heads=2, hidden_dim=8, intermediate_dim=8, dropout=0.5)
BERT = dict(vocabulary_size=11, **SIZES, max_sequence_length=6, initializer_range=0.5)
NAMED = dict(backbone={**BERT, "name": "backbone"})
HEAD = dict(**NAMED, num_classes=3, dropout=0.5)
RESNET = dict(depth=(1, 1), stem="cifar", block="basic", filters=(4, 8), num_classes=3)
# Each public name with its arguments. A new family is one line more.
CASES = {
    "Transformer": dict(vocabulary_size=11, **SIZES, output_bias=True),
    "Bert": BERT,
    "BertPretraining": NAMED,
    "BertClassifier": HEAD,
    "BertTokenClassifier": HEAD,
    "BertSpanClassifier": NAMED,
    "BertSentenceEncoder": NAMED,
    "ResNet": RESNET,
    "mlp_generator": dict(output_shape=(4, 4, 1), latent_dim=4, hidden_units=(6,)),
    "maxout_discriminator": dict(input_shape=(4, 4, 1), units=(6,), pieces=2),
    "dcgan_generator": dict(image_shape=(28, 28, 1), latent_dim=4, filters=2, kernel_size=3),
    "dcgan_discriminator": dict(image_shape=(28, 28, 1), filters=2, kernel_size=3),
    "transgan_generator": dict(
        image_shape=(4, 4, 1), latent_dim=4, hidden_dim=8, num_layers=(1, 1), num_heads=1
    ),
    "transgan_discriminator": dict(
        image_shape=(4, 4, 1), patch_size=2, hidden_dim=8, num_layers=1, num_heads=2
    ),
}


def make(name, **options):
    return getattr(models, name)(**CASES[name], **options)


def gan():
    return models.GAN(make("transgan_generator"), make("transgan_discriminator"), 4, seed=3)


def saved(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def test_no_public_model_is_missing():
    assert {*CASES, "GAN"} == set(models.__all__)


# A network of a GAN is a plain functional model of Keras, whose config is Keras's own.
CHECKED = [
    (name, check)
    for name in CASES
    for check in (*CHECKS, "numpy")
    if name[0].isupper() or check in ("unchanged", "changed")
]


@pytest.mark.parametrize("name, check", CHECKED)
def test_copies(name, check, tmp_path):
    if check == "numpy":
        check_numpy(getattr(models, name), CASES[name])
    else:
        CHECKS[check](lambda: make(name), tmp_path)


def test_a_gan_keeps_what_its_networks_keep(tmp_path):
    model = gan()
    model.generator.quantize("int8")
    add_lora(model.discriminator.get_layer("logit"))
    noise = model_inputs(model.generator)
    expected = to_numpy(model(noise))
    for other in (saved(model, tmp_path), copy.deepcopy(model)):
        assert type(other) is models.GAN and states(other) == states(model)
        assert_equal(other(noise), expected)
    config = json.dumps(models.GAN(*map(make, list(CASES)[-2:]), np.int64(4)).get_config())
    assert '"latent_dim": 4' in config


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_quantized_model_is_kept_as_a_file_and_not_as_a_preset(mode, tmp_path):
    model = make("BertClassifier")
    model.quantize(mode)
    # As in plain Keras, all that Keras can quantize, the shared token embedding included.
    kinds = keras.layers.Dense if mode == "float8" else (keras.layers.Dense, keras.layers.Embedding)
    assert all(x.quantization_mode == mode for x in all_layers(model) if isinstance(x, kinds))
    assert_copy(saved(model, tmp_path), model, run(model))
    with pytest.raises(ValueError, match="Quantized weights have no place in .* a preset"):
        model.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset").exists()


def test_quantized_embeddings_are_scaled_as_others_are():
    model = make("Transformer")
    (before,) = run(model)
    model.quantize("int8")
    assert_close(run(model), [before], rtol=0, atol=0.1 * np.abs(before).max())


def test_a_model_of_parts_is_kept_too(tmp_path):
    classifier = make("BertClassifier")
    for layer in all_layers(classifier):
        if type(layer).__name__ == "Dense":
            add_lora(layer)
    transformer = models.Transformer(11, **SIZES)
    transformer.quantize("int8")
    for whole in (classifier, transformer):
        model = keras.Model(whole.input, whole.output)
        assert_copy(saved(model, tmp_path), model, run(model), rtol=1e-5, atol=1e-5)
        clone = keras.models.clone_model(model)
        assert states(clone) == states(model)


def test_a_model_of_one_output_or_with_an_output_bias_is_kept(tmp_path):
    pretraining, transformer = make("BertPretraining"), make("Transformer")
    for whole, outputs in (
        (pretraining, pretraining.output["mlm"]),
        (transformer, transformer.output),
    ):
        model = keras.Model(whole.input, outputs)
        assert_copy(saved(model, tmp_path), model, run(model))
        assert states(keras.models.clone_model(model)) == states(model)


def test_training_with_lora_goes_on_as_in_plain_keras(tmp_path):
    still = {**BERT, "dropout": 0.0, "attention_dropout": 0.0}
    model = models.BertClassifier(still, 3, dropout=0.0)
    for layer in model.layers:
        layer.trainable = layer is model.classifier
    attention = model.backbone.encoder_blocks[0].self_attention
    attention.trainable = True
    for dense in (attention.query_dense, attention.value_dense):
        dense.enable_lora(2, lora_alpha=4)
    # Keras's own way to keep a model, by the config of each layer.
    plain = keras.Model(model.input, model.output)
    inputs, labels = model_inputs(model), np.array([0, 2])
    model.compile("adam", "sparse_categorical_crossentropy")
    for _ in range(2):
        model.train_on_batch(inputs, labels)
    plain.compile(model.optimizer, model.loss)
    copies = {}
    for name, one in (("model", model), ("plain", plain)):
        one.save(tmp_path / "model.keras")
        copies[name] = keras.saving.load_model(tmp_path / "model.keras")
        found = copies[name]
        assert [w.path for w in found.trainable_weights] == [w.path for w in one.trainable_weights]
        assert int(found.optimizer.iterations) == 2
        found.train_on_batch(inputs, labels)
    assert sum("lora" in w.path for w in copies["model"].trainable_weights) == 4
    assert_close(
        [w.value for w in copies["model"].trainable_weights],
        [w.value for w in copies["plain"].trainable_weights],
    )


def test_transformers_reads_a_preset_with_lora_merged(tmp_path):
    import torch
    from transformers import BertForSequenceClassification

    model = make("BertClassifier")
    for layer in list(all_layers(model)):
        if isinstance(layer, keras.layers.Dense | keras.layers.Embedding):
            add_lora(layer, alpha=3)
    model.save_to_preset(tmp_path)
    original = BertForSequenceClassification.from_pretrained(tmp_path).eval()
    inputs = model_inputs(model)
    with torch.no_grad():
        logits = original(
            input_ids=torch.tensor(inputs["token_ids"]),
            token_type_ids=torch.tensor(inputs["segment_ids"]),
            attention_mask=torch.tensor(inputs["padding_mask"].astype("int32")),
        ).logits.numpy()
    assert_close(run(model)[0], logits, rtol=1e-4, atol=1e-5)
    again = models.BertClassifier.from_preset(tmp_path)
    assert_close(run(again), run(model), rtol=1e-4, atol=1e-5)


def test_policies_by_layer(tmp_path):
    policies = keras.dtype_policies.DTypePolicyMap(
        "mixed_bfloat16", {"encoder_block_0/.*": keras.DTypePolicy("float32")}
    )
    model = make("Bert", dtype=policies)
    query = model.encoder_blocks[0].self_attention.query_dense
    assert (query.compute_dtype, model.token_embedding.compute_dtype) == ("float32", "bfloat16")
    other = saved(model, tmp_path)
    assert other.encoder_blocks[0].self_attention.query_dense.compute_dtype == "float32"
    assert_equal(run(other), run(model))


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "go", "un", "##do", "Go"]
COMPANIONS = {
    "BertTokenizer": (
        "BertClassifier",
        lambda: data.BertTokenizer(
            TOKENS, lowercase=False, special_tokens_in_text=False, max_sequence_length=None
        ),
    ),
    "Vocabulary": ("Transformer", lambda: data.Vocabulary(["go", "Go"], unit="word")),
    "ImageProcessor": (
        "ResNet",
        lambda: ImageProcessor(image_size=(9, 8), crop_size=8, mean=[0.5] * 3, std=[0.25] * 3),
    ),
}


@pytest.mark.parametrize("name", COMPANIONS)
def test_what_stands_beside_a_model_comes_along(name, tmp_path):
    family, companion = COMPANIONS[name]
    model, companion = make(family), companion()
    attribute = model.companion_name
    assert getattr(saved(model, tmp_path), attribute) is None
    setattr(model, attribute, companion)
    copies = saved(model, tmp_path), copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    for other in [getattr(one, attribute) for one in copies]:
        assert type(other) is type(companion)
        if name == "ImageProcessor":
            assert other.arguments == companion.arguments
            continue
        engine = {"engine": None}  # made when it is needed first
        assert {**vars(other), **engine} == {**vars(companion), **engine}
        assert other.encode_batch(["Go go"]) == companion.encode_batch(["Go go"])


def test_a_sentence_encoder_keeps_its_prompts():
    model = make("BertSentenceEncoder")
    model.settings = {"prompts": {"query": "Q: "}}
    assert copy.deepcopy(model).settings == model.settings


def test_a_tokenizer_that_no_file_can_hold_is_named():
    model = make("Transformer")
    model.tokenizer = str.split
    with pytest.warns(UserWarning, match="does not hold the model's `tokenizer`"):
        assert copy.deepcopy(model).tokenizer is None
