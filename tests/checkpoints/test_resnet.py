"""ResNets against transformers and against a net in plain torch: outputs, names, and files both
ways."""

import functools
import json
import math
import shutil

import keras
import numpy as np
import pytest
from keras import ops

from kerasmodels.checkpoints import ImageProcessor, resnet, resnet_layouts, resnet_timm
from kerasmodels.models import ResNet
from kerasmodels.models.resnet_sizes import IMAGENET
from tests.kit import assert_close, normal

BASIC = dict(
    embedding_size=4,
    hidden_sizes=[4, 8],
    depths=[2, 1],
    layer_type="basic",
    num_channels=1,
    id2label={0: "cat", 1: "dog", 2: "eel"},
    label2id={"cat": 0, "dog": 1, "eel": 2},
)
BOTTLENECK = dict(embedding_size=4, hidden_sizes=[16, 32], depths=[1, 2], num_labels=5)
FIRST = BOTTLENECK | dict(downsample_in_bottleneck=True)
PREPROCESSOR = {
    "crop_pct": 0.875,
    "do_normalize": True,
    "do_resize": True,
    "feature_extractor_type": "ConvNextFeatureExtractor",
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
    "resample": 3,
    "size": 32,
}


def randomize(module):
    """Move all weights and averages of a torch module away from where they start."""
    import torch

    torch.manual_seed(3)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 2.0)
            elif tensor.is_floating_point():
                tensor.add_(0.2 * torch.randn_like(tensor))
            else:
                tensor.fill_(7)  # a counter of batches
    return module.eval()


def write_random(folder, config, name="ResNetForImageClassification"):
    """Write a random model with transformers, and return it."""
    import transformers

    model = randomize(getattr(transformers, name)(transformers.ResNetConfig(**config)))
    model.save_pretrained(folder)
    return model


def read_back(folder, name="ResNetForImageClassification"):
    """The model that transformers reads; every tensor must have been there."""
    import transformers

    model, report = getattr(transformers, name).from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def by_torch(module, images):
    """What a torch module makes of images `(batch, height, width, channels)`."""
    import torch

    with torch.no_grad():
        return module(torch.tensor(images.transpose(0, 3, 1, 2)))


@functools.cache
def _net():
    """Classes of a ResNet in plain torch, with torchvision's names: stride on the 3x3."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs, width, stride, kind):
            super().__init__()
            outputs = 4 * width if kind == "bottleneck" else width
            sizes = [(inputs, width, 3, stride), (width, width, 3, 1)]
            if kind == "bottleneck":
                sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
            self.count = len(sizes)
            for k, (a, b, size, s) in enumerate(sizes, start=1):
                self.add_module(f"conv{k}", nn.Conv2d(a, b, size, s, size // 2, bias=False))
                self.add_module(f"bn{k}", nn.BatchNorm2d(b))
            self.downsample = None
            if stride > 1 or inputs != outputs:
                projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
                self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

        def forward(self, x):
            y = x
            for k in range(1, self.count + 1):
                y = getattr(self, f"bn{k}")(getattr(self, f"conv{k}")(y))
                y = y.relu() if k < self.count else y
            return (y + (x if self.downsample is None else self.downsample(x))).relu()

    class Net(nn.Module):
        def __init__(self, kind, blocks, filters=(64, 128, 256, 512), num_classes=1000, channels=3):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, filters[0], 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(filters[0])
            self.stages, channels = [], filters[0]
            for stage, (width, count) in enumerate(zip(filters, blocks, strict=True), start=1):
                layer = nn.Sequential()
                for i in range(count):
                    layer.append(Block(channels, width, 2 if stage > 1 and i == 0 else 1, kind))
                    channels = 4 * width if kind == "bottleneck" else width
                self.add_module(f"layer{stage}", layer)
                self.stages.append(layer)
            self.fc = nn.Linear(channels, num_classes)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, padding=1)
            for stage in self.stages:
                x = stage(x)
            return self.fc(x.mean((2, 3)))

    return Net


def torch_net(*args, **kwargs):
    return _net()(*args, **kwargs)


def assert_parity(model, expected, images):
    assert_close(model.predict_on_batch(images), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with names of classes and the basic block, and the original."""
    folder = tmp_path_factory.mktemp("resnet")
    model = write_random(folder, BASIC)
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR))
    return folder, model


@pytest.fixture
def folder(original, tmp_path):
    """A copy of the folder that a test may spoil."""
    return shutil.copytree(original[0], tmp_path / "preset")


def change(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# === transformers ===


@pytest.mark.parametrize("config", [BASIC, BOTTLENECK, FIRST], ids=["basic", "3x3", "1x1"])
def test_transformers_both_ways(config, tmp_path):
    original = write_random(tmp_path / "original", config)
    model = ResNet.from_preset(tmp_path / "original")
    images = normal(2, 37, 46, config.get("num_channels", 3))
    expected = by_torch(original, images).logits
    assert expected.std() > 0.1
    assert_parity(model, expected, images)
    model.save_to_preset(tmp_path / "saved")
    again = read_back(tmp_path / "saved")
    np.testing.assert_array_equal(by_torch(again, images).logits, expected)
    theirs, ours = (
        json.loads((tmp_path / f / "config.json").read_text()) for f in ("original", "saved")
    )
    derived = ("out_features", "out_indices", "stage_names", "transformers_version")
    assert ours == {name: value for name, value in theirs.items() if name not in derived}
    names = ["cat", "dog", "eel"] if config is BASIC else None
    assert model.class_names == names
    assert model.preprocessor is None
    assert ResNet.from_preset(tmp_path / "saved").get_config() == model.get_config() | {
        "name": "res_net_1"
    }


def test_a_model_without_head_both_ways(tmp_path):
    original = write_random(tmp_path / "original", FIRST, "ResNetModel")
    model = ResNet.from_preset(tmp_path / "original", pooling=None)
    images = normal(2, 37, 46, 3)
    features = by_torch(original, images).last_hidden_state
    assert_parity(model, features.permute(0, 2, 3, 1), images)
    model.save_to_preset(tmp_path / "saved")
    again = by_torch(read_back(tmp_path / "saved", "ResNetModel"), images)
    np.testing.assert_array_equal(again.last_hidden_state, features)
    assert ResNet.from_preset(tmp_path / "saved").output_shape == (None, 32)
    # Heads are loaded, or asked for by their classes.
    with pytest.raises(ValueError, match="missing: classifier.1.weight"):
        ResNet.from_preset(tmp_path / "saved", include_top=True)
    assert ResNet.from_preset(tmp_path / "saved", num_classes=2).output_shape == (None, 2)


def weights(model):
    return {v.path: ops.convert_to_numpy(v) for v in model.weights}


def test_heads(original, folder):
    loaded = weights(ResNet.from_preset(folder))
    kernel = original[1].classifier[1].weight.detach().numpy().T
    np.testing.assert_array_equal(loaded["classifier/kernel"], kernel)

    def differing(**kwargs):
        """What is not as in the checkpoint, and the model."""
        model = ResNet.from_preset(folder, **kwargs)
        found = weights(model)
        assert set(loaded) - set(found) <= {"classifier/kernel", "classifier/bias"}
        return {n for n, v in found.items() if not np.array_equal(v, loaded[n])}, model

    head = {"classifier/kernel", "classifier/bias"}
    names = ["cat", "dog", "eel"]
    for kwargs in ({"num_classes": 3}, {"class_names": names}, {"dtype": "mixed_bfloat16"}):
        changed, model = differing(**kwargs)
        assert not changed and model.class_names == names
    changed, model = differing(num_classes=4)
    assert changed == head and model.class_names is None
    changed, model = differing(class_names=["ant", "bee"])
    assert changed == head and model.num_classes == 2
    # Other names are other classes, as many as they may be.
    changed, model = differing(class_names=["ant", "bee", "fly"])
    assert changed == head
    changed, model = differing(include_top=False)
    assert not changed and model.output_shape == (None, 8)
    # Numbers are no names: they may be given.
    change(folder, id2label={str(i): f"LABEL_{i}" for i in range(3)})
    changed, model = differing(class_names=["ant", "bee", "fly"])
    assert not changed and model.class_names == ["ant", "bee", "fly"]
    with pytest.raises(ValueError, match="class_names"):
        ResNet.from_preset(folder, num_classes=4, class_names=names)


def test_form_of_images(folder):
    assert ResNet.from_preset(folder).image_shape == (None, None, 1)
    model = ResNet.from_preset(folder, data_format="channels_first")
    assert model.image_shape == (1, None, None)
    assert ResNet.from_preset(folder, image_shape=(32, 40, 1)).image_shape == (32, 40, 1)
    with pytest.raises(ValueError, match=r"misshapen: resnet.embedder.*\(4, 1, 7, 7\), expected"):
        ResNet.from_preset(folder, image_shape=(32, 40, 3))


def test_how_images_are_prepared_travels(folder, tmp_path):
    model = ResNet.from_preset(folder)
    assert model.preprocessor([np.zeros((50, 60, 3), "uint8")]).shape == (1, 32, 32, 3)
    model.save_to_preset(tmp_path / "saved")
    name = "preprocessor_config.json"
    assert (tmp_path / "saved" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(model_type="bit"), "model_type='bit', architecture=None; ResNet reads 'resnet', "),
        (dict(layer_type="v2"), "layer_type='v2'; allowed: .*'basic'"),
        (dict(hidden_act="gelu"), "hidden_act='gelu'"),
        (dict(downsample_in_first_stage=True), "downsample_in_first_stage=True"),
        (dict(embedding_size=6), "embedding_size=6.*first stage, 4"),
        (dict(layer_type="bottleneck", hidden_sizes=[16, 34]), r"hidden_sizes=\[16, 34\]"),
        (dict(depths=[1, 1, 1]), r"depths=\[1, 1, 1\]"),
        (dict(id2label={"0": "a", "2": "b"}), "id2label.*gap"),
    ],
)
def test_configurations_of_something_else(folder, changes, message):
    change(folder, **changes)
    with pytest.raises(ValueError, match=message):
        ResNet.from_preset(folder)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(depth=18), r"depth=18: the checkpoint has depth=\[2, 1\], block='basic', filters"),
        (dict(filters=(4, 16)), r"filters=\(4, 16\): the checkpoint has.*filters=\(4, 8\)"),
        (dict(stem="cifar"), "stem='cifar'.*Allowed: stem='imagenet'"),
        (dict(shortcut="A"), "shortcut='A'"),
        (dict(normalize_first=True), "normalize_first=True"),
        (dict(folded=True), "folded=True.*fold_batch_normalization"),
    ],
)
def test_another_net_than_the_checkpoint(folder, kwargs, message):
    with pytest.raises(ValueError, match=message):
        ResNet.from_preset(folder, **kwargs)


# === timm and torchvision ===

TIMM_IMAGES = {"input_size": [3, 56, 56], "crop_pct": 0.875, "interpolation": "bilinear"}


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_of_torchvision(suffix, tmp_path):
    import torch
    from safetensors.torch import save_file

    kind = "basic" if suffix == ".pth" else "bottleneck"
    net = randomize(torch_net(kind, (1, 2, 1), (4, 8, 4), 6))
    path = tmp_path / f"resnet-0676ba61{suffix}"
    (torch.save if suffix == ".pth" else save_file)(net.state_dict(), path)
    model = ResNet.from_preset(path)
    images = normal(2, 47, 34, 3)
    assert_parity(model, by_torch(net, images), images)
    assert (model.depth, model.block, model.num_classes) == ([1, 2, 1], kind, 6)
    assert ResNet.from_preset(path, class_names=list("abcdef")).class_names == list("abcdef")
    model = ResNet.from_preset(path, num_classes=2)
    assert not np.any(ops.convert_to_numpy(model.classifier.bias))
    with pytest.raises(ValueError, match=r"depth=50: the checkpoint has depth=\[1, 2, 1\]"):
        ResNet.from_preset(path, depth=50)


CONTAINERS = {
    "state_dict": lambda w: {"state_dict": w, "epoch": 3, "optimizer": {"state": {0: {"step": 1}}}},
    "model": lambda w: {"model": w, "epoch": 3},
    "any name": lambda w: {"net": w, "accuracy": 0.9},
    "module.": lambda w: {f"module.{name}": tensor for name, tensor in w.items()},
    "_orig_mod.": lambda w: {f"_orig_mod.{name}": tensor for name, tensor in w.items()},
    "all": lambda w: {"state_dict": {f"module._orig_mod.{n}": t for n, t in w.items()}, "a": None},
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_files_of_training_programs(container, tmp_path):
    """The weights under a key, with the prefixes of PyTorch's own wrappers."""
    import torch

    net = randomize(torch_net("basic", (1, 1), (4, 4), 3))
    torch.save(CONTAINERS[container](net.state_dict()), tmp_path / "checkpoint.pth")
    images = normal(2, 32, 32, 3)
    assert_parity(ResNet.from_preset(tmp_path / "checkpoint.pth"), by_torch(net, images), images)


def test_files_of_training_programs_that_need_a_choice(tmp_path):
    import argparse

    import torch

    weights = torch_net("basic", (1, 1), (4, 4), 3).state_dict()
    for content, named in (
        ({"model": weights, "model_ema": weights}, r"\['model', 'model_ema'\]"),
        ({"a": weights, "b": weights}, r"\['a', 'b'\]"),
        ({"epoch": 3, "loss": 0.5}, r"\['epoch', 'loss'\]"),
        ({**weights, "epoch": 3}, r"\['epoch'\]"),
        ({"model": weights, "args": argparse.Namespace(lr=1)}, "argparse.Namespace"),
        ({f"encoder.{name}": tensor for name, tensor in weights.items()}, "encoder.conv1.weight"),
    ):
        torch.save(content, tmp_path / "checkpoint.pth")
        with pytest.raises(ValueError, match=f"checkpoint.pth.*{named}"):
            ResNet.from_preset(tmp_path / "checkpoint.pth")


def test_a_folder_that_timm_has_written_itself(tmp_path):
    """As `timm.models.save_for_hf` of timm 1.0 writes a ResNet, with `model_args` and without."""
    from safetensors.numpy import save_file

    net = randomize(torch_net("basic", (2, 2, 2, 2), (64, 128, 256, 512), 5, 1))
    tensors = {n: t.numpy() for n, t in net.state_dict().items()}
    save_file(tensors, tmp_path / "model.safetensors")
    config = {
        "architecture": "resnet18",
        "num_classes": 5,
        "num_features": 512,
        "global_pool": "avg",
        "model_args": {"num_classes": 5, "in_chans": 1, "global_pool": "avg"},
        "pretrained_cfg": {
            **TIMM_IMAGES,
            "input_size": [1, 224, 224],
            "mean": [0.449],
            "std": [0.226],
            "num_classes": 5,
            "pool_size": [7, 7],
            "first_conv": "conv1",
            "classifier": "fc",
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = ResNet.from_preset(tmp_path)
    images = normal(1, 32, 32, 1)
    assert_parity(model, by_torch(net, images), images)
    assert model.num_classes == 5 and model.preprocessor is None
    for name, value in (
        ("global_pool", "max"),
        ("output_stride", 16),
        ("act_layer", "silu"),
        ("stem_type", "deep"),
        ("aa_layer", "blurpool"),
        ("unheard_of", 1),
    ):
        config["model_args"] = {name: value}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ValueError, match=f"config.json.*\n.*{name}={value!r}"):
            ResNet.from_preset(tmp_path)
    config |= {"model_args": {}, "global_pool": "catavgmax"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="global_pool='catavgmax'"):
        ResNet.from_preset(tmp_path)


def test_timm_both_ways(tmp_path):
    from safetensors.torch import load_file, save_file

    # The stem of timm always has 64 filters.
    net = randomize(torch_net("bottleneck", (1, 1, 2, 1), (64, 4, 4, 8), 3))
    folder = tmp_path / "resnet50.a1"
    folder.mkdir()
    tensors = {n: t for n, t in net.state_dict().items() if "num_batches" not in n}
    save_file(tensors, folder / "model.safetensors")
    config = {
        "architecture": "resnet50",
        "num_classes": 3,
        "model_args": {"layers": [1, 1, 2, 1], "channels": [64, 4, 4, 8]},
        "label_names": ["cat", "dog", "eel"],
        "pretrained_cfg": TIMM_IMAGES,
    }
    (folder / "config.json").write_text(json.dumps(config))
    model = ResNet.from_preset(folder)
    images = normal(2, 35, 48, 3)
    expected = by_torch(net, images)
    assert_parity(model, expected, images)
    assert model.class_names == ["cat", "dog", "eel"]

    saved = tmp_path / "saved"
    model.save_to_preset(saved, layout="timm")
    fresh = torch_net("bottleneck", (1, 1, 2, 1), (64, 4, 4, 8), 3)
    fresh.load_state_dict(load_file(saved / "model.safetensors"))  # strict
    np.testing.assert_array_equal(by_torch(fresh.eval(), images), expected)
    written = json.loads((saved / "config.json").read_text())
    assert {name: written[name] for name in config if name != "pretrained_cfg"} == {
        name: value for name, value in config.items() if name != "pretrained_cfg"
    }
    images_cfg = written["pretrained_cfg"]
    assert {name: images_cfg[name] for name in TIMM_IMAGES} == TIMM_IMAGES
    (saved / "preprocessor_config.json").unlink()  # timm's own words say the same
    again = ResNet.from_preset(saved)
    assert again.preprocessor.arguments == model.preprocessor.arguments
    # From timm's layout to transformers'.
    model.save_to_preset(tmp_path / "other")
    other = read_back(tmp_path / "other")
    np.testing.assert_array_equal(by_torch(other, images).logits, expected)


def test_configurations_of_timm():
    def read(**config):
        return resnet_timm.read_timm({"config.json": {"architecture": "resnet50"} | config}, {})

    net = {"depth": 50, "filters": (64, 128, 256, 512), "stride_in": "3x3"}
    head = {"num_classes": 1000, "class_names": None, "include_top": True}
    assert read() == (net | head, ())
    assert read(pretrained_cfg={"num_classes": 7})[0] == net | head | {"num_classes": 7}
    headless = {"num_classes": None, "class_names": None, "include_top": False}
    assert read(num_classes=0, pretrained_cfg={"num_classes": 7})[0] == net | headless
    found = read(architecture="resnet26", model_args={"in_chans": 1})[0]
    assert (found["depth"], found["block"]) == ([2, 2, 2, 2], "bottleneck")
    shape = (None, None, 1)
    assert found["image_shape"] == (
        shape if keras.config.image_data_format() == "channels_last" else shape[::-1]
    )
    with pytest.raises(ValueError, match="model_args.*output_stride=8.*allowed"):
        read(model_args={"output_stride": 8})
    with pytest.warns(UserWarning, match="drop_path_rate=0.1 is not applied"):
        read(model_args={"drop_path_rate": 0.1, "num_classes": 1000})


def test_what_timm_and_torchvision_have_besides(tmp_path):
    from safetensors.numpy import save_file

    (tmp_path / "config.json").write_text(json.dumps({"architecture": "resnet50d"}))
    with pytest.raises(ValueError, match="architecture='resnet50d'; ResNet reads.*'resnet50'"):
        ResNet.from_preset(tmp_path)
    for names in (["conv1.0.weight", "layer1.0.conv1.weight"], ["resnet.embedder.weight"]):
        save_file({name: np.zeros((4, 3, 3, 3)) for name in names}, tmp_path / "a.safetensors")
        with pytest.raises(ValueError, match="a.safetensors.*torchvision.*config.json"):
            ResNet.from_preset(tmp_path / "a.safetensors")
    with pytest.raises(FileNotFoundError, match="nowhere.pth"):
        ResNet.from_preset(tmp_path / "nowhere.pth")


def test_every_way_to_crop_is_said_to_timm(tmp_path):
    for size in range(3, 400, 7):
        for crop in {1, size // 2, size * 7 // 8, size}:
            for shape in (size, (size, size)):
                processor = ImageProcessor(shape, crop)
                images = resnet_timm._timm_images(processor.arguments)
                assert math.floor(crop / images["crop_pct"]) == size
    (tmp_path / "config.json").write_text(json.dumps({"pretrained_cfg": images}))
    no_change = {"mean": [0.0] * 3, "std": [1.0] * 3}
    assert ImageProcessor.from_folder(tmp_path).arguments == processor.arguments | no_change
    for processor in (
        ImageProcessor(None, 20),
        ImageProcessor((20, 30), 10),
        ImageProcessor(20, 30),
        ImageProcessor(20),
        ImageProcessor(20, 20, scale=1),
    ):
        assert resnet_timm._timm_images(processor.arguments) is None


# === Saving ===


@pytest.mark.parametrize("layout", ["transformers", "timm"])
def test_models_that_a_layout_has_not(layout, tmp_path):
    small = dict(depth=(1, 1), block="bottleneck", filters=(4, 8))
    cases = [
        dict(stem="cifar"),
        dict(shortcut="A"),
        dict(shortcut=None),
        dict(normalize_first=True),
        dict(folded=True),
    ]
    if layout == "timm":
        cases += [dict(stride_in="1x1"), dict(depth=(1, 1)), dict(filters=(4, 8))]
    for case in cases:
        model = ResNet(**small | case)
        with pytest.raises(ValueError, match=f"{layout} cannot.*\n(.*\n)*.*{next(iter(case))}="):
            model.save_to_preset(tmp_path / "saved", layout=layout)
    assert not (tmp_path / "saved").exists()


def test_what_can_be_said_to_save(folder, tmp_path):
    model = ResNet.from_preset(folder)
    with pytest.raises(ValueError, match="layout='torchvision'; allowed: .*'timm'"):
        model.save_to_preset(tmp_path / "saved", layout="torchvision")
    model = ResNet((1,) * 4, block="basic", filters=(64, 4, 4, 4))
    model.preprocessor = ImageProcessor(20, 20, scale=1)
    with pytest.raises(ValueError, match="preprocessor.*1/255"):
        model.save_to_preset(tmp_path / "saved", layout="timm")


def test_sizes_have_no_weights():
    with pytest.raises(ValueError, match="load_weights=False.*hf://microsoft/resnet-50"):
        ResNet.from_preset("resnet_50")
    model = ResNet.from_preset("resnet_20_cifar", load_weights=False, num_classes=3)
    assert model.output_shape == (None, 3) and model.preprocessor is None


@pytest.mark.parametrize("depth", IMAGENET)
def test_names_of_the_papers_nets(depth):
    """All names, and no others, are those of transformers and of torchvision."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    assert resnet_layouts.NETS[depth] == IMAGENET[depth]
    kind, blocks = IMAGENET[depth]
    widths = [n * (4 if kind == "bottleneck" else 1) for n in resnet_layouts.FILTERS]
    with torch.device("meta"):
        config = ResNetConfig(layer_type=kind, depths=list(blocks), hidden_sizes=widths)
        nets = {"transformers": ResNetForImageClassification(config)}
        nets["timm"] = torch_net(kind, blocks)
    for layout, net in nets.items():
        table = resnet.FAMILY.layouts[layout].key_table({"depth": depth})
        names = [*(key.name for key in table.keys), *table.counters]
        assert sorted(names) == sorted(net.state_dict())
