"""Models as files that run without Keras: SavedModel (TensorFlow, JAX) and ONNX (PyTorch).

| | TensorFlow | JAX | PyTorch |
|---|---|---|---|
| `saved_model`, `serve` | yes | yes | no: `onnx` |
| `saved_model`, `generate` (the whole search) | yes | yes | no |
| `image_classifier`, raw images of any size in, names out | yes | yes | no: `onnx` |
| `text_model`, texts in, names or vectors out, tokenizer included | yes | yes | no: `onnx` |
| `onnx`, batch and length free | no | no | yes |

A `.keras` file loads on every backend, so what was trained on one can be exported on another.
"""

from kerasmodels.export.functional import onnx, saved_model
from kerasmodels.export.images import image_classifier
from kerasmodels.export.text import text_model

__all__ = ["image_classifier", "onnx", "saved_model", "text_model"]
