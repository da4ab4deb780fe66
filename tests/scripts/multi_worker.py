"""One worker of `MultiWorkerMirroredStrategy`: python -m tests.scripts.multi_worker RANK PORTS OUT.

What a user's script does: `TF_CONFIG` says who takes part, the strategy is made first, everything
else happens in its scope.
"""

import json
import os
import sys

rank, ports, out = int(sys.argv[1]), sys.argv[2].split(","), sys.argv[3]
os.environ["TF_CONFIG"] = json.dumps(
    {
        "cluster": {"worker": [f"localhost:{port}" for port in ports]},
        "task": {"type": "worker", "index": rank},
    }
)

import tensorflow as tf  # noqa: E402

strategy = tf.distribute.MultiWorkerMirroredStrategy()

import numpy as np  # noqa: E402

from tests.scripts import run  # noqa: E402

with strategy.scope():
    net = run.model()
    inputs, targets = data = run.arrays()
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(run.BATCH)
    np.savez(out, **run.fit(net, dataset, validation_data=dataset))
