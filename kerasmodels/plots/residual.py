"""The picture of He et al. 2016, figure 7: how strongly the layers of nets respond."""

import numpy as np

from kerasmodels.plots.figures import new_figure, to_numpy


def residual_responses(responses, title=None):
    """Draws the standard deviation of what every layer answers, for several nets.

    He et al. 2016, section 4.2, "Analysis of layer responses", and figure 7. Above, the layers
    stand in their order; below, by magnitude. Residual functions answer less than the layers of
    plain nets, and less the deeper the net is: each block changes its input by little.

    Args:
        responses: A dict from the names of nets to what `models.ResNet.layer_responses(images)`
            returned for the same images: a list with an array for each layer, of any shape, after
            its normalization and before the non-linearity and the addition.
        title: The figure's title.

    Returns:
        A `matplotlib.figure.Figure`.

    Raises:
        ValueError: If there is no net, or a net without layers or with an empty array.

    Example:
    ```python
    import keras
    from kerasmodels import models, plots

    images = keras.random.normal((8, 32, 32, 3))
    resnet = models.ResNet(20, stem="cifar")
    plain = models.ResNet(20, stem="cifar", shortcut=None)
    nets = {"plain-20": plain, "ResNet-20": resnet}
    responses = {name: net.layer_responses(images) for name, net in nets.items()}
    figure = plots.residual_responses(responses)
    ```
    """
    if not responses:
        raise ValueError("`responses` must hold at least one net. Received: none")
    figure = new_figure((6.4, 5.6))
    top, bottom = figure.subplots(2, 1, sharex=True, sharey=True)
    for name, arrays in responses.items():
        arrays = [to_numpy(array) for array in arrays]
        if not arrays or not all(array.size for array in arrays):
            raise ValueError(
                "`responses` must hold an array of at least one number for each layer. "
                f"Received: for {name!r} the shapes {[array.shape for array in arrays]}"
            )
        deviations = np.array([array.std(dtype="float64") for array in arrays])
        layers = np.arange(1, len(arrays) + 1)
        top.plot(layers, deviations, linewidth=1.6, label=name)
        bottom.plot(layers, np.sort(deviations)[::-1], linewidth=1.6)
    top.set_xlabel("layer")
    bottom.set_xlabel("layers by magnitude")
    top.tick_params(labelbottom=True)
    for axis in (top, bottom):
        axis.set_ylabel("standard deviation")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    top.legend(frameon=False, fontsize=9)
    if title:
        figure.suptitle(title)
    return figure
