"""Are two samples from one distribution? A classifier that tries to tell them apart answers.

Goodfellow et al. 2014 judge a generator by a classifier: at the end "the discriminator is unable to
differentiate between the two distributions, i.e. D(x) = 1/2" (figure 1). The same makes a test of
any two samples (Lopez-Paz and Oquab 2017): if a classifier is right more often than chance on
samples it was not trained on, the distributions differ, and what it is surest of shows where.
"""

import dataclasses
import math

import keras
import numpy as np

from kerasmodels.training.input_checks import visible_array


@dataclasses.dataclass(frozen=True)
class TwoSampleResult:
    """What `two_sample_test` found.

    Attributes:
        accuracy: Share of right answers on held-out samples, the mean of both sides' shares: 1/2 is
            chance, 1 is told apart every time.
        p_value: How often equal distributions would be told apart as well as that, or better.
        method: How the p-value came about, in words.
        reference_scores: `(len(reference),)`, between 0 and 1: how much the classifier, which had
            not seen it, took each for one of `sample`.
        sample_scores: The same of `sample`, `(len(sample),)`.
    """

    accuracy: float
    p_value: float
    method: str
    reference_scores: np.ndarray
    sample_scores: np.ndarray

    def giveaways(self, count=10):
        """Indices of the samples that give the difference away, the surest first.

        Args:
            count: How many.

        Returns:
            Indices into `sample`, `(count,)`. Where the p-value is large they mean nothing.
        """
        return np.argsort(-self.sample_scores, kind="stable")[:count]

    def missed(self, count=10):
        """Indices into `reference` of what `sample` lacks most, the surest first."""
        return np.argsort(self.reference_scores, kind="stable")[:count]

    def __str__(self):
        verdict = "differ" if self.p_value <= 0.05 else "no difference seen"
        return (
            f"{verdict}: held-out accuracy {self.accuracy:.3f} (chance 0.5), "
            f"p = {self.p_value:.3g} ({self.method})"
        )


def two_sample_test(
    reference,
    sample,
    classifier="network",
    features=None,
    folds=2,
    permutations=0,
    epochs=20,
    batch_size=64,
    seed=0,
):
    """Tests whether `sample` is distributed as `reference`, as live data should be as training.

    A classifier is cross-fitted: for each fold one is trained on all other folds and judges this
    one, so that every sample is judged by a classifier that has not seen it. In a fold with m rows
    of `sample`, the m rows with the highest scores are called "sample": that gives the accuracy.
    The p-value uses the whole order, as the rank-sum test does.

    By default nothing is trained for it. If the distributions are equal, the labels of a held-out
    fold are exchangeable whatever the classifier has learned, which makes the standardised rank sum
    z of a fold normal. The folds' classifiers were trained on each other's data, so that their z
    depend on one another: taken as independent, 12 % of the tests of equal distributions would
    raise a false alarm at 5 %. The mean of the z has a variance of at most 1 whatever the
    correlation, and its p-value is that of a normal with variance 1: cautious, the more so the more
    folds there are, so 2 are the default.

    With `permutations=B` all is done again B times with permuted labels, and the p-value is the
    share of runs, this one among them, that reach the mean z: exact for any number of rows, more
    powerful, and B + 1 times the work. At least 19 are needed for a p-value of .05.

    Args:
        reference: `(count, ...)`: vectors, images `(height, width, channels)` whatever Keras's
            data format is, or what `features` or `classifier` takes. Arrays or tensors. Numbers
            may lie far from zero, such as seconds since 1970: what is subtracted from them is
            subtracted before they become float32.
        sample: The same, of the same shape but for the count.
        classifier: `"network"`: for images three strided convolutions, for everything else two
            layers of 64 units on the flattened, standardised values. `"linear"`: ridge regression,
            which takes milliseconds. A function that takes the shape of one sample and returns a
            `keras.Model` with one logit, such as a GAN's discriminator; if it is compiled, it is
            trained as that says. Or an object with scikit-learn's `fit(x, y)` and
            `decision_function(x)` or `predict_proba(x)`.
        features: A `keras.Model` (or function) that is applied first: the test then asks whether
            the two differ in what this model sees. Outputs are flattened, images' maps averaged.
        folds: Number of folds, at least 2.
        permutations: See above; 0 for none.
        epochs: Of the training of a Keras classifier, by default with AdamW at 1e-3.
        batch_size: Of it, and of `features`.
        seed: Of the folds, the permutations and the training.

    Returns:
        A `TwoSampleResult`.

    Raises:
        ValueError: If shapes differ, a sample has fewer rows than twice the folds, values are not
            finite, or an argument is out of range.

    Example:
    ```python
    import numpy as np
    import kerasmodels
    from kerasmodels import plots

    rng = np.random.default_rng(0)
    training_images = rng.uniform(0, 1, (300, 8, 8, 1))
    images_of_this_week = rng.uniform(0, 1, (300, 8, 8, 1)) ** 2  # darker
    result = kerasmodels.two_sample_test(training_images, images_of_this_week, epochs=5)
    print(result)  # differ: held-out accuracy 0.998 (chance 0.5), p = 4.4e-87 (...)
    plots.image_grid(images_of_this_week[result.giveaways(16)])
    ```
    """
    if folds < 2:
        raise ValueError(f"`folds` must be at least 2. Received: folds={folds}")
    if permutations < 0 or epochs < 1 or batch_size < 1:
        raise ValueError(
            "`permutations` must be at least 0, `epochs` and `batch_size` at least 1. Received: "
            f"permutations={permutations}, epochs={epochs}, batch_size={batch_size}"
        )
    x = [_checked(name, s, folds) for name, s in (("reference", reference), ("sample", sample))]
    if x[0].shape[1:] != x[1].shape[1:]:
        raise ValueError(
            "`reference` and `sample` must hold samples of one shape. "
            f"Received: {x[0].shape[1:]} and {x[1].shape[1:]}"
        )
    if features is not None:
        x = [_features(features, part, batch_size) for part in x]
    y = np.concatenate([np.zeros(len(x[0]), "int32"), np.ones(len(x[1]), "int32")])
    x = _numbers(np.concatenate(x), centred=not _is_of_scikit_learn(classifier))
    random = np.random.default_rng(seed)
    judge = _judge(classifier, x.shape[1:], epochs, batch_size, random)

    z, accuracy, scores = _cross_fit(judge, x, y, folds, random)
    if permutations:
        runs = (random.permutation(y) for _ in range(permutations))
        reached = sum(_cross_fit(judge, x, labels, folds, random)[0] >= z for labels in runs)
        p_value = (1 + reached) / (permutations + 1)
        method = f"{permutations} permutations, trained anew for each"
    else:
        p_value = 0.5 * math.erfc(z / math.sqrt(2))
        method = f"held-out rank sums of {folds} folds, normal approximation of the permutations"
    return TwoSampleResult(accuracy, p_value, method, scores[y == 0], scores[y == 1])


def _checked(name, values, folds):
    if keras.ops.is_tensor(values):  # on any device
        values = keras.ops.convert_to_numpy(values)
    values = np.asarray(values) if visible_array(values) is None else visible_array(values)
    if values.ndim < 1 or len(values) < 2 * folds:
        raise ValueError(
            f"`{name}` must have at least {2 * folds} samples, two for each of {folds} folds. "
            f"Received: shape {np.shape(values)}"
        )
    if values.dtype.kind not in "biuf":
        raise ValueError(f"`{name}` must be numbers. Received: dtype {values.dtype}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError(f"`{name}` must be finite: it holds a NaN or an infinite value.")
    return values[:, None] if values.ndim == 1 else values


def _numbers(x, centred):
    """Samples as float32 where that holds each of them, else as float64.

    Args:
        x: An array of any numbers.
        centred: Whether the least value of each column (of images: of each channel) is subtracted
            first. Numbers far from zero lose no digit by that, integers of 64 bits neither, and
            what is constant becomes exactly 0.
    """
    exact = x.dtype.itemsize < 4 or x.dtype == np.float32
    if x.dtype.kind in "iu" and x.dtype.itemsize == 8 and centred:
        low, high = (end.astype(object) for end in (x.min(axis=_axes(x)), x.max(axis=_axes(x))))
        if np.all(high - low < 2**63):
            x = x - x.min(axis=_axes(x))
    x = x.astype("float32" if exact else "float64")
    return x - x.min(axis=_axes(x)) if centred else x


def _axes(x):
    """The axes that share a scale: all but the last of images, else the samples."""
    return tuple(range(x.ndim - 1)) if x.ndim == 4 else (0,)


def _standardized(x, held_out):
    """Both with the mean 0 and the deviation 1 that `x` then has; a constant is only moved."""
    mean, deviation = (
        np.asarray(part(axis=_axes(x), dtype="float64"), x.dtype) for part in (x.mean, x.std)
    )
    deviation = np.where(deviation > 0, deviation, 1).astype(x.dtype)
    return (x - mean) / deviation, (held_out - mean) / deviation


def _is_of_scikit_learn(classifier):
    return hasattr(classifier, "fit") and not isinstance(classifier, keras.Model)


def _features(model, x, batch_size):
    apply = getattr(model, "predict_on_batch", model)
    form = getattr(model, "data_format", None) or keras.config.image_data_format()
    pixels = (2, 3) if form == "channels_first" else (1, 2)
    parts = []
    for start in range(0, len(x), batch_size):
        batch = x[start : start + batch_size].astype("float32")
        out = keras.ops.convert_to_numpy(apply(batch))
        parts.append(out.mean(axis=pixels) if out.ndim == 4 else out.reshape(len(out), -1))
    return np.concatenate(parts)  # (count, features)


def _cross_fit(judge, x, y, folds, random):
    """The folds' mean z, the accuracy, and every row's held-out score."""
    fold = np.empty(len(y), "int32")
    for label in (0, 1):  # each fold has its share of both
        rows = random.permutation(np.flatnonzero(y == label))
        fold[rows] = np.arange(len(rows)) % folds
    z, hits, scores = 0.0, 0, np.empty(len(y), "float32")
    for k in range(folds):
        held_out = fold == k
        scores[held_out] = judge(x[~held_out], y[~held_out], x[held_out])
        # Equal scores come in a random order, or the order of the rows would tell.
        order = np.lexsort((random.random(held_out.sum()), scores[held_out]))
        labels = y[held_out][order]  # the surest "sample" last
        samples, others = int(labels.sum()), int((1 - labels).sum())
        hits += int(labels[-samples:].sum())
        # Rank sum: its mean and variance over all orders of the labels (Mann and Whitney 1947).
        total = samples + others
        ranks = float((np.arange(1, total + 1) * labels).sum())
        mean, variance = samples * (total + 1) / 2, samples * others * (total + 1) / 12
        z += (ranks - mean) / math.sqrt(variance) / folds
    samples = int(y.sum())
    others = len(y) - samples
    # As many rows are called "sample" as there are: what is wrong on one side is on the other.
    accuracy = 0.5 * (hits / samples + (others - (samples - hits)) / others)
    return z, accuracy, scores


def _judge(classifier, shape, epochs, batch_size, random):
    """A function `(x, y, x_held_out) -> scores between 0 and 1` that trains anew on each call."""
    if isinstance(classifier, str):
        if classifier == "linear":
            return _linear
        if classifier != "network":
            raise ValueError(
                '`classifier` must be "network", "linear", a function or an object with `fit`. '
                f"Received: classifier={classifier!r}"
            )
        model = _network(shape, random)
    elif _is_of_scikit_learn(classifier):
        return lambda x, y, held_out: _of_scikit_learn(classifier, x, y, held_out)
    elif callable(classifier) and not isinstance(classifier, keras.Model):
        model = classifier(shape)
    else:
        raise ValueError(
            "`classifier` must be a function that returns a new model, as each fold trains one "
            f"from the start. Received: classifier={classifier}"
        )
    return _Trainer(model, shape, epochs, batch_size, random)


def _linear(x, y, held_out):
    """Ridge regression of the labels on standardised values, in closed form."""
    x, held_out = (part.reshape(len(part), -1).astype("float64") for part in (x, held_out))
    x, held_out = _standardized(x, held_out)
    share = y.mean()
    if x.shape[1] <= len(x):
        weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - share))
    else:  # the dual form is the smaller one
        weights = x.T @ np.linalg.solve(x @ x.T + np.eye(len(x)), y - share)
    return np.clip(held_out @ weights + 0.5, 0, 1)


def _of_scikit_learn(classifier, x, y, held_out):
    x, held_out = (part.reshape(len(part), -1) for part in (x, held_out))
    classifier.fit(x, y)
    if hasattr(classifier, "predict_proba"):
        return classifier.predict_proba(held_out)[:, 1]
    return 1 / (1 + np.exp(-np.clip(classifier.decision_function(held_out), -30, 30)))


def _network(shape, random):
    """A small network for images or vectors."""

    def seed():
        return keras.initializers.GlorotUniform(seed=int(random.integers(2**31)))

    inputs = keras.Input(shape)
    if len(shape) == 3:
        x = inputs
        for filters in (32, 64, 64):
            x = keras.layers.Conv2D(
                filters,
                3,
                strides=2,
                padding="same",
                data_format="channels_last",
                activation="relu",
                kernel_initializer=seed(),
            )(x)
        x = keras.layers.GlobalAveragePooling2D(data_format="channels_last")(x)
    else:
        x = keras.layers.Flatten(data_format="channels_last")(inputs)
        x = keras.layers.Dense(64, activation="relu", kernel_initializer=seed())(x)
        x = keras.layers.Dense(64, activation="relu", kernel_initializer=seed())(x)
    return keras.Model(inputs, keras.layers.Dense(1, kernel_initializer=seed())(x))


class _Trainer:
    """Trains one Keras model again and again from its first weights; it is compiled once."""

    def __init__(self, model, shape, epochs, batch_size, random):
        output_shape = model.compute_output_shape((None, *shape))
        if tuple(output_shape) != (None, 1):
            raise ValueError(
                "The classifier must return one logit a sample, (batch, 1). "
                f"Received: output shape {output_shape}"
            )
        self.model, self.epochs, self.random = model, epochs, random
        self.batch_size = batch_size
        if not model.compiled:
            optimizer = keras.optimizers.AdamW(1e-3, weight_decay=1e-2)
            model.compile(optimizer, keras.losses.BinaryCrossentropy(from_logits=True))
        model.optimizer.build(model.trainable_variables)
        self.start = [(v, keras.ops.convert_to_numpy(v.value)) for v in self._variables()]

    def _variables(self):
        return [*self.model.variables, *self.model.optimizer.variables]

    def __call__(self, x, y, held_out):
        for variable, value in self.start:
            variable.assign(value)
        x, held_out = (part.astype("float32") for part in _standardized(x, held_out))
        # Full batches only, one shape: nothing is compiled twice. Both sides weigh the same.
        size = min(self.batch_size, len(x))
        sides = [np.flatnonzero(y == label) for label in (0, 1)]
        steps = -(-len(x) // size)
        for _ in range(self.epochs):
            # (steps, size): in each batch half of each side
            rows = np.concatenate(
                [
                    self.random.choice(side, (steps, count))
                    for side, count in zip(sides, (size // 2, size - size // 2), strict=True)
                ],
                axis=1,
            ).reshape(-1)
            labels = y[rows, None].astype("float32")
            self.model.fit(x[rows], labels, batch_size=size, shuffle=False, verbose=0)
        logits = np.concatenate(
            [
                self.model.predict_on_batch(_filled(held_out[start : start + size], size))
                for start in range(0, len(held_out), size)
            ]
        )[: len(held_out), 0]
        return 1 / (1 + np.exp(-np.clip(logits.astype("float64"), -30, 30)))


def _filled(x, size):
    return np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])
