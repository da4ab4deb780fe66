"""Attention maps and the position table."""

import math
from collections.abc import Iterable
from numbers import Integral

import keras
import numpy as np

from kerasmodels.plots.figures import new_figure, to_numpy

_CELL = 0.24  # inches one token takes at full size
_MAP_SIZES = (1.6, 9.0)  # inches: the smallest and the largest side of a single map
_MAX_TOKEN_LENGTH = 24  # characters of a token shown on an axis


def attention_map(scores, query_tokens=None, key_tokens=None, title=None, heads=None):
    """Draws attention weights with the tokens on the axes: queries down, keys across.

    The rank of `scores` says what is drawn. All maps of one figure share one colour scale, which
    starts at 0.

    Args:
        scores: `(queries, keys)`, one head; `(heads, queries, keys)`, every head of a layer side by
            side; or `(layers, heads, queries, keys)`, also as a list of one array a layer: one row
            a layer, one column a head. Arrays or tensors of any float type.
        query_tokens: the tokens of the queries, strings (or ids). Fewer tokens than queries cut the
            map there: that is how padding is left out. None numbers the positions.
        key_tokens: the same for the keys.
        title: the figure's title.
        heads: the heads to be drawn, integers counted from 0; the figure says which they are,
            counted from 1. None draws all.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if `scores` has another rank or is empty, if there are more tokens than
            positions, or if there are no such `heads`.

    Example:
    ```python
    import numpy as np
    from kerasmodels import plots

    weights = np.full((8, 3, 4), 0.25)  # 8 heads, 3 queries, 4 keys
    figure = plots.attention_map(weights, ["das", "ist", "gut"], ["it", "is", "fine", "."])
    figure.savefig("attention.png")
    ```

    With a model, the last layer's cross-attention of the first sentence of a batch:

    ```python
    import numpy as np
    from kerasmodels import models, plots

    model = models.Transformer(1000, num_layers=2, num_heads=4, hidden_dim=64, intermediate_dim=256)
    inputs = {
        "encoder_token_ids": np.array([[5, 6, 7]]),
        "encoder_padding_mask": None,
        "decoder_token_ids": np.array([[1, 8, 9]]),
        "decoder_padding_mask": None,
    }
    scores = model.attention_scores(inputs)["cross"][-1][0]  # (4, 3, 3)
    figure = plots.attention_map(scores, ["das", "ist", "gut"], ["it", "is", "fine"])
    ```

    Vaswani et al. 2017, figures 3 to 5, show such weights.
    """
    if isinstance(scores, (list, tuple)):
        scores = [to_numpy(layer) for layer in scores]
        if len({layer.shape for layer in scores}) > 1:
            raise ValueError(
                "`scores` as a list must hold arrays of one shape, (heads, queries, keys). "
                f"Received shapes: {[layer.shape for layer in scores]}"
            )
    scores = to_numpy(scores)
    if scores.ndim not in (2, 3, 4) or 0 in scores.shape:
        raise ValueError(
            "`scores` must be (queries, keys), (heads, queries, keys) or (layers, heads, queries, "
            "keys), each at least 1; take one sample of a batch, as in `scores[0]`. "
            f"Received shape: {scores.shape}"
        )
    query_labels = _token_labels(query_tokens, scores.shape[-2], "query_tokens")
    key_labels = _token_labels(key_tokens, scores.shape[-1], "key_tokens")
    scores = scores[..., : len(query_labels), : len(key_labels)]
    if heads is not None:
        count = scores.shape[-3] if scores.ndim > 2 else 0
        heads = list(heads) if isinstance(heads, Iterable) else [None]
        if not heads or not all(isinstance(i, Integral) and 0 <= i < count for i in heads):
            raise ValueError(
                f"`heads` must be integers in [0, {count}), the heads there are. Received: {heads}"
            )
        scores = scores[..., heads, :, :]
    if scores.ndim == 2:
        maps, names, columns = scores[None], [None], 1
    elif scores.ndim == 3:
        numbers = range(len(scores)) if heads is None else heads
        maps, names = scores, [f"head {i + 1}" for i in numbers]
        columns = _grid_columns(len(maps))
    else:
        layers, columns = scores.shape[:2]
        maps = scores.reshape((-1,) + scores.shape[2:])
        numbers = range(columns) if heads is None else heads
        names = [f"layer {i + 1}, head {j + 1}" for i in range(layers) for j in numbers]
    rows = math.ceil(len(maps) / columns)

    # Many maps in a figure get smaller cells, and with them smaller type.
    shrink = 1.0 if len(maps) == 1 else max(0.45, 0.9 - 0.05 * columns)
    height, row_size, row_every = _axis_layout(len(query_labels), shrink)
    width, column_size, column_every = _axis_layout(len(key_labels), shrink)
    upright = max(map(len, key_labels)) <= 2 and column_every == 1
    label_space = 0.06 * column_size / 7
    left = 0.5 + label_space * max(map(len, query_labels))
    bottom = 0.5 + label_space * (2 if upright else max(map(len, key_labels)))
    figure = new_figure(
        (left + columns * (width + 0.15) + 0.9, bottom + rows * (height + 0.3) + 0.3)
    )
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    top = float(np.nanmax(maps)) or 1.0
    for index, axis in enumerate(axes.flat):
        if index >= len(maps):
            axis.set_visible(False)
            continue
        image = axis.imshow(maps[index], vmin=0.0, vmax=top, cmap="viridis", aspect="auto")
        if names[index]:
            axis.set_title(names[index], fontsize=8, pad=3)
        axis.tick_params(length=2, pad=2)
        # The map below may be missing in the last row: then the labels belong under this one.
        if index + columns >= len(maps):
            axis.tick_params(labelbottom=True)
    axes[0, 0].set_xticks(
        range(0, len(key_labels), column_every),
        key_labels[::column_every],
    )
    axes[0, 0].set_yticks(range(0, len(query_labels), row_every), query_labels[::row_every])
    for axis in axes.flat:
        # A token may be "$": it is text, not the start of a formula.
        for label in axis.get_xticklabels():
            label.set(parse_math=False, fontsize=column_size, rotation=0 if upright else 90)
        for label in axis.get_yticklabels():
            label.set(parse_math=False, fontsize=row_size)
    figure.supxlabel("key (attended to)", fontsize=9)
    figure.supylabel("query", fontsize=9)
    bar = figure.colorbar(image, ax=axes, shrink=min(1.0, 3.0 / (rows * height)), pad=0.02)
    bar.set_label("attention weight", fontsize=8)
    bar.ax.tick_params(labelsize=7)
    if title:
        figure.suptitle(title, fontsize=11, parse_math=False)
    return figure


def position_table(positions, length=64, hidden_dim=128, title="Position encoding"):
    """Draws what is added to the embedding at every position.

    Args:
        positions: the table itself, `(length, hidden_dim)`, or a layer that adds positions to its
            input, such as `layers.PositionalEncoding()` or `layers.PositionEmbedding(...)`: it is
            called on zeros.
        length: number of positions drawn, if a layer is given.
        hidden_dim: width of the input, if a layer is given that is not built yet.
        title: the figure's title, or None.

    Returns:
        A `matplotlib.figure.Figure`: positions down, dimensions across, colours symmetric around 0.

    Raises:
        ValueError: if the table does not have rank 2, or `length` or `hidden_dim` is not positive.

    Example:
    ```python
    from kerasmodels import layers, plots

    figure = plots.position_table(layers.PositionalEncoding(), length=50, hidden_dim=128)
    ```

    Vaswani et al. 2017, section 3.5.
    """
    if isinstance(positions, keras.layers.Layer):
        for name, value in (("length", length), ("hidden_dim", hidden_dim)):
            if value < 1:
                raise ValueError(f"`{name}` must be at least 1. Received: {name}={value}")
        weights = positions.weights
        width = weights[0].shape[-1] if weights else hidden_dim
        positions = positions(keras.ops.zeros((1, length, width)))[0]
    table = to_numpy(positions)
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(
            "`positions` must be a layer or a table (length, hidden_dim). "
            f"Received shape: {table.shape}"
        )
    figure = new_figure((7.0, 4.2))
    axis = figure.subplots()
    limit = float(np.nanmax(np.abs(table))) or 1.0
    image = axis.imshow(
        table, aspect="auto", cmap="RdBu_r", vmin=-limit, vmax=limit, interpolation="nearest"
    )
    axis.set_xlabel("dimension")
    axis.set_ylabel("position")
    figure.colorbar(image, ax=axis, pad=0.02).set_label("value")
    if title:
        axis.set_title(title)
    return figure


def _token_labels(tokens, size, argument):
    """The strings of an axis with `size` positions."""
    if tokens is None:
        return [str(position) for position in range(size)]
    labels = [
        token if isinstance(token, str) else str(token)
        for token in (tokens.tolist() if hasattr(tokens, "tolist") else tokens)
    ]
    if not 0 < len(labels) <= size:
        raise ValueError(
            f"`{argument}` must name at least 1 and at most {size} positions, as `scores` has. "
            f"Received {len(labels)}: {labels[:8]}"
        )
    labels = [label.replace("\n", "\\n").replace("\t", "\\t") for label in labels]
    return [
        label if len(label) <= _MAX_TOKEN_LENGTH else label[: _MAX_TOKEN_LENGTH - 1] + "…"
        for label in labels
    ]


def _grid_columns(count):
    """Columns of a grid of `count` maps: full rows where it can be, rather wide than high."""
    smallest = math.ceil(math.sqrt(count))
    return next((c for c in range(smallest, min(count, 6) + 1) if count % c == 0), smallest)


def _axis_layout(count, shrink):
    """Inches of an axis with `count` tokens, its font size, and which tokens (every n-th) fit."""
    smallest, largest = _MAP_SIZES
    inches = min(max(count * _CELL, smallest), largest) * shrink
    points = 72 * inches / count  # of one cell
    every = next(n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, count) if n * points >= 6)
    return inches, min(9.0, max(5.0, 0.8 * points * every)), every
