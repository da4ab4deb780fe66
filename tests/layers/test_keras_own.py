"""Our layers that stand in for Keras's pass the tests that Keras wrote for its own.

The wheel of Keras ships its test files. Each is executed here in a namespace whose `layers` holds
our class in place of Keras's, and pytest collects its test cases as if they were written here.
What is left out stands in `LEFT_OUT`, with the reason.
"""

import fnmatch
import importlib.util
import pathlib
import re
import types

import keras
import pytest
from keras.src import layers as keras_layers

from kerasmodels import layers as our_layers

# Keras's test file, and the class in it that is replaced by ours.
FILES = {
    "core.dense_test": "Dense",
    "normalization.layer_normalization_test": "LayerNormalization",
    "normalization.batch_normalization_test": "BatchNormalization",
    "convolutional.conv_test": "Conv2D",
    "convolutional.conv_transpose_test": "Conv2DTranspose",
    "attention.multi_head_attention_test": "MultiHeadAttention",
}

# The projections are private in Keras's layer and public in ours (in Keras's, all but the gate
# have a public name too).
PUBLIC = re.compile(r"\._((?:query|key|value|gate|output)_dense)\b")

AXES = "attention is along one axis: `attention_axes` and inputs of other ranks are refused"
OTHER = "no layer of ours is tested: the test is about the convolutions of one or three dimensions"
LEFT_OUT = {
    "MultiHeadAttentionTest.test_high_dim_attention_*": AXES,
    "MultiHeadAttentionTest.test_attention_axes_negative_indexing": AXES,
    "MultiHeadAttentionTest.test_causal_only_masks_non_4d_inputs": AXES,
    "MultiHeadAttentionTest.test_compute_output_shape_high_dim_*": AXES,
    "MultiHeadAttentionTest.test_compute_output_shape_different_qv_last_dims": AXES,
    "MultiHeadAttentionTest.test_masking_with_different_shapes": (
        "an `attention_mask` of rank 2 is refused, since it is taken for a padding mask too easily"
    ),
    "ConvBasicTest.test_conv[13]d_basic*": OTHER,
    "ConvBasicTest.test_enable_lora_conv[13]d_*": OTHER,
    "ConvCorrectnessTest.test_conv[13]d[0-9]*": OTHER,
    "ConvTransposeBasicTest.test_conv[13]d_transpose_basic*": OTHER,
    "ConvTransposeCorrectnessTest.test_conv[13]d_transpose[0-9_]*": OTHER,
}


def load(file, name):
    """Executes a test file of Keras with our class in place of Keras's."""
    spec = importlib.util.find_spec(f"keras.src.layers.{file}")
    source = PUBLIC.sub(r".\1", pathlib.Path(spec.origin).read_text())
    imported = "from keras.src import layers\n"
    assert source.count(imported) == 1
    module = types.ModuleType(f"{__name__}.{name}")
    module.source = source.replace(imported, "\n")
    module.layers = types.SimpleNamespace(**{**vars(keras_layers), name: getattr(our_layers, name)})
    exec(compile(module.source, spec.origin, "exec"), vars(module))
    return module


def cases(module):
    """The test cases of a module, without the tests that are left out."""
    for name, case in list(vars(module).items()):
        if isinstance(case, type) and name.endswith("Test"):
            tests = [test for test in dir(case) if test.startswith("test_")]
            found[name] = tests
            out = [t for t in tests if any(fnmatch.fnmatch(f"{name}.{t}", p) for p in LEFT_OUT)]
            yield name, type(name, (case,), {**dict.fromkeys(out), "__module__": __name__})


found = {}  # the names of all tests, by the name of their case
MODULES = {file: load(file, name) for file, name in FILES.items()}
for _module in MODULES.values():
    globals().update(cases(_module))


@pytest.fixture(autouse=True)
def as_before():
    """Undoes what Keras's tests set for all that comes after them."""
    yield
    keras.config.enable_flash_attention()
    keras.config.enable_traceback_filtering()


@pytest.mark.parametrize("file", FILES)
def test_the_class_in_use_is_ours(file):
    name, module = FILES[file], MODULES[file]
    assert getattr(module.layers, name).__module__.startswith("kerasmodels.")
    # Keras's own class is not reached by another way.
    used = re.findall(rf"[\w.]*\b{name}\b(?=[(,\n])", module.source)
    assert used and set(used) == {f"layers.{name}"}


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_what_is_left_out_is_there(pattern):
    case, _, test = pattern.partition(".")
    assert fnmatch.filter(found[case], test)
