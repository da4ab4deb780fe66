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

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("MPLBACKEND", "agg")

CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache"
LOGICAL_DEVICES = {"tensorflow": 2, "jax": 8}


def _prepare_tensorflow(devices):
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops

    # TensorFlow makes, and keeps, a kernel for each name that a variable has while debugging: that
    # takes five times as long as the variable itself.
    new_handle = gen_resource_variable_ops.var_handle_op
    gen_resource_variable_ops.var_handle_op = lambda **kwargs: new_handle(
        **{**kwargs, "debug_name": ""}
    )

    # Tests are tiny and run side by side: threads only wait for one another, and to optimize a
    # graph takes longer than to run it.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(devices)]
    )


def _prepare_jax(devices):
    # Tests compile much and compute little: optimize little, and keep what was compiled, which
    # makes every run after the first several times faster.
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
    jax.config.update("jax_compilation_cache_dir", str(CACHE / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def _prepare_torch():
    import torch

    # Tests are tiny, and run side by side: more threads only wait for one another.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)


backend = os.environ["KERAS_BACKEND"]
if backend == "tensorflow":
    _prepare_tensorflow(LOGICAL_DEVICES["tensorflow"])
elif backend == "jax":
    _prepare_jax(LOGICAL_DEVICES["jax"])
elif backend == "torch":
    _prepare_torch()

import keras  # noqa: E402
import pytest  # noqa: E402

pytest.register_assert_rewrite("tests.kit")


def pytest_collection_finish():
    """What is there before the first test stays, and is not looked through for garbage again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_start():
    """Seed every generator, and undo what a test may leave behind for the next one."""
    keras.utils.set_random_seed(20170612)
    yield
    keras.config.set_dtype_policy("float32")
    keras.utils.clear_session(free_memory=False)


@pytest.fixture
def rng():
    """Return numpy's generator with a fixed seed."""
    import numpy as np

    return np.random.default_rng(1706)
