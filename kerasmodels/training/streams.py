"""Data that comes batch by batch, looked at as it comes."""

import types

import keras

from kerasmodels.training.input_checks import assert_ids


def checked_stream(x, check, limits):
    """The stream that `x` is, failing at the first batch that is refused.

    Args:
        x: What `fit` takes. A generator, a PyDataset and a tf.data pipeline are streams; anything
            else is returned as it is, and so is what other processes make.
        check: A function of a batch that raises an error, for generators and PyDatasets.
        limits: For pipelines, see `input_checks`.

    Returns:
        A stream of the same kind, or `x`.
    """
    if isinstance(x, types.GeneratorType):
        return _generator(x, check)
    if isinstance(x, keras.utils.PyDataset):
        return x if x.use_multiprocessing else _CheckedDataset(x, check)
    if limits and hasattr(x, "element_spec") and hasattr(x, "map"):  # not what was shared out

        def look(*batch):
            return _with_inputs(batch if len(batch) > 1 else batch[0], limits)

        return x.map(look)
    return x


def _with_inputs(batch, limits):
    if isinstance(batch, tuple):
        return (_with_inputs(batch[0], limits), *batch[1:])
    return assert_ids(batch, limits) if isinstance(batch, dict) else batch


def _generator(batches, check):
    for batch in batches:
        check(batch)
        yield batch


class _CheckedDataset(keras.utils.PyDataset):
    """A PyDataset whose batches are looked at, in the threads that make them."""

    def __init__(self, dataset, check):
        super().__init__(workers=dataset.workers, max_queue_size=dataset.max_queue_size)
        self.dataset, self.check = dataset, check

    def __getitem__(self, index):
        batch = self.dataset[index]
        self.check(batch)
        return batch

    @property
    def num_batches(self):
        return self.dataset.num_batches

    def on_epoch_begin(self):
        self.dataset.on_epoch_begin()

    def on_epoch_end(self):
        self.dataset.on_epoch_end()
