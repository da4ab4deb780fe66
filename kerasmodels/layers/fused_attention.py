"""The backends' own attention kernels, behind one function."""

import keras
from keras import ops

from kerasmodels.layers.masks import causal_mask, combine_masks


def fused_attention(q, keys, values, mask, scale, is_causal=False, flash_attention=None):
    """Calls the backend's kernel, also where the values have another size than the keys."""
    key_dim, value_dim = keys.shape[-1], values.shape[-1]
    if key_dim != value_dim:  # JAX's kernel wants one size: zeros add nothing to a product
        size = max(key_dim, value_dim)
        q, keys, values = (
            ops.pad(x, ((0, 0), (0, 0), (0, 0), (0, size - x.shape[-1]))) for x in (q, keys, values)
        )
    dtype = q.dtype
    if _lacks_float16_kernel(dtype):
        q, keys, values = (ops.cast(x, "float32") for x in (q, keys, values))
    if is_causal and keras.backend.backend() == "tensorflow":
        # Keras makes this mask too, but with a slice that TFLite refuses.
        causal = ops.expand_dims(causal_mask(ops.shape(q)[1], ops.shape(keys)[1]), (0, 1))
        mask, is_causal = combine_masks(mask, causal), False
    out = ops.dot_product_attention(
        q,
        keys,
        values,
        mask=mask,
        scale=scale,
        is_causal=is_causal,
        flash_attention=flash_attention,
    )
    return ops.cast(out[..., :value_dim], dtype)


def _lacks_float16_kernel(dtype):
    """JAX compiles its float16 attention for GPUs alone ("F16_F16_F32 is not supported")."""
    if keras.backend.backend() != "jax" or keras.backend.standardize_dtype(dtype) != "float16":
        return False
    return not keras.distribution.list_devices()[0].startswith(("gpu", "cuda"))
