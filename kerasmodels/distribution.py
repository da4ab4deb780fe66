"""Several devices and several machines: how a Transformer's weights are split.

For data parallelism nothing of ours is needed: `tf.distribute` strategies on TensorFlow and
`keras.distribution.DataParallel` on JAX train every model here, with the loss of a single device
also where padding is unequal (`training.SmoothedCrossEntropy`). Where the model itself is too large
for one device, JAX splits it as `transformer_layout` says.
"""

import keras


def transformer_layout(mesh):
    """Splits the heads and the feed-forward networks of a Transformer over the axis "model".

    Each device of that axis holds some heads of every attention layer and some of the inner units
    of every feed-forward network, with their optimizer slots (Shoeybi et al. 2019, "Megatron-LM",
    section 3): the projections into heads and inner units are split by columns, those out of them
    by rows, so that a sub-layer needs a single sum over devices. Everything else, embeddings and
    norms, is on every device. `num_heads` and `intermediate_dim` should be multiples of the axis.

    It fits every model that is built of `layers.TransformerEncoderBlock` and
    `layers.TransformerDecoderBlock`, or of `layers.MultiHeadAttention` and `layers.FeedForward`
    under the names they have there.

    Args:
        mesh: a `keras.distribution.DeviceMesh` with an axis named "model".

    Returns:
        A `keras.distribution.LayoutMap`.

    Raises:
        ValueError: if `mesh` is no DeviceMesh or has no axis "model".

    Example:
    ```python
    import keras
    from kerasmodels import distribution, models

    mesh = keras.distribution.DeviceMesh((2, 4), ("batch", "model"))  # 8 devices
    keras.distribution.set_distribution(
        keras.distribution.ModelParallel(
            layout_map=distribution.transformer_layout(mesh), batch_dim_name="batch"
        )
    )
    model = models.Transformer(
        1000, num_layers=1, num_heads=4, hidden_dim=64, intermediate_dim=256
    )  # created, compiled and trained as always
    ```
    """
    if not isinstance(mesh, keras.distribution.DeviceMesh) or "model" not in mesh.axis_names:
        raise ValueError(
            '`mesh` must be a keras.distribution.DeviceMesh with an axis "model". '
            f"Received: mesh={mesh!r}"
        )
    layout = keras.distribution.LayoutMap(mesh)
    into = r".*(attention/(query|key|value)|feed_forward/intermediate)/"
    layout[into + "kernel"] = (None, "model")
    layout[into + "bias"] = ("model",)
    layout[r".*(attention|feed_forward)/output/kernel"] = ("model", None)
    return layout
