"""BERT-base, batch 8, length 128, random weights: the contestants of `run.py`, for `workers.py`.

Each takes `mode` ("forward", or "pretraining": 20 masked positions a row and, but for keras_hub,
which has none, next sentences; AdamW) and `dtype`, and returns a function that does it once.
`embedding` takes news and movie reviews of gensim's with a model of MiniLM's size, 256 positions.
"""

import os

import numpy as np

BATCH, LENGTH, PREDICTIONS, VOCABULARY = 8, 128, 20, 30522
TEXTS = 160
MINILM = dict(num_layers=6, num_heads=12, hidden_dim=384, intermediate_dim=1536)


def _data():
    random = np.random.default_rng(0)
    lengths = random.integers(LENGTH // 2, LENGTH + 1, BATCH)
    inputs = {
        "token_ids": random.integers(1000, VOCABULARY, (BATCH, LENGTH)).astype("int32"),
        "segment_ids": np.repeat([[0, 1]], LENGTH // 2, axis=1).repeat(BATCH, 0).astype("int32"),
        "padding_mask": np.arange(LENGTH) < lengths[:, None],
    }
    positions = [np.sort(random.permutation(n)[:PREDICTIONS]) for n in lengths]
    positions = np.stack(positions).astype("int32")
    labels = random.integers(1000, VOCABULARY, positions.shape).astype("int32")
    return inputs, positions, labels, random.integers(0, 2, BATCH).astype("int32")


def _keras(model, mode, targets=None, loss=None):
    # The faster of the two for each backend here, for us and for the peer alike.
    jit = os.environ["KERAS_BACKEND"] == "jax"
    inputs, positions, _, _ = _data()
    if mode == "forward":
        model.compile(jit_compile=jit)
        return lambda: model.predict_on_batch(inputs)
    from kerasmodels import training

    model.compile(training.AdamW(1e-4), loss, jit_compile=jit)
    inputs = {**inputs, "mask_positions": positions}
    return lambda: model.train_on_batch(inputs, targets)


def ours_bert(mode, dtype="float32"):
    """Ours."""
    from kerasmodels import models, training

    bert = models.Bert(VOCABULARY, dtype=dtype)
    if mode == "forward":
        return _keras(bert, mode)
    _, _, labels, follows = _data()
    loss = training.SmoothedCrossEntropy(0.0)
    targets = {"mlm": labels, "nsp": follows}
    return _keras(models.BertPretraining(bert), mode, targets, {"mlm": loss, "nsp": loss})


def keras_hub_bert(mode, dtype="float32"):
    """keras_hub's, whose pre-training has masked pieces alone."""
    import keras
    import keras_hub

    bert = keras_hub.models.BertBackbone(VOCABULARY, 12, 12, 768, 3072, dtype=dtype)
    if mode == "forward":
        return _keras(bert, mode)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _keras(keras_hub.models.BertMaskedLM(bert), mode, _data()[2], loss)


def transformers_bert(mode, dtype="float32"):
    """That of transformers in PyTorch, which computes logits at every position."""
    import torch
    from transformers import BertConfig, BertForPreTraining, BertModel

    inputs, positions, labels, follows = _data()
    arguments = {
        "input_ids": torch.tensor(inputs["token_ids"]).long(),
        "token_type_ids": torch.tensor(inputs["segment_ids"]).long(),
        "attention_mask": torch.tensor(inputs["padding_mask"]).long(),
    }
    if mode == "forward":
        model = BertModel(BertConfig()).to(getattr(torch, dtype)).eval()

        def forward():
            with torch.inference_mode():
                return model(**arguments).last_hidden_state.float().numpy()

        return forward
    model = BertForPreTraining(BertConfig()).train()
    everywhere = np.full((BATCH, LENGTH), -100, "int64")
    np.put_along_axis(everywhere, positions.astype("int64"), labels, axis=1)
    arguments["labels"] = torch.tensor(everywhere)
    arguments["next_sentence_label"] = torch.tensor(follows).long()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01)

    def step():
        optimizer.zero_grad()
        loss = model(**arguments).loss
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def embedding(packed):
    """Vectors of texts of mixed length: `embed`, or each batch padded as it comes."""
    from pathlib import Path

    from gensim.test.utils import datapath

    from kerasmodels import data, models

    names = ("lee_background.cor", "lee.cor", "pang_lee_polarity.cor")
    lines = [Path(datapath(name)).read_text(encoding="latin-1").splitlines() for name in names]
    lines = [
        line.removeprefix("__label__pos ").removeprefix("__label__neg ")
        for part in lines
        for line in part
    ]
    texts = [str(line) for line in np.random.default_rng(0).permutation(lines)[:TEXTS]]
    tokenizer = data.BertTokenizer.train(texts, 8000)
    tokenizer.max_sequence_length = 256
    bert = models.Bert(tokenizer.vocabulary_size, **MINILM)
    bert.tokenizer = tokenizer
    encoder = models.BertSentenceEncoder(bert)
    if packed:
        return lambda: encoder.embed(texts, truncation=True, show_progress=False)

    def as_they_come():
        return [
            encoder.predict_on_batch(tokenizer(texts[i : i + 32], truncation=True))
            for i in range(0, len(texts), 32)
        ]

    return as_they_come
