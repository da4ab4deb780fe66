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
        """Refuse what is bad; what is symbolic or on another device is not looked at.

        Args:
            inputs: Of an array's rows or of a batch.
            targets: Likewise.
            sample_weight: Likewise.
            loss: Of `compile`, where that is another's than this model's.
        """
        if isinstance(inputs, dict):
            check_ids(visible(inputs), self.input_limits)

    def _check_class_weight(self, class_weight, y):
        """Refuse weights of classes that Keras would apply to something else."""

    def _check_batch(self, batch):
        self._check(*batch[:3]) if isinstance(batch, tuple | list) else self._check(batch)

    def _checked(self, x, *targets):
        """What `fit` takes: an array is looked at now, a stream is replaced by a checked one."""
        if hasattr(x, "element_spec"):  # of tf.data
            if getattr(self, "_distribute_strategy", None) is not None:
                return x  # TensorFlow looks through its steps for the batch size
        elif isinstance(x, keras.utils.PyDataset):
            self._check_batch(x[0])  # now, since compiling comes before the first step
        else:
            self._check(x, *targets)
        return checked_stream(x, self._check_batch, self.input_limits)

    def _call_checked(self, method, *args, **kwargs):
        call = inspect.signature(method).bind(*args, **kwargs)
        given = call.arguments
        if not kwargs.get("_use_cached_eval_dataset"):  # from within `fit`, which has checked it
            given["x"] = self._checked(given["x"], given.get("y"), given.get("sample_weight"))
        if given.get("class_weight") is not None:
            self._check_class_weight(given["class_weight"], given.get("y"))
        validation = given.get("validation_data")
        if isinstance(validation, tuple | list):
            self._check(*validation[:3])
        elif validation is not None:
            given["validation_data"] = self._checked(validation)
        return method(*call.args, **call.kwargs)

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; what enters is checked."""
        return self._call_checked(super().fit, x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; what enters is checked."""
        return self._call_checked(super().evaluate, x, y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; what enters is checked."""
        return self._call_checked(super().predict, x, *args, **kwargs)

    def train_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.train_on_batch`; what enters is checked."""
        return self._call_checked(super().train_on_batch, x, y, *args, **kwargs)

    def test_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.test_on_batch`; what enters is checked."""
        return self._call_checked(super().test_on_batch, x, y, *args, **kwargs)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`; what enters is checked."""
        return self._call_checked(super().predict_on_batch, x)
