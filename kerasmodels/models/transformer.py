"""Attention Is All You Need.

Ashish Vaswani, Noam Shazeer, Niki Parmar, Jakob Uszkoreit, Llion Jones, Aidan N. Gomez, Lukasz
Kaiser, Illia Polosukhin, NeurIPS 2017, arXiv:1706.03762.

Implemented: the encoder-decoder of section 3 (figure 1), post-norm as in the paper, one matrix for
both embeddings and the output (section 3.4), sinusoidal or learned positions (section 3.5), the
sizes of table 3 and section 6.3, and decoding with a cache. The recipe of section 5 (schedule,
optimizer, smoothing, averaging) is in `kerasmodels.training`, beam search (section 6.1) in
`kerasmodels.decoding`.

Departures, all off by default: pre-norm, two vocabularies, dropout on attention weights, a bias on
the logits and sinusoids in halves (as the Marian checkpoints want them).
"""

import keras
import numpy as np
from keras import ops

from kerasmodels import checkpoints, decoding
from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.decoding.inputs import as_array
from kerasmodels.layers import (
    LayerNormalization,
    LogitBias,
    TokenEmbedding,
    TransformerDecoderBlock,
    TransformerEncoderBlock,
)
from kerasmodels.layers.feed_forward import get_activation, serialize_activation
from kerasmodels.layers.positions import position_layers
from kerasmodels.models.base import BaseModel
from kerasmodels.models.named_inputs import NamedInputs, refuse_class_weight
from kerasmodels.token_rules import TokenRules
from kerasmodels.training.input_checks import check_labels

# Table 3: rows "base" and "big"; vocabulary of section 5.1 (en-de byte pairs). Section 6.3 gives 4
# layers of 1024 for parsing, with the 16,000 tokens of its WSJ-only setting, and says nothing of
# heads and feed-forward, for which "big" stands. "tiny" is ours, for laptops and tests.
_SIZE = ("vocabulary_size", "num_layers", "num_heads", "hidden_dim", "intermediate_dim", "dropout")
SIZES = {
    "transformer_tiny": (8000, 2, 4, 128, 512, 0.1),
    "transformer_base": (37000, 6, 8, 512, 2048, 0.1),
    "transformer_big": (37000, 6, 16, 1024, 4096, 0.3),
    "transformer_parsing": (16000, 4, 16, 1024, 4096, 0.1),
}
SIZES = {name: dict(zip(_SIZE, values, strict=True)) for name, values in SIZES.items()}

# What a model says of its tokens, and what published ones say besides: how `generate` searches
# when it is not told.
_RULES = tuple(TokenRules().get_config())
_BEAM = ("num_beams", "length_penalty", "length_rule")
_SEARCH = ("max_length", *_BEAM)


@keras.saving.register_keras_serializable(package="kerasmodels")
class Transformer(NamedInputs, BaseModel):
    """The encoder-decoder Transformer.

    Inputs, a dictionary (masks are boolean or 0/1, 1 = keep, or `None`: all is real):
    `encoder_token_ids (batch, source)`, `encoder_padding_mask (batch, source)`,
    `decoder_token_ids (batch, target)`: the target shifted right, beginning with the start token,
    and `decoder_padding_mask (batch, target)`. Output: float32 logits
    `(batch, target, vocabulary_size)`.

    Args:
        vocabulary_size: Number of tokens: one number, then both embeddings and the output are one
            matrix, or a pair (source, target), then the target's embedding is the output's.
        num_layers: N, one number or a pair (encoder, decoder).
        num_heads: h, likewise. It must divide `hidden_dim`.
        hidden_dim: d_model.
        intermediate_dim: d_ff, one number or a pair.
        dropout: P_drop, of each sub-layer's output and of embedding + position (section 5.4).
        attention_dropout: Of the attention weights.
        activation: Of the feed-forward network.
        normalize_first: Pre-norm instead of the paper's post-norm.
        layer_norm_epsilon: Of each LayerNorm.
        positions: `"sinusoidal"` (section 3.5), `"sinusoidal_halves"` or `"learned"`.
        max_sequence_length: Number of learned positions; with sinusoids it must be `None`.
        scale_embeddings: Whether embeddings are multiplied by `sqrt(hidden_dim)` (section 3.4).
        output_bias: Whether the logits have a bias.
        generation: The tokens that pad, start and end a target, and how `generate` searches: the
            `TokenRules` of the tokenizer (`tokenizer.token_rules`), or a dictionary of their
            arguments, where these differ from `TokenRules()`. With `num_beams`, `length_penalty`
            and `length_rule` in the dictionary, `generate` uses this beam search when no other is
            given, with `max_length` that length.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Which targets count: in the losses and metrics of `training`, none that is the pad id (unless
    that is an end token too), none behind `decoder_padding_mask`, and none whose `sample_weight`
    is 0. This holds with and without sample weights, in `metrics` and `weighted_metrics` alike.
    Keras's own losses and metrics read `sample_weight` alone, as Keras says.

    Raises:
        ValueError: For sizes that do not fit one another, unknown positions, or learned positions
            without a length. In `fit` and `evaluate`, if the batches were made by a
            `data.BucketedPairs` with other token rules than the model's.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models

    model = models.Transformer(1000, num_layers=2, num_heads=4, hidden_dim=64, intermediate_dim=256)
    inputs = {
        "encoder_token_ids": np.array([[5, 6, 7]]),
        "encoder_padding_mask": None,
        "decoder_token_ids": np.array([[1, 8, 9]]),
        "decoder_padding_mask": None,
    }
    logits = model(inputs)  # (1, 3, 1000)
    ids = model.generate(inputs, max_length=20)  # (1, 20)
    ```
    """

    # Of the decoding state: constant per source, so a search neither copies nor reorders it.
    shared_state = ("memory",)

    @takes_numpy_numbers
    def __init__(
        self,
        vocabulary_size,
        num_layers=6,
        num_heads=8,
        hidden_dim=512,
        intermediate_dim=2048,
        dropout=0.1,
        attention_dropout=0.0,
        activation="relu",
        normalize_first=False,
        layer_norm_epsilon=1e-5,
        positions="sinusoidal",
        max_sequence_length=None,
        scale_embeddings=True,
        output_bias=False,
        generation=None,
        dtype=None,
        name=None,
    ):
        source_size, target_size = _pair("vocabulary_size", vocabulary_size)
        layers_, heads = _pair("num_layers", num_layers), _pair("num_heads", num_heads)
        intermediate = _pair("intermediate_dim", intermediate_dim)
        for count in heads:
            if hidden_dim % count:
                raise ValueError(
                    "`hidden_dim` must be divisible by `num_heads`. "
                    f"Received: hidden_dim={hidden_dim}, num_heads={num_heads}"
                )
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        def embedding(size, name):
            return TokenEmbedding(size, hidden_dim, scale=scale_embeddings, dtype=policy, name=name)

        # === The parts ===
        if isinstance(vocabulary_size, (tuple, list)):
            encoder_embedding = embedding(source_size, "encoder_embedding")
            decoder_embedding = embedding(target_size, "decoder_embedding")
        else:
            encoder_embedding = decoder_embedding = embedding(source_size, "embedding")
        encoder_position, decoder_position = position_layers(positions, max_sequence_length, policy)
        block = dict(
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=get_activation(activation),
            normalize_first=normalize_first,
            layer_norm_epsilon=layer_norm_epsilon,
        )

        def stack(block_class, side, name):
            sizes = heads[side], intermediate[side]
            return [
                block_class(*sizes, **block, dtype=policy, name=f"{name}_block_{i}")
                for i in range(layers_[side])
            ]

        encoder_blocks = stack(TransformerEncoderBlock, 0, "encoder")
        decoder_blocks = stack(TransformerDecoderBlock, 1, "decoder")

        def norm(name):
            # Post-norm blocks end with their own LayerNorm; a pre-norm stack needs one at its end.
            if not normalize_first:
                return None
            return LayerNormalization(epsilon=layer_norm_epsilon, dtype=policy, name=name)

        parts = dict(
            encoder_embedding=encoder_embedding,
            decoder_embedding=decoder_embedding,
            encoder_position=encoder_position,
            decoder_position=decoder_position,
            encoder_dropout=keras.layers.Dropout(dropout, dtype=policy, name="encoder_dropout"),
            decoder_dropout=keras.layers.Dropout(dropout, dtype=policy, name="decoder_dropout"),
            encoder_blocks=encoder_blocks,
            decoder_blocks=decoder_blocks,
            encoder_norm=norm("encoder_norm"),
            decoder_norm=norm("decoder_norm"),
            output_bias=LogitBias(dtype=policy, name="output_bias") if output_bias else None,
        )

        # === The model (figure 1) ===
        def tokens_and_mask(side):
            ids = keras.Input((None,), dtype="int32", name=f"{side}_token_ids")
            name = f"{side}_padding_mask"
            return ids, keras.Input((None,), dtype="bool", name=name, optional=True)

        encoder_ids, encoder_mask = tokens_and_mask("encoder")
        decoder_ids, decoder_mask = tokens_and_mask("decoder")
        x = encoder_position(encoder_embedding(encoder_ids))  # (batch, source, hidden)
        x = parts["encoder_dropout"](x)
        for layer in encoder_blocks:
            x = layer(x, padding_mask=encoder_mask)
        encoded = parts["encoder_norm"](x) if normalize_first else x
        x = decoder_position(decoder_embedding(decoder_ids))  # (batch, target, hidden)
        x = parts["decoder_dropout"](x)
        for layer in decoder_blocks:
            masks = dict(decoder_padding_mask=decoder_mask, encoder_padding_mask=encoder_mask)
            x = layer(x, encoded, **masks)
        x = parts["decoder_norm"](x) if normalize_first else x
        logits = decoder_embedding(x, reverse=True)  # (batch, target, vocabulary)
        if output_bias:
            logits = parts["output_bias"](logits)
        if policy.compute_dtype != "float32":
            logits = keras.layers.Activation("linear", dtype="float32", name="logits")(logits)
        inputs = (encoder_ids, encoder_mask, decoder_ids, decoder_mask)
        super().__init__(inputs={x.name: x for x in inputs}, outputs=logits, name=name)

        for part, layer in parts.items():
            setattr(self, part, layer)
        self.tokenizer = None  # of the preset
        self._keep_arguments(
            policy,
            vocabulary_size=vocabulary_size,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            **block,
            positions=positions,
            max_sequence_length=max_sequence_length,
            scale_embeddings=scale_embeddings,
            generation=_generation(generation),
        )

    @property
    def input_limits(self):
        """What the tables of the model have room for; see `ChecksInputs`."""
        sizes, length = _pair("vocabulary_size", self.vocabulary_size), self.max_sequence_length
        sides = zip(("encoder_token_ids", "decoder_token_ids"), sizes, strict=True)
        return {name: (size, length) for name, size in sides}

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        if len(getattr(targets, "shape", ())) == 2:  # else one-hot
            _, size = _pair("vocabulary_size", self.vocabulary_size)
            check_labels("y", targets, size, "the vocabulary", self._loss_of("y", loss))

    @property
    def token_rules(self):
        """The `TokenRules` of the target: what batches, searches and callbacks take."""
        return TokenRules(**{name: self.generation[name] for name in _RULES})

    def _check_class_weight(self, class_weight, y):
        refuse_class_weight(class_weight, y)

    def _check_source(self, source, with_targets):
        super()._check_source(source, with_targets)
        rules = getattr(source, "token_rules", None)
        if isinstance(rules, TokenRules):
            self.token_rules.check_same_ids(rules, f"The batches of {type(source).__name__}")

    def _check_arrays(self, arrays):
        super()._check_arrays(arrays)
        rules, mask = self.token_rules, arrays.get("decoder_padding_mask")
        if rules.start_id != rules.pad_id or mask is None or mask.ndim != 2:
            return
        # The trap of a mask that was made of `token_ids != pad_id`.
        kept = mask.astype(bool)
        unseen = kept.any(axis=1) & ~kept[:, 0]
        if unseen.any():
            raise ValueError(
                "`decoder_padding_mask` must keep the first position, which holds the start token; "
                f"here that has the number of the pad id, {rules.pad_id}. Received: row "
                f"{unseen.argmax()} that leaves it out"
            )

    def _counted(self, x, y):
        """Which targets are tokens; see `CountsTokens`."""
        rules, masks = self.token_rules, []
        if rules.pad_id not in rules.end_ids:
            masks.append(ops.not_equal(y, rules.pad_id))
        if isinstance(x, dict) and x.get("decoder_padding_mask") is not None:
            masks.append(x["decoder_padding_mask"])
        return masks

    # === Decoding ===

    def generate(self, inputs, search=None, max_length=None, return_scores=False):
        """Writes the target for a batch of sources.

        Several threads may call this at the same time, as long as none of them trains the model.

        Args:
            inputs: A dictionary with `encoder_token_ids (batch, source)`, padded on either side,
                and `encoder_padding_mask` (`None`: all is real), or the ids alone as an array;
                then the pad id makes the mask.
            search: A search of `kerasmodels.decoding`. Defaults to the beam search that
                `generation` describes, else `GreedySearch()`.
            max_length: Greatest number of tokens, the end token included. Defaults to that of
                `generation`, else to the length of the longest source plus 50 (section 6.1),
                within learned positions.
            return_scores: Whether to return the search's scores too.

        Returns:
            int32 array `(batch, max_length)`, padded after the end token, without the start token;
            `(batch, num_return, max_length)` when the search returns several. With scores:
            `(ids, scores)`.

        Raises:
            ValueError: For an empty source, ids outside the vocabulary, a mask of another shape,
                or a `max_length` that is not positive or beyond learned positions.
        """
        self._refuse_text(inputs)
        if not isinstance(inputs, dict):
            token_ids = as_array("inputs", inputs)
            mask = token_ids != self.generation["pad_id"]
            inputs = {"encoder_token_ids": token_ids, "encoder_padding_mask": mask}
        beam = {key: self.generation[key] for key in _BEAM if key in self.generation}
        if search is None and beam:
            search = decoding.BeamSearch(**beam)
        if max_length is None:
            max_length = self.generation.get("max_length")
        return decoding.generate(self, inputs, search, max_length, return_scores=return_scores)

    def start(self, inputs, max_length):
        """Encodes the sources and makes room for the target: the state before the first step.

        Args:
            inputs: `encoder_token_ids (batch, source)` and `encoder_padding_mask`, or `None`.
            max_length: Greatest number of steps.

        Returns:
            `{"memory": ..., "cache": ...}`, trees of tensors with the batch as first axis.
        """
        token_ids, mask = inputs["encoder_token_ids"], inputs.get("encoder_padding_mask")
        token_ids = ops.convert_to_tensor(token_ids, dtype="int32")
        if mask is None:
            mask = ops.ones(ops.shape(token_ids), dtype="bool")
        mask = ops.cast(mask, "bool")
        encoded, _ = self._encode(token_ids, mask)  # (batch, source, hidden)
        batch_size = ops.shape(token_ids)[0]
        return {
            "memory": {
                "cross": [b.cross_attention.project_memory(encoded) for b in self.decoder_blocks],
                "padding_mask": mask,
            },
            "cache": [
                b.self_attention.new_cache(batch_size, max_length) for b in self.decoder_blocks
            ],
        }

    def step(self, token_ids, state, index):
        """One step of decoding.

        Args:
            token_ids: The tokens before, `(rows,)`; rows may be a multiple of the memory's, the
                hypotheses of a source adjacent.
            state: From `start` or the last step.
            index: How many steps were made, an integer or a scalar int32 tensor.

        Returns:
            float32 logits `(rows, vocabulary)` and the new state.
        """
        memory, caches = state["memory"], []
        x = self.decoder_embedding(ops.expand_dims(token_ids, 1))  # (rows, 1, hidden)
        x = self.decoder_position(x, start_index=index)
        for block, cache, cross in zip(
            self.decoder_blocks, state["cache"], memory["cross"], strict=True
        ):
            x, cache = block(
                x,
                encoder_padding_mask=memory["padding_mask"],
                cache={"self": cache, "cross": cross},
                cache_index=index,
            )
            caches.append(cache["self"])
        return self._logits(x)[:, 0], {"memory": memory, "cache": caches}

    def attention_scores(self, inputs):
        """The attention weights of every layer and head, for plots.

        Args:
            inputs: As the model takes them.

        Returns:
            `{"encoder": [...], "decoder": [...], "cross": [...]}`, one numpy array a layer:
            `(batch, heads, source, source)`, `(batch, heads, target, target)` and
            `(batch, heads, target, source)`.
        """
        self._check_keys(inputs, must=True)
        self._check(inputs)
        inputs = {k: v if v is None else ops.convert_to_tensor(v) for k, v in inputs.items()}
        mask = inputs.get("encoder_padding_mask")
        encoded, encoder = self._encode(
            inputs["encoder_token_ids"], mask, return_attention_scores=True
        )
        x = self.decoder_position(self.decoder_embedding(inputs["decoder_token_ids"]))
        decoder, cross = [], []
        for block in self.decoder_blocks:
            x, own, other = block(
                x,
                encoded,
                decoder_padding_mask=inputs.get("decoder_padding_mask"),
                encoder_padding_mask=mask,
                return_attention_scores=True,
            )
            decoder.append(own)
            cross.append(other)
        scores = {"encoder": encoder, "decoder": decoder, "cross": cross}
        return {k: [ops.convert_to_numpy(s) for s in v] for k, v in scores.items()}

    def _encode(self, token_ids, mask, return_attention_scores=False):
        x, scores = self.encoder_position(self.encoder_embedding(token_ids)), []
        for block in self.encoder_blocks:
            x = block(x, padding_mask=mask, return_attention_scores=return_attention_scores)
            if return_attention_scores:
                x, weights = x
                scores.append(weights)
        return (x if self.encoder_norm is None else self.encoder_norm(x)), scores

    def _logits(self, x):
        x = x if self.decoder_norm is None else self.decoder_norm(x)
        logits = self.decoder_embedding(x, reverse=True)
        logits = logits if self.output_bias is None else self.output_bias(logits)
        return ops.cast(logits, "float32")

    # === Saving ===

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a published model.

        Args:
            preset: A folder as transformers writes it for Marian models, `"hf://organisation/name"`
                (`"hf://Helsinki-NLP/opus-mt-en-de"`), or a size named in the paper:
                `"transformer_base"`, `"transformer_big"`, `"transformer_parsing"`, or our
                `"transformer_tiny"`.
            load_weights: Whether to load the weights. The named sizes have none: say `False`.
            **kwargs: Constructor's arguments that replace the preset's.

        Returns:
            The model. Its `tokenizer` is that of the folder, or `None`.

        Raises:
            FileNotFoundError: If a folder or one of its files is not there.
            ValueError: If the preset is of another family, or its tensors do not fit.
        """
        return checkpoints.load_preset(
            cls, preset, checkpoints.marian.FAMILY, SIZES, load_weights=load_weights, **kwargs
        )

    def save_to_preset(self, folder):
        """Writes a folder that `from_preset` and transformers (`MarianMTModel`) read.

        Args:
            folder: Where to write; what was there before a failed save is still there after it.

        Raises:
            ValueError: If the model has parts that Marian has not.
        """
        checkpoints.save_preset(self, folder, checkpoints.marian.FAMILY)

    def get_config(self):
        """Returns the constructor's arguments, and what was changed in single layers."""
        return {
            **super().get_config(),
            "activation": serialize_activation(self.activation),
            "output_bias": self.output_bias is not None,
            "generation": dict(self.generation),
        }


def _generation(given):
    """The rules and the search in full, in numbers that a JSON file can hold."""
    given = given.get_config() if isinstance(given, TokenRules) else dict(given or {})
    unknown = set(given) - set(_RULES) - set(_SEARCH)
    if unknown:
        raise ValueError(
            f"`generation` takes the keys {[*_RULES, *_SEARCH]}. Received: {sorted(unknown)}"
        )
    rules = TokenRules(**{name: given[name] for name in _RULES if name in given})
    search = {name: np.asarray(given[name]).item() for name in _SEARCH if name in given}
    return {**rules.get_config(), **search}


def _pair(name, value):
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(int(x) != x or x < 1 for x in pair):
        raise ValueError(
            f"`{name}` must be a positive integer or a pair (encoder, decoder). Received: {value}"
        )
    return pair
