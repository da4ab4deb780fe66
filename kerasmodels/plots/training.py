"""Learning-rate schedules, and what was logged while models learned."""

import math

import numpy as np

from kerasmodels.plots.figures import new_figure, to_numpy


def schedule(schedules, num_steps, title="Learning rate"):
    """Draws one learning-rate schedule or several in one picture.

    Args:
        schedules: a `keras.optimizers.schedules.LearningRateSchedule`, any function of the step, a
            number (a constant rate), or a dict of these by name for a comparison.
        num_steps: the last step drawn; the first is 1.
        title: the figure's title, or None.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if `num_steps` is below 2, `schedules` is an empty dict, or an entry is neither
            callable nor a number.

    Example:
    ```python
    from kerasmodels import plots, training

    figure = plots.schedule(
        {f"d = {d}": training.WarmupInverseSqrt(d) for d in (256, 512)}, num_steps=20000
    )
    ```

    Vaswani et al. 2017, section 5.3, equation 3.
    """
    if num_steps < 2:
        raise ValueError(f"`num_steps` must be at least 2. Received: num_steps={num_steps}")
    named = isinstance(schedules, dict)
    curves = schedules if named else {"": schedules}
    if not curves:
        raise ValueError("`schedules` must hold at least one schedule. Received: {}")
    steps = np.unique(np.linspace(1, num_steps, 400).round().astype(int))
    figure = new_figure((6.4, 3.8))
    axis = figure.subplots()
    for name, curve in curves.items():
        if not callable(curve) and not isinstance(curve, (int, float)):
            raise ValueError(
                "`schedules` must be a schedule, a function of the step, a number or a dict of "
                f"these. Received: {curve!r}"
            )
        values = [float(to_numpy(curve(int(step)))) if callable(curve) else curve for step in steps]
        axis.plot(steps, values, label=name, linewidth=1.8)
    axis.set_xlabel("step")
    axis.set_ylabel("learning rate")
    axis.set_xlim(0, num_steps)
    axis.set_ylim(bottom=0)
    axis.ticklabel_format(axis="y", style="sci", scilimits=(-3, 3))
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(alpha=0.3)
    if named:
        axis.legend(frameon=False)
    if title:
        axis.set_title(title)
    return figure


def learning_curves(history, metrics=None, title=None):
    """Draws what `fit` logged: one picture a metric, training and validation in the same axes.

    Args:
        history: what `model.fit` returned (`keras.callbacks.History`), or a dict of lists, one
            value an epoch, with the `val_` prefix for validation. A metric that exists for
            validation only (`val_bleu`) gets its axes too. Validation logged every k-th epoch is
            drawn at those epochs.
        metrics: names of the metrics to draw, without `val_`; None draws all of them.
        title: the figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: if nothing was logged, or a metric is asked for that was not.

    Example:
    ```python
    from kerasmodels import plots

    figure = plots.learning_curves({"loss": [3.1, 1.2, 0.8], "val_loss": [2.0, 1.1, 1.0]})
    figure.savefig("learning_curves.png")
    ```
    """
    first, history = _read_history(history)
    logged = list(dict.fromkeys(key.removeprefix("val_") for key, log in history.items() if log))
    if not logged:
        raise ValueError(f"`history` holds no epoch. Received keys: {sorted(history)}")
    names = logged if metrics is None else list(metrics)
    unknown = [name for name in names if name not in logged]
    if unknown or not names:
        raise ValueError(f"`metrics` must be among {logged}. Received: metrics={names}")
    columns = min(len(names), 3)
    rows = math.ceil(len(names) / columns)
    figure = new_figure((0.6 + 3.9 * columns, 0.4 + 2.9 * rows))
    axes = figure.subplots(rows, columns, squeeze=False)
    total = max(len(log) for log in history.values())
    for axis, name in zip(axes.flat, names, strict=False):
        for key, label, color in ((name, "training", "C0"), (f"val_{name}", "validation", "C1")):
            if history.get(key):
                at, log = _curve(history, key, first)
                axis.plot(at, log, "o-", markersize=3, linewidth=1.6, color=color, label=label)
        axis.set_title(name.replace("_", " "), fontsize=10)
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlim(first + 0.5, first + total + 0.5)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize=8)
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    if title:
        figure.suptitle(title)
    return figure


def training_curves(runs, metric="loss", error=False, steps_per_epoch=None, title=None):
    """Draws several runs in one picture: a colour a run, training dashed and test bold.

    He et al. 2016, figures 4 and 6, compare nets of several depths in this way. `learning_curves`
    shows one run with all its metrics.

    Args:
        runs: A dict from names to what `model.fit` returned (`keras.callbacks.History`), or to
            dicts of lists as for `learning_curves`. A run may lack either of its two curves.
        metric: The name of the metric, without `val_`.
        error: Whether the metric is the share of right answers, and the error in percent,
            100 (1 - metric), is drawn, as in the paper.
        steps_per_epoch: The number of training steps that one entry of the lists stands for; the
            axis counts steps then. `None` counts epochs.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`. The paper cuts the axis of the error at 20 %:
        `figure.axes[0].set_ylim(0, 20)`.

    Raises:
        ValueError: If there is no run, a run has not logged the metric, `steps_per_epoch` is not
            positive, or `error` is asked for and the metric is not between 0 and 1.

    Example:
    ```python
    from kerasmodels import plots

    runs = {
        "plain-20": {"accuracy": [0.5, 0.7], "val_accuracy": [0.4, 0.6]},
        "plain-56": {"accuracy": [0.3, 0.5], "val_accuracy": [0.2, 0.4]},
    }
    figure = plots.training_curves(runs, "accuracy", error=True, steps_per_epoch=391)
    ```
    """
    if not runs:
        raise ValueError("`runs` must hold at least one run. Received: none")
    if steps_per_epoch is not None and not steps_per_epoch > 0:
        raise ValueError(
            f"`steps_per_epoch` must be positive. Received: steps_per_epoch={steps_per_epoch}"
        )
    figure = new_figure((6.4, 4.2))
    axis = figure.subplots()
    styles = {
        metric: ("training", {"linestyle": "--", "linewidth": 1.0}),
        f"val_{metric}": ("test", {"linewidth": 2.2}),
    }
    drawn = set()
    for number, (name, run) in enumerate(runs.items()):
        first, logs = _read_history(run)
        keys = [key for key in styles if logs.get(key)]
        if not keys:
            raise ValueError(
                f"`metric` must be among what every run has logged. Received: metric={metric!r} "
                f"for {name!r} with {sorted(logs)}"
            )
        for key in keys:
            at, log = _curve(logs, key, first)
            if error:
                if min(log) < 0 or max(log) > 1:
                    raise ValueError(
                        "`error=True` needs a metric between 0 and 1. "
                        f"Received: metric={metric!r} with {min(log)} to {max(log)} in {name!r}"
                    )
                log = 100 * (1 - log)
            # One label a run, though it has two curves.
            label = name if key == keys[-1] else f"_{name}"
            style = styles[key][1]
            axis.plot(at * (steps_per_epoch or 1), log, color=f"C{number}", label=label, **style)
            drawn.add(key)
    for key, (label, style) in styles.items():
        if key in drawn:
            axis.plot([], [], color="0.4", label=label, **style)
    axis.set_xlabel("epoch" if steps_per_epoch is None else "step")
    axis.set_ylabel("error (%)" if error else metric.replace("_", " "))
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.xaxis.set_major_formatter("{x:,.0f}")
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, fontsize=9)
    if title:
        axis.set_title(title)
    return figure


def _read_history(history):
    """The number of epochs before the first, and the lists, of a `History` or a dict of lists."""
    if not hasattr(history, "history"):
        return 0, history
    return history.epoch[0] if history.epoch else 0, history.history


def _curve(logs, key, first):
    """The epochs and values of one list; validation may have been logged every k-th epoch."""
    log = np.array([float(to_numpy(value)) for value in logs[key]])
    every = max(map(len, logs.values())) // len(log)
    return first + every * np.arange(1, len(log) + 1), log
