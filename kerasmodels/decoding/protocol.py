"""What a decoder offers to the searches, and how they handle its state.

A decoder is any object with two methods, pure functions of their arguments and of its weights:

- `start(inputs, max_length) -> state`: reads the inputs (encodes the source, makes room for
  `max_length` tokens). The state is a tree (dict, list, tuple) of tensors whose first axis is the
  batch.
- `step(token_ids, state, index) -> (logits, state)`: `token_ids` `(rows,)` int32 are the tokens at
  position `index` (0 = the start token), the logits `(rows, vocabulary)` those of the next one.

It may also have these attributes:

- `shared_state`: top-level keys of a dict state that stay the same for a source whatever is
  decoded, such as the encoder's output. A beam search neither repeats nor reorders them: `step`
  then sees `rows = batch * beams` tokens, the beams of a source adjacent, beside shared leaves of
  `batch` rows.
- `vocabulary_size` (a number, or a pair source and target) and `max_sequence_length` (how many
  positions it has for sources and for results): what is checked before anything is computed.
- `token_rules`: its `TokenRules`, which `generate` then follows unless it is told others.
- `variables`: the Keras variables it uses, if they are not found in the layers it holds.

Weights must be Keras variables: compiled searches see every change of those, and take anything
else a decoder holds (arrays, numbers) for constant.
"""

import keras
from keras import ops


class FlatTree:
    """A tree taken apart into the list of its tensors, and how to put others in their place.

    `None` leaves are left out of the list.

    Args:
        tree: Nested dicts, lists and tuples.
    """

    def __init__(self, tree):
        self._tree = tree
        flat = keras.tree.flatten(tree)
        self._present = [leaf is not None for leaf in flat]
        self.leaves = [leaf for leaf in flat if leaf is not None]

    def pack(self, leaves):
        """The tree with `leaves` in place of its own."""
        leaves = iter(leaves)
        flat = [next(leaves) if present else None for present in self._present]
        return keras.tree.pack_sequence_as(self._tree, flat)


class SearchState:
    """A decoder's state: a list of the tensors that change, beside what is constant per source.

    Only the former travel through the loop and are reordered by a beam search.

    Args:
        decoder: The decoder; its `shared_state` names the constant entries.
        state: What its `start` returned.
    """

    def __init__(self, decoder, state):
        self._step = decoder.step
        names = tuple(getattr(decoder, "shared_state", ()))
        if names and not isinstance(state, dict):
            raise ValueError(
                f"A decoder with `shared_state={names}` must return a dict from `start`. "
                f"Received: {type(state).__name__}"
            )
        self._names = names
        self.shared = {name: state[name] for name in names}
        self._changing = FlatTree(self._without_shared(state))
        self.leaves = [ops.convert_to_tensor(leaf) for leaf in self._changing.leaves]

    def _without_shared(self, state):
        if not self._names:
            return state
        return {name: value for name, value in state.items() if name not in self._names}

    def step(self, token_ids, leaves, shared, index):
        """One step of the decoder: float32 logits `(rows, vocabulary)` and the new leaves."""
        state = self._changing.pack(leaves)
        if self._names:
            state = {**state, **shared}
        logits, state = self._step(token_ids, state, index)
        leaves = FlatTree(self._without_shared(state)).leaves
        return ops.cast(logits, "float32"), leaves


def run_loop(condition, body, loop_vars, constants):
    """`while condition(*loop_vars): loop_vars = body(constants, *loop_vars)`.

    Args:
        condition: Tells whether to go on, from the loop variables and `constants`, as `body`.
        body: Makes the new loop variables, a tuple.
        loop_vars: A tuple of trees of tensors.
        constants: A tree of what else `body` needs of tensors that differ from call to call.

    Returns:
        The last loop variables.
    """
    if keras.backend.backend() != "torch":
        return ops.while_loop(
            lambda *variables: condition(constants, *variables),
            lambda *variables: body(constants, *variables),
            loop_vars,
        )
    while bool(condition(constants, *loop_vars)):
        loop_vars = body(constants, *loop_vars)
    return loop_vars


def layers_of(decoder):
    """The Keras layers a decoder is or holds, in lists and dicts too."""
    if isinstance(decoder, keras.Layer):
        return [decoder]
    return [item for item in _held_by(decoder) if isinstance(item, keras.Layer)]


def variables_of(decoder):
    """The Keras variables a decoder computes with, each once."""
    found = getattr(decoder, "variables", None)
    if found is None or callable(found):
        found = [item for item in _held_by(decoder) if isinstance(item, keras.Variable)]
        for layer in layers_of(decoder):
            found.extend(layer.variables)
    return list({id(variable): variable for variable in found}.values())


def _held_by(decoder):
    for value in getattr(decoder, "__dict__", {}).values():
        if isinstance(value, dict):
            value = list(value.values())
        yield from value if isinstance(value, list | tuple) else (value,)
