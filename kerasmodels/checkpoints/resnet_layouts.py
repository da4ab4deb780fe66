"""What the layouts of ResNets have in common: the paper's nets, arguments, names of layers."""

from dataclasses import dataclass

import keras

from kerasmodels.checkpoints.files import CONFIG
from kerasmodels.checkpoints.keys import Key, KeyTable

# The paper's nets: layers -> kind of block and number of blocks of each stage.
NETS = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
FILTERS = (64, 128, 256, 512)
# What all of these libraries build, by argument: other values have no place in a checkpoint.
FIXED = {
    "stem": ("imagenet",),
    "shortcut": ("B", "paper"),
    "normalize_first": (False,),
    "folded": (False,),
}


# === Arguments, whatever the layout ===


def sizes_of(arguments):
    """The kind of block, the number of blocks of each stage, and their filters."""
    depth = arguments["depth"]
    kind, blocks = NETS.get(depth, (None, depth)) if isinstance(depth, int) else (None, depth)
    blocks = tuple(blocks) if isinstance(blocks, list | tuple) else blocks
    return arguments.get("block") or kind, blocks, tuple(arguments.get("filters") or FILTERS)


def net_of(kind, blocks, filters):
    """Constructor arguments: the paper's depth where it has one."""
    depth = next((n for n, net in NETS.items() if net == (kind, tuple(blocks))), None)
    net = {"depth": list(blocks), "block": kind} if depth is None else {"depth": depth}
    return {**net, "filters": tuple(filters)}


def merge(own, overrides):
    """The arguments of a checkpoint with those that the caller gives.

    Args:
        own: those of the checkpoint: its sizes, ``channels``, ``stride_in``, ``num_classes``
            (``None`` where it has no head) and ``class_names``.
        overrides: the caller's.

    Returns:
        The constructor arguments, and whether the head shall be new.
    """
    arguments = {**own, **overrides}
    problems = [
        f"{name}={arguments[name]!r}"
        for name, allowed in FIXED.items()
        if name in arguments and arguments[name] not in allowed
    ]
    if problems:
        raise ValueError(
            f"{', '.join(problems)}: no checkpoint is of such a ResNet. Allowed: "
            + ", ".join(f"{name}={allowed[0]!r}" for name, allowed in FIXED.items())
            + "; a loaded model can be folded by `fold_batch_normalization`"
        )
    if sizes_of(arguments) != sizes_of(own):
        given, wanted = (
            ", ".join(f"{name}={a[name]!r}" for name in ("depth", "block", "filters") if name in a)
            for a in (overrides, own)
        )
        raise ValueError(f"{given}: the checkpoint has {wanted}")
    channels = arguments.pop("channels")
    if arguments.get("image_shape") is None and channels != 3:
        form = arguments.get("data_format") or keras.config.image_data_format()
        arguments["image_shape"] = (
            (channels, None, None) if form == "channels_first" else (None, None, channels)
        )
    names, number = overrides.get("class_names"), overrides.get("num_classes")
    if number is None:
        number = own["num_classes"] if names is None else len(names)
    if names is None and number == own["num_classes"]:
        names = own["class_names"]
    arguments |= {"num_classes": number, "class_names": names}
    arguments.setdefault("include_top", number is not None)
    # Other names are other classes; where the checkpoint has no names, they only name its own.
    others = own["class_names"] is not None and list(names or ()) != own["class_names"]
    is_new = number != own["num_classes"] or others
    return arguments, bool(arguments["include_top"] and is_new)


def refuse(problems, library):
    """Raises a ValueError that lists the problems, if there are any."""
    if problems:
        raise ValueError(f"{library} cannot hold this ResNet:\n  " + "\n  ".join(problems))


def unwritable(arguments):
    """What no layout can say."""
    return [
        f"{name}={arguments[name]!r}; only {allowed[0]!r} can be written"
        for name, allowed in FIXED.items()
        if arguments[name] not in allowed
    ]


# === Names ===


@dataclass(frozen=True)
class Names:
    """Names of layers in files; of each pair the first is the convolution, then its norm."""

    stem: tuple[str, str]
    block: str
    main: tuple[str, str]
    shortcut: tuple[str, str]
    head: str
    first: int  # the number that counting begins with
    prefix: str = ""


TRANSFORMERS = Names(
    stem=("resnet.embedder.embedder.convolution", "resnet.embedder.embedder.normalization"),
    block="resnet.encoder.stages.{stage}.layers.{i}.",
    main=("layer.{k}.convolution", "layer.{k}.normalization"),
    shortcut=("shortcut.convolution", "shortcut.normalization"),
    head="classifier.1",
    first=0,
    prefix="resnet.",
)
TIMM = Names(
    stem=("conv1", "bn1"),
    block="layer{stage}.{i}.",
    main=("conv{k}", "bn{k}"),
    shortcut=("downsample.0", "downsample.1"),
    head="fc",
    first=1,
)


def key_table(arguments, names):
    """Return the `KeyTable` for a ResNet with these constructor arguments and these `Names`."""
    kind, blocks, _ = sizes_of(arguments)
    # Pairs of names, and the paths of the layers.
    pairs = [(names.stem, "stem_convolution", "stem_norm")]
    number = 0
    for stage, count in enumerate(blocks):
        for i in range(count):
            path = f"blocks.{number}."
            block = names.block.format(stage=stage + names.first, i=i)
            parts = [
                (names.main, f"convolutions.{k}", f"norms.{k}", k + names.first)
                for k in range(2 if kind == "basic" else 3)
            ]
            if i == 0 and (stage > 0 or kind == "bottleneck"):  # where the shape changes
                parts.append((names.shortcut, "shortcut_convolution", "shortcut_norm", None))
            for pair, convolution, norm, k in parts:
                pair = tuple(block + name.format(k=k) for name in pair)
                pairs.append((pair, path + convolution, path + norm))
            number += 1
    keys = []
    for (convolution, norm), convolution_path, norm_path in pairs:
        keys.append(Key(f"{convolution}.weight", f"{convolution_path}.kernel", "convolution"))
        keys += [
            Key(f"{norm}.{theirs}", f"{norm_path}.{ours}")
            for theirs, ours in (
                ("weight", "gamma"),
                ("bias", "beta"),
                ("running_mean", "moving_mean"),
                ("running_var", "moving_variance"),
            )
        ]
    return KeyTable(
        keys=(
            *keys,
            Key(f"{names.head}.weight", "classifier.kernel", "transpose"),
            Key(f"{names.head}.bias", "classifier.bias"),
        ),
        prefix=names.prefix,
        heads=(f"{names.head}.*",),
        counters=tuple(f"{norm}.num_batches_tracked" for (_, norm), _, _ in pairs),
    )


def names_of_classes(names, field):
    """Names of classes as a list, from a list or from a dictionary by number."""
    if not isinstance(names, dict):
        return list(names) if names else None
    by_number = {int(i): name for i, name in names.items()}
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError(f"{CONFIG}: {field} must number its names from 0 on, without a gap")
    return [by_number[i] for i in range(len(by_number))] or None
