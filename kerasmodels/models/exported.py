"""`export` of Keras's models, by way of `kerasmodels.export`."""

import keras

from kerasmodels import export


class ExportsItself:
    """A mixin for functional `keras.Model`s whose `export` answers as the model does.

    Keras's own `export` gives every free size a name of its own on JAX, so that a mask and its ids
    may differ in length and the model cannot be traced, and its ONNX on PyTorch knows no free size
    at all. What `kerasmodels.export` can write is therefore left to it.
    """

    def export(self, filepath, format="tf_saved_model", verbose=None, **kwargs):
        """Writes the model as a file for inference, batch and length free.

        Args:
            filepath: Where to write: a folder for `"tf_saved_model"`, else a file.
            format: `"tf_saved_model"` on TensorFlow and JAX, as `export.saved_model` writes it;
                `"onnx"` on PyTorch, as `export.onnx` writes it. Other formats are Keras's work.
            verbose: Whether to print where the file is. Defaults to `True`.
            **kwargs: Further arguments of `keras.Model.export`, which Keras then answers for.

        Raises:
            ValueError: If the backend cannot write the format; the message names the function of
                `kerasmodels.export` that can write this model.
        """
        backend = keras.backend.backend()
        ours = {"tensorflow": "tf_saved_model", "jax": "tf_saved_model", "torch": "onnx"}
        write = export.onnx if backend == "torch" else export.saved_model
        if format == ours.get(backend) and not kwargs:
            write(self, filepath)
            if verbose is not False:
                print(f"Saved artifact at '{filepath}'.")
            return
        try:
            super().export(filepath, format=format, verbose=verbose, **kwargs)
        except Exception as error:
            raise ValueError(
                f"{type(self).__name__} cannot be exported as format={format!r} on the {backend} "
                f"backend. Use `kerasmodels.export.{write.__name__}(model, path)`, or save the "
                "model as `.keras` and export it with another KERAS_BACKEND. "
                f"Received: {type(error).__name__} of Keras: {error}"
            ) from error
