"""Bad inputs are found where they enter: in `fit` and its kin, before any step is compiled."""

import inspect

import keras

from kerasmodels.training.input_checks import check_ids, visible
from kerasmodels.training.streams import checked_stream
from kerasmodels.training.trainer_guards import KeepsState


class ChecksInputs(KeepsState):
    """A mixin for `keras.Model`s: `fit` and its kin look at arrays at once, at streams as they go.

    An id outside its table is an error on one backend, a NaN on another, and a vector of zeros on
    a third; a negative one counts from the end. Inside compiled steps nothing is looked at, so that
    nothing is paid for it there.

    Arrays, generators, PyDatasets and what a model is called with are looked at whole; of a tf.data
    pipeline the keys, the ids and their number. Nothing is looked at where looking would cost a
    step or disturb others: tensors on a GPU under PyTorch, pipelines that a strategy of
    `tf.distribute` or a `keras.distribution` shares out, what other processes make (but for the
    first batch), and a DataLoader (but for what reaches a call).

    A model says what its tables have room for in `input_limits`, or checks more in `_check`.
    """

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
            inputs: Of an array's rows or of a batch.
            targets: Likewise.
            sample_weight: Likewise.
            loss: Of `compile`, where that is another's than this model's.
        """
        if isinstance(inputs, dict):
            self._check_arrays(visible(inputs))

    def _check_arrays(self, arrays):
        """Refuse bad inputs; `arrays` is what can be seen of them, arrays of numpy by name."""
        check_ids(arrays, self.input_limits)

    def _check_class_weight(self, class_weight, y):
        """Refuse weights of classes that Keras would apply to something else."""

    def _check_source(self, source, with_targets):
        """Refuse a stream for what it says of itself."""

    def _checked(self, x, targets, with_targets):
        """What `fit` takes: an array is looked at now, a stream is replaced by a checked one."""

        def check(batch):
            if not isinstance(batch, tuple | list):
                return self._check(batch)
            return self._check(*batch[: 3 if with_targets else 1])

        self._check_source(x, with_targets)
        if isinstance(x, keras.utils.PyDataset):
            check(x[0])  # now, since compiling comes before the first step
        elif not hasattr(x, "element_spec"):  # of tf.data
            self._check(x, *targets)
        elif _is_shared_out(self):
            return x  # whoever does so looks through the pipeline's steps for the batch size
        return checked_stream(x, check, self.input_limits)

    def _call_checked(self, name, *args, **kwargs):
        call = inspect.signature(getattr(keras.Model, name)).bind(self, *args, **kwargs)
        given, with_targets = call.arguments, not name.startswith("predict")
        if not kwargs.get("_use_cached_eval_dataset"):  # from within `fit`, which has checked it
            targets = given.get("y"), given.get("sample_weight")
            given["x"] = self._checked(given["x"], targets, with_targets)
        if given.get("class_weight") is not None:
            self._check_class_weight(given["class_weight"], given.get("y"))
        validation = given.get("validation_data")
        if isinstance(validation, tuple | list):
            self._check(*validation[:3])
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


def _is_shared_out(model):
    """Whether the data of a model is divided among replicas, which rewrites a pipeline."""
    strategy = getattr(model, "_distribute_strategy", None)  # TensorFlow's trainer has one
    return strategy is not None or keras.distribution.distribution() is not None
