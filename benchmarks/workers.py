"""The contestants of `run.py`: each function prepares its work and returns a function that does it.

python benchmarks/workers.py ours_training '{}'   # then a line on standard input per round
"""

import json
import os
import resource
import sys
import time

import encoder
import numpy as np
import residual

BATCH, LENGTH, VOCABULARY = 128, 20, 60
SIZES = dict(num_layers=4, num_heads=8, hidden_dim=128, intermediate_dim=1024)
BASE = dict(num_layers=6, num_heads=8, hidden_dim=512, intermediate_dim=2048)


def _batch():
    random = np.random.default_rng(0)
    ids = random.integers(3, VOCABULARY, (3, BATCH, LENGTH)).astype("int32")
    masks = np.ones((BATCH, LENGTH), bool)
    inputs = {
        "encoder_token_ids": ids[0],
        "encoder_padding_mask": masks,
        "decoder_token_ids": ids[1],
        "decoder_padding_mask": masks,
    }
    return inputs, ids[2]


def _keras_training(model):
    import keras

    from kerasmodels import training

    loss = training.SmoothedCrossEntropy(0.1)
    model.compile(keras.optimizers.Adam(1e-4), loss, jit_compile=_jit())
    inputs, targets = _batch()
    return lambda: model.train_on_batch(inputs, targets)


def _jit():
    # The faster of the two for each backend here, for us and for the peer alike.
    return os.environ["KERAS_BACKEND"] == "jax"


def ours_training():
    """Our Transformer in Keras's own training step."""
    from kerasmodels import models

    return _keras_training(models.Transformer(VOCABULARY, **SIZES))


def keras_hub_training():
    """The same of keras_hub's layers, with the same loss."""
    import keras
    import keras_hub

    ids = [
        keras.Input((None,), dtype="int32", name=f"{s}_token_ids") for s in ("encoder", "decoder")
    ]
    masks = [
        keras.Input((None,), dtype="bool", name=f"{s}_padding_mask") for s in ("encoder", "decoder")
    ]
    embedding = keras_hub.layers.TokenAndPositionEmbedding(VOCABULARY, 64, SIZES["hidden_dim"])
    block = dict(intermediate_dim=SIZES["intermediate_dim"], num_heads=8, dropout=0.1)
    x = embedding(ids[0])
    for _ in range(4):
        x = keras_hub.layers.TransformerEncoder(**block)(x, padding_mask=masks[0])
    y = embedding(ids[1])
    for _ in range(4):
        y = keras_hub.layers.TransformerDecoder(**block)(
            y, x, decoder_padding_mask=masks[1], encoder_padding_mask=masks[0]
        )
    logits = embedding.token_embedding(y, reverse=True)
    return _keras_training(keras.Model({x.name: x for x in (*ids, *masks)}, logits))


def torch_training():
    """torch.nn.Transformer in a plain loop."""
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(VOCABULARY, 128)
            self.transformer = torch.nn.Transformer(128, 8, 4, 4, 1024, 0.1, batch_first=True)

        def forward(self, source, target, source_padding, target_padding):
            causal = torch.nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            x = self.transformer(
                self.embedding(source),
                self.embedding(target),
                tgt_mask=causal,
                src_key_padding_mask=source_padding,
                tgt_key_padding_mask=target_padding,
                memory_key_padding_mask=source_padding,
                tgt_is_causal=True,
            )
            return x @ self.embedding.weight.T

    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    loss = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)
    inputs, targets = _batch()
    source, target = (torch.tensor(inputs[f"{s}_token_ids"]).long() for s in ("encoder", "decoder"))
    # torch's padding masks are additive beside an additive causal mask: 0 = keep.
    padding = torch.zeros(BATCH, LENGTH)
    targets = torch.tensor(targets).long()

    def step():
        optimizer.zero_grad()
        logits = model(source, target, padding, padding)
        loss(logits.flatten(0, 1), targets.flatten()).backward()
        optimizer.step()

    return step


def _sources():
    random = np.random.default_rng(0)
    return random.integers(3, 32000, (4, 32)).astype("int32")


def transformers_generation(beams):
    """MarianMTModel of base size, exactly 48 new tokens."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=32000,
        d_model=512,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=2048,
        decoder_ffn_dim=2048,
        activation_function="relu",
        pad_token_id=0,
        eos_token_id=2,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = MarianMTModel(config).eval()
    ids = torch.tensor(_sources()).long()
    arguments = dict(max_new_tokens=48, min_new_tokens=48, num_beams=beams, do_sample=False)

    def generate():
        with torch.inference_mode():
            return model.generate(ids, attention_mask=torch.ones_like(ids), **arguments)

    return generate


def keras_hub_generation(beams):
    """keras_hub's own encoder-decoder (BART) of base size and its own search; nothing stops it."""
    import keras
    import keras_hub

    backbone = keras_hub.models.BartBackbone(32000, **BASE, max_sequence_length=64)
    model = keras_hub.models.BartSeq2SeqLM(backbone)
    sampler = keras_hub.samplers.BeamSampler(beams) if beams > 1 else "greedy"
    # The faster of the two on TensorFlow, whose default is without on a CPU; JAX always compiles.
    model.compile(sampler=sampler, jit_compile=keras.backend.backend() == "tensorflow")
    ids, written = _sources(), np.ones((4, 49), "int32")  # the start token and room for 48
    inputs = {
        "encoder_token_ids": ids,
        "encoder_padding_mask": np.ones_like(ids),
        "decoder_token_ids": written,
        "decoder_padding_mask": (np.arange(49) < 1).astype("int32") * written,
    }
    inputs = {name: keras.ops.convert_to_tensor(x) for name, x in inputs.items()}
    return lambda: model.generate(inputs, stop_token_ids=None)


def ours_generation(beams):
    """Our Transformer of base size; the end token is suppressed, so that 48 tokens come."""
    from kerasmodels import decoding, models

    model = models.Transformer(32000, **BASE, generation={"suppress_ids": [2]})
    search = decoding.BeamSearch(beams) if beams > 1 else decoding.GreedySearch()
    ids = _sources()
    return lambda: model.generate(ids, search=search, max_length=48)


def attention(length, window):
    """Causal self-attention, 1 sequence, d 256, 8 heads, forward."""
    import keras

    from kerasmodels import layers

    layer = layers.MultiHeadAttention(8, 32, window=window)
    x = np.random.default_rng(0).normal(size=(1, length, 256)).astype("float32")
    inputs = keras.Input((None, 256))
    model = keras.Model(inputs, layer(inputs, inputs, use_causal_mask=True))
    return lambda: model.predict_on_batch(x)


def decoding(new_tokens, cached):
    """Greedy decoding of 4 rows with a small model, in a Python loop or with our cache."""
    from kerasmodels import models

    model = models.Transformer(1000, 4, 8, 256, 1024, generation={"suppress_ids": [2]})
    ids = np.random.default_rng(0).integers(3, 1000, (4, 16)).astype("int32")
    if cached:
        return lambda: model.generate(ids, max_length=new_tokens)

    def loop():
        # One shape throughout, so that nothing is compiled anew: the tail is behind the mask.
        written = np.ones((4, new_tokens + 1), "int32")
        for index in range(new_tokens):
            inputs = {
                "encoder_token_ids": ids,
                "encoder_padding_mask": ids > 0,
                "decoder_token_ids": written[:, :-1],
                "decoder_padding_mask": np.arange(new_tokens)[None].repeat(4, 0) <= index,
            }
            written[:, index + 1] = model.predict_on_batch(inputs)[:, index].argmax(-1)

    return loop


def _networks(pair):
    """Generator, discriminator, size of the noise and shape of the data, 28x28 gray images."""
    from kerasmodels import models

    if pair == "dcgan":
        shape = (28, 28, 1)
        return models.dcgan_generator(shape, 100), models.dcgan_discriminator(shape), 100, shape
    return models.mlp_generator((784,), 100), models.maxout_discriminator((784,)), 100, (784,)


def _images(steps, shape):
    size = (steps * BATCH, *shape)
    return np.random.default_rng(0).uniform(-1, 1, size).astype("float32")


def ours_gan(pair, steps):
    """`models.GAN` in `fit`, batch 128, one discriminator step for one of the generator.

    A step of the MLP pair takes 20 ms, of which Keras's loop around it 1.5: compiled backends take
    eight in one call, as one would.
    """
    import keras

    from kerasmodels import models

    generator, discriminator, latent_dim, shape = _networks(pair)
    model = models.GAN(generator, discriminator, latent_dim)
    adams = [keras.optimizers.Adam(2e-4, beta_1=0.5) for _ in range(2)]
    named = dict(zip(("generator", "discriminator"), adams, strict=True))
    at_once = 8 if pair == "mlp" and keras.backend.backend() != "torch" else 1
    model.compile(optimizer=named, jit_compile=_jit(), steps_per_execution=at_once)
    images = _images(steps, shape)
    return lambda: model.fit(images, batch_size=BATCH, shuffle=False, verbose=0)


def plain_gan(pair, steps):
    """The same steps on the same networks in a loop that knows one backend."""
    import adversarial

    generator, discriminator, latent_dim, shape = _networks(pair)
    make = getattr(adversarial, f"plain_{os.environ['KERAS_BACKEND']}")
    step, images = make(generator, discriminator, latent_dim), _images(steps, shape)

    def loop():
        for i in range(steps):
            losses = step(images[i * BATCH : (i + 1) * BATCH])
        return [float(loss) for loss in losses]

    return loop


def _classifier(base, steps):
    import keras

    inputs = x = keras.Input((784,))
    for units in (256, 128):
        x = keras.layers.Dropout(0.2)(keras.layers.Dense(units, activation="relu")(x))
    model = base(inputs, keras.layers.Dense(10)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(), loss, metrics=["accuracy"], jit_compile=_jit())
    random = np.random.default_rng(0)
    x = random.normal(size=(steps * 64, 784)).astype("float32")
    y = random.integers(0, 10, len(x)).astype("int32")
    return lambda: model.fit(x, y, batch_size=64, shuffle=False, verbose=0)


def keras_classifier(steps):
    """A classifier of two hidden layers, batch 64, in Keras's own `fit`."""
    import keras

    return _classifier(keras.Model, steps)


def ours_classifier(steps):
    """The same, its step written for a PortableModel."""
    from kerasmodels import training

    class Classifier(training.PortableModel):
        def training_step(self, data):
            x, y = data

            def loss_fn():
                y_pred = self(x, training=True)
                return self.compute_loss(x, y, y_pred), y_pred

            _, y_pred = self.minimize(loss_fn, self.trainable_variables)
            return self.compute_metrics(x, y, y_pred)

    return _classifier(Classifier, steps)


def main():
    """Does the work of `sys.argv` once for every line on standard input."""
    contestants = {**vars(residual), **vars(encoder), **globals()}
    work = contestants[sys.argv[1]](**json.loads(sys.argv[2]))
    for _ in sys.stdin:
        start = time.perf_counter()
        work()
        seconds = time.perf_counter() - start
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print("result", json.dumps({"seconds": seconds, "megabytes": megabytes}), flush=True)


if __name__ == "__main__":
    main()
