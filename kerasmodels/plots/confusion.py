"""What a classifier takes for what."""

import keras
import numpy as np

from kerasmodels.plots.figures import new_figure

_MOST_COUNTED = 40  # classes; with more of them a cell has no room for its number


def confusion_counts(labels, predictions, class_names=None):
    """How often each class was taken for each, the numbers that `confusion_matrix` draws.

    Args:
        labels: True classes, integers `(count,)`.
        predictions: Predicted classes, integers `(count,)`; or scores `(count, classes)`, as
            `model.predict` gives them, of which the greatest counts.
        class_names: A name for each class, where there may be more of them than the largest label
            tells.

    Returns:
        An int64 array `(classes, classes)`: in row i and column j the samples of class i that were
        taken for j.

    Raises:
        ValueError: As `confusion_matrix`.

    Example:
    ```python
    from kerasmodels import plots

    plots.confusion_counts([0, 0, 1, 1], [0, 1, 1, 1])  # [[1, 1], [0, 2]]
    ```
    """
    return _counted(labels, predictions, class_names)[0]


def confusion_matrix(labels, predictions, class_names=None, title=None):
    """Draws how often each class was taken for each: true classes down, predicted across.

    Cells hold counts (up to 40 classes); their colour is the share of the row, so that a rare class
    shows as much as a frequent one. `confusion_counts` gives the counts themselves.

    Args:
        labels: True classes, integers `(count,)`.
        predictions: Predicted classes, integers `(count,)`; or scores `(count, classes)`, as
            `model.predict` gives them, of which the greatest counts.
        class_names: A name for each class; by default their numbers.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is no label, the two have different lengths or no integers, or a class
            is negative or has no name.

    Example:
    ```python
    from kerasmodels import plots

    figure = plots.confusion_matrix([0, 0, 1, 1], [0, 1, 1, 1], ["cat", "dog"])
    figure.savefig("confusion.png")
    ```
    """
    matrix, class_names = _counted(labels, predictions, class_names)
    count = len(class_names)
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)

    side = min(max(0.45 * count, 2.4), 9.0)
    longest = max(map(len, class_names))
    figure = new_figure((side + 1.6 + 0.07 * longest, side + 0.9 + 0.07 * longest))
    axis = figure.subplots()
    image = axis.imshow(shares, vmin=0, vmax=1, cmap="Blues")
    every = -(-count // 60)
    points = 72 * side / count  # of one cell
    size = min(9.0, max(5.0, 0.6 * points * every))
    ticks, names = range(0, count, every), class_names[::every]
    axis.set_xticks(ticks, names, rotation=90 if longest > 2 else 0, fontsize=size)
    axis.set_yticks(ticks, names, fontsize=size)
    for label in (*axis.get_xticklabels(), *axis.get_yticklabels()):
        label.set_parse_math(False)  # a class may be called "$"
    if count <= _MOST_COUNTED:
        digits = len(str(matrix.max()))
        for (row, column), number in np.ndenumerate(matrix):
            axis.text(
                column,
                row,
                str(number),
                ha="center",
                va="center",
                fontsize=min(9.0, 1.2 * points / digits, 0.6 * points),
                color="white" if shares[row, column] > 0.5 else "black",
            )
    axis.set_xlabel("predicted class")
    axis.set_ylabel("true class")
    bar = figure.colorbar(image, ax=axis, shrink=0.8, pad=0.03)
    bar.set_label("share of the true class", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    if title:
        axis.set_title(title, fontsize=11)
    return figure


def _counted(labels, predictions, class_names):
    """The counts, and the names of the classes."""
    labels, predictions = (
        np.asarray(keras.ops.convert_to_numpy(values)) for values in (labels, predictions)
    )
    width = 0
    if predictions.ndim == 2 and predictions.size:
        width = predictions.shape[1]
        predictions = predictions.argmax(axis=1)
    if labels.ndim != 1 or not len(labels) or labels.shape != predictions.shape:
        raise ValueError(
            "`labels` and `predictions` must have one class each for the same samples, at least "
            f"one. Received: labels of shape {labels.shape}, predictions for "
            f"{predictions.shape} samples"
        )
    for name, values in (("labels", labels), ("predictions", predictions)):
        if values.dtype.kind not in "iu" or values.min() < 0:
            raise ValueError(
                f"`{name}` must be integers from 0. Received: {values[:8]} of dtype {values.dtype}"
            )
    count = 1 + max(int(labels.max()), int(predictions.max()), width - 1)
    class_names = [str(name) for name in (range(count) if class_names is None else class_names)]
    if len(class_names) < count:
        raise ValueError(
            "`class_names` must name every class. "
            f"Received: {len(class_names)} names for {count} classes"
        )
    count = len(class_names)
    pairs = labels.astype("int64") * count + predictions
    return np.bincount(pairs, minlength=count**2).reshape(count, count), class_names
