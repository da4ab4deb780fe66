"""Functional models as a SavedModel or as ONNX, batch and length free."""

import warnings

import keras
from keras import ops, tree

from kerasmodels import decoding
from kerasmodels.export.archive import Archive, require_saved_model
from kerasmodels.export.inputs import dimensions_of, input_specs, names_of
from kerasmodels.export.replacing import replacing


def saved_model(model, path, search=None, max_length=None):
    """Writes a TensorFlow SavedModel that answers as the model does, batch and length free.

    `tf.saved_model.load(path)` needs TensorFlow alone, neither Keras nor this package, also for a
    model that was trained on JAX. What it loads has these functions, and signatures of the same
    names:

    - `serve(inputs)`: the model's output. `inputs` is what the model takes, a dict for a model
      with several inputs.
    - `serve_token_ids(inputs)`, for models with padding masks: takes the ids alone and keeps what
      is not the pad id (and the first position of a decoder, which may start with the pad id).
    - `generate(inputs)`, with a `search`: the whole search as one graph. `inputs` is what
      `model.generate` takes, and the result what it returns: ids `(batch, max_length)` int32.
    - `generate_token_ids(inputs)`: the same from the ids alone.

    In Python `serve` and `generate` take the ids alone as well. Masks are boolean. Sampling draws
    anew with every call, or the same every time if it has a seed. On JAX the file runs on the
    kind of device it was written on; written on a CPU (`JAX_PLATFORMS=cpu`) it runs on all.

    Args:
        model: a functional `keras.Model`; with a `search` one that can generate, as
            `models.Transformer` can.
        path: the folder. A SavedModel that is there already is replaced when the new one is
            complete.
        search: None, or a search of `decoding` (`GreedySearch()`, `BeamSearch(4)`, ...).
        max_length: number of tokens that `generate` returns, fixed in the file; needed with a
            search.

    Raises:
        ValueError: on the PyTorch backend; if the model is not functional or cannot generate; if
            only one of `search` and `max_length` is given; if `path` holds something else than a
            SavedModel.

    Example:
    ```python
    import tensorflow as tf
    from kerasmodels import decoding, export, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)
    export.saved_model(model, "translator", search=decoding.BeamSearch(4), max_length=24)

    # Elsewhere:
    served = tf.saved_model.load("translator")
    ids = tf.constant([[3, 1, 20, 2]])
    served.generate({"encoder_token_ids": ids})  # (1, 24)
    served.signatures["generate_token_ids"](encoder_token_ids=ids)
    ```
    """
    require_saved_model("`export.onnx`")
    specs = input_specs(model)
    if (search is None) != (max_length is None):
        raise ValueError(
            "`search` and `max_length` must be given together or not at all. "
            f"Received: search={search}, max_length={max_length}"
        )
    if search is not None:
        generate, noise = _generation(model, search, max_length)
    archive = Archive(model)
    archive.add("serve", lambda inputs: model(inputs, training=False), specs)
    if search is not None:
        # What the decoder reads while it is trained is what it writes now.
        specs = {key: spec for key, spec in specs.items() if not key.startswith("decoder_")}
        archive.add("generate", generate, specs, noise)
    with replacing(path, marker="saved_model.pb") as temporary:
        archive.write(temporary)


def onnx(model, path):
    """Writes an ONNX file that answers as the model does, batch and length free.

    onnxruntime runs it without Keras and PyTorch. Inputs have the names of the model's inputs, all
    of them needed, masks too (boolean); outputs are called `output_0`, `output_1`, ... The file
    holds the model, not a search: a loop around it decodes (see the example).

    Args:
        model: a functional `keras.Model` with the dtype policy float32.
        path: the file. One that is there already is replaced when the new one is complete. Weights
            of more than 1.5 GB go into a second file, `path` with `.data` appended.

    Raises:
        ValueError: on another backend than PyTorch; if the model is not functional; if it cannot
            be exported with free batch and length. Nothing is written then.

    Example:
    ```python
    import numpy as np
    import onnxruntime
    from kerasmodels import export, models

    model = models.Transformer(1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256)
    export.onnx(model, "translator.onnx")

    # Elsewhere, greedy decoding of one sentence; the ids are those of `model.token_rules`:
    session = onnxruntime.InferenceSession("translator.onnx")
    start, end = 1, 2
    source = np.array([[3, 1, 20, 2]], "int32")
    tokens = np.array([[start]], "int32")
    while tokens[0, -1] != end and tokens.shape[1] <= 24:
        inputs = {"encoder_token_ids": source, "encoder_padding_mask": np.ones(source.shape, bool)}
        inputs |= {"decoder_token_ids": tokens, "decoder_padding_mask": np.ones(tokens.shape, bool)}
        logits = session.run(None, inputs)[0]  # (1, length, vocabulary)
        following = logits[:, -1:].argmax(-1).astype("int32")
        tokens = np.concatenate([tokens, following], axis=1)
    ```
    """
    backend = keras.backend.backend()
    if backend != "torch":
        raise ValueError(
            f"The {backend} backend cannot write ONNX with free shapes. Use `export.saved_model`, "
            "or save the model as `.keras` and export it with KERAS_BACKEND=torch."
        )
    import torch

    specs = input_specs(model)

    class Positional(torch.nn.Module):
        """The model, called with its inputs one by one, as ONNX wants it."""

        def __init__(self):
            super().__init__()
            self.model = model
            self.training = False  # of this module alone: `eval()` would reach into Keras

        def forward(self, *inputs):
            return self.model(tree.pack_sequence_as(specs, inputs), training=False)

    names = tree.flatten(names_of(specs))
    dimensions = [
        dimensions_of(name, spec) for name, spec in zip(names, tree.flatten(specs), strict=True)
    ]
    # The sizes of the sample that is traced: all different, none is 1, which would be a constant.
    free = dict.fromkeys(d for shape in dimensions for d in shape if isinstance(d, str))
    samples = {name: size for size, name in enumerate(free, start=2)}
    inputs = tuple(
        ops.ones([samples.get(d, d) for d in shape], dtype=spec.dtype)
        for shape, spec in zip(dimensions, tree.flatten(specs), strict=True)
    )
    axes = {name: torch.export.Dim(name) for name in free}
    with replacing(path) as temporary, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            program = torch.onnx.export(
                Positional(),
                inputs,
                dynamo=True,
                dynamic_shapes=(
                    tuple({i: axes[d] for i, d in enumerate(s) if d in axes} for s in dimensions),
                ),
                input_names=names,
                output_names=[f"output_{i}" for i in range(len(model.outputs))],
                verbose=False,
            )
        except Exception as error:
            raise ValueError(
                "`model` cannot be exported to ONNX with free sizes of "
                f"{', '.join(free)}: see the error above"
            ) from error
        program.save(temporary)


def _generation(model, search, max_length):
    """`generate` as a function of tensors, and its noise (see `Archive.add`)."""
    if not isinstance(search, decoding.Search):
        raise ValueError(f"`search` must be a search of `decoding`. Received: search={search!r}")
    if not (hasattr(model, "start") and hasattr(model, "step")):
        raise ValueError(
            "`search` needs a model that can generate, with `start` and `step` (see `decoding`). "
            f"Received: model of class {type(model).__name__}"
        )

    def generate(inputs, noise=None):
        return decoding.generate_tensors(model, inputs, search, max_length, noise=noise)[0]

    if search.noise(1, 1) is None:
        return generate, None

    def draw(batch_size):
        import tensorflow as tf

        shape, seed = (batch_size, max_length), getattr(search, "seed", None)
        if seed is None:
            return tf.random.uniform(shape)
        return tf.random.stateless_uniform(shape, seed=(seed, 0))

    return generate, (keras.KerasTensor((None, max_length), dtype="float32", name="noise"), draw)
