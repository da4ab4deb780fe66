"""Frozen layers, kept in a model's config."""

from kerasmodels.keras_internals import own_layers


class KeepsFrozenLayers:
    """For models that are built anew from their constructor's arguments when they are loaded.

    A `.keras` file of Keras's own functional models says of each layer whether it is trainable. A
    config of constructor's arguments does not, and what was frozen would learn again, with an
    optimizer that has lost its state. So the config of such a model gets the entry
    `frozen_layers`, the paths of these layers, where there are any.
    """

    def _frozen_layers(self):
        """`{"frozen_layers": [...]}`, or an empty dictionary."""
        found = [path for path, layer in _layers(self) if not layer.trainable]
        return {"frozen_layers": found} if found else {}

    @classmethod
    def from_config(cls, config, *args, **kwargs):
        """Builds the model from `get_config`'s result."""
        config = dict(config)
        frozen = set(config.pop("frozen_layers", ()))
        model = super().from_config(config, *args, **kwargs)
        if frozen:
            for path, layer in _layers(model):
                if path in frozen:
                    layer.trainable = False
        return model


def _layers(parent, before=""):
    """Paths and layers with weights, those inside of frozen ones left out."""
    for layer in own_layers(parent):
        if layer.variables:
            yield before + layer.name, layer
            if layer.trainable:
                yield from _layers(layer, f"{before}{layer.name}/")
