"""`fit` and `evaluate` under `tf.distribute`, where Keras 3.15 fails.

What upstream would have to change, both in `keras/src/backend/tensorflow/trainer.py`:

- `_maybe_symbolic_build` takes the mean of a whole batch over the replicas, only to see its shapes.
  `strategy.reduce` has no mean of booleans (a padding mask), and under
  `MultiWorkerMirroredStrategy` it takes one value and no structure. One replica's part of the
  batch shows the shapes as well.
- `reduce_per_replica` takes the mean of the logs under `MultiWorkerMirroredStrategy` over
  `axis=0`, which a scalar has not: it must be `axis=None`.

And `keras.random.SeedGenerator` gives all replicas the same numbers: the same dropout mask, the
same noise for every share of the batch.
"""

import contextlib

import keras

from kerasmodels.keras_internals import BuildsFromChosenBatch
from kerasmodels.training.random_state import own_noise
from kerasmodels.training.replicas import strategy_of


class FitOnReplicas(BuildsFromChosenBatch):
    """A mixin for `keras.Model`s that are trained under `tf.distribute`.

    With it `fit` and `evaluate` work under `MultiWorkerMirroredStrategy`, and under
    `MirroredStrategy` with boolean inputs, and every replica draws its own dropout and noise.
    Without a strategy, and on JAX and PyTorch, it changes nothing. The module's text says what it
    works around.

    Example:
    ```python
    import keras
    import numpy as np
    import tensorflow as tf
    from kerasmodels import training


    class Net(training.FitOnReplicas, keras.Model):
        pass


    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        x = keras.Input((8,))
        model = Net(x, keras.layers.Dense(1)(x))
        model.compile("sgd", "mse")
        model.fit(np.ones((256, 8)), np.ones((256, 1)), batch_size=64)
    ```
    """

    def batch_to_build_from(self, iterator):
        """One replica's part of the first batch, which shows the shapes as well."""
        strategy = strategy_of(self)
        if strategy is None:
            return None
        _, _, batches = next(iter(iterator))
        return keras.tree.map_structure(
            lambda value: strategy.experimental_local_results(value)[0], next(batches)
        )

    def make_train_function(self, force=False):
        """Keras's hook that makes the function of an iterator of `train_step`."""
        with self._step_for_replicas("train_step"):
            return super().make_train_function(force)

    def make_test_function(self, force=False):
        """Keras's hook that makes the function of an iterator of `test_step`."""
        with self._step_for_replicas("test_step"):
            return super().make_test_function(force)

    def _step_for_replicas(self, name):
        strategy = strategy_of(self)
        if strategy is None:
            return contextlib.nullcontext()
        return replaced(self, name, _on_a_replica(getattr(self, name), strategy))


def _on_a_replica(step_function, strategy):
    import tensorflow as tf

    add_axis = isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)

    def step(data):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        with own_noise(replica):
            logs = step_function(data)
        if not add_axis:
            return logs
        return keras.tree.map_structure(lambda log: log[None] if log.shape.rank == 0 else log, logs)

    return step


@contextlib.contextmanager
def replaced(model, name, function):
    """Inside, `model.<name>` is another function: Keras compiles that one.

    Args:
        model: A `keras.Model`.
        name: The name of one of its methods.
        function: What stands in for it.
    """
    before = model.__dict__.get(name)
    model.__dict__[name] = function
    try:
        yield
    finally:
        if before is None:
            del model.__dict__[name]
        else:
            model.__dict__[name] = before
