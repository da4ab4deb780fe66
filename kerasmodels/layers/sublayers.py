"""What was changed in the layers within a layer or model, kept in its config."""

import functools
import inspect
import re

import keras
import numpy as np

from kerasmodels.keras_internals import CallsAfterBuild, own_layers


class KeepsSublayers(CallsAfterBuild):
    """A mixin for layers and models that make the layers within them themselves.

    Their config holds the arguments of their constructor, and these make the layers as they were
    at first. Keras's own functional models write the config of each layer instead, and so keep
    what was changed later: a quantization, the rank of LoRA, a dtype policy, `trainable`, a rate of
    dropout. Here a config keeps it too, in the entry `sublayers`: a dictionary from the path of
    each layer that was changed to the entries of its own config that differ. Without a change there
    is no such entry.
    """

    def after_build(self):
        """Looks at the layers as they are at first, then changes those that a config names."""
        if not self.trainable:  # Keras told the layers of then; these came later
            for layer in own_layers(self):
                layer.trainable = False
        # These are written past Keras, which would look into them for layers.
        self.__dict__["_first_states"] = {path: _state(layer) for path, layer, _ in _walk(self)}
        self._restore_sublayers(self.__dict__.pop("_sublayers_to_restore", {}))

    def _changed_sublayers(self):
        """Returns `{"sublayers": {path: entries}}`, or an empty dictionary."""
        found = {}
        for path, layer, parent in _walk(self):
            first = self.__dict__.get("_first_states", {}).get(path)
            if first is None:  # it is not one of those that the constructor makes
                continue
            if not parent.trainable:  # its setter has told the layers within
                first = {**first, "trainable": False}
            state = _state(layer)
            changed = [name for name in state if not _is_same(state[name], first[name])]
            if changed:
                config = layer.get_config()
                changed = ["dtype" if name == "dtype_policy" else name for name in changed]
                found[path] = {name: config[name] for name in changed if name in config}
        return {"sublayers": found} if found else {}

    def _restore_sublayers(self, sublayers):
        """Changes layers as the entry `sublayers` of a config says.

        A path that is not there is passed over: a config may have other arguments than those of the
        model that was saved, such as `folded=True`.
        """
        for path, layer, _ in list(_walk(self)) if sublayers else ():
            if path in sublayers:
                _change(layer, sublayers[path])

    def get_config(self):
        """Returns the constructor's arguments, and what was changed in the layers within."""
        return {**super().get_config(), **self._changed_sublayers()}

    @classmethod
    def from_config(cls, config, *args, **kwargs):
        """Builds it from `get_config`'s result."""
        config = dict(config)
        sublayers = config.pop("sublayers", {})
        # Older files name the layers that are frozen, and no other change.
        frozen = {path: {"trainable": False} for path in config.pop("frozen_layers", ())}
        is_model = issubclass(cls, keras.Model)  # whose constructor takes no `trainable`
        trainable = config.pop("trainable", True) if is_model else True
        made = super().from_config(config, *args, **kwargs)
        if not trainable:
            made.trainable = False
        if made.built:
            made._restore_sublayers({**frozen, **sublayers})
        elif sublayers:
            made.__dict__["_sublayers_to_restore"] = sublayers
        return made


def _walk(parent, before=""):
    """Yields the path, the layer and its parent for all layers within, parents first."""
    taken = set()
    for layer in own_layers(parent):
        name, number = layer.name, 0
        # Keras numbers the names that it gives through the whole program.
        if re.fullmatch(type(layer).__name__.lower() + r"\d*", name.replace("_", "")):
            name = re.sub(r"_\d+$", "", name)
        unique = name
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        yield before + unique, layer, parent
        yield from _walk(layer, f"{before}{unique}/")


@functools.cache
def _arguments(cls):
    """The names of a layer's constructor's arguments, those of its base classes included."""
    names = {}
    for base in cls.__mro__[: cls.__mro__.index(keras.layers.Layer)]:
        if "__init__" in base.__dict__:
            names.update(inspect.signature(base.__init__).parameters)
    return [name for name in names if name not in ("self", "args", "kwargs", "name", "dtype")]


def _state(layer):
    """What a layer's config says, as attributes: to compare these costs no serialization."""
    state = {name: getattr(layer, name) for name in _arguments(type(layer)) if hasattr(layer, name)}
    return {**state, "dtype_policy": layer.dtype_policy, "trainable": layer.trainable}


def _is_same(value, other):
    if value is other:
        return True
    return bool(np.all(value == other)) if type(value) is type(other) else False


def _change(layer, entries):
    """Gives a built layer the entries of a config."""
    entries = dict(entries)
    policy, trainable = entries.pop("dtype", None), entries.pop("trainable", None)
    quantization = entries.pop("quantization_config", None)
    rank, alpha = entries.pop("lora_rank", None), entries.pop("lora_alpha", None)
    if entries:
        other = type(layer).from_config({**layer.get_config(), **entries})
        for name in entries:
            setattr(layer, name, getattr(other, name))
    if policy is not None:
        policy = keras.dtype_policies.get(policy)
        mode = policy.quantization_mode
        if mode is not None and layer.quantization_mode is None:
            layer.dtype_policy = policy.name.partition("_from_")[2]
            config = keras.saving.deserialize_keras_object(quantization)
            layer.quantize(mode, type_check=False, config=config)
        else:
            layer.dtype_policy = policy
    if rank is not None and not layer.lora_enabled:
        layer.enable_lora(rank, lora_alpha=alpha)
    if trainable is not None:
        layer.trainable = trainable
