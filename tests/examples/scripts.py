"""Examples as their users run them."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
from PIL import Image

ROOT = pathlib.Path(__file__).parents[2]


def load(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


def run(script, *arguments):
    """Runs an example as a user does; returns what it writes on standard output."""
    environment = {
        **os.environ,
        "KERAS_BACKEND": keras.backend.backend(),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{script}.py", *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def assert_is_a_picture(path):
    """A PNG that is neither empty nor a blank page."""
    with Image.open(path) as image:
        assert image.format == "PNG" and min(image.size) >= 300
        grey = np.asarray(image.convert("L"))
    assert len(np.unique(grey)) > 50 and 0.01 < (grey < 250).mean() < 0.99
