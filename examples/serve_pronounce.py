"""Says words with what `examples/pronounce.py` exported: no Keras, no kerasmodels.

    python examples/serve_pronounce.py runs/pronounce hello world

A SavedModel runs on TensorFlow alone and holds the whole search; an ONNX file runs on onnxruntime
alone and is searched greedily here. One line a word: the word, a tab, its phonemes.
"""

import json
import pathlib
import sys

import numpy as np

PAD, START, END = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]  # the ids before the vocabulary's own tokens


def savedmodel_generate(path, token_ids):
    """The ids that the file's own `generate` signature writes, `(batch, max_length)`."""
    import tensorflow as tf

    generate = tf.saved_model.load(str(path)).signatures["generate_token_ids"]
    return next(iter(generate(encoder_token_ids=tf.constant(token_ids)).values())).numpy()


def onnx_generate(path, token_ids, max_length=24):
    """The most probable token, again and again, `(batch, max_length)`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    written = np.full((len(token_ids), 1), START, "int32")
    for _ in range(max_length):
        inputs = {
            "encoder_token_ids": token_ids,
            "encoder_padding_mask": token_ids != PAD,
            "decoder_token_ids": written,
            "decoder_padding_mask": np.ones_like(written, bool),
        }
        logits = session.run(None, inputs)[0]  # (batch, length, vocabulary)
        following = logits[:, -1:].argmax(axis=-1).astype("int32")
        written = np.concatenate([written, following], axis=1)
    return written[:, 1:]


def main():
    """Reads the vocabularies and the model beside them, and prints a line a word."""
    folder, words = pathlib.Path(sys.argv[1]), sys.argv[2:]
    letters, sounds = (
        [*SPECIAL, *json.loads((folder / name).read_text())["tokens"]]
        for name in ("letters.json", "sounds.json")
    )
    token_ids = np.full((len(words), max(map(len, words))), PAD, "int32")
    for row, word in zip(token_ids, words, strict=True):
        row[: len(word)] = [letters.index(letter) for letter in word]
    if (folder / "model.onnx").exists():
        ids = onnx_generate(folder / "model.onnx", token_ids)
    else:
        ids = savedmodel_generate(folder / "saved_model", token_ids)
    for word, row in zip(words, ids, strict=True):
        end = list(row).index(END) if END in row else len(row)
        print(word, " ".join(sounds[i] for i in row[:end]), sep="\t")


if __name__ == "__main__":
    main()
