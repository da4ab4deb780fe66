"""The export contract: a saved file answers as the model does, for any batch and length (C32)."""

from keras import tree

from kerasmodels import export
from tests.kit.tools import assert_close, backend, to_numpy


def check_export(case, folder):
    """A SavedModel run by TensorFlow alone; on PyTorch ONNX, run by onnxruntime (case C32)."""
    layer = case.built()
    model = case.functional(layer)
    run = _onnx(model, folder) if backend() == "torch" else _saved_model(model, folder)
    prefix = "input_" if model.inputs[0].name.startswith("input_") else ""
    for batch, length in (
        (2, lambda n: n),
        (2, lambda n: n + 3),
        (3, lambda n: 5),
        (1, lambda n: 1),
    ):
        arrays = case.resized(batch, length)
        found = run({prefix + name: array for name, array in arrays.items()})
        assert_close(found, to_numpy(case.call(layer, arrays)), rtol=1e-4, atol=1e-5)


def _saved_model(model, folder):
    import tensorflow as tf

    path = str(folder / "saved_model")
    export.saved_model(model, path)
    served = tf.saved_model.load(path)
    return lambda arrays: tree.map_structure(
        lambda leaf: leaf.numpy(), served.serve(tree.map_structure(tf.constant, arrays))
    )


def _onnx(model, folder):
    import onnxruntime

    path = str(folder / "model.onnx")
    export.onnx(model, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def run(arrays):
        found = session.run(None, arrays)
        return found[0] if len(found) == 1 else found

    return run
