"""The heads of BERT: pre-training (section 3.1) and fine-tuning (section 4, figure 4).

Each is a model around a `Bert`, its `backbone`. Heads with the same backbone share its weights:
trained in turn, they fine-tune one encoder for several tasks.

All logits are float32 whatever the policy.
"""

import re
from numbers import Integral

import keras
import numpy as np
from keras import ops

from kerasmodels.arguments import takes_numpy_numbers
from kerasmodels.layers import GatherPositions, LayerNormalization, LogitBias, SpanProjection
from kerasmodels.listing import strings_of
from kerasmodels.models.bert import SIZES, Bert, truncated_normal
from kerasmodels.models.bert_checks import check_classes, check_places
from kerasmodels.models.bert_model import _BertModel
from kerasmodels.models.named_inputs import refuse_class_weight
from kerasmodels.training.input_checks import check_labels, check_numbers, visible_array


class _BertHead(_BertModel):
    """What the heads share: a backbone, and how it is built, saved and loaded with them."""

    def _set_up(self, backbone, policy, **arguments):
        # Past Keras, which would count a pooler that this head has no use for among its weights:
        # the layers that it uses are in its graph.
        self.__dict__["backbone"] = backbone
        self.tokenizer = backbone.tokenizer
        self._keep_arguments(policy, **arguments)

    def _backbone(self):
        return self.backbone

    @classmethod
    def from_preset(cls, preset, load_weights=True, new_head=False, **kwargs):
        """Builds a published model with this head, or with a new one.

        Args:
            preset: A folder as transformers or the paper's program writes it for BERT,
                `"hf://organisation/name"` (`"hf://google-bert/bert-base-uncased"`), or a size, as
                in `Bert.from_preset`. The program calls the heads of all classifiers alike, so
                that one of sentences loads as one of tokens, too.
            load_weights: Whether to load the weights. The named sizes have none: say `False`.
            new_head: Whether the head (and a pooler under it that the preset lacks) starts anew.
                The encoder may then come from a preset without a head, or with another one.
            **kwargs: Constructor's arguments that replace the preset's. `num_classes` asks for a
                new head where the preset has none or one of another size, and so do other
                `class_names`. `backbone` is a dictionary of those of `Bert`, such as
                `{"dropout": 0.2}`.

        Returns:
            The model. Its `tokenizer` is that of the folder, or `None`.

        Raises:
            FileNotFoundError: If a folder or one of its files is not there.
            ValueError: If the preset is of another family, has no such head and none was asked for,
                its tensors do not fit, or its tokenizer has more tokens than the embedding.
        """
        sizes = {}
        if preset in SIZES:
            own = {"dtype": kwargs.get("dtype"), **kwargs.pop("backbone", {})}
            sizes = {name: {"backbone": {**size, **own}} for name, size in SIZES.items()}
        elif new_head:
            kwargs["new_head"] = True
        return cls._load(preset, sizes or SIZES, load_weights, kwargs)

    def get_config(self):
        """Returns the constructor's arguments, and what was changed in single layers."""
        return {"backbone": self.backbone.get_config(), **super().get_config()}

    def _changed_sublayers(self):
        if not self.trainable:  # set once more behind the backbone's config, which it would undo
            return super()._changed_sublayers()
        names = {layer.name for layer in self.backbone.layers}  # the backbone's config has these
        found = super()._changed_sublayers().get("sublayers", {})
        own = {path: found[path] for path in found if path.split("/")[0] not in names}
        return {"sublayers": own} if own else {}


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertPretraining(_BertHead):
    """BERT with the two tasks of pre-training (section 3.1).

    The masked language model works on the masked positions alone: their hidden states are gathered
    first, then go through a dense layer, the activation and LayerNorm, and the token embedding
    turns them into logits, with a bias of their own. Next sentence prediction reads the pooled
    output; class 0 says that the second sentence is the next.

    Inputs: those of `Bert`, and `mask_positions (batch, predictions)`, integers. Outputs, a
    dictionary of float32 logits: `mlm (batch, predictions, vocabulary_size)` and `nsp (batch, 2)`.
    Targets have the same keys; `data.PretrainingData` gives all of these.

    Args:
        backbone: A `Bert`, or a dictionary of its constructor's arguments.
        next_sentence: Whether there is next sentence prediction; section 5.1 does without it.
        dtype: Dtype or policy of the head. Defaults to the backbone's.
        name: Name of the model.

    Raises:
        ValueError: If next sentence prediction is asked for and the backbone has no pooler. For
            bad data: positions outside a row, targets outside the vocabulary, and what
            `Bert` refuses.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models, training

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    model = models.BertPretraining(bert)
    loss = training.SmoothedCrossEntropy(0.0)
    model.compile("adam", {"mlm": loss, "nsp": loss})
    inputs = {"token_ids": np.array([[101, 7, 8, 102]]), "segment_ids": None, "padding_mask": None}
    model({**inputs, "mask_positions": np.array([[2]])})["mlm"]  # (1, 1, 1000)
    ```
    """

    _task = "pretraining"

    @takes_numpy_numbers
    def __init__(self, backbone, next_sentence=True, dtype=None, name=None):
        backbone, policy, sequence, pooled = _start(backbone, dtype, next_sentence)
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        mlm_dense = _dense(
            backbone, backbone.hidden_dim, policy, "mlm_dense", activation=backbone.activation
        )
        mlm_norm = LayerNormalization(
            epsilon=backbone.layer_norm_epsilon, dtype=policy, name="mlm_norm"
        )
        mlm_bias = LogitBias(dtype=policy, name="mlm_bias")
        x = GatherPositions(dtype=policy, name="mlm_gather")(sequence, positions)
        x = mlm_norm(mlm_dense(x))  # (batch, predictions, hidden)
        x = mlm_bias(backbone.token_embedding(x, reverse=True))
        outputs = {"mlm": _float32(x, policy, "mlm")}  # (batch, predictions, vocabulary)
        nsp_dense = None
        if next_sentence:
            nsp_dense = _dense(backbone, 2, policy, "nsp_dense")
            outputs["nsp"] = _float32(nsp_dense(pooled), policy, "nsp")  # (batch, 2)
        inputs = {**backbone.input, "mask_positions": positions}
        super().__init__(inputs=inputs, outputs=outputs, name=name)
        self._set_up(backbone, policy, next_sentence=next_sentence)
        self.mlm_dense, self.mlm_norm, self.mlm_bias = mlm_dense, mlm_norm, mlm_bias
        self.nsp_dense = nsp_dense

    def fill_mask(self, texts, top_k=5):
        """What stands most probably at each [MASK] of some texts.

        Several threads may call this at the same time, as long as none of them trains the model.

        Args:
            texts: A list of strings, each with one `[MASK]` or several.
            top_k: Number of guesses, all of them tokens of the tokenizer.

        Returns:
            A list for each text; in it for each [MASK] a list of `top_k` pairs `(token,
            probability)`, the most probable first.

        Raises:
            ValueError: If the model has no tokenizer, a text no [MASK] (within the positions of
                the model), or `top_k` is not in `[1, len(tokenizer)]`.

        Example:
        ```python
        from kerasmodels import models

        model = models.BertPretraining.from_preset("hf://google-bert/bert-base-uncased")
        model.fill_mask(["Paris is the [MASK] of France."])  # [[[("capital", 0.997), ...]]]
        ```
        """
        if self.tokenizer is None:
            raise ValueError("`fill_mask` needs a tokenizer: set `model.tokenizer`")
        size = self.tokenizer.vocabulary_size  # the embedding may have more rows
        if not isinstance(top_k, Integral) or not 1 <= top_k <= size:
            raise ValueError(f"`top_k` must be in [1, {size}], an integer. Received: top_k={top_k}")
        texts = strings_of("texts", texts)
        inputs = self.tokenizer(texts)
        if not len(inputs["token_ids"]):
            return []
        mask_id = self.tokenizer.mask_id
        masked = inputs["token_ids"] == mask_id  # (batch, length)
        counts = masked.sum(axis=1)
        wanted = np.array([ids.count(mask_id) for ids in self.tokenizer.encode_batch(texts)])
        if not wanted.all():
            text = texts[int(wanted.argmin())]
            raise ValueError(f"`texts` must each have a [MASK]. Received: {text!r}")
        if (counts < wanted).any():
            row = int((counts < wanted).argmax())
            raise ValueError(
                f"`texts` must have each [MASK] within the {masked.shape[1]} tokens that a text is "
                f"cut to. Received: text {row}, of whose {wanted[row]} are {counts[row]} left"
            )
        positions = np.argsort(~masked, axis=1, kind="stable")[:, : counts.max()]
        logits = self({**inputs, "mask_positions": positions.astype("int32")})["mlm"]
        shares = ops.convert_to_numpy(ops.softmax(logits))  # (batch, predictions, vocabulary)
        tokens, best = self.tokenizer.tokens, np.argsort(-shares[..., :size], axis=-1)
        return [
            [[(tokens[i], float(row[k, i])) for i in order[k, :top_k]] for k in range(count)]
            for row, order, count in zip(shares, best, counts, strict=True)
        ]

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        if isinstance(targets, dict):
            count = self.backbone.vocabulary_size
            loss = self._loss_of("mlm", loss)
            check_labels("mlm", targets.get("mlm"), count, "the vocabulary", loss)
            if isinstance(sample_weight, dict):
                _refuse_row_weights(sample_weight.get("mlm"), targets.get("mlm"), loss)
            check_labels("nsp", targets.get("nsp"), 2, "0 = is next, 1 = is not")


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertClassifier(_BertHead):
    """BERT for one sentence or a pair: a class or a number (section 4.1, figures 4a and 4b).

    Inputs: those of `Bert`. Output: float32 logits `(batch, num_classes)`, a dense layer on the
    pooled output. With `num_classes=1` it is a number: regression.

    Args:
        backbone: A `Bert` with pooler, or a dictionary of its constructor's arguments.
        num_classes: Number of classes, 1 for regression.
        dropout: Of the pooled output.
        class_names: A name for each class.
        dtype: Dtype or policy of the head. Defaults to the backbone's.
        name: Name of the model.

    Raises:
        ValueError: If the backbone has no pooler, or the names are not as many as the classes. For
            bad data: labels outside the classes, and what `Bert` refuses.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    model = models.BertClassifier(bert, num_classes=2, class_names=["bad", "good"])
    inputs = {"token_ids": np.array([[101, 7, 8, 102]]), "segment_ids": None, "padding_mask": None}
    logits = model(inputs)  # (1, 2)
    ```
    """

    _task = "classifier"

    @takes_numpy_numbers
    def __init__(self, backbone, num_classes, dropout=0.1, class_names=None, dtype=None, name=None):
        num_classes, names = check_classes(num_classes, class_names)
        backbone, policy, _, pooled = _start(backbone, dtype, needs_pooler=True)
        own = _names(name)
        classifier = _dense(backbone, num_classes, policy, own("classifier"))
        x = keras.layers.Dropout(dropout, dtype=policy, name=own("classifier_dropout"))(pooled)
        logits = _float32(classifier(x), policy, own("logits"))  # (batch, num_classes)
        super().__init__(inputs=backbone.input, outputs=logits, name=name)
        self._set_up(backbone, policy, num_classes=num_classes, dropout=dropout, class_names=names)
        self.classifier = classifier

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        shape = getattr(targets, "shape", ())
        if self.num_classes == 1:
            check_numbers("y", targets)
        elif tuple(shape[1:]) in ((), (1,)):  # else one-hot
            check_labels("y", targets, self.num_classes, loss=self._loss_of("y", loss))


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertTokenClassifier(_BertHead):
    """BERT with a class for each token, such as the names of section 5.3 (figure 4d).

    Inputs: those of `Bert`. Output: float32 logits `(batch, length, num_classes)`, padding's too:
    give it the weight 0, or a label that the loss ignores.

    Args:
        backbone: A `Bert`, or a dictionary of its constructor's arguments.
        num_classes: Number of classes.
        dropout: Of the hidden states.
        class_names: A name for each class.
        dtype: Dtype or policy of the head. Defaults to the backbone's.
        name: Name of the model.

    Raises:
        ValueError: If the names are not as many as the classes. For bad data: labels outside
            the classes that the loss does not ignore, and what `Bert` refuses.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    model = models.BertTokenClassifier(bert, num_classes=9)
    inputs = {"token_ids": np.array([[101, 7, 8, 102]]), "segment_ids": None, "padding_mask": None}
    logits = model(inputs)  # (1, 4, 9)
    ```
    """

    _task = "token_classifier"

    @takes_numpy_numbers
    def __init__(self, backbone, num_classes, dropout=0.1, class_names=None, dtype=None, name=None):
        num_classes, names = check_classes(num_classes, class_names)
        backbone, policy, sequence, _ = _start(backbone, dtype)
        own = _names(name)
        classifier = _dense(backbone, num_classes, policy, own("classifier"))
        x = keras.layers.Dropout(dropout, dtype=policy, name=own("classifier_dropout"))(sequence)
        logits = _float32(classifier(x), policy, own("logits"))  # (batch, length, num_classes)
        super().__init__(inputs=backbone.input, outputs=logits, name=name)
        self._set_up(backbone, policy, num_classes=num_classes, dropout=dropout, class_names=names)
        self.classifier = classifier

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        loss = self._loss_of("y", loss)
        if len(getattr(targets, "shape", ())) == 2:  # else one-hot
            check_labels("y", targets, self.num_classes, loss=loss)
        _refuse_row_weights(sample_weight, targets, loss)

    def _check_class_weight(self, class_weight, y):
        refuse_class_weight(class_weight, y)


@keras.saving.register_keras_serializable(package="kerasmodels")
class BertSpanClassifier(_BertHead):
    """BERT that finds the answer to a question in a text (section 4.2, figure 4c).

    Inputs: those of `Bert`, the question as segment 0 and the text as segment 1. Outputs, a
    dictionary of float32 logits: `start` and `end`, each `(batch, length)`, -1e9 at padding, so
    that a softmax gives it nothing. Targets are positions with the same keys; for a question
    without an answer both are 0, [CLS] (section 4.3).

    Args:
        backbone: A `Bert`, or a dictionary of its constructor's arguments.
        dtype: Dtype or policy of the head. Defaults to the backbone's.
        name: Name of the model.

    Raises:
        ValueError: For bad data: positions outside a row, and what `Bert` refuses.

    Example:
    ```python
    import numpy as np
    from kerasmodels import models

    bert = models.Bert(1000, num_layers=2, num_heads=2, hidden_dim=64, intermediate_dim=256)
    model = models.BertSpanClassifier(bert)
    inputs = {
        "token_ids": np.array([[101, 7, 102, 8, 9, 102]]),
        "segment_ids": np.array([[0, 0, 0, 1, 1, 1]]),
        "padding_mask": None,
    }
    model(inputs)["start"]  # (1, 6)
    ```
    """

    _task = "span_classifier"

    @takes_numpy_numbers
    def __init__(self, backbone, dtype=None, name=None):
        backbone, policy, sequence, _ = _start(backbone, dtype)
        initializer = truncated_normal(backbone.initializer_range)
        span = SpanProjection(initializer, dtype=policy, name=_names(name)("span"))
        start, end = span(sequence, padding_mask=backbone.input["padding_mask"])
        super().__init__(inputs=backbone.input, outputs={"start": start, "end": end}, name=name)
        self._set_up(backbone, policy)
        self.span = span

    def _check(self, inputs, targets=None, sample_weight=None, loss=None):
        super()._check(inputs, targets, sample_weight, loss)
        if not (isinstance(inputs, dict) and isinstance(targets, dict)):
            return
        mask = visible_array(inputs.get("padding_mask"))
        length = inputs["token_ids"].shape[1]
        for name in ("start", "end"):
            own = self._loss_of(name, loss)
            check_labels(name, targets.get(name), length, "the positions of a row", own)
            check_places(name, targets.get(name), mask)


def _refuse_row_weights(weights, targets, loss):
    """Of a model of tokens: Keras would multiply a row's weight with a column."""
    several = tuple(getattr(targets, "shape", (0, 0)))[-1] != 1
    rows = len(getattr(weights, "shape", ())) == 1 and several
    if rows and not hasattr(loss, "token_weight"):
        raise ValueError(
            "`sample_weight` must have a weight for each token, (batch, length); one for each "
            "row is for training.SmoothedCrossEntropy alone. "
            f"Received: shape={tuple(weights.shape)}"
        )


def _start(backbone, dtype, needs_pooler=False):
    """The backbone, the policy of the head, and the backbone's two outputs."""
    if isinstance(backbone, dict):
        backbone = Bert.from_config(backbone)
    if not isinstance(backbone, Bert):
        raise ValueError(
            "`backbone` must be a Bert, or a dictionary of its constructor's arguments. "
            f"Received: {backbone!r}"
        )
    if needs_pooler and backbone.pooler is None:
        raise ValueError(
            "This head reads the pooled output, and `backbone` has none: it was built with "
            "pooler=False, or loaded from weights without a pooler"
        )
    policy = keras.dtype_policies.get(dtype or backbone.dtype_policy)
    outputs = backbone.output
    return backbone, policy, outputs["sequence_output"], outputs.get("pooled_output")


def _names(model):
    """Names of a head's layers: with the model's own before them, if it was given one.

    So several heads of one encoder can be outputs of one `keras.Model`. A name that Keras chose
    does not count, so that a model that is loaded has the names of the one that was saved.
    """
    chosen = model is None or re.fullmatch(r"bert_\w*classifier(_\d+)?", model)
    return lambda layer: layer if chosen else f"{model}_{layer}"


def _dense(backbone, units, policy, name, activation=None):
    return keras.layers.Dense(
        units,
        activation=activation,
        kernel_initializer=truncated_normal(backbone.initializer_range),
        dtype=policy,
        name=name,
    )


def _float32(x, policy, name):
    if policy.compute_dtype == "float32":
        return x
    return keras.layers.Activation("linear", dtype="float32", name=name)(x)
