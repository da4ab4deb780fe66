"""Bad inputs are found where they enter: in `fit` and its kin, before any step is compiled."""

import inspect

import keras
import numpy as np

from kerasmodels.keras_internals import CALLED_BY_FIT
from kerasmodels.training.counted_tokens import CountsTokens
from kerasmodels.training.input_checks import (
    check_ids,
    check_numbers,
    first_text,
    is_of_others,
    visible,
    visible_array,
)
from kerasmodels.training.repaired_trainer import RepairedTrainer
from kerasmodels.training.replicas import strategy_of
from kerasmodels.training.streams import checked_stream


class ChecksInputs(CountsTokens, RepairedTrainer):
    """A mixin for `keras.Model`s: `fit` and its kin look at arrays at once, at streams as they go.

    An id outside its table is an error on one backend, a NaN on another, and a vector of zeros on
    a third; a negative one counts from the end. Inside compiled steps nothing is looked at, so that
    nothing is paid for it there.

    Arrays, generators, PyDatasets and what a model is called with are looked at whole; of a tf.data
    pipeline the keys, the ids and their number. Nothing is looked at where looking would cost a
    step or disturb others: tensors on a GPU under PyTorch, pipelines that a strategy of
    `tf.distribute` or a `keras.distribution` shares out, what other processes make (but for the
    first batch), and a DataLoader (but for what reaches a call).

    Whatever Keras takes for an array is looked at like one of numpy: pandas' series and frames,
    sparse matrices, tensors of the other backends.

    A model says what its tables have room for in `input_limits`, or checks more in `_check`.
    """

    # What a message says to somebody who gives strings or paths to the model.
    _instead_of_text = "turn texts into numbers first"

    @property
    def input_limits(self):
        """What the tables of the model have room for.

        A dictionary `{name of an input: (count, length)}`: its ids are in `[0, count)`, and a row
        has at most `length` of them, or any number if that is `None`. A `count` that is the name of
        another input is the length of that.
        """
        return {}

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        """Refuse what is bad.

        Args:
            inputs: The inputs of all rows or of a batch.
            targets: Their targets.
            sample_weight: Their weights.
            loss: The loss of `compile`, where another model than this one was compiled.
        """
        self._refuse_text(inputs)
        if isinstance(inputs, dict):
            self._check_arrays(visible(inputs))
        loss = getattr(self, "loss", None) if loss is None else loss
        losses = loss.values() if isinstance(loss, dict) else [loss]
        # A loss of one's own may take NaN for a target that is missing.
        check_numbers("y", targets, finite=not any(map(is_of_others, losses)))
        check_numbers("sample_weight", sample_weight)

    def _refuse_text(self, inputs):
        text = first_text(inputs)
        if text is not None:
            raise ValueError(
                f"The inputs must be numbers: {self._instead_of_text}. Received: {text!r}"
            )

    def _loss_of(self, name, loss=None):
        """The loss of an output, this model's unless one is given; `None` before `compile`."""
        loss = getattr(self, "loss", None) if loss is None else loss
        return loss.get(name) if isinstance(loss, dict) else loss

    def _check_arrays(self, arrays):
        """Refuse bad inputs; `arrays` is what can be seen of them, arrays of numpy by name."""
        check_ids(arrays, self.input_limits)

    def _check_class_weight(self, class_weight, y):
        """Refuse weights of classes that Keras would apply to something else."""

    def _check_source(self, source, with_targets):
        """Refuse a stream for what it says of itself."""
        if hasattr(source, "element_spec"):  # of tf.data
            spec = source.element_spec
            self._refuse_text(spec[0] if isinstance(spec, tuple) else spec)

    def _checked(self, x, targets, with_targets):
        """What `fit` takes: an array is looked at now, a stream is replaced by a checked one."""

        def check(batch):
            if not isinstance(batch, tuple | list):
                return self._check(batch)
            batch = batch[: 3 if with_targets else 1]
            return self._check(*map(_plain, batch, ("x", "y", "weights")))

        self._check_source(x, with_targets)
        if isinstance(x, keras.utils.PyDataset):
            check(x[0])  # now, since compiling comes before the first step
        elif not _is_stream(x):
            self._check(x, *targets)
        elif hasattr(x, "element_spec") and _is_shared_out(self):
            return x  # whoever does so looks through the pipeline's steps for the batch size
        return checked_stream(x, check, self.input_limits)

    def _call_checked(self, name, *args, **kwargs):
        call = inspect.signature(getattr(keras.Model, name)).bind(self, *args, **kwargs)
        given, with_targets = call.arguments, not name.startswith("predict")
        for key in ("x", "y", "sample_weight"):
            if key in given:
                given[key] = _plain(given[key], key)
        if not kwargs.get(CALLED_BY_FIT):  # else `fit` has checked it
            targets = given.get("y"), given.get("sample_weight")
            given["x"] = self._checked(given["x"], targets, with_targets)
        if given.get("class_weight") is not None:
            self._check_class_weight(given["class_weight"], given.get("y"))
        validation = given.get("validation_data")
        if isinstance(validation, tuple | list):
            given["validation_data"] = tuple(map(_plain, validation[:3], ("x", "y", "weights")))
            self._check(*given["validation_data"])
        elif validation is not None:
            given["validation_data"] = self._checked(validation, (), True)
        return getattr(super(), name)(*call.args[1:], **call.kwargs)

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; what enters is checked."""
        return self._call_checked("fit", x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; what enters is checked."""
        return self._call_checked("evaluate", x, y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; what enters is checked."""
        return self._call_checked("predict", x, *args, **kwargs)

    def train_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.train_on_batch`; what enters is checked."""
        return self._call_checked("train_on_batch", x, y, *args, **kwargs)

    def test_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.test_on_batch`; what enters is checked."""
        return self._call_checked("test_on_batch", x, y, *args, **kwargs)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`; what enters is checked."""
        return self._call_checked("predict_on_batch", x)


def _is_stream(x):
    """Whether `x` yields batches: a generator, a tf.data pipeline, a loader."""
    arrays = isinstance(x, dict | list | tuple | set | str | bytes) or hasattr(x, "shape")
    return hasattr(x, "__iter__") and not arrays


def _plain(values, key):
    """Arrays as numpy's, unless they are tensors of the backend or sparse.

    Keras takes pandas' and other backends' as well, but not every one on each backend. A list or
    tuple of one array of targets is the same to Keras as the array.
    """
    if isinstance(values, dict):
        return {name: _plain(value, "x") for name, value in values.items()}
    if isinstance(values, list | tuple):
        arrays = [hasattr(value, "shape") for value in values]
        if arrays == [True] and key != "x":
            return _plain(values[0], key)
        return type(values)(_plain(value, "x") for value in values) if all(arrays) else values
    if isinstance(values, np.ndarray) or not hasattr(values, "__array__"):
        return values
    array = None if keras.ops.is_tensor(values) else visible_array(values)
    return values if array is None else array


def _is_shared_out(model):
    """Whether the data of a model is divided among replicas, which rewrites a pipeline."""
    return strategy_of(model) is not None or keras.distribution.distribution() is not None
