"""The test kit: contracts that every layer and model must pass, and formulas in numpy to compare
with.

A new layer's file in `tests/` starts with one line a layer:

    test_feed_forward = contracts(lambda **kw: FeedForward(16, **kw), x=normal(2, 5, 8))

and goes on with the numbers of its paper, taken from `tests.kit.reference` or written beside the
test.
"""

from tests.kit import reference
from tests.kit.case import Case
from tests.kit.contracts import contracts, model_contracts
from tests.kit.export import check_export
from tests.kit.tools import (
    assert_close,
    assert_equal,
    backend,
    compiled,
    copy_weights,
    gradients,
    identity_projections,
    input_gradient,
    normal,
    once,
    padding_mask,
    randomize,
    to_numpy,
    token_ids,
)

__all__ = [
    "Case",
    "assert_close",
    "assert_equal",
    "backend",
    "check_export",
    "compiled",
    "contracts",
    "copy_weights",
    "gradients",
    "identity_projections",
    "input_gradient",
    "model_contracts",
    "normal",
    "once",
    "padding_mask",
    "randomize",
    "reference",
    "to_numpy",
    "token_ids",
]
