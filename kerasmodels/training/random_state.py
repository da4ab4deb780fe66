"""Random numbers that a resumed run and several replicas can rely on.

Keras keeps the state of dropout and noise in `keras.random.SeedGenerator`s and leaves it out of its
files; and under `tf.distribute` every replica draws the same numbers from a generator.
"""

import contextlib
import functools
import threading
import warnings

import keras
import numpy as np
from keras import ops

_KEY = "random_state"
_thread = threading.local()  # MirroredStrategy runs every replica in a thread of its own

# Each replica's seeds lie this far from the last one's: a prime, so that seeds which users choose
# (1, 2, 3, ... or round numbers) do not meet.
_STRIDE = 15_485_863


def seed_states(model):
    """The states of all seed generators in a model, in the order of its layers.

    Args:
        model: A `keras.Model` or layer.

    Returns:
        A list of integer `keras.Variable`s of shape `(2,)`.
    """
    weights = {id(v) for v in model.weights}
    return [
        v
        for v in model.non_trainable_variables
        if id(v) not in weights and v.path.rsplit("/", 1)[-1] == "seed_generator_state"
    ]


def save_seed_states(model, store):
    """Puts the states of `model`'s seed generators into one of the saver's stores."""
    states = [ops.convert_to_numpy(v.value) for v in seed_states(model)]
    if states:
        store[_KEY] = np.stack(states).astype("int64")  # (generators, 2)


def load_seed_states(model, store):
    """Reads what `save_seed_states` wrote; without it the generators stay as they are.

    Args:
        model: A `keras.Model`.
        store: The saver's store.

    Returns:
        The rest of the store, a dict.
    """
    keys = list(store.keys())
    rest = {key: store[key] for key in keys if key != _KEY}
    if _KEY not in keys:
        return rest  # a file of plain Keras, or one that is older
    states, saved = seed_states(model), np.asarray(store[_KEY])
    if len(saved) != len(states):
        warnings.warn(
            f"The file holds the state of {len(saved)} random generators and the model has "
            f"{len(states)}: they are left as they are, a resumed run draws other numbers.",
            stacklevel=2,
        )
        return rest
    for variable, value in zip(states, saved, strict=True):
        variable.assign(value.astype(keras.backend.standardize_dtype(variable.dtype)))
    return rest


@contextlib.contextmanager
def own_noise(replica_id):
    """Inside, seed generators of this thread draw the numbers of one replica.

    The generators' own states stay equal on all replicas, as `tf.distribute` needs it; replica 0
    draws what a single device draws.

    Args:
        replica_id: An integer scalar tensor; 0 changes nothing.
    """
    _let_generators_listen()
    before = getattr(_thread, "shift", None)
    _thread.shift = replica_id
    try:
        yield
    finally:
        _thread.shift = before


@functools.cache
def _let_generators_listen():
    draw = keras.random.SeedGenerator.next

    @functools.wraps(draw)
    def next_of_replica(self, ordered=True):
        seed = draw(self, ordered)
        shift = getattr(_thread, "shift", None)
        if shift is None:
            return seed
        shift = ops.cast(shift, seed.dtype) * ops.cast(_STRIDE, seed.dtype)
        return ops.add(seed, ops.stack([shift, ops.zeros_like(shift)]))

    keras.random.SeedGenerator.next = next_of_replica
