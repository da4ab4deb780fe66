"""Two replicas of `tf.distribute` on the CPU."""

import functools


@functools.cache
def two_replicas():
    """The one `MirroredStrategy` of the process, over the two logical CPU devices of `conftest`.

    TensorFlow numbers the collectives of every strategy from the same start and remembers their
    shapes for the whole process: a second strategy with other shapes fails with "Shape mismatch in
    the collective instance".
    """
    import tensorflow as tf

    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
