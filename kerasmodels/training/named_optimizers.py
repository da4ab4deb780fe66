"""Several optimizers by name, as the single optimizer that a Keras model holds."""

import types

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="kerasmodels")
class NamedOptimizers(keras.optimizers.Optimizer):
    """What `PortableModel.compile(optimizer={...})` makes of its dictionary.

    Keras's trainers, callbacks and files know one `model.optimizer`. This one lists the variables
    of all the optimizers it holds, which is what makes the JAX trainer carry them through the
    jitted step, and writes and reads them by name. `model.optimizer["generator"]` is one of them.

    It applies no gradients itself: `PortableModel.minimize(..., optimizer="generator")` does.
    `iterations` counts the model's training steps, whatever each optimizer counts. Setting
    `learning_rate` sets that of every optimizer; whatever else an optimizer can be told, one of
    them must be told.

    Args:
        optimizers: `{name: keras.optimizers.Optimizer, or Keras's name of one}`.
        name: The name of this object.

    Raises:
        ValueError: If `optimizers` is empty, a name is not a string, or one optimizer stands
            under two names. If something is set that belongs to one of the optimizers, or a rate
            where a schedule rules.
    """

    _BELONGS_TO_ONE = (
        "weight_decay",
        "clipnorm",
        "clipvalue",
        "global_clipnorm",
        "use_ema",
        "ema_momentum",
        "ema_overwrite_frequency",
        "loss_scale_factor",
        "gradient_accumulation_steps",
    )

    def __init__(self, optimizers, name=None):
        super().__init__(learning_rate=0.0, name=name or "named_optimizers")
        if not optimizers or not all(isinstance(key, str) for key in optimizers):
            raise ValueError(
                "`optimizer` must map names to optimizers, {'generator': ..., ...}. "
                f"Received: optimizer={optimizers}"
            )
        found = {key: keras.optimizers.get(optimizers[key]) for key in sorted(optimizers)}
        if len({id(optimizer) for optimizer in found.values()}) < len(found):
            raise ValueError(
                "Every name needs an optimizer of its own: it counts its own steps. "
                f"Received: optimizer={optimizers}"
            )
        # Neither a dict nor a list: Keras's saver would walk into those and name what it finds by
        # class and position; `save_own_variables` writes the real names instead.
        self._by_name = types.MappingProxyType(found)
        self._variables_by_name = None

    def __getitem__(self, name):
        if name not in self._by_name:
            raise ValueError(
                f"`optimizer` must be one of {list(self._by_name)}, as given to `compile`. "
                f"Received: optimizer={name!r}"
            )
        return self._by_name[name]

    @property
    def names(self):
        """The names, sorted."""
        return list(self._by_name)

    @property
    def optimizers(self):
        """The optimizers in the order of their names; Keras's callbacks work on each of them."""
        return self._by_name.values()

    @property
    def variables(self):
        """The count of steps, and the variables of all the optimizers."""
        return [self.iterations, *(v for o in self.optimizers for v in o.variables)]

    def __setattr__(self, name, value):
        if name in self._BELONGS_TO_ONE and "_by_name" in self.__dict__:
            raise ValueError(
                f"`{name}` belongs to one of the optimizers: set `optimizer[name].{name}` with a "
                f"name of {self.names}. Received: {name}={value}"
            )
        super().__setattr__(name, value)

    @property
    def learning_rate(self):
        """The rate of all the optimizers; an error if they have several."""
        rates = {n: float(ops.convert_to_numpy(o.learning_rate)) for n, o in self._by_name.items()}
        if len(set(rates.values())) > 1:
            raise ValueError(
                "The optimizers have several rates: read `optimizer[name].learning_rate`. "
                f"Received: {rates}"
            )
        return next(iter(self.optimizers)).learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate):
        schedules = [
            name
            for name, optimizer in self._by_name.items()
            if isinstance(_inner(optimizer).get_config()["learning_rate"], dict)  # no number
        ]
        if schedules and not callable(learning_rate):
            raise ValueError(
                "The rates of optimizers that were made with a schedule cannot be set. "
                f"Received: learning_rate={learning_rate}, schedules in {schedules}"
            )
        for optimizer in self.optimizers:
            optimizer.learning_rate = learning_rate

    def exclude_from_weight_decay(self, *args, **kwargs):
        """Refuses: weight decay belongs to one of the optimizers."""
        raise ValueError(
            "Weight decay belongs to one of the optimizers: call "
            "`optimizer[name].exclude_from_weight_decay(...)` with a name of "
            f"{self.names}."
        )

    def assign_variables(self, variables_by_name):
        """Says which variables each optimizer will be built for.

        Args:
            variables_by_name: A function without arguments that returns `{name: variables}`.
        """
        self._variables_by_name = variables_by_name

    def build(self, variables):
        """Builds each optimizer for its own variables; Keras passes those of the whole model."""
        by_name = self._variables_by_name()
        for name, optimizer in self._by_name.items():
            if not optimizer.built:
                optimizer.build(by_name[name])
        self.built = True

    def apply(self, grads, trainable_variables=None):
        """Refuses: gradients belong to one of the optimizers."""
        raise ValueError(
            "Several optimizers were given to `compile`: say which one takes the step, "
            f"`self.minimize(loss_fn, variables, optimizer=name)` with a name of {self.names}."
        )

    def finalize_variable_values(self, var_list):
        """At the end of `fit`: every optimizer finishes the variables that are its own."""
        by_name = self._variables_by_name()
        for name, optimizer in self._by_name.items():
            optimizer.finalize_variable_values(by_name[name])

    def save_own_variables(self, store):
        """Writes the count of steps, and the variables of each optimizer under its name."""
        store["iterations"] = self.iterations.numpy()
        for name, optimizer in self._by_name.items():
            for i, variable in enumerate(optimizer.variables):
                store[f"{name}.{i}"] = variable.numpy()

    def load_own_variables(self, store):
        """Reads what `save_own_variables` wrote, and files without a count of steps.

        Raises:
            ValueError: If the file holds other optimizers than these.
        """
        by_key = {
            f"{name}.{i}": variable
            for name, optimizer in self._by_name.items()
            for i, variable in enumerate(optimizer.variables)
        }
        stored = set(store.keys())
        found = stored - {"iterations"}
        if found != set(by_key):
            raise ValueError(
                "The file's optimizers are not those given to `compile`. Only in the file: "
                f"{sorted(found - set(by_key))}; only in the model: {sorted(set(by_key) - found)}"
            )
        for key, variable in by_key.items():
            variable.assign(store[key])
        if "iterations" in stored:
            self.iterations.assign(store["iterations"])
        else:  # every optimizer takes at least one step in each of the model's
            self.iterations.assign(min(int(o.iterations) for o in self.optimizers))

    def get_config(self):
        """The constructor's arguments."""
        return {
            "optimizers": {
                name: keras.saving.serialize_keras_object(optimizer)
                for name, optimizer in self._by_name.items()
            },
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        """Builds it from `get_config`'s result."""
        optimizers = {
            name: keras.saving.deserialize_keras_object(entry, custom_objects=custom_objects)
            for name, entry in config["optimizers"].items()
        }
        return cls(optimizers, name=config["name"])


def _inner(optimizer):
    """The optimizer that a `LossScaleOptimizer` wraps; any other as it is."""
    return getattr(optimizer, "inner_optimizer", optimizer)
