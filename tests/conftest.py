"""Set-up that must happen before a backend starts, and the same starting point for every test.

The backend is the environment's `KERAS_BACKEND`; the suite runs unchanged under each of the three.
TensorFlow gets two logical CPU devices (for `MirroredStrategy`) and JAX eight host devices (for
`keras.distribution`): both can only be asked for before the backend has seen its devices, hence
here.
"""

import functools
import gc
import os
import pathlib

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "agg")
# Tests are tiny and run side by side, here and in the processes that they start: more threads only
# wait for one another.
for threads in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
    os.environ.setdefault(threads, "1")
# What JAX compiled is kept, which makes every run after the first faster; small things are sooner
# compiled than written.
CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "jax"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

LOGICAL_DEVICES = {"tensorflow": 2, "jax": 8}
pytest.register_assert_rewrite("tests.kit")


def _prepare_tensorflow(devices):
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops
    from tensorflow.python.util import tf_stack

    # TensorFlow notes for each operation of a graph where it was made: a tenth of the time.
    nowhere = tf_stack.extract_stack()
    tf_stack.extract_stack = lambda stacklevel=1: nowhere
    # TensorFlow makes, and keeps, a kernel for each name that a variable has while debugging: that
    # takes five times as long as the variable itself.
    new_handle = gen_resource_variable_ops.var_handle_op
    gen_resource_variable_ops.var_handle_op = lambda **kwargs: new_handle(
        **{**kwargs, "debug_name": ""}
    )

    # To optimize a graph takes longer than to run it.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(devices)]
    )


def _prepare_jax(devices):
    # Tests compile much and compute little: optimize little.
    fast = (
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
        "--xla_cpu_use_fusion_emitters=false"
    )
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {fast}".strip()

    import jax
    from jax._src.interpreters import mlir

    # One context for all that is compiled: JAX makes a new one for each, an eighth of the suite.
    mlir.make_ir_context = functools.cache(mlir.make_ir_context)
    jax.config.update("jax_num_cpu_devices", devices)


def _prepare_torch():
    import torch

    torch.use_deterministic_algorithms(True, warn_only=True)


def pytest_configure(config):
    """Prepares the backend, but not in a process that only hands tests out to others."""
    if config.getoption("numprocesses", None):
        return
    backend = os.environ["KERAS_BACKEND"]
    if backend == "tensorflow":
        _prepare_tensorflow(LOGICAL_DEVICES["tensorflow"])
    elif backend == "jax":
        _prepare_jax(LOGICAL_DEVICES["jax"])
    elif backend == "torch":
        _prepare_torch()


def pytest_collection_finish():
    """What is there before the first test stays, and is not looked through for garbage again.

    What comes later is looked through less often: it took a twentieth of the time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


@pytest.fixture(autouse=True)
def same_start():
    """Seed every generator, and undo what a test may leave behind for the next one."""
    import keras

    keras.utils.set_random_seed(20170612)
    # Keras looks for garbage whenever a layer loses a weight, as each does that is quantized: that
    # takes half a second each time.
    collect = gc.collect
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda generation=0: collect(generation))
        yield
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session(free_memory=False)


@pytest.fixture
def rng():
    """Return numpy's generator with a fixed seed."""
    import numpy as np

    return np.random.default_rng(1706)
