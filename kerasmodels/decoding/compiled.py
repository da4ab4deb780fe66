"""Runs a search as one compiled program, kept for as long as its decoder lives."""

import collections
import json
import threading
import weakref

import keras
from keras import ops

from kerasmodels.decoding.protocol import FlatTree, layers_of, run_loop, variables_of
from kerasmodels.keras_internals import all_layers

# How many programs a decoder keeps: the least recently used goes first.
_MOST_PROGRAMS = 32

_programs = {}  # id of a decoder -> its programs, by what they depend on
_compiling = threading.RLock()  # threads may generate at the same time, and compile one by one


def run_search(decoder, search, rules, inputs, max_length, limit, active, noise, jit_compile):
    """Runs `search.run`, compiled on TensorFlow and JAX.

    A program depends on the search, the rules, the shapes of the inputs and `max_length`; on the
    decoder's variables and their dtypes, not on their values: on JAX these are arguments, on
    TensorFlow they are read when it runs.

    Returns:
        Token ids and scores as NumPy arrays.
    """
    variables = variables_of(decoder)
    arguments = (inputs, active, noise)
    key = (
        type(search),
        json.dumps(search.get_config(), sort_keys=True),
        rules,
        max_length,
        bool(jit_compile),
        _signature(arguments),
        tuple((id(variable), str(variable.dtype)) for variable in variables),
        _dtype_policies(decoder),
    )
    with _compiling:
        programs = _programs_of(decoder)
        if key not in programs:
            make = {"tensorflow": _compile_tensorflow, "jax": _compile_jax}
            make = make.get(keras.backend.backend(), _trace_torch)
            programs[key] = make(decoder, variables, search, rules, max_length, jit_compile)
            while len(programs) > _MOST_PROGRAMS:
                programs.popitem(last=False)
        programs.move_to_end(key)
        program = programs[key]
    return tuple(ops.convert_to_numpy(x) for x in program(arguments, limit, variables))


def _compile_tensorflow(decoder, variables, search, rules, max_length, jit_compile):
    import tensorflow as tf

    # A program must not keep its decoder alive, or neither would ever go; the variables it may:
    # they do not know their layers, and while they live no other can have their identity.
    decoder = weakref.ref(decoder)
    noted = list(variables)

    @tf.function(jit_compile=bool(jit_compile), autograph=False)
    def program(arguments, limit):
        inputs, active, noise = arguments
        return search.run(decoder(), inputs, rules, max_length, limit, active, noise)

    concrete = None

    def run(arguments, limit, variables):
        nonlocal concrete
        del variables  # the program reads its own, which `noted` holds
        arguments = keras.tree.map_structure(_as_tensor, arguments)
        limit = tf.constant(limit, "int32")
        with _compiling:  # once: a program is only ever called with these shapes
            concrete = concrete or program.get_concrete_function(arguments, limit)
        return concrete(arguments, limit)

    run.noted = noted
    return run


def _compile_jax(decoder, variables, search, rules, max_length, jit_compile):
    import jax
    import numpy as np

    decoder = weakref.ref(decoder)
    noted = list(variables)

    def program(values, arguments, limit):
        inputs, active, noise = arguments
        with _KnownVariables(state_mapping=zip(noted, values, strict=True)):
            return search.run(decoder(), inputs, rules, max_length, limit, active, noise)

    if jit_compile:
        program = jax.jit(program)

    def run(arguments, limit, variables):
        values = [variable.value for variable in variables]
        return program(values, arguments, np.int32(limit))

    return run


class _KnownVariables(keras.StatelessScope):
    """Refuses variables that are no arguments: the program would never see them change."""

    def get_current_value(self, variable):
        value = super().get_current_value(variable)
        if value is None:
            raise ValueError(
                "A decoder's layers must be built before it generates, and be attributes of it (or "
                "their variables listed in its attribute `variables`). Received: a decoder that "
                f"uses the variable {variable.path!r}"
            )
        return value


def _trace_torch(decoder, variables, search, rules, max_length, jit_compile):
    import torch
    from torch.fx.experimental.proxy_tensor import make_fx

    decoder = weakref.ref(decoder)
    noted = list(variables)
    graph = None if jit_compile else False  # False: cannot be traced

    def trace(body, packed, flat):
        """One turn of the loop as a graph of PyTorch's own operations."""

        def turn(*flat):
            values, trees = flat[: len(noted)], packed.pack(flat[len(noted) :])
            with keras.StatelessScope(state_mapping=zip(noted, values, strict=True)):
                return FlatTree(body(*trees)).leaves

        # A tensor that occurs twice would be taken for one input: each gets an object of its own.
        # Traced with tensors that hold no values: whoever looks at one (NumPy, `if`) gets an error.
        make = make_fx(turn, tracing_mode="fake", _allow_non_fake_inputs=True)
        graph = make(*(leaf.detach() for leaf in flat))
        graph.graph.eliminate_dead_code()
        graph.recompile()
        return graph

    def run(arguments, limit, variables):
        def loop(condition, body, loop_vars, constants):
            nonlocal graph
            if graph is False:
                return run_loop(condition, body, loop_vars, constants)

            def turn(constants, *loop_vars):
                loop_vars = body(constants, *loop_vars)
                return condition(constants, *loop_vars), loop_vars

            if not bool(condition(constants, *loop_vars)):
                return loop_vars
            packed, fixed = FlatTree((constants, *loop_vars)), FlatTree(constants).leaves
            fixed = [*(variable.value for variable in variables), *fixed]
            changing = FlatTree(loop_vars)
            leaves = changing.leaves
            with _compiling:
                if graph is None:
                    try:
                        graph = trace(turn, packed, [*fixed, *leaves])
                    except Exception:
                        # Its flow depends on values, or it leaves PyTorch: as it stands, then. What
                        # is wrong with it will show there, too.
                        graph = False
            if graph is False:
                return run_loop(condition, body, loop_vars, constants)
            with torch.inference_mode():
                go_on = True
                while go_on:
                    go_on, *leaves = graph(*fixed, *leaves)
            return changing.pack(leaves)

        # Not inference mode here: what is traced in it comes out wrong.
        with torch.no_grad():
            arguments = keras.tree.map_structure(_as_tensor, arguments)
            inputs, active, noise = arguments
            limit = torch.tensor(limit, dtype=torch.int32, device=active.device)
            return search.run(decoder(), inputs, rules, max_length, limit, active, noise, loop=loop)

    return run


def _programs_of(decoder):
    programs = _programs.get(id(decoder))
    if programs is None:
        programs = collections.OrderedDict()
        try:
            weakref.finalize(decoder, _programs.pop, id(decoder), None).atexit = False
        except TypeError:  # no weak references to it: nothing could tell when to let go
            return programs
        _programs[id(decoder)] = programs
    return programs


def _dtype_policies(decoder):
    layers = layers_of(decoder)
    return tuple(
        (id(layer), layer.dtype_policy.name) for top in layers for layer in all_layers(top)
    )


def _signature(arguments):
    flat = keras.tree.flatten(arguments)
    return str(arguments.__class__), tuple(
        None if leaf is None else (leaf.shape, leaf.dtype.name) for leaf in flat
    )


def _as_tensor(leaf):
    return None if leaf is None else ops.convert_to_tensor(leaf)
