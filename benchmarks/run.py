"""Us against the peers, side by side in one run: `make bench`.

Every contestant is a process of its own (a backend is chosen before Keras is imported) and waits;
in every round each in turn does one unit of work, alone on the machine. Medians are compared, and
beside a ratio stands the spread of a peer against itself (A/A): a bar is met when
ratio <= bar + spread. The machine's own matrix-product rate comes first: a busy machine shows.

    python benchmarks/run.py                      # everything
    python benchmarks/run.py training generation  # of those named at the end of this file
    python benchmarks/run.py --rounds 15
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
BACKENDS = ("tensorflow", "jax", "torch")


class Contestant:
    """One process that does one kind of work whenever it is asked to.

    Args:
        work: Name of a function of `workers.py`, such as `"ours_training"`.
        backend: Keras's backend.
        **arguments: Of the function.
    """

    def __init__(self, work, backend="torch", **arguments):
        described = "".join(f", {key} {value}" for key, value in arguments.items())
        self.name = f"{work.replace('_', ' ')}, {backend}{described}"
        self.seconds = []
        environment = {
            **os.environ,
            "KERAS_BACKEND": backend,
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "TOKENIZERS_PARALLELISM": "false",
        }
        self.process = subprocess.Popen(
            [sys.executable, HERE / "workers.py", work, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.first = self._ask()  # compiles

    def _ask(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("result "):
                return json.loads(line[len("result ") :])
        raise RuntimeError(f"{self.name} ended with {self.process.wait()}")

    def round(self):
        """One more unit of work."""
        self.last = self._ask()
        self.seconds.append(self.last["seconds"])

    @property
    def median(self):
        """Median seconds of a unit of work."""
        return statistics.median(self.seconds)

    @property
    def spread(self):
        """How far the medians of every other unit of work are apart (A/A)."""
        one, other = (statistics.median(self.seconds[i::2]) for i in (0, 1))
        return abs(one / other - 1)

    def close(self):
        """Ends the process."""
        self.process.stdin.close()
        self.process.wait()


def sgemm_rate(size=2048, rounds=5):
    """GFLOP/s of a float32 matrix product in a process of its own."""
    code = (
        "import torch, time\n"
        f"a = torch.randn({size}, {size}); best = 9e9\n"
        f"for _ in range({rounds}):\n"
        "    t = time.perf_counter(); a @ a; best = min(best, time.perf_counter() - t)\n"
        f"print(2 * {size} ** 3 / best / 1e9)"
    )
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True).stdout)


def multiply_adds(model, shapes):
    """Of a forward pass, as `kerasmodels.model_cost` counts them; two operations each.

    Args:
        model: Python that makes it, such as `"ResNet(50)"`.
        shapes: Of its inputs.
    """
    code = f"import kerasmodels as k; print(k.model_cost(k.models.{model}, {shapes}).multiply_adds)"
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    return int(subprocess.check_output([sys.executable, "-c", code], env=environment))


def race(title, contestants, peer, rounds, unit="s", amount=1.0, flops=None):
    """Runs the rounds and prints a table of medians and ratios to `peer`.

    Args:
        title: Of the table.
        contestants: A list; the one called `peer` twice, for the spread.
        peer: Index of the contestant that the ratios refer to.
        rounds: Number of rounds.
        unit: `"s"`, or what `amount` counts, then rates are shown.
        amount: Work in one unit.
        flops: Floating-point operations of one unit, for the share of the machine's rate.
    """
    for _ in range(rounds):
        for contestant in contestants:
            contestant.round()
    base = contestants[peer]
    print(f"\n## {title}\n")
    print(f"{rounds} interleaved rounds; spread of {base.name} against itself {base.spread:.3f}\n")
    rate = sgemm_rate()
    print(f"| | {unit} | ratio of times | first call s | peak MB | share of sgemm |")
    print("|---|---|---|---|---|---|")
    for c in contestants:
        value = c.median if unit == "s" else amount / c.median
        share = "" if flops is None else f"{flops / c.median / 1e9 / rate:.0%}"
        print(
            f"| {c.name} | {value:.3g} | {c.median / base.median:.2f} | {c.first['seconds']:.1f} "
            f"| {c.last['megabytes']:.0f} | {share} |"
        )
        c.close()


def training(rounds):
    """A training step of 4+4 layers, d 128, feed-forward 1024, 8 heads, batch 128, length 20."""
    contestants = [Contestant("torch_training"), Contestant("torch_training")]
    for backend in BACKENDS:
        contestants += [
            Contestant("keras_hub_training", backend),
            Contestant("ours_training", backend),
        ]
    model = "Transformer(60, num_layers=4, num_heads=8, hidden_dim=128, intermediate_dim=1024)"
    shapes = {f"{side}_token_ids": (128, 20) for side in ("encoder", "decoder")}
    flops = 3 * 2 * multiply_adds(model, shapes)
    race("Training step", contestants, 0, rounds, flops=flops)


def generation(rounds):
    """A base-size model, vocabulary 32,000, source 32, 48 new tokens, batch 4."""
    d, f, layers, vocabulary, source, new, batch = 512, 2048, 6, 32000, 32, 48, 4
    for beams in (1, 4):
        contestants = [
            Contestant("transformers_generation", beams=beams),
            Contestant("transformers_generation", beams=beams),
        ]
        for backend in BACKENDS:
            contestants += [
                Contestant("keras_hub_generation", backend, beams=beams),
                Contestant("ours_generation", backend, beams=beams),
            ]
        # Multiply-adds, two operations each. Once a source token: the encoder's 4 d^2 + 2 d f a
        # layer and 2 d source for its attention, and 2 d^2 a layer for the keys and values of the
        # decoder's cross-attention. Once a token and beam: 6 d^2 + 2 d f a layer (4 d^2 for the
        # self-attention, 2 d^2 for query and output of the other), 2 d (source + new / 2) for both
        # attentions, the latter over half of what will be written on average, and d times the
        # vocabulary for the logits.
        encoder = layers * (4 * d * d + 2 * d * f + 2 * d * source + 2 * d * d)
        decoder = layers * (6 * d * d + 2 * d * f + 2 * d * (source + new / 2)) + d * vocabulary
        flops = 2 * batch * (source * encoder + new * beams * decoder)
        title = "Generation, " + ("greedy" if beams == 1 else f"{beams} beams")
        amount = batch * new
        race(title, contestants, 0, rounds, unit="tokens/s", amount=amount, flops=flops)


def length(rounds):
    """Self-attention, forward, against the sequence's length: full and windowed."""
    for size in (256, 1024, 4096):
        contestants = [
            Contestant("attention", backend, length=size, window=window)
            for backend in BACKENDS
            for window in (None, 64)
        ]
        race(f"Attention, length {size} (full, window 64)", contestants, 0, rounds)


def cache(rounds):
    """Greedy decoding with the cache and by running the whole model anew for every token."""
    for size in (16, 64):
        contestants = [
            Contestant("decoding", backend, new_tokens=size, cached=cached)
            for backend in BACKENDS
            for cached in (True, False)
        ]
        race(f"Decoding {size} tokens (cached, not)", contestants, 0, rounds)


def _compared(title, peer, ours, rounds, steps, **arguments):
    """A race of ours against a peer on every backend; bars stand beside each backend's spread."""
    pairs = [
        [Contestant(work, backend, steps=steps, **arguments) for work in (peer, ours)]
        for backend in BACKENDS
    ]
    contestants = [c for pair in pairs for c in pair]
    race(title, contestants, 0, rounds, unit="steps/s", amount=steps)
    print("\n| backend | ms a step, peer | ms a step, ours | ours / peer | spread of the peer |")
    print("|---|---|---|---|---|")
    for backend, (one, other) in zip(BACKENDS, pairs, strict=True):
        times = " | ".join(f"{1000 * c.median / steps:.2f}" for c in (one, other))
        ratio = other.median / one.median
        print(f"| {backend} | {times} | {ratio:.3f} | {one.spread:.3f} |")
    return {backend: other.median for backend, (_, other) in zip(BACKENDS, pairs, strict=True)}


def gan(rounds):
    """An adversarial step, batch 128, 28x28: ours in `fit` and a plain loop of the backend."""
    seconds = _compared("DCGAN step", "plain_gan", "ours_gan", rounds, 8, pair="dcgan")
    print(f"\nJAX / TensorFlow, ours: {seconds['jax'] / seconds['tensorflow']:.2f}")
    _compared("Step of the paper's MLP pair", "plain_gan", "ours_gan", rounds, 40, pair="mlp")


def classifier(rounds):
    """A small classifier's step, batch 64: as a PortableModel and as Keras's own, both in `fit`."""
    _compared("Classifier's step", "keras_classifier", "ours_classifier", rounds, 200)


def resnet(rounds):
    """ResNet-50, batch 8, 224x224: forward, folded and training, of both strides."""
    for version, peer in (("v1", "applications_resnet"), ("v1.5", "keras_hub_resnet")):
        model = f"ResNet(50, stride_in={'1x1' if version == 'v1' else '3x3'!r})"
        work = 2 * multiply_adds(model, (8, 224, 224, 3))
        for mode in ("forward", "training"):
            arguments = {"mode": mode, "version": version}
            contestants = [Contestant("transformers_resnet", **arguments) for _ in range(2)]
            for backend in BACKENDS:
                contestants += [
                    Contestant(peer, backend, **arguments),
                    Contestant("ours_resnet", backend, **arguments),
                ]
                if mode == "forward":
                    contestants.append(Contestant("ours_resnet", backend, **arguments, folded=True))
            flops = work * (3 if mode == "training" else 1)
            race(f"ResNet-50 {version}, {mode}", contestants, 0, rounds, flops=flops)


def loading(rounds):
    """ResNet-152: made with random weights, and read from a folder; the file has 242 MB.

    A process loads once, since a second model would raise the peak; at most three processes each.
    """
    print("\n## Loading ResNet-152\n\n| backend | made s | read s | made MB | read MB |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        code = (
            "from kerasmodels.models import ResNet; "
            f"ResNet(152, stride_in='3x3').save_to_preset({folder!r})"
        )
        environment = {**os.environ, "KERAS_BACKEND": "torch"}
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        for backend in BACKENDS:
            found = {}
            for weights in (False, True):
                runs = []
                for _ in range(min(rounds, 3)):
                    one = Contestant("resnet_152", backend, weights=weights, folder=folder)
                    one.close()
                    runs.append(one.first)
                found[weights] = [
                    statistics.median(run[key] for run in runs) for key in ("seconds", "megabytes")
                ]
            (made, made_mb), (read, read_mb) = found[False], found[True]
            print(f"| {backend} | {made:.1f} | {read:.1f} | {made_mb:.0f} | {read_mb:.0f} |")


def bert(rounds):
    """BERT-base, batch 8, length 128: forward in two precisions, and a step of pre-training."""
    work = 2 * multiply_adds("Bert(30522)", {"token_ids": (8, 128)})
    for mode, dtype, at_once in (
        ("forward", "float32", [BACKENDS]),
        ("forward", "bfloat16", [BACKENDS]),
        # With the state of the optimizer eight of them do not fit into 24 GB.
        ("pretraining", "float32", [[backend] for backend in BACKENDS]),
    ):
        arguments = {"mode": mode, "dtype": dtype}
        for backends in at_once:
            contestants = [Contestant("transformers_bert", **arguments)]
            if len(backends) > 1:
                contestants.append(Contestant("transformers_bert", **arguments))
            for backend in backends:
                contestants += [
                    Contestant("keras_hub_bert", backend, **arguments),
                    Contestant("ours_bert", backend, **arguments),
                ]
            flops = work if mode == "forward" else 3 * work
            race(f"BERT-base, {mode}, {dtype}", contestants, 0, rounds, flops=flops)


def embedding(rounds):
    """160 texts with a model of MiniLM's size: `embed`, and batches padded as they come."""
    for backend in BACKENDS:
        contestants = [Contestant("embedding", backend, packed=packed) for packed in (False, True)]
        title = f"Sentence vectors, {backend}"
        race(title, contestants, 0, rounds, unit="texts/s", amount=160)


def startup(rounds):
    """What `import kerasmodels` costs over `import keras`, and BERT-base, in fresh processes."""
    makes = {
        "kerasmodels": "kerasmodels.models.Bert(30522)",
        "keras_hub": "keras_hub.models.BertBackbone(30522, 12, 12, 768, 3072)",
    }
    print("\n## Start-up\n\n| backend | package | import, s | BERT-base, s | MB |")
    print("|---|---|---|---|---|")
    for backend in BACKENDS:
        environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
        runs = {package: [] for package in makes}
        for _ in range(rounds):
            for package, make in makes.items():
                code = (
                    "import resource, time, keras; times = [time.perf_counter()]; "
                    f"import {package}; times.append(time.perf_counter()); "
                    f"model = {make}; times.append(time.perf_counter()); "
                    "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024; "
                    "print(times[1] - times[0], times[2] - times[1], peak)"
                )
                said = subprocess.check_output(
                    [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL
                )
                runs[package].append([float(number) for number in said.split()])
        for package, found in runs.items():
            imported, made, peak = map(statistics.median, zip(*found, strict=True))
            print(f"| {backend} | {package} | {imported:.2f} | {made:.2f} | {peak:.0f} |")


def main():
    """Runs what is asked for."""
    functions = (startup, training, classifier, gan, resnet, loading)
    functions += (bert, embedding, generation, length, cache)
    races = {f.__name__: f for f in functions}
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    arguments.add_argument("races", nargs="*", help=" ".join(races))
    arguments.add_argument("--rounds", type=int, default=9)
    arguments = arguments.parse_args()
    start = time.time()
    print(
        f"sgemm {sgemm_rate():.0f} GFLOP/s on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    for name in arguments.races or races:
        races[name](arguments.rounds)
    print(f"\n{time.time() - start:.0f} s in all")


if __name__ == "__main__":
    main()
