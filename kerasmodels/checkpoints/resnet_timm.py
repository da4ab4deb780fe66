"""ResNets as timm and torchvision write them.

timm's folders (``hf://timm/resnet50.a1_in1k``) are read and written; torchvision's files have
timm's names and nothing beside the weights, so there names and shapes tell the net.
"""

import math
import re
import warnings

from kerasmodels.checkpoints.files import CONFIG
from kerasmodels.checkpoints.image_processor import TIMM_INTERPOLATION
from kerasmodels.checkpoints.resnet_layouts import (
    FILTERS,
    NETS,
    merge,
    names_of_classes,
    net_of,
    refuse,
    sizes_of,
    unwritable,
)

# timm's names of the nets that are like the paper's but for the stride. Its other ResNets have
# another stem (resnet50d), other blocks (seresnet50) or widths (wide_resnet50_2).
TIMM_NETS = {f"resnet{depth}": net for depth, net in NETS.items()}
TIMM_NETS["resnet26"] = ("bottleneck", (2, 2, 2, 2))
TIMM_ARGUMENTS = ("in_chans", "layers", "channels")
TIMM_REPEATED = ("num_classes", "zero_init_last")  # they are said elsewhere, or are past
# Arguments that change the net, with the values that leave it as it is: those of timm's own code
# and those that `timm.models.save_for_hf` has written.
TIMM_DEFAULTS = {
    "global_pool": ("avg",),
    "output_stride": (32,),
    "cardinality": (1,),
    "base_width": (64,),
    "stem_width": (64,),
    "stem_type": ("",),
    "replace_stem_pool": (False,),
    "block_reduce_first": (1,),
    "down_kernel_size": (1,),
    "avg_down": (False,),
    "act_layer": ("relu", None),
    "norm_layer": ("batchnorm", "batchnorm2d", None),
    "aa_layer": ("", None),
    "block_args": ({}, None),
    "pretrained": (False, True),
    "features_only": (False,),
    "img_size": (None,),
}
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
    problems = []
    for name, value in model_args.items():
        allowed = TIMM_DEFAULTS.get(name, ())
        if name not in known and not any(value is one or value == one for one in allowed):
            says = f"allowed: {list(allowed)}" if allowed else f"known: {[*known, *TIMM_DEFAULTS]}"
            problems.append(f"model_args: {name}={value!r}; {says}")
    if config.get("global_pool", "avg") != "avg":
        problems.append(f"global_pool={config['global_pool']!r}; allowed: ['avg']")
    if problems:
        raise ValueError(f"{CONFIG} cannot be read:\n  " + "\n  ".join(problems))
    kind, blocks = TIMM_NETS[config["architecture"]]
    names = config.get("label_names") or inner.get("label_names")
    number = config.get("num_classes", model_args.get("num_classes"))
    number = inner.get("num_classes", 1000) if number is None else number
    own = {
        **net_of(kind, model_args.get("layers", blocks), model_args.get("channels", FILTERS)),
        "channels": model_args.get("in_chans", 3),
        "stride_in": "3x3",
        "num_classes": number or None,
        "class_names": names_of_classes(names, "label_names") if number else None,
    }
    arguments, is_new = merge(own, overrides)
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
            f"that holds {CONFIG}; a prefix that a training program has added must go. "
            f"Received: {next(iter(shapes), None)!r} and so on"
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
    kind, blocks, filters = sizes_of(arguments)
    channels = model.stem_convolution.kernel.shape[2]
    problems = unwritable(arguments)
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
    refuse(problems, "timm")
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
