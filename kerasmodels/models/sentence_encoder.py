"""A vector for a sentence: BERT with pooling, as in Sentence-BERT.

Nils Reimers, Iryna Gurevych, "Sentence-BERT: Sentence Embeddings using Siamese BERT-Networks",
EMNLP 2019, arXiv:1908.10084.

Implemented: the network of section 3 with the pooling MEAN (the paper's choice) or CLS, the
normalization to length 1 that models for search have today, and the folders of the authors'
library, sentence-transformers. Its training is left to a loss on the vectors.
"""

import json
import warnings
from numbers import Integral
from pathlib import Path

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.checkpoints import sentence_transformers
from kerasmodels.data import BertTokenizer
from kerasmodels.layers import MaskedAveragePooling
from kerasmodels.listing import strings_of
from kerasmodels.models.bert import SIZES
from kerasmodels.models.bert_heads import _BertHead, _start

POOLINGS = ("mean", "cls")
_SETTINGS = "sentence_settings.json"  # of a `.keras` file

# For `embed`. A batch has as many tokens as `batch_size` texts of this length: long texts come
# few at a time, which pads them less.
_TYPICAL_LENGTH = 64
_TEXTS_AT_A_TIME = 10_000  # that are split into pieces; these take more memory than their ids


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertSentenceEncoder(_BertHead):
    """BERT that gives a vector for a text; similar texts have similar vectors.

    Inputs: those of `Bert`. Output: float32 `(batch, hidden_dim)`. A row without any real token
    has a finite vector, too. `embed` takes strings. `save_to_preset` writes a folder that
    sentence-transformers loads, too, with the same vectors.

    Args:
        backbone: A `Bert`, or a dictionary of its constructor's arguments. Its pooler is not used.
        pooling: `"mean"` of the real tokens' hidden states, or `"cls"`, that of [CLS].
        normalize: Whether vectors have length 1, so that their products are cosines.
        dtype: Dtype or policy; pooling is computed in float32 whatever it is. Defaults to the
            backbone's.
        name: Name of the model.

    Attributes:
        tokenizer: The `data.BertTokenizer` of the preset, or `None`; another can be set.

    Raises:
        ValueError: If there is no such pooling. For bad data: what `Bert` refuses.

    Example:
    ```python
    from kerasmodels import models

    encoder = models.BertSentenceEncoder.from_preset("hf://sentence-transformers/all-MiniLM-L6-v2")
    texts = ["A cat sits on the mat.", "There is a cat.", "Rates were cut by a quarter point."]
    vectors = encoder.embed(texts)  # (3, 384)
    vectors @ vectors.T  # cosines
    ```
    """

    _task = "sentence_encoder"

    @takes_numpy_numbers
    def __init__(self, backbone, pooling="mean", normalize=True, dtype=None, name=None):
        if not isinstance(normalize, bool):
            raise ValueError(
                f"`normalize` must be True or False. Received: normalize={normalize!r}"
            )
        if pooling not in POOLINGS:
            raise ValueError(
                f"`pooling` must be one of {list(POOLINGS)}. Received: pooling={pooling!r}"
            )
        backbone, policy, sequence, _ = _start(backbone, dtype)
        if pooling == "mean":
            layer = MaskedAveragePooling(dtype="float32", name="pooling")
            x = layer(sequence, padding_mask=backbone.input["padding_mask"])
        else:
            x = ops.cast(sequence[:, 0], "float32")
        if normalize:
            x = keras.layers.UnitNormalization(dtype="float32", name="normalize")(x)
        super().__init__(inputs=backbone.input, outputs=x, name=name)  # (batch, hidden)
        self._set_up(backbone, policy, pooling=pooling, normalize=normalize)
        self.settings = {}  # of the preset, like the tokenizer
        self._warned = False

    def embed(self, texts, batch_size=32, max_length=None, truncation=None, show_progress=None):
        """Turns texts into vectors.

        Texts of similar length go together, so that little of a batch is padding; lengths are
        rounded up to few values, since TensorFlow and JAX compile for each.

        Several threads may call this at the same time, as long as none of them trains the model.

        Args:
            texts: A list of strings.
            batch_size: The most texts at a time. Long ones are fewer: at most 64 tokens times
                `batch_size` are in a batch, unless one text has more.
            max_length: The most tokens of a text, special ones included. By default the
                tokenizer's `max_sequence_length`, which a preset of sentence-transformers sets.
            truncation: What happens to a longer text. `True`: its end is cut off, as
                sentence-transformers does. `False`: an error. `None`: it is cut, and the first
                time a warning is given.
            show_progress: Whether a bar shows how many texts are done. `None`: where there is
                more than one batch and Keras's interactive logging is on.

        Returns:
            A float32 array `(len(texts), hidden_dim)`, in the order of the texts.

        Raises:
            ValueError: If there is no tokenizer, `texts` is no list of strings, `batch_size` is
                not a positive integer, a text is too long and `truncation=False`, `max_length` is
                above the positions that the backbone has
                or has no room for the special tokens, or the tokenizer does not fit the backbone.
        """
        rows = self._token_ids(texts, max_length, truncation)
        order, batches = _batches(
            np.array([len(row) for row in rows], "int64"),
            batch_size,
            self.backbone.max_sequence_length,
        )
        if show_progress is None:
            show_progress = len(batches) > 1 and keras.config.is_interactive_logging_enabled()
        progress = keras.utils.Progbar(len(rows), unit_name="text") if show_progress else None
        vectors = np.zeros((len(rows), self.backbone.hidden_dim), "float32")
        done = 0
        for count, shape in batches:
            places = order[done : done + count]
            token_ids = np.full(shape, self.tokenizer.pad_id, "int32")
            padding_mask = np.zeros(shape, bool)
            for i, place in enumerate(places):
                token_ids[i, : len(rows[place])] = rows[place]
                padding_mask[i, : len(rows[place])] = True
            inputs = {
                "token_ids": token_ids,
                "segment_ids": np.zeros(shape, "int32"),
                "padding_mask": padding_mask,
            }
            vectors[places] = self.predict_on_batch(inputs)[:count]
            done += count
            if progress:
                progress.update(done)
        return vectors

    def _token_ids(self, texts, max_length, truncation):
        """The ids of each text, special tokens around it: a list of integer arrays."""
        tokenizer, most = self.tokenizer, self.backbone.max_sequence_length
        if tokenizer is None:
            raise ValueError(
                "`embed` needs a tokenizer, and the model has none. Load a preset with one, or set "
                "`encoder.tokenizer` to the data.BertTokenizer of these weights"
            )
        texts = strings_of("texts", texts)
        whole = isinstance(max_length, Integral) and not isinstance(max_length, bool)
        if max_length is None:
            max_length = min(tokenizer.max_sequence_length or most, most)
        elif not whole or max_length not in range(2, most + 1):
            raise ValueError(
                "`max_length` must be an integer from 2, for the special tokens, to "
                f"max_sequence_length={most}. Received: max_length={max_length!r}"
            )
        if truncation not in (True, False, None):
            raise ValueError(f"`truncation` must be True, False or None. Received: {truncation!r}")
        rows, long = [], 0
        for start in range(0, len(texts), _TEXTS_AT_A_TIME):
            for ids in tokenizer.encode_batch(texts[start : start + _TEXTS_AT_A_TIME]):
                if len(ids) + 2 > max_length:
                    long += 1
                    if truncation is False:
                        raise ValueError(
                            f"Text {len(rows)} of `texts` has {len(ids) + 2} tokens, special ones "
                            f"included; at most {max_length} are allowed. `truncation=True` cuts it"
                        )
                ids = [tokenizer.cls_id, *ids[: max_length - 2], tokenizer.sep_id]
                rows.append(np.array(ids, "int32"))
        if long and truncation is None and not self._warned:
            self._warned = True
            warnings.warn(
                f"{long} of {len(rows)} texts are cut to {max_length} tokens. `truncation=True` "
                "cuts without this warning, which is not repeated; `truncation=False` makes it an "
                "error.",
                stacklevel=3,
            )
        return rows

    # === Saving ===

    def save_assets(self, folder):
        """Keras's hook: writes the tokenizer, and what the preset's folder said besides."""
        super().save_assets(folder)
        if self.settings:
            Path(folder, _SETTINGS).write_text(json.dumps(self.settings), encoding="utf-8")

    def load_assets(self, folder):
        """Keras's hook: reads what `save_assets` wrote."""
        super().load_assets(folder)
        path = Path(folder or "", _SETTINGS)
        if path.is_file():
            self.settings = json.loads(path.read_text(encoding="utf-8"))

    @classmethod
    def from_preset(cls, preset, load_weights=True, **kwargs):
        """Builds a published model.

        Args:
            preset: A folder of sentence-transformers or `"hf://organisation/name"`
                (`"hf://sentence-transformers/all-MiniLM-L6-v2"`): its pooling, its normalization,
                and where it cuts texts, which becomes the tokenizer's `max_sequence_length`. Or a
                BERT as `Bert.from_preset` takes it; as in sentence-transformers the vector is
                then the mean, not normalized. Or a size, as there.
            load_weights: Whether to load the weights. The named sizes have none: say `False`.
            **kwargs: Constructor's arguments that replace the preset's. `backbone` is a dictionary
                of those of `Bert`.

        Returns:
            The model. Its `tokenizer` is that of the folder, or `None`; its `settings` are the
            prompts and the similarity that the folder names, for `save_to_preset` to write again.

        Raises:
            FileNotFoundError: If a folder or one of its files is not there.
            ValueError: If the preset is of another family, pools in another way or has further
                modules, its tensors do not fit, or its tokenizer has more tokens than the
                embedding.
        """
        if preset in SIZES:
            return super().from_preset(preset, load_weights, **kwargs)
        folder, arguments, text, settings = sentence_transformers.read_folder(
            preset, load_weights, BertTokenizer.FILES
        )
        model = cls._load(folder, SIZES, load_weights, {**arguments, **kwargs})
        model.settings = settings
        tokenizer, most = model.tokenizer, model.backbone.max_sequence_length
        if tokenizer is not None:
            if text["lowercase"] and not tokenizer.lowercase:
                raise ValueError(
                    f"preset={str(preset)!r}: {sentence_transformers.TEXT} has do_lower_case=true "
                    "for a tokenizer that keeps case; only false can be read"
                )
            limit = text["max_length"] or tokenizer.max_sequence_length
            tokenizer.max_sequence_length = min(limit or most, most)
        return model


def _batches(lengths, batch_size, max_length):
    """The order in which rows are encoded, the longest first, and the batches of it.

    Returns:
        The places of the rows in order, and a list of `(count, shape)`: how many come next, and
        the shape of their batch. The last one may have more rows than texts.
    """
    if isinstance(batch_size, bool) or not isinstance(batch_size, Integral) or batch_size < 1:
        raise ValueError(
            f"`batch_size` must be a positive integer. Received: batch_size={batch_size!r}"
        )
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        width = int(lengths[order[start]])
        width = min(_round_up(width), max_length)
        rows = min(batch_size, max(1, batch_size * _TYPICAL_LENGTH // width))
        count = min(rows, len(order) - start)
        # Few shapes of the last one, too: a power of two.
        rows = min(rows, 1 << (count - 1).bit_length())
        batches.append((count, (rows, width)))
        start += count
    return order, batches


def _round_up(length):
    """8, 16, ..., 64, 80, ..., 128, 160, ..., 256, 320: at most a quarter more from 32 on.

    JAX compiles anew for each: 20 up to 512.
    """
    step = max(8, (1 << (length - 1).bit_length()) // 8)
    return -(-length // step) * step
