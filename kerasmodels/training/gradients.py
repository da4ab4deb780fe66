"""Gradients of any function, written once for TensorFlow, JAX and PyTorch."""

import contextlib
import threading

import keras
from keras import ops

from kerasmodels.keras_internals import get_value


class NestedScope(keras.StatelessScope):
    """A `keras.StatelessScope` that sees through to the scope around it and knows what changed.

    Keras's own scopes do not nest: the inner one hides what the outer one holds. Losses that layers
    add are collected, so that `model.losses` works inside.

    Args:
        state_mapping: Pairs `(variable, value)`, as for `keras.StatelessScope`.
    """

    def __init__(self, state_mapping=()):
        super().__init__(state_mapping=state_mapping, collect_losses=True)
        self.updated = {}  # id -> variable, in the order of the first assignment

    def get_current_value(self, variable):
        """The value here, else in the scope around, else the variable's own."""
        value = super().get_current_value(variable)
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return get_value(variable) if value is None else value

    def add_update(self, update):
        """Records an assignment."""
        self.updated[id(update[0])] = update[0]
        super().add_update(update)


def value_and_grad(fn, variables):
    """Computes `fn()` and the gradients of its loss, on every backend.

    Works outside and inside `fit`, and nested: `fn` may itself call `value_and_grad`, as a gradient
    penalty does. Variables that `fn` assigns (batch statistics, seeds, metrics) keep their new
    values.

    `fn` must hand out what it computes through its return value: on JAX a tensor smuggled out by
    `nonlocal` is a dead tracer.

    Args:
        fn: Called once. Without tensors in `variables` it takes no arguments; with tensors it is
            called with them, in order. It returns a scalar float loss, or a tuple whose first
            item is the loss; the rest (predictions, say) may be any nested structure of tensors.
        variables: A list of what to differentiate with respect to: `keras.Variable`s (trainable or
            not) and float tensors.

    Returns:
        `(loss, gradients)`. `loss` is what `fn` returned, the whole tuple if it is one. `gradients`
        has one dense tensor for each entry of `variables`, of its shape and dtype, and zeros where
        the loss does not depend on it.

    Raises:
        ValueError: If `variables` is not a list of float variables and tensors, or the loss not a
            float scalar.

    Example:
    ```python
    import keras
    from kerasmodels import training

    dense = keras.layers.Dense(1)
    x = keras.random.normal((8, 3), seed=1)
    dense.build(x.shape)
    loss, gradients = training.value_and_grad(
        lambda: keras.ops.mean(dense(x) ** 2), dense.trainable_variables
    )


    def penalty():  # a gradient penalty: the gradient's own gradient
        _, (slope,) = training.value_and_grad(lambda x: keras.ops.sum(dense(x)), [x])
        return keras.ops.mean((keras.ops.norm(slope, axis=-1) - 1) ** 2)


    loss, gradients = training.value_and_grad(penalty, dense.trainable_variables)
    ```
    """
    return _BACKENDS[keras.backend.backend()](fn, _check_variables(variables))


def loss_of(result):
    """The loss in what a loss function returned: the result itself or a tuple's first item.

    Raises:
        ValueError: If it is not a float scalar.
    """
    loss = result[0] if isinstance(result, tuple) and result else result
    shape = getattr(loss, "shape", None)
    is_float = shape is not None and "float" in keras.backend.standardize_dtype(loss.dtype)
    if not is_float or len(shape) != 0:
        raise ValueError(
            "A loss function must return a float scalar, or a tuple that starts with one. "
            f"Received: {loss}"
        )
    return loss


def _check_variables(variables):
    if isinstance(variables, (keras.Variable, str)) or ops.is_tensor(variables):
        raise ValueError(f"`variables` must be a list. Received: variables={variables}")
    checked = []
    for entry in variables:
        if not isinstance(entry, keras.Variable):
            try:
                entry = ops.convert_to_tensor(entry)
            except Exception as error:
                raise ValueError(
                    "`variables` must hold keras.Variables and float tensors. "
                    f"Received an entry of type {type(entry).__name__}: {entry}"
                ) from error
        if "float" not in keras.backend.standardize_dtype(entry.dtype):
            raise ValueError(
                "Only float variables and tensors have gradients. "
                f"Received in `variables`: {entry} of dtype {entry.dtype}"
            )
        checked.append(entry)
    return checked


def _arguments(variables, values):
    """The values of the entries that are tensors: `fn` is called with those."""
    pairs = zip(variables, values, strict=True)
    return [value for entry, value in pairs if not isinstance(entry, keras.Variable)]


def _jax(fn, variables):
    import jax

    updated = []

    def pure(values):
        pairs = zip(variables, values, strict=True)
        mapping = [(entry, value) for entry, value in pairs if isinstance(entry, keras.Variable)]
        with NestedScope(mapping) as scope:
            result = fn(*_arguments(variables, values))
            loss = loss_of(result)
        updated[:] = scope.updated.values()
        return loss, (result, [scope.get_current_value(variable) for variable in updated])

    values = [v.value if isinstance(v, keras.Variable) else v for v in variables]
    (_, (result, updates)), gradients = jax.value_and_grad(pure, has_aux=True)(values)
    for variable, value in zip(updated, updates, strict=True):
        variable.assign(value)
    return result, gradients


def _tensorflow(fn, variables):
    import tensorflow as tf

    # A copy of each tensor: `fn` is differentiated through its argument alone, as on JAX.
    sources = [v.value if isinstance(v, keras.Variable) else tf.identity(v) for v in variables]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for source in sources:
            tape.watch(source)
        result = fn(*_arguments(variables, sources))
        loss = loss_of(result)
    gradients = tape.gradient(loss, sources)
    return result, [
        tf.zeros_like(source) if gradient is None else tf.convert_to_tensor(gradient)
        for gradient, source in zip(gradients, sources, strict=True)
    ]


# PyTorch must keep the graph of a gradient only where an outer call differentiates it again.
_torch_calls = threading.local()


def _attention_with_second_derivative():
    from torch.nn import attention

    # PyTorch's fused kernels have none.
    return attention.sdpa_kernel(attention.SDPBackend.MATH)


def _torch(fn, variables):
    import torch

    def leaf(tensor):
        return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()

    depth = getattr(_torch_calls, "depth", 0)
    frozen = []
    with torch.enable_grad():
        sources = [v.value if isinstance(v, keras.Variable) else leaf(v) for v in variables]
        try:
            for source in sources:
                if not source.requires_grad:
                    frozen.append(source.requires_grad_())
            _torch_calls.depth = depth + 1
            with _attention_with_second_derivative() if depth else contextlib.nullcontext():
                result = fn(*_arguments(variables, sources))
            loss = loss_of(result)
            gradients = [None] * len(sources)
            if sources and loss.requires_grad:
                gradients = torch.autograd.grad(
                    loss, sources, create_graph=depth > 0, allow_unused=True
                )
        finally:
            _torch_calls.depth = depth
            for source in frozen:
                source.requires_grad_(False)
    if depth == 0:
        result = keras.tree.map_structure(
            lambda x: x.detach() if isinstance(x, torch.Tensor) else x, result
        )
    return result, [
        torch.zeros_like(source) if gradient is None else gradient
        for gradient, source in zip(gradients, sources, strict=True)
    ]


_BACKENDS = {"jax": _jax, "tensorflow": _tensorflow, "torch": _torch}
