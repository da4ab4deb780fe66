"""Functions of a Keras model as a SavedModel."""

import contextlib

import keras
from keras import ops, tree

from kerasmodels.export.inputs import dimensions_of, masks_of, names_of, pad_id_of, with_masks
from kerasmodels.training.input_checks import assert_ids


def require_saved_model(instead):
    """Refuses the backend that has no SavedModel, and says what to do instead."""
    backend = keras.backend.backend()
    if backend not in ("tensorflow", "jax"):
        raise ValueError(
            f"The {backend} backend cannot write a SavedModel. Use {instead}, or save the "
            "model as `.keras` and export it with KERAS_BACKEND=tensorflow or jax."
        )


class Archive:
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

    def add(self, name, function, specs, noise=None, finish=None):
        """Adds `function`, to be called with inputs as `specs` says, with and without masks.

        `noise` is a pair `(spec, draw)` if the function has a second argument, of this spec, and
        `draw(batch_size)` is to make it. `finish` is a function of TensorFlow tensors that makes
        the answer of what `function` returns.
        """
        import tensorflow as tf

        pad_id = pad_id_of(self.model)
        limits = getattr(self.model, "input_limits", None)
        names = names_of(specs)
        tensor_specs = tree.map_structure(
            lambda name, spec: tf.TensorSpec(spec.shape, spec.dtype, name=name), names, specs
        )
        if keras.backend.backend() == "jax":
            function = self._converted(function, specs, *(noise or ())[:1])

        # Traced once, however it is called from below.
        @tf.function(input_signature=[tensor_specs], autograph=False)
        def complete(inputs):
            if limits and isinstance(inputs, dict):  # JAX would answer NaN
                inputs = assert_ids(inputs, limits)
            drawn = () if noise is None else (noise[1](tf.shape(tree.flatten(inputs)[0])[0]),)
            outputs = function(inputs, *drawn)
            return outputs if finish is None else finish(outputs)

        @tf.function(autograph=False)
        def endpoint(inputs):
            return complete(with_masks(inputs, specs, pad_id))

        self.signatures[name] = endpoint.get_concrete_function(tensor_specs)
        setattr(self.module, name, endpoint)
        masks = masks_of(specs)
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
            return f"({', '.join(map(str, dimensions_of(name, spec)))})"

        # On a GPU or TPU the trace may hold kernels of its own (flash attention).
        platforms = ("cpu", "cuda", "tpu") if jax.default_backend() == "cpu" else None
        shapes = [tree.map_structure(shape, names_of(specs), specs) for specs in arguments]
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
