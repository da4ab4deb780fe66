"""Models as files that run without Keras: SavedModel (TensorFlow, JAX) and ONNX (PyTorch).

| | TensorFlow | JAX | PyTorch |
|---|---|---|---|
| `saved_model`, `serve` | yes | yes | no: `onnx` |
| `saved_model`, `generate` (the whole search) | yes | yes | no |
| `onnx`, batch and length free | no | no | yes |

A `.keras` file loads on every backend, so what was trained on one can be exported on another.
"""

import contextlib
import pathlib
import re
import shutil
import tempfile
import warnings

import keras
from keras import ops, tree

from kerasmodels import decoding

# What a model's `generation` says about tokens, and `decoding.generate_tensors` takes.
_TOKEN_RULES = ("pad_id", "start_id", "end_id", "forced_end", "suppress_ids", "renormalize")


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
    export.saved_model(model, "pronounce", search=decoding.BeamSearch(4), max_length=24)

    # Elsewhere:
    model = tf.saved_model.load("pronounce")
    ids = tf.constant([[3, 1, 20, 2]])
    model.generate({"encoder_token_ids": ids})
    model.signatures["generate_token_ids"](encoder_token_ids=ids)
    ```
    """
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise ValueError(
            f"The {backend} backend cannot write a SavedModel. Use `export.onnx`, or save the "
            "model as `.keras` and export it with KERAS_BACKEND=tensorflow or jax."
        )
    specs = _input_specs(model)
    if (search is None) != (max_length is None):
        raise ValueError(
            "`search` and `max_length` must be given together or not at all. "
            f"Received: search={search}, max_length={max_length}"
        )
    if search is not None:
        generate, noise = _generation(model, search, max_length)
    archive = _Archive(model)
    archive.add("serve", lambda inputs: model(inputs, training=False), specs)
    if search is not None:
        # What the decoder reads while it is trained is what it writes now.
        specs = {key: spec for key, spec in specs.items() if not key.startswith("decoder_")}
        archive.add("generate", generate, specs, noise)
    with _replacing(path, marker="saved_model.pb") as temporary:
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
    export.onnx(model, "pronounce.onnx")

    # Elsewhere, greedy decoding of one word:
    session = onnxruntime.InferenceSession("pronounce.onnx")
    source = np.array([[3, 1, 20, 2]], "int32")
    tokens = np.array([[1]], "int32")  # the start token
    while tokens[0, -1] != 2 and tokens.shape[1] <= 24:  # the end token
        inputs = {"encoder_token_ids": source, "encoder_padding_mask": source != 0}
        inputs |= {"decoder_token_ids": tokens, "decoder_padding_mask": tokens != 0}
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

    specs = _input_specs(model)

    class Positional(torch.nn.Module):
        """The model, called with its inputs one by one, as ONNX wants it."""

        def __init__(self):
            super().__init__()
            self.model = model
            self.training = False  # of this module alone: `eval()` would reach into Keras

        def forward(self, *inputs):
            return self.model(tree.pack_sequence_as(specs, inputs), training=False)

    names = tree.flatten(_names(specs))
    dimensions = [
        _dimensions(name, spec) for name, spec in zip(names, tree.flatten(specs), strict=True)
    ]
    # The sizes of the sample that is traced: all different, none is 1, which would be a constant.
    free = dict.fromkeys(d for shape in dimensions for d in shape if isinstance(d, str))
    samples = {name: size for size, name in enumerate(free, start=2)}
    inputs = tuple(
        ops.ones([samples.get(d, d) for d in shape], dtype=spec.dtype)
        for shape, spec in zip(dimensions, tree.flatten(specs), strict=True)
    )
    axes = {name: torch.export.Dim(name) for name in free}
    with _replacing(path) as temporary, warnings.catch_warnings(), torch.no_grad():
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


class _Archive:
    """Functions of a model, to become the functions and signatures of a SavedModel."""

    def __init__(self, model):
        import tensorflow as tf

        self.model = model
        self.module = tf.Module()
        self.signatures = {}
        if keras.backend.backend() == "tensorflow":
            self.module.weights = [variable.value for variable in model.variables]
        else:
            self.module.weights = [
                tf.Variable(ops.convert_to_numpy(variable), trainable=variable.trainable)
                for variable in model.variables
            ]

    def add(self, name, function, specs, noise=None):
        """Adds `function`, to be called with inputs as `specs` says, with and without masks.

        `noise` is a pair `(spec, draw)` if the function has a second argument, of this spec, and
        `draw(batch_size)` is to make it.
        """
        import tensorflow as tf

        pad_id = getattr(self.model, "generation", {}).get("pad_id", 0)
        names = _names(specs)
        tensor_specs = tree.map_structure(
            lambda name, spec: tf.TensorSpec(spec.shape, spec.dtype, name=name), names, specs
        )
        if keras.backend.backend() == "jax":
            function = self._converted(function, specs, *(noise or ())[:1])

        # Traced once, however it is called from below.
        @tf.function(input_signature=[tensor_specs], autograph=False)
        def complete(inputs):
            if noise is None:
                return function(inputs)
            return function(inputs, noise[1](tf.shape(tree.flatten(inputs)[0])[0]))

        @tf.function(autograph=False)
        def endpoint(inputs):
            return complete(_with_masks(inputs, specs, pad_id))

        self.signatures[name] = endpoint.get_concrete_function(tensor_specs)
        setattr(self.module, name, endpoint)
        masks = _masks_of(specs)
        if masks:
            ids = {key: spec for key, spec in tensor_specs.items() if key not in masks}
            self.signatures[f"{name}_token_ids"] = endpoint.get_concrete_function(ids)
            setattr(self.module, f"{name}_token_ids", endpoint)

    def write(self, path):
        """Writes the folder."""
        import tensorflow as tf

        signatures = {**self.signatures, "serving_default": self.signatures["serve"]}
        tf.saved_model.save(self.module, str(path), signatures=signatures)

    def _converted(self, function, *arguments):
        """A function of JAX arrays as one of TensorFlow tensors, for every batch and length."""
        import jax
        from jax.experimental import jax2tf

        def stateless(values, *arguments):
            mapping = list(zip(self.model.variables, values, strict=True))
            with keras.StatelessScope(state_mapping=mapping), _top_k_by_sorting():
                return function(*arguments)

        def shape(name, spec):
            return f"({', '.join(map(str, _dimensions(name, spec)))})"

        # On a GPU or TPU the trace may hold kernels of its own (flash attention).
        platforms = ("cpu", "cuda", "tpu") if jax.default_backend() == "cpu" else None
        shapes = [tree.map_structure(shape, _names(specs), specs) for specs in arguments]
        converted = jax2tf.convert(
            stateless,
            polymorphic_shapes=[[None] * len(self.module.weights), *shapes],
            with_gradient=False,
            native_serialization_platforms=platforms,
        )
        return lambda *arguments: converted(list(self.module.weights), *arguments)


@contextlib.contextmanager
def _top_k_by_sorting():
    """Lets JAX find the k largest by sorting, with the same result, ties included.

    JAX 0.10 writes `lax.top_k` as a StableHLO composite, which TensorFlow 2.21 cannot read.
    """
    import jax

    def top_k(operand, k, *, axis=-1):
        places = jax.numpy.argsort(operand, axis=axis, stable=True, descending=True)
        places = jax.lax.slice_in_dim(places, 0, k, axis=axis).astype("int32")
        return jax.numpy.take_along_axis(operand, places, axis=axis), places

    original, jax.lax.top_k = jax.lax.top_k, top_k
    try:
        yield
    finally:
        jax.lax.top_k = original


def _generation(model, search, max_length):
    """`generate` as a function of tensors, and its noise (see `_Archive.add`)."""
    if not isinstance(search, decoding.Search):
        raise ValueError(f"`search` must be a search of `decoding`. Received: search={search!r}")
    if not (hasattr(model, "start") and hasattr(model, "step")):
        raise ValueError(
            "`search` needs a model that can generate, with `start` and `step` (see `decoding`). "
            f"Received: model of class {type(model).__name__}"
        )
    generation = getattr(model, "generation", {})
    rules = {key: generation[key] for key in _TOKEN_RULES if key in generation}

    def generate(inputs, noise=None):
        return decoding.generate_tensors(model, inputs, search, max_length, noise=noise, **rules)[0]

    if search.noise(1, 1) is None:
        return generate, None

    def draw(batch_size):
        import tensorflow as tf

        shape, seed = (batch_size, max_length), getattr(search, "seed", None)
        if seed is None:
            return tf.random.uniform(shape)
        return tf.random.stateless_uniform(shape, seed=(seed, 0))

    return generate, (keras.KerasTensor((None, max_length), dtype="float32", name="noise"), draw)


def _input_specs(model):
    """The structure of the model's inputs, with a KerasTensor for each."""
    if not isinstance(model, keras.Model) or not getattr(model, "inputs", None):
        raise ValueError(
            "`model` must be a functional keras.Model, built on keras.Input. "
            f"Received: {model!r} of class {type(model).__name__}"
        )
    return model.input


def _names(specs):
    """The names of the inputs, in the structure of the inputs: keys where it is a dict."""
    if isinstance(specs, dict):
        return {key: key for key in specs}
    return tree.map_structure(lambda spec: spec.name, specs)


def _dimensions(name, spec):
    """The sizes of an input; a name where the size is free, the same name for the same size.

    `encoder_token_ids` and `encoder_padding_mask` are as long as one another, `decoder_token_ids`
    is not.
    """
    name = re.sub(r"\W", "_", name)

    def name_of(axis):
        if axis == 0:
            return "batch"
        for suffix in ("token_ids", "segment_ids", "padding_mask"):
            if axis == 1 and name.endswith(suffix):
                return name.removesuffix(suffix) + "length"
        return f"{name}_{axis}"

    return tuple(name_of(axis) if size is None else size for axis, size in enumerate(spec.shape))


def _masks_of(specs):
    """The names of the padding masks, if each stands beside the ids it belongs to."""
    masks = (
        [key for key in specs if key.endswith("padding_mask")] if isinstance(specs, dict) else []
    )
    return masks if all(_ids_of(mask) in specs for mask in masks) else []


def _ids_of(mask):
    return mask.removesuffix("padding_mask") + "token_ids"


def _with_masks(inputs, specs, pad_id):
    """The inputs, with the masks that are missing built from the pad id (TensorFlow tensors)."""
    import tensorflow as tf

    missing = [mask for mask in _masks_of(specs) if mask not in inputs]
    if not missing:
        return inputs
    inputs = dict(inputs)
    for name in missing:
        ids = inputs[_ids_of(name)]
        mask = tf.not_equal(ids, pad_id)
        if name.startswith("decoder_"):
            # Some decoders start with the pad id, and a start is no padding.
            mask = tf.logical_or(mask, tf.equal(tf.range(tf.shape(ids)[1]), 0)[None])
        inputs[name] = tf.cast(mask, specs[name].dtype)
    return inputs


@contextlib.contextmanager
def _replacing(path, marker=None):
    """A place to write to; what is written there replaces `path` only if nothing went wrong.

    `marker` is the file by which a folder that may be replaced is known; None for a single file.
    """
    path = pathlib.Path(path)
    if marker is None and path.is_dir():
        raise ValueError(f"`path` must be a file. Received: {path}, which is a folder")
    if marker is not None and path.exists():
        empty = path.is_dir() and not any(path.iterdir())
        if not empty and not (path / marker).is_file():
            raise ValueError(
                "`path` must be new, empty or an older SavedModel, which is replaced. "
                f"Received: {path}, which holds something else"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside `path`, so that moving it there moves no data.
    work = pathlib.Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        (work / "new").mkdir()
        yield work / "new" / path.name
        if path.is_dir():
            path.rename(work / "old")
        try:
            for written in sorted((work / "new").iterdir(), reverse=True):  # weights, then model
                written.replace(path.with_name(written.name))
        except OSError:
            if (work / "old").exists():
                (work / "old").rename(path)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
