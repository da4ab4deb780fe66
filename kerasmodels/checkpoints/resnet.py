"""ResNets as transformers writes them (``hf://microsoft/resnet-50``), and the whole family.

This file is the translation between such a folder and the arguments of a ResNet; `resnet_timm` is
that for timm and torchvision.
"""

from kerasmodels.checkpoints.files import CONFIG
from kerasmodels.checkpoints.image_processor import ImageProcessor
from kerasmodels.checkpoints.presets import Family, Layout
from kerasmodels.checkpoints.resnet_layouts import (
    TIMM,
    TRANSFORMERS,
    key_table,
    merge,
    names_of_classes,
    net_of,
    refuse,
    sizes_of,
    unwritable,
)
from kerasmodels.checkpoints.resnet_timm import TIMM_NETS, describe, read_timm, write_timm

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
    names = names_of_classes(file.get("id2label"), "id2label")
    number = file.get("num_labels", len(names) if names else config["num_labels"])
    if names is not None and (
        len(names) != number or names == [f"LABEL_{i}" for i in range(number)]
    ):
        names = None  # transformers, too, goes by the number then, and numbers are no names
    if set(file.get("architectures") or ()) & set(HEADLESS):
        names = number = None
    own = {
        **net_of(kind, config["depths"], filters),
        "channels": config["num_channels"],
        "stride_in": "1x1" if config["downsample_in_bottleneck"] else "3x3",
        "num_classes": number,
        "class_names": names,
    }
    arguments, is_new = merge(own, overrides)
    return arguments, ("classifier",) if is_new else ()


def write_transformers(model):
    """Return the configuration of a ResNet for transformers, see `Layout`.

    Raises:
        ValueError: transformers' ResNet cannot be such a model; the message lists why.
    """
    arguments = model.get_config()
    refuse(unwritable(arguments), "transformers")
    kind, blocks, filters = sizes_of(arguments)
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
