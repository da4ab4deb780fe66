"""The notebooks in guides/ run from top to bottom, and what is stored of them is clean."""

import pathlib
import re

import nbformat
import pytest
from nbclient import NotebookClient

from tests.kit import backend

GUIDES = sorted((pathlib.Path(__file__).parents[1] / "guides").glob("*.ipynb"))
guides = pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.stem)


def outputs(notebook, kind):
    """Every output of one type, of all cells in order."""
    return [
        output
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if output.output_type == kind
    ]


def printed(notebook):
    return "".join(o.text for o in outputs(notebook, "stream") if o.name == "stdout")


def pictures(notebook):
    return [
        o.data["image/png"] for o in outputs(notebook, "execute_result") if "image/png" in o.data
    ]


def differences(notebook):
    """What the guides print wherever a layer stands beside its formula."""
    return [float(x) for x in re.findall(r"largest difference: (\S+)", printed(notebook))]


def test_there_are_guides():
    assert [path.stem for path in GUIDES] == ["bert", "gan", "resnet", "transformer"]


@pytest.mark.skipif(
    backend() != "torch",
    reason="compiling takes longest; what a guide calls has its own tests on every backend",
)
@guides
def test_guide_runs(path, tmp_path, monkeypatch):
    # The kernel is a process of its own: it inherits KERAS_BACKEND and what is set here.
    monkeypatch.setenv("KERASMODELS_GUIDE_QUICK", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    stored = len(pictures(notebook)), len(differences(notebook))
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()  # raises at the first cell that fails

    assert (len(pictures(notebook)), len(differences(notebook))) == stored
    assert max(differences(notebook)) < 1e-5
    assert not list(tmp_path.glob("*.keras"))  # nothing is left where the reader works


@guides
def test_stored_guide_is_clean(path):
    assert path.stat().st_size < 400_000
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) >= (4, 5)
    ids = [cell.id for cell in notebook.cells]
    assert len(set(ids)) == len(ids)
    # Not the whole file: in a picture's base64 anything may stand.
    written = "\n".join(cell.source for cell in notebook.cells) + printed(notebook)
    assert not re.search(r"(?<![\w.:/])/(home|root|tmp|work|usr|Users|content|mnt)/", written)
    assert not outputs(notebook, "error")
    assert not [o for o in outputs(notebook, "stream") if o.name == "stderr"]
    assert len(pictures(notebook)) >= 6
    assert max(differences(notebook)) < 1e-5


def test_the_transformer_guide_follows_the_paper():
    guide = nbformat.read(next(p for p in GUIDES if p.stem == "transformer"), as_version=4)
    headings = re.findall(
        r"^## (\d(?:\.\d)*) ",
        "\n".join(cell.source for cell in guide.cells if cell.cell_type == "markdown"),
        re.MULTILINE,
    )
    assert headings == sorted(headings)
    paper = ["3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4", "5.1", "5.3", "5.4", "6.1"]
    assert headings == paper
