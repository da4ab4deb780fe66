"""The sizes of residual networks: table 1 and section 4.2 of He et al. 2015."""

# Table 1: layers -> block and number of blocks of each stage.
IMAGENET = {
    18: ("basic", (2, 2, 2, 2)),
    34: ("basic", (3, 4, 6, 3)),
    50: ("bottleneck", (3, 4, 6, 3)),
    101: ("bottleneck", (3, 4, 23, 3)),
    152: ("bottleneck", (3, 8, 36, 3)),
}
# Section 4.2: 6n + 2 layers, n blocks in each of three stages.
CIFAR = (20, 32, 44, 56, 110, 1202)

SIZES = {
    **{f"resnet_{depth}": {"depth": depth} for depth in IMAGENET},
    **{f"resnet_{depth}_cifar": {"depth": depth, "stem": "cifar"} for depth in CIFAR},
}
# By stem: filters of the stages, shortcut, classes.
DEFAULTS = {"imagenet": ((64, 128, 256, 512), "B", 1000), "cifar": ((16, 32, 64), "A", 10)}


def read_depth(depth, stem, block):
    """Checks the sizes of a net.

    Args:
        depth: As given to the constructor of `ResNet`, and so are the others.
        stem: See above.
        block: See above.

    Returns:
        The number of blocks of each stage, and their kind.

    Raises:
        ValueError: For a depth that is not the paper's, or an unknown stem or block.
    """
    if stem not in DEFAULTS:
        raise ValueError(f"`stem` must be 'imagenet' or 'cifar'. Received: stem={stem!r}")
    if block not in ("basic", "bottleneck", None):
        raise ValueError(f"`block` must be 'basic' or 'bottleneck'. Received: block={block!r}")
    if isinstance(depth, (tuple, list)):
        if not depth or any(not isinstance(n, int) or n < 1 for n in depth):
            raise ValueError(
                "`depth` as a list must hold the positive number of blocks of each stage. "
                f"Received: depth={depth}"
            )
        if block is None:
            raise ValueError(f"With the list depth={depth} `block` must be given")
        return tuple(depth), block
    if stem == "imagenet":
        if not isinstance(depth, int) or depth not in IMAGENET:
            raise ValueError(
                f"`depth` must be one of {list(IMAGENET)} with the stem for ImageNet, or the "
                "number of blocks of each stage; the CIFAR nets of 6n + 2 layers take "
                f"stem='cifar'. Received: depth={depth!r}"
            )
        kind, blocks = IMAGENET[depth]
        if block not in (kind, None):
            raise ValueError(
                f"The net of {depth} layers has {kind} blocks. For others give `depth` as the "
                f"number of blocks of each stage. Received: depth={depth}, block={block!r}"
            )
        return blocks, kind
    block = block or "basic"
    layers = 6 if block == "basic" else 9  # in a block of each of the three stages
    if not isinstance(depth, int) or depth < layers + 2 or depth % layers != 2:
        examples = "20, 32, 44, 56, 110" if block == "basic" else "164, 1001"
        raise ValueError(
            f"`depth` must be {layers}n + 2 with stem='cifar' and {block} blocks ({examples}, "
            f"...), or the number of blocks of each stage. Received: depth={depth!r}"
        )
    return ((depth - 2) // layers,) * 3, block
