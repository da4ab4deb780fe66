"""Every example of a docstring and every block of README, run as a stranger would paste it.

Each runs alone, with nothing but its own imports, in an empty folder. Where the comment at the end
of a line says what comes out (`# (2, 10)`, `# 1.6094`), it must be true.
"""

import ast
import functools
import inspect
import io
import json
import pathlib
import re
import textwrap
import tokenize

import keras
import numpy as np
import pytest
from PIL import Image

from kerasmodels import checkpoints, data, models
from tests.kit import backend

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
DEFINITIONS = ast.Module, ast.ClassDef, ast.FunctionDef

# What runs on some backends alone, each of which says so. All others run on the three.
SAVED_MODEL = "tensorflow", "jax"
BACKENDS = {
    "decoding/generate.py generate_tensors": ("tensorflow",),
    "distribution.py transformer_layout": ("jax",),
    "export/functional.py saved_model": SAVED_MODEL,
    "export/functional.py onnx": ("torch",),
    "export/images.py image_classifier": SAVED_MODEL,
    "export/text.py text_model": SAVED_MODEL,
    "training/fit_on_replicas.py FitOnReplicas": ("tensorflow",),
    "README: Several devices, a cluster, a TPU 1": ("tensorflow",),
    "README: Several devices, a cluster, a TPU 2": ("jax",),
    "README: Several devices, a cluster, a TPU 3": ("jax",),
    "README: Several devices, a cluster, a TPU 4": ("tensorflow",),
}
# What is not run here, and what it needs.
LEFT_OUT = {
    "README: Several devices, a cluster, a TPU 5": "two machines; test_distribution has it",
    "README: Several devices, a cluster, a TPU 6": "a TPU",
}


@functools.cache
def docstrings():
    """`(place, docstring)` of everything in the package that has one."""
    found = []
    for path in sorted((ROOT / "kerasmodels").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, DEFINITIONS) and ast.get_docstring(node):
                place = path.relative_to(ROOT / "kerasmodels").as_posix()
                found.append(
                    (f"{place} {getattr(node, 'name', '')}".strip(), ast.get_docstring(node))
                )
    return found


def all_blocks():
    """The code of every block by its name: where it stands, and its number if there are several."""
    sections = [(f"README: {part.splitlines()[0]}", part) for part in README.split("\n## ")[1:]]
    blocks = {}
    for place, text in [*docstrings(), *sections]:
        found = PYTHON.findall(text)
        for number, code in enumerate(found, start=1):
            blocks[f"{place} {number}" if len(found) > 1 else place] = textwrap.dedent(code)
    return blocks


BLOCKS = all_blocks()
HERE = [
    name
    for name in BLOCKS
    if name not in LEFT_OUT and backend() in BACKENDS.get(name, (backend(),))
]


# === What the examples find around them: files, and a hub ===


def sentences(count=200, seed=0):
    """Lines of text, some of them empty: documents, a sentence a line."""
    rng = np.random.default_rng(seed)
    syllables = [a + b for a in "bdfgklmnprst" for b in "aeiou"]
    words = ["".join(rng.choice(syllables, rng.integers(1, 4))) for _ in range(150)]
    lines = [" ".join(rng.choice(words, rng.integers(4, 9))) + "." for _ in range(count)]
    return [line if i % 10 else "" for i, line in enumerate(lines)]


def picture(path, size, seed=0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def make_flowers(folder):
    for number in range(40):
        picture(folder / f"class{number % 2}" / f"{number}.png", (40, 50), seed=number)


def make_cifar10(folder):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        rows = rng.integers(0, 10, (4, 3073), dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    (folder / "batches.meta.txt").write_text("".join(f"class{i}\n" for i in range(10)))


def make_cifar100(folder):
    folder.mkdir()
    for name in ("train", "test"):
        rows = np.random.default_rng(0).integers(0, 20, (4, 3074), dtype=np.uint8)
        (folder / f"{name}.bin").write_bytes(rows.tobytes())
    for label, count in (("coarse", 20), ("fine", 100)):
        names = "".join(f"class{i}\n" for i in range(count))
        (folder / f"{label}_label_names.txt").write_text(names)


def make_pairs(folder):
    documents = [[[5, 6], [7], [8, 9]], [[15, 16, 17], [18]]]
    data.write_shards(data.SentencePairs(documents, max_length=8), folder, num_shards=2)


FILES = {
    "text.txt": lambda path: path.write_text("\n".join(sentences()), encoding="utf-8"),
    "cat.jpg": lambda path: picture(path, (60, 80)),
    "dog.png": lambda path: picture(path, (80, 60)),
    "flowers": make_flowers,
    "cifar-10-batches-bin": make_cifar10,
    "cifar-100-binary": make_cifar100,
    "pairs": make_pairs,
    "pairs.tsv": lambda path: path.write_text("The house\tDas Haus\nis wonderful.\tist schön.\n"),
}


def bert_tokenizer():
    words = ["paris", "is", "the", "of", "france", ".", "a", "film", "to", "remember", "capital"]
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *words, *letters, *(f"##{letter}" for letter in letters)]
    return data.BertTokenizer(list(dict.fromkeys(pieces)))


def write_bert(folder):
    tokenizer = bert_tokenizer()
    bert = models.Bert(tokenizer.vocabulary_size, 1, 2, 16, 32)
    model = models.BertPretraining(bert)
    model.tokenizer = tokenizer
    model.save_to_preset(folder)


def write_sentence_encoder(folder):
    tokenizer = bert_tokenizer()
    bert = models.Bert(tokenizer.vocabulary_size, 1, 2, 384, 32)
    model = models.BertSentenceEncoder(bert)
    model.tokenizer = tokenizer
    model.save_to_preset(folder)


def write_resnet(folder):
    names = [f"class{i}" for i in range(1000)]
    model = models.ResNet(18, filters=(4, 8, 8, 8), class_names=names)
    model.preprocessor = checkpoints.ImageProcessor(64, 56)
    model.save_to_preset(folder)


def write_marian(folder):
    import sentencepiece

    files = {name: io.BytesIO() for name in ("source.spm", "target.spm")}
    pieces = {}
    for name, file in files.items():
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(["The house is wonderful.", *filter(None, sentences())]),
            model_writer=file,
            vocab_size=60,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / name).write_bytes(file.getvalue())
        model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
        pieces |= {model.id_to_piece(i): None for i in range(3, model.get_piece_size())}
    vocabulary = {piece: i for i, piece in enumerate(["</s>", "<unk>", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer"})
    )
    pad = vocabulary["<pad>"]
    model = models.Transformer(
        len(vocabulary),
        1,
        2,
        16,
        32,
        positions="sinusoidal",
        generation={"pad_id": pad, "start_id": pad, "end_id": 0, "max_length": 10},
    )
    model.tokenizer = checkpoints.MarianTokenizer.from_folder(folder)
    model.save_to_preset(folder)


PUBLISHED = {
    "google-bert/bert-base-cased": write_bert,
    "google-bert/bert-base-uncased": write_bert,
    "sentence-transformers/all-MiniLM-L6-v2": write_sentence_encoder,
    "microsoft/resnet-50": write_resnet,
    "Helsinki-NLP/opus-mt-en-de": write_marian,
}


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A function that "downloads" a repository: a tiny model of the same kind, made once."""

    @functools.cache
    def download(repository):
        folder = tmp_path_factory.mktemp("hub")
        PUBLISHED[repository](folder)
        return str(folder)

    return lambda repository, allow_patterns=None: download(repository)


def briefly(fit):
    """`fit` that ends early: the code of an example runs, but not for as long as it takes."""
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def short(*args, **kwargs):
        call = signature.bind(*args, **kwargs)
        given = call.arguments
        given["epochs"] = min(given.get("epochs", 1), 2)
        rows = len(given["x"]) if isinstance(given.get("x"), np.ndarray) else 0
        if rows > 2 * (given.get("batch_size") or 32):
            given["steps_per_epoch"] = 2
        return fit(*call.args, **call.kwargs)

    return short


@pytest.fixture
def surroundings(tmp_path, monkeypatch, hub):
    """An empty folder, the hub, and everything global as it was before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub)
    monkeypatch.setattr(keras.Model, "fit", briefly(keras.Model.fit))
    if backend() == "tensorflow":
        import tensorflow as tf

        from tests.kit.replicas import two_replicas

        strategy = two_replicas()
        monkeypatch.setattr(tf.distribute, "MirroredStrategy", lambda: strategy)
    before = keras.distribution.distribution(), keras.config.image_data_format()
    yield tmp_path
    keras.distribution.set_distribution(before[0])
    keras.config.set_image_data_format(before[1])


# === What a comment says comes out ===


def literal(comment):
    """The values that a comment begins with or ends with, or `None`."""
    for text in (comment, comment.split(":")[0], comment.split(",")[0], comment.split("=")[-1]):
        try:
            return ast.literal_eval(text.strip())
        except (SyntaxError, ValueError):
            pass
    return None


def agrees(value, said):
    """Whether a value is what was said of it; arrays may be told by their shapes."""
    if isinstance(value, dict):
        return value.keys() == said.keys() and all(agrees(value[key], said[key]) for key in said)
    if isinstance(value, tuple | list) and any(hasattr(part, "shape") for part in value):
        return len(value) == len(said) and all(map(agrees, value, said))
    if hasattr(value, "shape"):
        if tuple(value.shape) == said:
            return True
        value = keras.ops.convert_to_numpy(value)
        return value.shape == np.shape(said) and np.allclose(value, said, rtol=1e-3)
    if isinstance(value, float):
        return np.isclose(value, said, rtol=1e-3)
    return value == said


def claims(code):
    """`{last line of a statement: what its comment says}`."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type == tokenize.COMMENT:
            said = literal(token.string.removeprefix("#"))
            if said is not None:
                found[token.start[0]] = said
    return found


def run(code, path):
    """Runs a block in a namespace of its own; returns how many claims about results were true.

    What a published model says is not what the tiny one in its place says: there shapes alone must
    be true.
    """
    path.write_text(code, encoding="utf-8")  # TensorFlow and PyTorch look for sources
    namespace, said, checked = {"__name__": "__main__"}, claims(code), 0
    for statement in ast.parse(code, str(path)).body:
        claim = said.get(statement.end_lineno)
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), str(path), "eval"), namespace)
        else:
            exec(compile(ast.Module([statement], []), str(path), "exec"), namespace)
            value = None
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = namespace[statement.targets[0].id]
        if "hf://" in code and not isinstance(claim, tuple):
            continue
        if claim is not None and value is not None:
            line = ast.get_source_segment(code, statement)
            assert agrees(value, claim), f"{line}\ngives {value}, and not {claim}"
            checked += 1
    return checked


@pytest.mark.parametrize("name", HERE)
def test_example(name, surroundings):
    code = BLOCKS[name]
    for file, make in FILES.items():
        if f'"{file}"' in code:
            make(surroundings / file)
    run(code, surroundings / "example.py")


def test_a_false_claim_is_found(tmp_path):
    for code in ("1 + 1  # 3", "x = [1.0]\nx[0]  # 1.1", "{1: 2}  # {1: 3}"):
        with pytest.raises(AssertionError, match="and not"):
            run(code, tmp_path / "example.py")
    assert run("import numpy as np\nx = np.ones((2, 3))  # (2, 3)", tmp_path / "example.py") == 1


def test_every_example_is_a_block():
    """Nothing runs of an example in another form; and what the tables say of blocks is there."""
    assert not [place for place, text in docstrings() if ">>>" in text]
    assert not (set(BACKENDS) | set(LEFT_OUT)) - set(BLOCKS)
    assert len(BLOCKS) > 130
    for name in LEFT_OUT:  # at least it is Python
        compile(BLOCKS[name], name, "exec")


def test_commands_in_docs_name_files():
    texts = [text for _, text in docstrings()] + [(ROOT / "README.md").read_text(encoding="utf-8")]
    texts += [ast.get_docstring(ast.parse(p.read_text())) for p in (ROOT / "examples").glob("*.py")]
    commands = re.findall(
        r"python ((?:examples|benchmarks)/\S+\.py)", "\n".join(filter(None, texts))
    )
    assert commands and not [name for name in commands if not (ROOT / name).is_file()]
