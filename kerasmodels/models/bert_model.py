"""What BERT's encoder and its heads share: presets, and checks of what they are given."""

import keras

from kerasmodels import checkpoints
from kerasmodels.data import BertTokenizer
from kerasmodels.layers import PositionEmbedding, SegmentEmbedding, TokenEmbedding
from kerasmodels.models.base import BaseModel
from kerasmodels.models.bert_checks import check_shapes, check_tokenizer
from kerasmodels.models.exported import ExportsItself
from kerasmodels.models.named_inputs import NamedInputs


class _BertInputs(NamedInputs):
    """BERT's inputs must fit one another."""

    def _check_arrays(self, arrays):
        super()._check_arrays(arrays)
        check_shapes(arrays)


class _BertModel(_BertInputs, BaseModel):
    """The base of the encoder and its heads."""

    _task = "encoder"  # its name in `checkpoints.bert`

    # === Checks, where arrays enter ===

    @property
    def input_limits(self):
        """What the tables of the model have room for; see `ChecksInputs`."""
        sizes = self._backbone()
        length = sizes.max_sequence_length
        limits = {
            "token_ids": (sizes.vocabulary_size, length),
            "segment_ids": (sizes.num_segments, length),
            "mask_positions": ("token_ids", None),
        }
        return {name: limit for name, limit in limits.items() if name in self.input}

    def _backbone(self):
        return self

    def _check_source(self, source, with_targets):
        super()._check_source(source, with_targets)
        size = getattr(getattr(source, "masking", None), "vocabulary_size", 0)
        if size > self._backbone().vocabulary_size:
            raise ValueError(
                f"The data has the ids of {size} tokens, and the model the embeddings of "
                f"vocabulary_size={self._backbone().vocabulary_size}"
            )

    # === Presets ===

    @classmethod
    def _load(cls, preset, sizes, load_weights, arguments):
        family = checkpoints.bert.family(cls._task, BertTokenizer)
        model = checkpoints.load_preset(cls, preset, family, sizes, load_weights, **arguments)
        backbone, tokenizer = model._backbone(), model.tokenizer
        if tokenizer is not None:
            check_tokenizer(tokenizer, backbone.vocabulary_size, f"preset={str(preset)!r}: ")
            most = backbone.max_sequence_length
            tokenizer.max_sequence_length = min(tokenizer.max_sequence_length or most, most)
            backbone.tokenizer = tokenizer
        return model

    def save_to_preset(self, folder, layout="transformers"):
        """Writes a folder that `from_preset` and the program of the layout read.

        Args:
            folder: Where to write; what was there before a failed save is still there after it.
            layout: `"transformers"`, or `"google"`: the TensorFlow checkpoint of the paper's
                program, with `bert_config.json` and `vocab.txt`. TensorFlow must be installed for
                that. The program computes `hidden_act="gelu"` exactly or by tanh, depending on its
                version; here it is the exact one, and the other is written as `"gelu_new"`.

        Raises:
            ValueError: If the tokenizer has more tokens than the embedding, the program of the
                layout has no such activation (Google's knows no other `layer_norm_epsilon` than
                1e-12 either), or `layout="google"` shall go into a folder with a `config.json`,
                which would be loaded in its place.
            ImportError: If `layout="google"` and TensorFlow is not installed.
        """
        family = checkpoints.bert.family(self._task, BertTokenizer)
        if self.tokenizer is not None:
            check_tokenizer(self.tokenizer, self._backbone().vocabulary_size)
        checkpoints.save_preset(self, folder, family, layout)


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertFeatures(ExportsItself, _BertInputs, keras.Model):
    """What `Bert.features` returns: a functional model that looks at what it is given."""

    @property
    def input_limits(self):
        """Those of the encoder, whose layers say them: a file of this model holds no more."""
        of = {type(layer): layer for layer in self.layers}
        length = of[PositionEmbedding].max_sequence_length
        return {
            "token_ids": (of[TokenEmbedding].vocabulary_size, length),
            "segment_ids": (of[SegmentEmbedding].num_segments, length),
        }
