"""A callback that measures what a model generates, not what it would have predicted next."""

import keras
import numpy as np

from kerasmodels.token_rules import TokenRules
from kerasmodels.training.accumulation import without_accumulation


class GenerationCallback(keras.callbacks.Callback):
    """Generates on validation data and puts the metrics of the result into the epoch's logs.

    Give it to `fit` before `EarlyStopping`, `ModelCheckpoint` or `ReduceLROnPlateau`: they find
    `val_bleu`, `val_per`, ... in the logs, and so does the history. Monitors need their `mode`
    said (`mode="min"` for error rates). With `every` above 1 the last values stand in the logs of
    the epochs between, so that a checkpoint of the best model is not overwritten by one that was
    not measured; before the first generation there are none.

    The model (or the one inside of a `GradientAccumulation`) must have
    `generate(inputs, search=..., max_length=...)` that returns ids `(batch, max_length)`, or
    `(batch, num_return, max_length)` with the best first.

    Args:
        validation_data: `(inputs, targets)` in arrays, or batches of such pairs in anything that
            can be iterated again, such as a `keras.utils.PyDataset` or a list. `inputs` is what
            `generate` takes: an array or a dictionary of arrays; `targets` are ids
            `(batch, length)`. A third entry, sample weights, is ignored.
        metrics: A metric with `name`, `reset_state()`, `update_state(hypotheses, references)` and
            `result()`, such as `Bleu` or `ErrorRate`, or a list of them.
        search: The search for `generate`; `None` for the model's default.
        max_length: How many tokens `generate` may write; `None` for the model's default.
        decode: Turns the ids of one sequence, a list without padding and end token, into what the
            metrics compare: a string or a list of tokens. By default the ids themselves.
        references: For data with several references a source: one list of them a row, in the order
            of the data and in the form that `decode` gives. By default the targets are the
            references.
        batch_size: How many rows of arrays are generated at once; batches stay as they are.
        every: The number of epochs from one generation to the next.
        rules: `decoding.TokenRules`, or a tokenizer that has some: which tokens end a sequence and
            which is padding. By default those of the model, else of `validation_data`, else
            `TokenRules()`.

    Raises:
        ValueError: If there is no metric, if `every` or `batch_size` is not positive, if the data
            is empty, if numbers of references and rows differ, or if the token rules of
            `validation_data` are others than the model's.

    Attributes:
        samples: `(hypothesis, references)` of the first rows of the last generation, to be looked
            at.

    Example:
    ```python
    import keras
    from kerasmodels import data, models, training

    words, sounds = ["cat", "hat", "that"], ["K AE T", "HH AE T", "DH AE T"]
    letters, phonemes = data.Vocabulary.build(words), data.Vocabulary.build(sounds, unit="word")
    pairs = data.BucketedPairs(letters.encode_batch(words), phonemes.encode_batch(sounds))
    model = models.Transformer(
        (letters.vocabulary_size, phonemes.vocabulary_size),
        num_layers=1,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
    )
    model.compile("adam", training.SmoothedCrossEntropy())
    generation = training.GenerationCallback(
        pairs, metrics=[training.ErrorRate("token")], max_length=24
    )
    stopping = keras.callbacks.EarlyStopping("val_per", mode="min", patience=3)
    model.fit(pairs, epochs=20, callbacks=[generation, stopping])
    ```
    """

    def __init__(
        self,
        validation_data,
        metrics,
        search=None,
        max_length=None,
        decode=None,
        references=None,
        batch_size=64,
        every=1,
        rules=None,
    ):
        super().__init__()
        self.metrics = list(metrics) if isinstance(metrics, (list, tuple)) else [metrics]
        if not self.metrics:
            raise ValueError("`metrics` must have at least one metric. Received: metrics=[]")
        for name, value in (("every", every), ("batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
        self.validation_data = validation_data
        self.search = search
        self.max_length = max_length
        self.decode = decode
        self.references = references
        self.batch_size = int(batch_size)
        self.every = int(every)
        self.rules = None if rules is None else TokenRules.of(rules)
        self.samples = []
        self._last = {}

    def on_train_begin(self, logs=None):
        """Refuses data of other token rules before anything is trained."""
        self._token_rules(without_accumulation(self.model))

    def on_epoch_end(self, epoch, logs=None):
        """Generates every `every` epochs and adds `val_<metric>` to the logs."""
        if (epoch + 1) % self.every == 0:
            self._last = {f"val_{name}": value for name, value in self.evaluate().items()}
        if logs is not None:
            logs.update(self._last)

    def evaluate(self):
        """Generates on all validation data.

        Returns:
            A dictionary from the metrics' names to their values.
        """
        options = {"search": self.search, "max_length": self.max_length}
        options = {name: value for name, value in options.items() if value is not None}
        for metric in self.metrics:
            metric.reset_state()
        self.samples, rows = [], 0
        model = without_accumulation(self.model)
        rules = self._token_rules(model)
        for inputs, targets in self._batches():
            ids = np.asarray(model.generate(inputs, **options))
            best = ids[:, 0] if ids.ndim == 3 else ids  # (batch, max_length)
            hypotheses = [self._sequence(row, rules) for row in best]
            if self.references is None:
                references = [[self._sequence(row, rules)] for row in targets]
            else:
                references = [list(r) for r in self.references[rows : rows + len(best)]]
            rows += len(best)
            for metric in self.metrics:
                metric.update_state(hypotheses, references)
            self.samples += list(zip(hypotheses, references, strict=True))[: 12 - len(self.samples)]
        if not rows:
            raise ValueError("`validation_data` must have at least one row. It has none.")
        if self.references is not None and rows != len(self.references):
            raise ValueError(
                "`references` must have one entry for every row of `validation_data`. Received: "
                f"{len(self.references)} references, {rows} rows"
            )
        return {metric.name: metric.result() for metric in self.metrics}

    def _batches(self):
        """Yields `(inputs, targets)` with targets in numpy."""
        data = self.validation_data
        arrays = isinstance(data, (tuple, list)) and len(data) in (2, 3) and _is_array(data[1])
        if arrays:
            inputs, targets = data[0], keras.ops.convert_to_numpy(data[1])
            for start in range(0, len(targets), self.batch_size):
                rows = slice(start, start + self.batch_size)
                yield _rows_of(inputs, rows), targets[rows]
            return
        for batch in data:
            yield _without_filling(batch[0], keras.ops.convert_to_numpy(batch[1]))

    def _token_rules(self, model):
        """Those that were given, else the model's, else the data's."""
        of_model, of_data = (getattr(x, "token_rules", None) for x in (model, self.validation_data))
        if isinstance(of_model, TokenRules) and isinstance(of_data, TokenRules):
            of_model.check_same_ids(of_data, "`validation_data`")
        rules = (rules for rules in (self.rules, of_model, of_data) if rules is not None)
        return next(rules, TokenRules())

    def _sequence(self, ids, rules):
        """The ids before the first end token and without padding, decoded."""
        ends = np.flatnonzero(np.isin(ids, rules.end_ids))
        ids = ids[: ends[0]] if len(ends) else ids
        ids = ids[ids != rules.pad_id].tolist()
        return self.decode(ids) if self.decode else ids


def _without_filling(inputs, targets):
    """Leaves out rows that only fill a batch up, as `data.BucketedPairs` has them: all padding."""
    mask = inputs.get("encoder_padding_mask") if isinstance(inputs, dict) else None
    if mask is None:
        return inputs, targets
    real = keras.ops.convert_to_numpy(mask).astype(bool).any(axis=1)
    if real.all():
        return inputs, targets
    inputs = {k: None if x is None else keras.ops.convert_to_numpy(x) for k, x in inputs.items()}
    return _rows_of(inputs, real), targets[real]


def _rows_of(inputs, rows):
    if isinstance(inputs, dict):
        # A padding mask may be None.
        return {name: None if x is None else x[rows] for name, x in inputs.items()}
    return inputs[rows]


def _is_array(value):
    return hasattr(value, "shape") and not hasattr(value, "keys")
