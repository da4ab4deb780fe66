"""ResNets as transformers, timm and torchvision write them.

transformers' folders (``hf://microsoft/resnet-50``) and timm's (``hf://timm/resnet50.a1_in1k``) are
read and written; torchvision's files have timm's names and nothing beside the weights, so there
names and shapes tell the net. This file is the translation between these and the arguments and
weights of a ResNet.
"""

import math
import re
import warnings
from dataclasses import dataclass

import keras

from kerasmodels.checkpoints.files import CONFIG
from kerasmodels.checkpoints.image_processor import TIMM_INTERPOLATION, ImageProcessor
from kerasmodels.checkpoints.keys import Key, KeyTable
from kerasmodels.checkpoints.presets import Family, Layout

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


def _sizes(arguments):
    """The kind of block, the number of blocks of each stage, and their filters."""
    depth = arguments["depth"]
    kind, blocks = NETS.get(depth, (None, depth)) if isinstance(depth, int) else (None, depth)
    blocks = tuple(blocks) if isinstance(blocks, list | tuple) else blocks
    return arguments.get("block") or kind, blocks, tuple(arguments.get("filters") or FILTERS)


def _net(kind, blocks, filters):
    """Constructor arguments: the paper's depth where it has one."""
    depth = next((n for n, net in NETS.items() if net == (kind, tuple(blocks))), None)
    net = {"depth": list(blocks), "block": kind} if depth is None else {"depth": depth}
    return {**net, "filters": tuple(filters)}


def _merge(own, overrides):
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
    if _sizes(arguments) != _sizes(own):
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


def _refuse(problems, library):
    if problems:
        raise ValueError(f"{library} cannot hold this ResNet:\n  " + "\n  ".join(problems))


def _unwritable(arguments):
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
    kind, blocks, _ = _sizes(arguments)
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


# === transformers ===

# What transformers takes for granted where config.json says nothing.
TRANSFORMERS_DEFAULTS = {
    "num_channels": 3,
    "embedding_size": 64,
    "hidden_sizes": [256, 512, 1024, 2048],
    "depths": [3, 4, 6, 3],
    "layer_type": "bottleneck",
    "hidden_act": "relu",
    "downsample_in_first_stage": False,
    "downsample_in_bottleneck": False,
    "num_labels": 2,
}
HEADLESS = ("ResNetModel", "ResNetBackbone")


def read_transformers(configs, overrides):
    """Return the constructor arguments for a folder of transformers, see `Layout`.

    Raises:
        ValueError: the file describes a net that a ResNet here cannot be, or the caller another
            net than the file.
    """
    file = configs[CONFIG]
    config = {**TRANSFORMERS_DEFAULTS, **file}
    kind, widths, problems = config["layer_type"], config["hidden_sizes"], []
    for name, allowed in (
        ("layer_type", ("bottleneck", "basic")),
        ("hidden_act", ("relu",)),
        ("downsample_in_first_stage", (False,)),
    ):
        if config[name] not in allowed:
            problems.append(f"{name}={config[name]!r}; allowed: {list(allowed)}")
    expansion = 4 if kind == "bottleneck" else 1
    filters = [width // expansion for width in widths]
    if any(width % expansion for width in widths):
        problems.append(f"hidden_sizes={widths}; with {kind!r} layers multiples of 4 are needed")
    if len(widths) != len(config["depths"]):
        problems.append(f"hidden_sizes={widths} and depths={config['depths']} differ in length")
    if config["embedding_size"] != filters[0]:
        problems.append(
            f"embedding_size={config['embedding_size']}; the stem here has the filters of the "
            f"first stage, {filters[0]}"
        )
    if problems:
        raise ValueError(f"{CONFIG} cannot be read:\n  " + "\n  ".join(problems))
    names = _names(file.get("id2label"), "id2label")
    number = file.get("num_labels", len(names) if names else config["num_labels"])
    if names is not None and (
        len(names) != number or names == [f"LABEL_{i}" for i in range(number)]
    ):
        names = None  # transformers, too, goes by the number then, and numbers are no names
    if set(file.get("architectures") or ()) & set(HEADLESS):
        names = number = None
    own = {
        **_net(kind, config["depths"], filters),
        "channels": config["num_channels"],
        "stride_in": "1x1" if config["downsample_in_bottleneck"] else "3x3",
        "num_classes": number,
        "class_names": names,
    }
    arguments, is_new = _merge(own, overrides)
    return arguments, ("classifier",) if is_new else ()


def write_transformers(model):
    """Return the configuration of a ResNet for transformers, see `Layout`.

    Raises:
        ValueError: transformers' ResNet cannot be such a model; the message lists why.
    """
    arguments = model.get_config()
    _refuse(_unwritable(arguments), "transformers")
    kind, blocks, filters = _sizes(arguments)
    config = {
        "model_type": "resnet",
        "architectures": ["ResNetForImageClassification"],
        "num_channels": model.stem_convolution.kernel.shape[2],
        "embedding_size": filters[0],
        "hidden_sizes": [width * (4 if kind == "bottleneck" else 1) for width in filters],
        "depths": list(blocks),
        "layer_type": kind,
        "hidden_act": "relu",
        "downsample_in_first_stage": False,
        "downsample_in_bottleneck": kind == "bottleneck" and arguments["stride_in"] == "1x1",
    }
    if arguments["include_top"]:
        names = arguments["class_names"]
        names = names or [f"LABEL_{i}" for i in range(arguments["num_classes"])]
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        config["label2id"] = {name: i for i, name in enumerate(names)}
    else:
        config["architectures"] = ["ResNetModel"]
    return {CONFIG: config}


def _names(names, field):
    """Names of classes as a list, from a list or from a dictionary by number."""
    if not isinstance(names, dict):
        return list(names) if names else None
    by_number = {int(i): name for i, name in names.items()}
    if sorted(by_number) != list(range(len(by_number))):
        raise ValueError(f"{CONFIG}: {field} must number its names from 0 on, without a gap")
    return [by_number[i] for i in range(len(by_number))] or None


# === timm and torchvision ===

# timm's names of the nets that are like the paper's but for the stride. Its other ResNets have
# another stem (resnet50d), other blocks (seresnet50) or widths (wide_resnet50_2).
TIMM_NETS = {f"resnet{depth}": net for depth, net in NETS.items()}
TIMM_NETS["resnet26"] = ("bottleneck", (2, 2, 2, 2))
TIMM_ARGUMENTS = ("in_chans", "layers", "channels")
TIMM_REPEATED = ("num_classes", "zero_init_last")  # said elsewhere, or of no more account
TIMM_TRAINING_ONLY = ("drop_rate", "drop_path_rate", "drop_block_rate")


def read_timm(configs, overrides):
    """Return the constructor arguments for a folder of timm, see `Layout`.

    Raises:
        ValueError: the file has arguments that cannot be followed, or the caller describes another
            net than the file.
    """
    config = configs[CONFIG]
    inner = config.get("pretrained_cfg") or config  # older files have no inner dictionary
    model_args = config.get("model_args") or {}
    for name in TIMM_TRAINING_ONLY:
        if model_args.get(name):
            warnings.warn(
                f"{CONFIG}: model_args: {name}={model_args[name]!r} is not applied in training "
                "here",
                stacklevel=2,
            )
    known = (*TIMM_ARGUMENTS, *TIMM_REPEATED, *TIMM_TRAINING_ONLY)
    unknown = {name: value for name, value in model_args.items() if name not in known}
    if unknown:
        raise ValueError(f"{CONFIG}: model_args={unknown}; allowed: {list(known)}")
    kind, blocks = TIMM_NETS[config["architecture"]]
    names = config.get("label_names") or inner.get("label_names")
    number = config.get("num_classes", inner.get("num_classes", 1000))
    own = {
        **_net(kind, model_args.get("layers", blocks), model_args.get("channels", FILTERS)),
        "channels": model_args.get("in_chans", 3),
        "stride_in": "3x3",
        "num_classes": number or None,
        "class_names": _names(names, "label_names") if number else None,
    }
    arguments, is_new = _merge(own, overrides)
    return arguments, ("fc",) if is_new else ()


def describe(shapes):
    """Return what timm would write into ``config.json`` for tensors of these names and shapes.

    Raises:
        ValueError: the names are not those of timm's and torchvision's plain ResNets.
    """
    stem, blocks = shapes.get("conv1.weight", ()), {}
    for name in shapes:
        match = re.fullmatch(r"layer(\d+)\.(\d+)\.conv1\.weight", name)
        if match:
            stage = int(match[1])
            blocks[stage] = max(blocks.get(stage, 0), int(match[2]) + 1)
    if stem[2:] != (7, 7) or not blocks or sorted(blocks) != list(range(1, len(blocks) + 1)):
        raise ValueError(
            "a file of weights alone is read with the names of torchvision's ResNets: conv1.weight "
            "with a 7x7 kernel, layer1.0.conv1.weight and so on. With other names give the folder "
            f"that holds {CONFIG}"
        )
    kind = "resnet50" if "layer1.0.conv3.weight" in shapes else "resnet18"
    return {
        "architecture": kind,
        "num_classes": shapes.get("fc.weight", (0,))[0],
        "model_args": {
            "in_chans": stem[1],
            "layers": [blocks[stage] for stage in sorted(blocks)],
            "channels": [shapes[f"layer{stage}.0.conv1.weight"][0] for stage in sorted(blocks)],
        },
    }


def write_timm(model):
    """Return the configuration of a ResNet for timm, see `Layout`.

    Raises:
        ValueError: timm's ResNet cannot be such a model; the message lists why.
    """
    arguments = model.get_config()
    kind, blocks, filters = _sizes(arguments)
    channels = model.stem_convolution.kernel.shape[2]
    problems = _unwritable(arguments)
    if kind == "bottleneck" and arguments["stride_in"] != "3x3":
        problems.append(f"stride_in={arguments['stride_in']!r}; timm's is '3x3'")
    if len(blocks) != 4:
        problems.append(f"depth={arguments['depth']}; timm's nets have 4 stages")
    if filters[0] != FILTERS[0]:
        problems.append(f"filters={filters}; timm's stem has 64")
    processor = getattr(model, "preprocessor", None)
    images = {} if processor is None else _timm_images(processor.arguments)
    if images is None:
        problems.append(
            f"preprocessor with {processor.arguments}; timm scales by 1/255 and crops "
            "a square of a short side or of a square"
        )
    _refuse(problems, "timm")
    architecture = next((n for n, net in TIMM_NETS.items() if net == (kind, blocks)), None)
    model_args = {
        "layers": None if architecture else blocks,
        "channels": None if filters == FILTERS else filters,
        "in_chans": None if channels == 3 else channels,
    }
    config = {
        "architecture": architecture or ("resnet18" if kind == "basic" else "resnet50"),
        "num_classes": arguments["num_classes"] if arguments["include_top"] else 0,
        "model_args": {name: value for name, value in model_args.items() if value is not None},
        "pretrained_cfg": {"first_conv": "conv1", "classifier": "fc", **images},
    }
    if arguments["include_top"] and arguments["class_names"]:
        config["label_names"] = arguments["class_names"]
    return {CONFIG: config}


def _timm_images(arguments):
    """What timm says about images, for the arguments of an `ImageProcessor`; ``None`` if nothing.

    The reverse of what `ImageProcessor` reads.
    """
    size, crop = arguments["image_size"], arguments["crop_size"]
    squash = not isinstance(size, int)
    side = size[0] if size and squash else size
    if not side or (squash and size != (side, side)):
        return None
    crop = crop or ((side, side) if squash else (0, 0))
    if crop[0] != crop[1] or not 0 < crop[0] <= side:
        return None
    if not math.isclose(arguments["scale"], 1 / 255):
        return None
    share = crop[0] / side
    if math.floor(crop[0] / share) < side:  # timm rounds down what falls short by an error
        share = math.nextafter(share, 0)
    theirs = {ours: name for name, ours in TIMM_INTERPOLATION.items()}
    return {
        "input_size": [3, *crop],
        "crop_pct": share,
        "crop_mode": "squash" if squash else "center",
        "interpolation": theirs[arguments["interpolation"]],
        "mean": arguments["mean"] or [0.0, 0.0, 0.0],
        "std": arguments["std"] or [1.0, 1.0, 1.0],
    }


FAMILY = Family(
    layouts={
        "transformers": Layout(
            field="model_type",
            values=("resnet",),
            read=read_transformers,
            write=write_transformers,
            key_table=lambda arguments: key_table(arguments, TRANSFORMERS),
        ),
        "timm": Layout(
            field="architecture",
            values=tuple(TIMM_NETS),
            read=read_timm,
            write=write_timm,
            key_table=lambda arguments: key_table(arguments, TIMM),
            describe=describe,
        ),
    },
    companion=ImageProcessor,
    companion_name="preprocessor",
    published="hf://microsoft/resnet-50",
)
