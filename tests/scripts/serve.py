"""Runs a SavedModel where neither Keras nor this package exists.

python -m tests.scripts.serve FOLDER CALLS OUT: `CALLS` is a pickled list of `(function, inputs)`;
`function` is the name of a function of the SavedModel, or "signature NAME".
"""

import pickle
import sys

for package in ("keras", "kerasmodels", "jax", "torch"):
    sys.modules[package] = None  # an import of it is an error

import tensorflow as tf  # noqa: E402

folder, calls, out = sys.argv[1:]
served = tf.saved_model.load(folder)


def call(function, inputs):
    inputs = tf.nest.map_structure(tf.constant, inputs)
    if function.startswith("signature "):
        result = served.signatures[function.removeprefix("signature ")](**inputs)
        result = result if len(result) > 1 else next(iter(result.values()))
    else:
        result = getattr(served, function)(inputs)
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), result)


with open(calls, "rb") as file:
    results = [call(*one) for one in pickle.load(file)]
with open(out, "wb") as file:
    pickle.dump((sorted(served.signatures), results), file)
