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

import keras

from kerasmodels.training.random_state import own_noise


class FitOnReplicas:
    """A mixin for `keras.Model`s that are trained under `tf.distribute`.

    With it `fit` and `evaluate` work under `MultiWorkerMirroredStrategy`, and under
    `MirroredStrategy` with boolean inputs, and every replica draws its own dropout and noise.
    Without a strategy, and on JAX and PyTorch, it changes nothing. The module's text says what it
    works around.

    Example:
    ```python
    class Net(training.FitOnReplicas, keras.Model):
        pass

    with tf.distribute.MultiWorkerMirroredStrategy().scope():
        x = keras.Input((8,))
        model = Net(x, keras.layers.Dense(1)(x))
        model.compile("sgd", "mse")
        model.fit(inputs, targets, batch_size=64)
    ```
    """

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """The TensorFlow trainer's hook before the first batch."""
        strategy = self._distribute_strategy
        if strategy is None:
            return
        if iterator is not None:
            _, _, batches = next(iter(iterator))
            data_batch = keras.tree.map_structure(
                lambda value: strategy.experimental_local_results(value)[0], next(batches)
            )
        with strategy.scope():
            self._symbolic_build(data_batch=data_batch)

    def _make_function(self, step_function, *args, **kwargs):
        """The hook that turns `train_step` and `test_step` into functions of an iterator."""
        if keras.backend.backend() == "tensorflow" and self._distribute_strategy is not None:
            step_function = self._on_a_replica(step_function)
        return super()._make_function(step_function, *args, **kwargs)

    def _on_a_replica(self, step_function):
        import tensorflow as tf

        several = tf.distribute.MultiWorkerMirroredStrategy
        add_axis = isinstance(self.distribute_strategy, several)

        def step(data):
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            with own_noise(replica):
                logs = step_function(data)
            if not add_axis:
                return logs
            return keras.tree.map_structure(
                lambda log: log[None] if log.shape.rank == 0 else log, logs
            )

        return step
