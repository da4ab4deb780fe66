"""Models whose inputs are a dictionary, and where these are checked."""

import keras


class NamedInputs:
    """For functional models of several inputs by name: an unknown key is an error.

    Keras warns, sorts what it was given by key, and takes it by position: whatever comes behind the
    unknown key in the alphabet goes to another input, and a mask may be made of positions.

    A model that checks more overrides `_check`. What `fit` and its kin are given is looked at
    before Keras begins, since an error within leaves a model on JAX without its weights. Of a
    generator only the step itself can see the keys.
    """

    def _check(self, inputs, targets=None):
        """Refuse bad inputs: here, other keys than the model's."""
        self._check_keys(inputs)

    def _check_keys(self, inputs):
        if isinstance(inputs, dict) and set(inputs) != set(self.input):
            raise ValueError(
                f"`inputs` must have the keys {sorted(self.input)}; an optional one may be None. "
                f"Received: {sorted(inputs)}"
            )

    def _check_data(self, x, y=None):
        """Likewise of what `fit` and its kin take: arrays, a tf.data pipeline, a PyDataset."""
        if hasattr(x, "element_spec"):
            spec = x.element_spec
            return self._check_keys(spec[0] if isinstance(spec, tuple | list) else spec)
        if not isinstance(x, keras.utils.PyDataset):
            return self._check(x, y)
        batch = x[0]
        return self._check(*batch[:2]) if isinstance(batch, tuple | list) else self._check(batch)

    def __call__(self, inputs, *args, **kwargs):
        """Applies the model; see the class for the arguments."""
        self._check(inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        """Computes the outputs; steps on JAX begin here, past `__call__`."""
        self._check_keys(inputs)
        return super().call(inputs, training=training, mask=mask)

    def fit(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.fit`; what can be looked at is checked first."""
        self._check_data(x, y)
        validation = kwargs.get("validation_data", args[5] if len(args) > 5 else None)
        if isinstance(validation, tuple | list):
            self._check(*validation[:2])
        elif validation is not None:
            self._check_data(validation)
        return super().fit(x, y, *args, **kwargs)

    def evaluate(self, x=None, y=None, *args, **kwargs):
        """As `keras.Model.evaluate`; what can be looked at is checked first."""
        self._check_data(x, y)
        return super().evaluate(x, y, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        """As `keras.Model.predict`; what can be looked at is checked first."""
        self._check_data(x)
        return super().predict(x, *args, **kwargs)

    def train_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.train_on_batch`; arrays of numpy are checked first."""
        self._check(x, y)
        return super().train_on_batch(x, y, *args, **kwargs)

    def test_on_batch(self, x, y=None, *args, **kwargs):
        """As `keras.Model.test_on_batch`; arrays of numpy are checked first."""
        self._check(x, y)
        return super().test_on_batch(x, y, *args, **kwargs)

    def predict_on_batch(self, x):
        """As `keras.Model.predict_on_batch`; arrays of numpy are checked first."""
        self._check(x)
        return super().predict_on_batch(x)
