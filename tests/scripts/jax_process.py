"""One process of a JAX cluster: python -m tests.scripts.jax_process RANK PORTS OUT.

What a user's script does: `keras.distribution.initialize` comes before anything else, every process
reads its own rows of each batch, and `auto_shard_dataset=False` says so.
"""

import sys

rank, ports, out = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]

import jax  # noqa: E402
import keras  # noqa: E402

jax.config.update("jax_cpu_collectives_implementation", "gloo")
keras.distribution.initialize(
    ",".join(f"localhost:{port}" for port in ports), num_processes=len(ports), process_id=rank
)
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))

import numpy as np  # noqa: E402

from tests.scripts import run  # noqa: E402

assert jax.process_count() == len(ports) and len(jax.devices()) == len(ports)
net = run.model()
batches = run.batches(run.arrays(), rank, len(ports))
np.savez(out, **run.fit(net, batches, validation_data=batches))
