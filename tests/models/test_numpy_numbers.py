"""Numbers of numpy are taken as numbers, and saved as plain JSON; channels_first by setting."""

import json

import keras
import numpy as np
import pytest
from PIL import Image

from kerasmodels import checkpoints, data, models
from kerasmodels.models.mlp_gan import maxout_discriminator, mlp_generator

INT, FLOAT = np.int64, np.float32


def bert():
    sizes = dict(
        num_layers=INT(1), num_heads=np.int32(1), hidden_dim=INT(4), intermediate_dim=INT(8)
    )
    more = dict(layer_norm_epsilon=FLOAT(1e-5), initializer_range=np.float64(0.02))
    return models.Bert(INT(9), **sizes, max_sequence_length=INT(4), dropout=FLOAT(0.5), **more)


def gan():
    generator, discriminator = mlp_generator((2,), latent_dim=3), maxout_discriminator((2,))
    steps = dict(discriminator_steps=INT(1), gradient_penalty=FLOAT(10))
    return models.GAN(generator, discriminator, latent_dim=INT(3), **steps, seed=INT(7))


def transformer():
    generation = {"end_id": np.array([2, 3]), "num_beams": INT(2), "length_penalty": FLOAT(0.5)}
    sizes = dict(num_layers=np.array([1, 1]), num_heads=INT(1), hidden_dim=INT(4))
    rates = dict(intermediate_dim=INT(8), dropout=FLOAT(0.5))
    return models.Transformer(INT(9), **sizes, **rates, generation=generation)


MODELS = {
    "bert": bert,
    "classifier": lambda: models.BertClassifier(
        bert(), INT(2), dropout=FLOAT(0.5), class_names=np.unique(["good", "bad"])
    ),
    "tagger": lambda: models.BertTokenClassifier(bert(), np.int32(2)),
    "transformer": transformer,
    "resnet": lambda: models.ResNet(
        INT(8),
        "cifar",
        num_classes=INT(2),
        class_names=np.unique(["a", "b"]),
        image_shape=(INT(8), 8, 3),
    ),
    "resnet of lists": lambda: models.ResNet(
        np.array([1, 1]), "cifar", "basic", filters=np.array([4, 8]), num_classes=np.uint8(3)
    ),
    "gan": gan,
}


def leaves(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [value]


@pytest.mark.parametrize("name", MODELS)
def test_models(name, tmp_path):
    model = MODELS[name]()
    config = model.get_config()
    assert not [leaf for leaf in leaves(config) if type(leaf).__module__ == "numpy"]
    json.dumps({key: value for key, value in config.items() if key not in ("backbone", "dtype")})
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    networks = ("generator", "discriminator")  # whose layers Keras writes with their shapes
    found = again.get_config()
    assert all(found[key] == value for key, value in config.items() if key not in networks)


def test_a_seed_of_numpy():
    model = gan()
    np.testing.assert_array_equal(model.generate(INT(2), seed=INT(3)), model.generate(2, seed=3))


def test_channels_first_from_files_to_classes(tmp_path, monkeypatch):
    """Keras set to channels_first: the model's preprocessor and folder give the same numbers."""
    (tmp_path / "a").mkdir()
    random = np.random.default_rng(0)
    pictures = random.integers(0, 256, (3, 9, 11, 3)).astype("uint8")
    for i, picture in enumerate(pictures):
        Image.fromarray(picture).save(tmp_path / "a" / f"{i}.png")
    processor = checkpoints.ImageProcessor((8, 8), mean=[0.5] * 3, std=[0.5] * 3)
    last = models.ResNet(8, "cifar", num_classes=2)
    expected = last.predict(processor(list(pictures)), verbose=0)
    monkeypatch.setattr(keras.config, "image_data_format", lambda: "channels_first")
    first = models.ResNet(8, "cifar", num_classes=2)
    first.set_weights(last.get_weights())
    first.preprocessor = processor
    images = first.preprocessor(list(pictures))
    assert images.shape == (3, 3, 8, 8)
    if keras.backend.backend() != "tensorflow":  # whose convolutions on a CPU take the other order
        np.testing.assert_allclose(first.predict(images, verbose=0), expected, atol=1e-5)
        folder = data.ImageFolder(tmp_path, processor=processor)
        np.testing.assert_allclose(first.predict(folder, verbose=0), expected, atol=1e-5)
    assert first.input_shape == (None, 3, None, None)
