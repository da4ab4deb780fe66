"""Models whose inputs are a dictionary, and where these are checked."""

import numpy as np

from kerasmodels.training.checked_inputs import ChecksInputs


class NamedInputs(ChecksInputs):
    """For functional models of several inputs by name: bad ids and an unknown key are errors.

    Of an unknown key Keras warns, sorts what it was given by key, and takes it by position:
    whatever comes behind it in the alphabet goes to another input, and a mask may be made of
    positions.
    """

    @property
    def _instead_of_text(self):
        if getattr(self, "tokenizer", None) is not None:
            return "turn texts into token ids by `model.tokenizer(texts)`"
        return (
            "turn texts into token ids by a tokenizer, that of the model's checkpoint or such as "
            "`data.BertTokenizer` and `data.BytePairTokenizer`"
        )

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        self._check_keys(inputs)
        self._check_target_keys(targets)
        if isinstance(inputs, list | tuple):  # Keras takes them in the order of the keys
            inputs = dict(zip(sorted(self.input), inputs, strict=True))
        super()._check(inputs, targets, sample_weight, loss)

    def _check_keys(self, inputs, must=False):
        """Refuse what is no dictionary of the inputs.

        Args:
            inputs: What the model is given. A generator or a loader is left to Keras, and so are
                arrays in the order of the keys.
            must: Whether there must be a dictionary.
        """
        self._refuse_text(inputs)
        if isinstance(inputs, list | tuple):
            arrays = all(value is None or hasattr(value, "shape") for value in inputs)
            passes = arrays and len(inputs) == len(self.input)
        else:
            passes = not isinstance(inputs, dict) and not hasattr(inputs, "shape")
        if passes and not must:
            return
        received = sorted(inputs) if isinstance(inputs, dict) else type(inputs).__name__
        if received != sorted(self.input):
            raise ValueError(
                f"`inputs` must have the keys {sorted(self.input)}; an optional one may be None. "
                f"Received: {received}"
            )
        for name, value in inputs.items():
            if isinstance(value, list | tuple):  # Keras would take them for a structure of inputs
                raise ValueError(
                    f"`{name}` must be an array or a tensor whose rows have one length, such as "
                    f"np.array({name}). Received: a {type(value).__name__}"
                )

    def _check_target_keys(self, targets):
        """Keras takes a tuple of targets in the alphabetical order of the outputs' names."""
        if not isinstance(self.output, dict):
            return
        unknown = isinstance(targets, dict) and set(targets) - set(self.output)
        if unknown or isinstance(targets, tuple | list):
            received = sorted(targets) if unknown else f"a {type(targets).__name__}"
            raise ValueError(
                f"The targets must be a dictionary with keys of {list(self.output)}. "
                f"Received: {received}"
            )

    def _check_source(self, source, with_targets):
        super()._check_source(source, with_targets)
        if not hasattr(source, "element_spec"):
            return
        spec = source.element_spec
        inputs, *targets = spec if isinstance(spec, tuple) else (spec,)
        self._check_keys(inputs)
        if targets and with_targets:
            self._check_target_keys(targets[0])

    def __call__(self, inputs, *args, **kwargs):
        """Applies the model; see the class for the arguments."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """Computes the outputs; steps on JAX begin here, past `__call__`."""
        self._check_keys(inputs)
        return super().call(inputs, training=training, mask=mask)


def refuse_class_weight(class_weight, y):
    """Of targets of several tokens a row, where Keras takes the place of the greatest for a class.

    Args:
        class_weight: As `fit` was given it.
        y: The targets.

    Raises:
        ValueError: Unless there is one class a row.
    """
    if np.shape(y)[1:] != (1,):
        raise ValueError(
            "`class_weight` is for one class a row, and the targets of this model are sequences. "
            "Use `sample_weight` with one weight a token, (batch, length). "
            f"Received: class_weight={class_weight}"
        )
