"""BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding.

Jacob Devlin, Ming-Wei Chang, Kenton Lee, Kristina Toutanova, NAACL 2019, arXiv:1810.04805.

Implemented: the encoder of section 3 with its sizes, its three embeddings (figure 2) and the pooled
[CLS]; the hidden states for the feature-based use of section 5.3. The heads of pre-training and
fine-tuning are in `bert_heads`, the recipe (masking, pairs, schedule) in `kerasmodels.data` and
`kerasmodels.training`.

As in the authors' program: normalization and dropout after the sum of the embeddings, LayerNorm
with epsilon 1e-12, all kernels and embeddings from a normal distribution of deviation 0.02 that is
cut off at two deviations. GELU is exact by default, as the program had it at first; later it had
the approximation by tanh, which `activation="gelu_tanh"` is.
"""

from collections.abc import Iterable

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.layers import (
    LayerNormalization,
    PositionEmbedding,
    SegmentEmbedding,
    TokenEmbedding,
    TransformerEncoderBlock,
)
from kerasmodels.layers.feed_forward import get_activation, serialize_activation
from kerasmodels.models.bert_checks import (
    check_positive,
    check_rates,
    check_sizes,
)
from kerasmodels.models.bert_model import BertFeatures, _BertModel

# Section 3, "Model Architecture": base and large; the vocabulary is that of the uncased models.
# The small ones are those that Turc et al. 2019 ("Well-Read Students Learn Better",
# arXiv:1908.08962, table 1) published with the authors' program: heads of 64, feed-forward of 4H.
_SIZE = ("num_layers", "num_heads", "hidden_dim", "intermediate_dim")
SIZES = {
    "bert_tiny": (2, 2, 128, 512),
    "bert_mini": (4, 4, 256, 1024),
    "bert_small": (4, 8, 512, 2048),
    "bert_medium": (8, 8, 512, 2048),
    "bert_base": (12, 12, 768, 3072),
    "bert_large": (24, 16, 1024, 4096),
}
SIZES = {
    name: {"vocabulary_size": 30522, **dict(zip(_SIZE, values, strict=True))}
    for name, values in SIZES.items()
}


def truncated_normal(stddev):
    """The initializer of all kernels and embeddings, a new one for each."""
    return keras.initializers.TruncatedNormal(stddev=stddev)


@keras.saving.register_keras_serializable(package="kerasmodels")
class Bert(_BertModel):
    """BERT's encoder: tokens in, a vector for each token and one for the whole out.

    Inputs, a dictionary: `token_ids (batch, length)`, integers that begin with [CLS];
    `segment_ids (batch, length)`, 0 for the first sentence and 1 for the second, or `None`: all 0;
    `padding_mask (batch, length)`, boolean or 0/1, 1 = keep, or `None`: all is real.

    Outputs, a dictionary in the compute dtype: `sequence_output (batch, length, hidden_dim)`, the
    last layer's hidden states, and `pooled_output (batch, hidden_dim)`, those of [CLS] through a
    dense layer and tanh.

    Args:
        vocabulary_size: Number of word pieces.
        num_layers: L, number of encoder blocks.
        num_heads: A, number of attention heads. It must divide `hidden_dim`.
        hidden_dim: H.
        intermediate_dim: Size of the feed-forward networks, in the paper 4H.
        dropout: Of the embeddings and of each sub-layer's output.
        attention_dropout: Of the attention weights.
        activation: Of the feed-forward networks: `"gelu"` (exact), `"gelu_tanh"`, or another name.
        max_sequence_length: Number of learned positions.
        num_segments: Number of segments.
        layer_norm_epsilon: Of each LayerNorm.
        initializer_range: The deviation of the random weights. The authors' 0.02 suits their width
            of 768 and more; narrow models begin to learn sooner with more,
            `0.02 * (768 / hidden_dim) ** 0.5`.
        pooler: Whether there is a pooled output. Models for each token do without it.
        dtype: Dtype or policy, such as `"mixed_bfloat16"`.
        name: Name of the model.

    Raises:
        ValueError: At construction for sizes that do not fit one another. In a call as in `fit` and
            its kin, streams of data included: ids outside the vocabulary or the segments, more
            tokens than positions, an empty batch, or a mask that does not fit.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    inputs = {"token_ids": np.array([[101, 7, 8, 102]]), "segment_ids": None, "padding_mask": None}
    bert(inputs)["sequence_output"]  # (1, 4, 64)
    bert(inputs)["pooled_output"]  # (1, 64)
    ```
    """

    @takes_numpy_numbers
    def __init__(
        self,
        vocabulary_size,
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        intermediate_dim=3072,
        dropout=0.1,
        attention_dropout=0.1,
        activation="gelu",
        max_sequence_length=512,
        num_segments=2,
        layer_norm_epsilon=1e-12,
        initializer_range=0.02,
        pooler=True,
        dtype=None,
        name=None,
    ):
        sizes = dict(
            vocabulary_size=vocabulary_size,
            num_layers=num_layers,
            num_heads=num_heads,
            hidden_dim=hidden_dim,
            intermediate_dim=intermediate_dim,
            max_sequence_length=max_sequence_length,
            num_segments=num_segments,
        )
        sizes = check_sizes(**sizes)
        vocabulary_size, hidden_dim = sizes["vocabulary_size"], sizes["hidden_dim"]
        activation = get_activation(activation)
        check_positive(initializer_range=initializer_range, layer_norm_epsilon=layer_norm_epsilon)
        check_rates(dropout=dropout, attention_dropout=attention_dropout)
        if not isinstance(pooler, bool):
            raise ValueError(f"`pooler` must be True or False. Received: pooler={pooler!r}")
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())

        # === The parts ===
        token_embedding = TokenEmbedding(
            vocabulary_size,
            hidden_dim,
            scale=False,
            initializer=truncated_normal(initializer_range),
            dtype=policy,
            name="token_embedding",
        )
        segment_embedding = SegmentEmbedding(
            num_segments,
            truncated_normal(initializer_range),
            dtype=policy,
            name="segment_embedding",
        )
        position_embedding = PositionEmbedding(
            max_sequence_length,
            truncated_normal(initializer_range),
            dtype=policy,
            name="position_embedding",
        )
        embedding_norm = LayerNormalization(
            epsilon=layer_norm_epsilon, dtype=policy, name="embedding_norm"
        )
        embedding_dropout = keras.layers.Dropout(dropout, dtype=policy, name="embedding_dropout")
        encoder_blocks = [
            TransformerEncoderBlock(
                num_heads,
                intermediate_dim,
                dropout=dropout,
                attention_dropout=attention_dropout,
                activation=activation,
                layer_norm_epsilon=layer_norm_epsilon,
                kernel_initializer=truncated_normal(initializer_range),
                dtype=policy,
                name=f"encoder_block_{i}",
            )
            for i in range(num_layers)
        ]
        pooler_dense = None
        if pooler:
            pooler_dense = keras.layers.Dense(
                hidden_dim,
                activation="tanh",
                kernel_initializer=truncated_normal(initializer_range),
                dtype=policy,
                name="pooler",
            )

        # === The model (figure 2, section 3) ===
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        segment_ids = keras.Input((None,), dtype="int32", name="segment_ids", optional=True)
        padding_mask = keras.Input((None,), dtype="bool", name="padding_mask", optional=True)

        def encode(training=None):
            x = token_embedding(token_ids)  # (batch, length, hidden)
            x = position_embedding(segment_embedding(x, segment_ids))
            states = [embedding_dropout(embedding_norm(x), training=training)]
            for block in encoder_blocks:
                states.append(block(states[-1], padding_mask=padding_mask, training=training))
            return states

        states = encode()
        x = states[-1]
        outputs = {"sequence_output": x}
        if pooler:
            outputs["pooled_output"] = pooler_dense(x[:, 0])  # (batch, hidden)
        inputs = (token_ids, segment_ids, padding_mask)
        super().__init__(inputs={x.name: x for x in inputs}, outputs=outputs, name=name)

        self.token_embedding = token_embedding
        self.segment_embedding = segment_embedding
        self.position_embedding = position_embedding
        self.embedding_norm = embedding_norm
        self.embedding_dropout = embedding_dropout
        self.encoder_blocks = encoder_blocks
        self.pooler = pooler_dense
        self.tokenizer = None  # of the preset
        self._states, self._encode = states, encode
        self._keep_arguments(
            policy,
            **sizes,
            dropout=dropout,
            attention_dropout=attention_dropout,
            activation=activation,
            layer_norm_epsilon=layer_norm_epsilon,
            initializer_range=initializer_range,
        )

    # === Inside ===

    def hidden_states(self, inputs):
        """What every layer hands on.

        Args:
            inputs: As the model takes them.

        Returns:
            A list of `num_layers + 1` numpy arrays `(batch, length, hidden_dim)`: the sum of the
            embeddings, normalized, then the output of each block.
        """
        self._check_keys(inputs, must=True)
        self._check(inputs)
        states = keras.Model(self.input, self._states)(inputs)
        return [ops.convert_to_numpy(state) for state in states]

    def attention_scores(self, inputs):
        """The attention weights of every layer and head, for `plots.attention_map`.

        Args:
            inputs: As the model takes them.

        Returns:
            A list of numpy arrays, one a layer: `(batch, heads, length, length)`, what each
            position (third axis) reads from each other.
        """
        self._check_keys(inputs, must=True)
        self._check(inputs)
        mask, scores = inputs.get("padding_mask"), []
        mask = None if mask is None else ops.convert_to_tensor(mask)
        x = keras.Model(self.input, self._states[0])(inputs)
        for block in self.encoder_blocks:
            x, weights = block(x, padding_mask=mask, return_attention_scores=True)
            scores.append(ops.convert_to_numpy(weights))
        return scores

    def features(self, layers=(-4, -3, -2, -1)):
        """A model of the hidden states of some layers, joined: section 5.3, table 7.

        "Concat Last Four Hidden" was the best of the feature-based ways there. The weights are
        shared with this model, and `bert.trainable = False` freezes them under a head of one's own.
        Dropout never acts, so that a text has the same features in every epoch.

        Args:
            layers: Which of the `num_layers + 1` hidden states (see `hidden_states`), counted from
                0, the embeddings, or from -1, the last layer.

        Returns:
            A `keras.Model` of the same inputs; its output is
            `(batch, length, hidden_dim * len(layers))`.

        Raises:
            ValueError: If the model has no such layer.

        Example:
        ```python
        import keras
        from kerasmodels import models

        bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
        bert.trainable = False
        features = bert.features(layers=(-2, -1))
        tags = keras.layers.Dense(9)(features.output)
        tagger = keras.Model(features.input, tags)
        ```
        """
        layers, count = list(layers) if isinstance(layers, Iterable) else [None], len(self._states)
        whole = all(isinstance(i, int | np.integer) for i in layers)
        if not layers or not whole or any(not -count <= i < count for i in layers):
            raise ValueError(
                f"`layers` must be integers in [{-count}, {count}), the embeddings and "
                f"{self.num_layers} layers. Received: layers={layers}"
            )
        states = self._encode(training=False)
        states = [states[i] for i in layers]
        output = states[0] if len(states) == 1 else ops.concatenate(states, axis=-1)
        features = BertFeatures(self.input, output, name=f"{self.name}_features")
        features.tokenizer = self.tokenizer
        return features

    # === Saving ===

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a published model.

        Args:
            preset: A folder as transformers writes it for BERT, with or without a head;
                `"hf://organisation/name"` (`"hf://google-bert/bert-base-uncased"`); a folder of the
                paper's program, with `bert_config.json` and `bert_model.ckpt`, for which TensorFlow
                must be installed; or a size: `"bert_base"`, `"bert_large"`, and the small
                `"bert_tiny"`, `"bert_mini"`, `"bert_small"`, `"bert_medium"`. The program's
                `"gelu"` is read as the exact one, as transformers does; some of its versions had
                the approximation, which `activation="gelu_tanh"` is.
            load_weights: Whether to load the weights. The named sizes have none: say `False`.
            **kwargs: Constructor's arguments that replace the preset's. Without `pooler` the model
                has one if the preset's weights have.

        Returns:
            The model. Its `tokenizer` is that of the folder, or `None`.

        Raises:
            FileNotFoundError: If a folder or one of its files is not there.
            ValueError: If the preset is of another family, a file is truncated or corrupt, its
                tensors do not fit, or its tokenizer has more tokens than the embedding.
            ImportError: If the package that reads the weights is not installed.
        """
        return cls._load(preset, SIZES, load_weights, kwargs)

    def get_config(self):
        """Returns the constructor's arguments, and what was changed in single layers."""
        return {
            **super().get_config(),
            "activation": serialize_activation(self.activation),
            "pooler": self.pooler is not None,
        }
