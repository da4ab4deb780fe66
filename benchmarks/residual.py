"""ResNet-50, batch 8, 224x224, random weights: the contestants of `run.py`, for `workers.py`.

Each takes `mode` ("forward" or "training": SGD with momentum) and `version` ("v1": the paper's
stride; "v1.5": the stride on the 3x3 convolutions) and returns a function that does it once.
"""

import os

import numpy as np

BATCH, SIZE = 8, 224


def _data():
    random = np.random.default_rng(0)
    images = random.normal(size=(BATCH, SIZE, SIZE, 3)).astype("float32")
    return images, random.integers(0, 1000, BATCH)


def _keras(model, mode, from_logits, optimizer=None):
    import keras

    images, labels = _data()
    # The faster of the two for each backend here, for us and for the peers alike.
    jit = os.environ["KERAS_BACKEND"] == "jax"
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=from_logits)
    optimizer = optimizer or keras.optimizers.SGD(1e-3, momentum=0.9)
    model.compile(optimizer, loss, jit_compile=jit)
    if mode == "forward":
        return lambda: model.predict_on_batch(images)
    return lambda: model.train_on_batch(images, labels)


def ours_resnet(mode, version, folded=False):
    """Ours; `folded`: with batch normalization in the convolutions."""
    from kerasmodels import models, training

    stride_in = "1x1" if version == "v1" else "3x3"
    model = models.ResNet(50, stride_in=stride_in, image_shape=(SIZE, SIZE, 3))
    if folded:
        model = model.fold_batch_normalization()
    return _keras(model, mode, True, training.SGD(1e-3, momentum=0.9, weight_decay=0))


def applications_resnet(mode, version):
    """`keras.applications`, which has the paper's stride."""
    import keras

    assert version == "v1"
    return _keras(keras.applications.ResNet50(weights=None), mode, False)


def keras_hub_resnet(mode, version):
    """keras_hub, which has the stride on the 3x3."""
    import keras_hub

    assert version == "v1.5"
    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 128, 256, 512],
        stackwise_num_blocks=[3, 4, 6, 3],
        stackwise_num_strides=[1, 2, 2, 2],
        block_type="bottleneck_block",
        image_shape=(SIZE, SIZE, 3),
    )
    model = keras_hub.models.ResNetImageClassifier(backbone, num_classes=1000)
    return _keras(model, mode, True)


def transformers_resnet(mode, version):
    """The model of transformers in PyTorch, with the channels last in memory."""
    import torch
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(downsample_in_bottleneck=version == "v1", num_labels=1000)
    model = ResNetForImageClassification(config).to(memory_format=torch.channels_last)
    images, labels = _data()
    images = torch.tensor(images).permute(0, 3, 1, 2)  # channels last in memory
    labels = torch.tensor(labels)
    if mode == "forward":
        model.eval()

        def forward():
            with torch.inference_mode():
                return model(images).logits.numpy()

        return forward
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    model.train()

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images).logits, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def resnet_152(weights, folder):
    """ResNet-152 from a folder; `weights`: with those of the folder, or only made."""
    from kerasmodels import models

    return lambda: models.ResNet.from_preset(folder, load_weights=weights)
