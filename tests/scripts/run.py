"""The same few training steps wherever they run: what the distributed runs are compared with."""

import keras
import numpy as np

from kerasmodels import models, training

VOCABULARY, ROWS, BATCH = 13, 16, 8
# Within a batch the devices get very different numbers of real tokens.
LENGTHS = np.array([7, 7, 6, 7, 6, 5, 1, 1, 1, 2, 1, 3, 7, 6, 5, 4])


def arrays():
    """Inputs and targets, `(16, 7)`, padding unequal."""

    def ids(lengths, seed):
        drawn = np.random.default_rng(seed).integers(3, VOCABULARY, (ROWS, 7))
        return (drawn * (np.arange(7) < lengths[:, None])).astype("int32")

    source, target = ids(LENGTHS[::-1], 1), ids(LENGTHS, 2)
    inputs = {
        "encoder_token_ids": source,
        "encoder_padding_mask": source != 0,
        "decoder_token_ids": target,
        "decoder_padding_mask": target != 0,
    }
    return inputs, np.pad(target[:, 1:], ((0, 0), (0, 1)))


def batches(data, index=0, count=1):
    """Part `index` of `count` of every batch of 8 rows, as a `PyDataset`."""
    part = BATCH // count

    class Part(keras.utils.PyDataset):
        def __len__(self):
            return ROWS // BATCH

        def __getitem__(self, step):
            start = step * BATCH + index * part
            return keras.tree.map_structure(lambda x: x[start : start + part], data)

    return Part()


def model(l2=0.0):
    """A tiny Transformer, the same every time, compiled; `l2` regularizes its matrices."""
    keras.utils.set_random_seed(7)
    net = models.Transformer(
        VOCABULARY, num_layers=1, num_heads=4, hidden_dim=16, intermediate_dim=32, dropout=0.0
    )
    for weight in net.trainable_weights:
        if l2 and len(weight.shape) == 2:
            weight.regularizer = keras.regularizers.L2(l2)
    net.compile(
        keras.optimizers.SGD(0.5, momentum=0.5),
        training.SmoothedCrossEntropy(0.1),
        weighted_metrics=[training.TokenLoss()],
    )
    return net


def fit(net, data, **kwargs):
    """Two epochs of two steps, with validation; the logs and the weights by path."""
    history = net.fit(data, epochs=2, shuffle=False, verbose=0, **kwargs).history
    weights = {w.path: keras.ops.convert_to_numpy(w) for w in net.trainable_weights}
    return {f"log {name}": np.array(log) for name, log in history.items()} | weights
