"""The same training on one device and on several, with unequal padding (C35): losses and weights.

On TensorFlow two logical CPU devices and two processes, on JAX eight host devices and two
processes (`conftest` makes the devices). PyTorch has no distribution in Keras.
"""

import os
import pathlib
import socket
import subprocess
import sys

import keras
import numpy as np
import pytest

from kerasmodels import distribution
from tests.scripts import run

BACKEND = keras.backend.backend()
tensorflow_only = pytest.mark.skipif(BACKEND != "tensorflow", reason="it is TensorFlow's")
jax_only = pytest.mark.skipif(BACKEND != "jax", reason="keras.distribution distributes on JAX")


@pytest.fixture(scope="module")
def alone():
    """Logs and weights of a single device."""
    batches = run.batches(run.arrays())
    return run.fit(run.model(), batches, validation_data=batches)


def assert_same(found, alone):
    assert set(found) == set(alone)
    assert {"log loss", "log val_loss", "log token_loss", "log val_token_loss"} < set(found)
    assert alone["log loss"][1] < alone["log loss"][0] - 0.1  # it did learn
    for name, value in alone.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-5, err_msg=name)


def in_processes(script, folder, count=2):
    """Starts the processes together, on loopback; returns what each wrote."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("localhost", 0))
    ports = ",".join(str(one.getsockname()[1]) for one in sockets)
    for one in sockets:
        one.close()
    files = [folder / f"{rank}.npz" for rank in range(count)]
    environment = {k: v for k, v in os.environ.items() if k not in ("TF_CONFIG", "XLA_FLAGS")}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", f"tests.scripts.{script}", str(rank), ports, str(file)],
            cwd=pathlib.Path(__file__).parents[1],
            env={**environment, "KERAS_BACKEND": BACKEND, "TF_CPP_MIN_LOG_LEVEL": "2"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank, file in enumerate(files)
    ]
    try:
        outputs = [process.communicate(timeout=240)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]
    return [dict(np.load(file)) for file in files]


@tensorflow_only
def test_mirrored_strategy(alone):
    from tests.kit.replicas import two_replicas

    with two_replicas().scope():
        net = run.model()
    batches = run.batches(run.arrays())
    assert_same(run.fit(net, batches, validation_data=batches), alone)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has no replicas on PyTorch")
def test_a_regularizer_counts_once():
    batches, factor = run.batches(run.arrays()), 0.01
    single = run.model(factor)
    matrices = [w for w in single.trainable_weights if len(w.shape) == 2]
    squares = sum((keras.ops.convert_to_numpy(w).astype("float64") ** 2).sum() for w in matrices)
    plain, regular = (net.evaluate(batches, verbose=0)[0] for net in (run.model(), single))
    np.testing.assert_allclose(regular - plain, factor * squares, rtol=1e-4)
    alone = run.fit(single, batches, validation_data=batches)
    if BACKEND == "tensorflow":
        from tests.kit.replicas import two_replicas

        with two_replicas().scope():
            net = run.model(factor)
        found = run.fit(net, batches, validation_data=batches)
    else:
        with keras.distribution.DataParallel(devices=keras.distribution.list_devices()).scope():
            found = run.fit(run.model(factor), batches, validation_data=batches)
    assert_same(found, alone)


@tensorflow_only
def test_multi_worker_mirrored_strategy(alone, tmp_path):
    for found in in_processes("multi_worker", tmp_path):
        assert_same(found, alone)


@jax_only
def test_data_parallel(alone):
    batches = run.batches(run.arrays())
    devices = keras.distribution.list_devices()
    assert len(devices) == 8
    with keras.distribution.DataParallel(devices=devices).scope():
        net = run.model()
        assert_same(run.fit(net, batches, validation_data=batches), alone)


@jax_only
def test_model_parallel(alone):
    batches = run.batches(run.arrays())
    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"))
    layout = distribution.transformer_layout(mesh)
    with keras.distribution.ModelParallel(layout_map=layout, batch_dim_name="batch").scope():
        net = run.model()
        assert_same(run.fit(net, batches, validation_data=batches), alone)
        shards = {
            weight.path: weight.value.addressable_shards[0].data.shape for weight in net.weights
        }
        momenta = [
            variable.value.addressable_shards[0].data.shape for variable in net.optimizer.variables
        ]
    # hidden 16, 4 heads of 4, feed-forward 32, all split by 4
    for side, names in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "cross_attention"]),
    ):
        for name in names:
            for part in ("query", "key", "value"):
                path = f"{side}_block_0/{name}/{part}"
                assert shards[f"{path}/kernel"] == (16, 4) and shards[f"{path}/bias"] == (4,)
            path = f"{side}_block_0/{name}/output"
            assert shards[f"{path}/kernel"] == (4, 16) and shards[f"{path}/bias"] == (16,)
        path = f"{side}_block_0/feed_forward"
        assert shards[f"{path}/intermediate/kernel"] == (16, 8)
        assert shards[f"{path}/intermediate/bias"] == (8,)
        assert shards[f"{path}/output/kernel"] == (8, 16)
        assert shards[f"{path}/output/bias"] == (16,)
    assert shards["embedding/embeddings"] == (13, 16)
    assert momenta.count((16, 8)) == 2  # the optimizer's slots are split as their weights


@jax_only
def test_two_jax_processes(alone, tmp_path):
    for found in in_processes("jax_process", tmp_path):
        assert_same(found, alone)


def test_bad_mesh():
    with pytest.raises(ValueError, match="axis .model.*None"):
        distribution.transformer_layout(None)
    mesh = keras.distribution.DeviceMesh((1,), ("batch",), devices=["cpu:0"])
    with pytest.raises(ValueError, match="batch"):
        distribution.transformer_layout(mesh)
