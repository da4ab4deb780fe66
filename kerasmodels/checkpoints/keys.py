"""Key tables: how the names in a checkpoint and the weights of a model correspond.

A table is data. It names weights by the path of attributes that leads to them, so it imports no
model, and it is read in both directions: from a file into a model and back.
"""

import fnmatch
from dataclasses import dataclass, field

import numpy as np
from keras import ops

from kerasmodels.checkpoints.files import TensorFiles

# name -> (file to model, model to file)
TRANSFORMS = {
    "transpose": (np.transpose, np.transpose),  # torch's Linear keeps (output, input)
    # torch's Conv2d keeps (output, input, height, width), Keras (height, width, input, output)
    "convolution": (lambda x: x.transpose(2, 3, 1, 0), lambda x: x.transpose(3, 2, 0, 1)),
    "row": (lambda x: x[0], lambda x: x[None]),  # (1, n) <-> (n,)
}

# What files hold besides weights, whatever the family: buffers that follow from the
# configuration or count steps, and what an optimizer left behind.
DERIVED = (
    "*position_ids",
    "*num_batches_tracked",
    "optimizer.*",
    "*/adam_m",
    "*/adam_v",
    "*/Adam",
    "*/Adam_1",
    "global_step",
)


@dataclass(frozen=True)
class Key:
    """One weight, or the same weight of every block of a list.

    Args:
        name: its name in a file, such as ``"model.encoder.layers.{i}.fc1.weight"``.
        path: the attributes that lead to the variable, such as
            ``"encoder_blocks.{i}.feed_forward.intermediate_dense.kernel"``. Where an attribute
            is ``None`` or missing, the model does without this weight.
        transform: ``None``, or a name in ``TRANSFORMS``.
        tied: other names under which files hold the same tensor. Any of them will do for
            reading; those that are there must agree. Only ``name`` is written.
        optional: a file may lack it; then the weight is zero.
        hidden: the axes of the variable that run over the features of the hidden states.
    """

    name: str
    path: str
    transform: str | None = None
    tied: tuple[str, ...] = ()
    optional: bool = False
    hidden: tuple[int, ...] = ()


@dataclass(frozen=True)
class KeyTable:
    """The keys of a family.

    Args:
        keys: a ``Key`` for each weight.
        prefix: what files put in front of all names when the model has a head, and leave out
            when it has none; both are read.
        derived: globs of names that may be ignored on reading, since their content follows from
            the configuration.
        heads: globs of names that belong to heads; ignored where the model has no such head, so
            that an encoder can be taken from a file with heads.
        counters: names of the counters of steps that PyTorch keeps and misses where a file lacks
            them. They are written as 0.
        old_endings: how names ended once -> how they end in the table.
    """

    keys: tuple[Key, ...]
    prefix: str = ""
    derived: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    counters: tuple[str, ...] = ()
    old_endings: dict[str, str] = field(default_factory=dict)

    def newly_spelled(self, name):
        """Return a name of a file with the ending that the table has."""
        for old, new in self.old_endings.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name


@dataclass(frozen=True)
class Binding:
    """A key that was resolved: the names it has in files, and the variable."""

    key: Key
    names: tuple[str, ...]
    variable: object

    @property
    def file_shape(self):
        """The shape that the tensor has in a file."""
        template = np.broadcast_to(np.float32(0), tuple(self.variable.shape))
        return self.to_file(template).shape

    def to_file(self, array):
        """Return an array of the variable's layout in that of the file."""
        return TRANSFORMS[self.key.transform][1](array) if self.key.transform else array

    def to_model(self, array):
        """Return an array of the file's layout in that of the variable."""
        return TRANSFORMS[self.key.transform][0](array) if self.key.transform else array


@dataclass(frozen=True)
class WithLora:
    """A weight of a layer with LoRA, to be written as the sum of the weight and its delta.

    The layer's own property would cast the sum to the compute dtype.
    """

    parts: tuple  # the variables: the weight, and the two factors of the delta
    scale: float

    @classmethod
    def of(cls, layer, name):
        """Return that of a layer by the name of the weight."""
        by_name = {variable.name: variable for variable in layer.variables}
        parts = by_name[name], by_name[f"lora_{name}_a"], by_name[f"lora_{name}_b"]
        return cls(parts, layer.lora_alpha / layer.lora_rank)

    @property
    def shape(self):
        """The shape of the weight."""
        return self.parts[0].shape

    def merged(self):
        """Return the sum as an array in the dtype of the weight."""
        weight, a, b = self.parts
        delta = self.scale * ops.matmul(a, b)
        total = ops.cast(weight, "float32") + ops.cast(delta, "float32")
        return ops.convert_to_numpy(ops.cast(total, weight.dtype))


def bind(model, table):
    """Find the variable of every key of a table.

    Returns:
        A list of ``Binding``, in the table's order.

    Raises:
        ValueError: the model has weights for which the table has no name.
    """
    bindings = []
    for key in table.keys:
        for index in _indices(model, key.path):
            variable = _follow(model, key.path.replace("{i}", index))
            if variable is not None:
                names = tuple(name.replace("{i}", index) for name in (key.name, *key.tied))
                bindings.append(Binding(key, names, variable))
    bound = {id(v) for b in bindings for v in getattr(b.variable, "parts", (b.variable,))}
    nameless = [v.path for v in model.weights if id(v) not in bound]
    if nameless:
        raise ValueError(f"the checkpoint format has no name for the weights {nameless}")
    return bindings


def _indices(model, path):
    if "{i}" not in path:
        return [""]
    return [str(i) for i in range(len(_follow(model, path.split(".{i}")[0]) or ()))]


def _follow(thing, path):
    for part in path.split("."):
        if getattr(thing, "lora_enabled", False) and part in ("kernel", "embeddings"):
            return WithLora.of(thing, part)
        thing = thing[int(part)] if part.isdigit() else getattr(thing, part, None)
        if thing is None:
            return None
    return thing


def read_weights(model, folder, table, new_heads=(), open_tensors=TensorFiles):
    """Assign the tensors of a folder to the weights of a model.

    Tensors of any floating type are cast to the variable's. Everything is checked before the
    first weight changes.

    Args:
        model: a built model.
        folder: a folder with weights, or a file; see `files.TensorFiles`.
        table: the family's `KeyTable`.
        new_heads: names of heads, such as ``("classifier",)``, that keep their initial values,
            whatever the file holds for them.
        open_tensors: what opens the folder: `files.TensorFiles`, or a class that is used as it is.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: tensors are missing, unexpected or misshapen, or tied ones differ; the
            message lists all of them.
    """
    bindings = bind(model, table)
    known = {name for binding in bindings for name in binding.names}
    ignored = (*DERIVED, *table.derived, *table.heads)

    def is_new(name):
        return any(_is_part(head, name) for head in new_heads)

    absent = [head for head in new_heads if not any(_is_part(head, name) for name in known)]
    if absent:
        raise ValueError(f"new_heads={list(new_heads)}: the model has no head named {absent}")
    with open_tensors(folder) as tensors:
        found, problems = {}, []  # found: the table's name -> the file's name
        for name, shape in tensors.shapes.items():
            new = table.newly_spelled(name)
            spellings = (new, table.prefix + new, new.removeprefix(table.prefix))
            ours = next((spelling for spelling in spellings if spelling in known), None)
            if ours in found:
                problems.append(f"twice, as one weight here: {found[ours]} and {name}")
            elif ours is not None:
                found[ours] = name
            elif not is_new(name) and not any(fnmatch.fnmatchcase(name, g) for g in ignored):
                problems.append(f"unexpected: {name} {shape}")
        todo = []
        for binding in bindings:
            if is_new(binding.names[0]):
                continue
            there = [found[name] for name in binding.names if name in found]
            if not there and not binding.key.optional:
                problems.append(f"missing: {binding.names[0]} {binding.file_shape}")
            wrong = [n for n in there if tensors.shapes[n] != binding.file_shape]
            for name in wrong:
                problems.append(
                    f"misshapen: {name} {tensors.shapes[name]}, expected {binding.file_shape}"
                )
            if len(there) > 1 and not wrong:
                first = tensors.read(there[0])
                for name in there[1:]:
                    if not np.array_equal(first, tensors.read(name)):
                        problems.append(f"different, but one weight here: {there[0]} and {name}")
            todo.append((binding, there[0] if there else None))
        if problems:
            lines = "\n  ".join(sorted(problems))
            raise ValueError(f"{str(tensors.path)!r} does not fit the model:\n  {lines}")
        for binding, name in todo:
            if name is None:
                array = np.zeros(binding.variable.shape, "float32")
            else:
                array = tensors.read(name)
                if array.dtype.kind not in "fV":  # V: bfloat16 and the floats of 8 bits
                    raise ValueError(
                        f"{str(tensors.path)!r}: {name} must hold floats. Received: {array.dtype}, "
                        "as quantized files have"
                    )
                array = np.asarray(binding.to_model(array), "float32")
            binding.variable.assign(array)


def _is_part(head, name):
    """Whether a head is a part of a name, which dots or slashes divide."""
    return f".{head}." in f".{name}.".replace("/", ".")


def weights_for_file(model, table, order=None):
    """Return the weights of a model under their names in files.

    Args:
        model: a built model.
        table: the family's `KeyTable`.
        order: a permutation of the hidden features: they are written in this order, which
            changes nothing that the model computes.

    Returns:
        A dictionary of numpy arrays.

    Raises:
        ValueError: the table has no name for some weight.
    """
    tensors = {}
    for binding in bind(model, table):
        merged = isinstance(binding.variable, WithLora)
        array = binding.variable.merged() if merged else ops.convert_to_numpy(binding.variable)
        for axis in binding.key.hidden if order is not None else ():
            array = np.take(array, order, axis)
        tensors[binding.names[0]] = binding.to_file(array)
    tensors.update((name, np.zeros((), "int64")) for name in table.counters)
    return tensors
