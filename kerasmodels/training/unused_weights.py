"""Notices a training step that was given sample weights and does not look at them."""

import keras


def run_and_see(step, data):
    """Runs a step and says whether it used its sample weights.

    A step that unpacks `x, y, _` would silently train as if there were no weights. TensorFlow's
    graph, JAX's program and PyTorch's calls tell whether anything was computed from them.

    Args:
        step: A function of `data`.
        data: A batch as Keras passes it.

    Returns:
        `(step(data), used)`; `used` is None where `data` has no weights.
    """
    is_batch = isinstance(data, (tuple, list)) and len(data) == 3
    weights = [w for w in keras.tree.flatten(data[2] if is_batch else None) if w is not None]
    if not weights:
        return step(data), None
    run = {"tensorflow": _tensorflow, "jax": _jax, "torch": _torch}[keras.backend.backend()]
    return run(step, data, weights)


def _tensorflow(step, data, weights):
    import tensorflow as tf

    if not tf.executing_eagerly():
        logs = step(data)
        return logs, any(w.consumers() for w in weights)
    # Without a graph there is nothing to look at: one is drawn, after the step has made whatever
    # variables it makes, and not run.
    logs = step(data)

    @tf.function
    def drawn(*weights):
        step((*data[:2], keras.tree.pack_sequence_as(data[2], weights)))

    inputs = drawn.get_concrete_function(*weights).inputs[: len(weights)]
    return logs, any(w.consumers() for w in inputs)


def _jax(step, data, weights):
    import jax

    from kerasmodels.training.gradients import NestedScope

    def results(weights):
        with NestedScope() as scope:  # nothing that is assigned here leaves it
            logs = step((*data[:2], keras.tree.pack_sequence_as(data[2], weights)))
        return logs, [scope.get_current_value(v) for v in scope.updated.values()]

    program = jax.make_jaxpr(results)(weights).jaxpr
    read = {id(v) for equation in program.eqns for v in equation.invars}
    return step(data), any(id(v) in read for v in program.invars)


def _torch(step, data, weights):
    import torch

    class Watch(torch.overrides.TorchFunctionMode):
        used = False

        def __torch_function__(self, function, types, args=(), kwargs=None):
            kwargs = kwargs or {}
            if function.__name__ != "__get__":  # a look at shape or dtype is no use
                given = keras.tree.flatten([args, kwargs])
                self.used = self.used or any(a is w for a in given for w in weights)
            return function(*args, **kwargs)

    with Watch() as watch:
        logs = step(data)
    return logs, watch.used
