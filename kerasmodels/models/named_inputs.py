"""Models whose inputs are a dictionary, and where these are checked."""

from kerasmodels.training.checked_inputs import ChecksInputs


class NamedInputs(ChecksInputs):
    """For functional models of several inputs by name: bad ids and an unknown key are errors.

    Of an unknown key Keras warns, sorts what it was given by key, and takes it by position:
    whatever comes behind it in the alphabet goes to another input, and a mask may be made of
    positions.
    """

    def _check(self, inputs, targets=None):
        self._check_keys(inputs)
        super()._check(inputs, targets)

    def _check_keys(self, inputs):
        if not isinstance(inputs, dict):
            return
        if set(inputs) != set(self.input):
            raise ValueError(
                f"`inputs` must have the keys {sorted(self.input)}; an optional one may be None. "
                f"Received: {sorted(inputs)}"
            )
        for name, value in inputs.items():
            if isinstance(value, list | tuple):  # Keras would take them for a structure of inputs
                raise ValueError(
                    f"`{name}` must be an array or a tensor, such as np.array({name}). "
                    f"Received: a {type(value).__name__}"
                )

    def _checked(self, x, y=None):
        if hasattr(x, "element_spec"):
            spec = x.element_spec
            self._check_keys(spec[0] if isinstance(spec, tuple | list) else spec)
        return super()._checked(x, y)

    def __call__(self, inputs, *args, **kwargs):
        """Applies the model; see the class for the arguments."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """Computes the outputs; steps on JAX begin here, past `__call__`."""
        self._check_keys(inputs)
        return super().call(inputs, training=training, mask=mask)
