"""A model of texts as a SavedModel: strings in, names and scores or vectors out."""

from numbers import Integral

import keras

from kerasmodels.data.arguments import class_names_of
from kerasmodels.export.archive import Archive, require_saved_model
from kerasmodels.export.graph_tokenizer import graph_tokenizer
from kerasmodels.export.inputs import input_specs
from kerasmodels.export.replacing import replacing
from kerasmodels.keras_internals import all_layers
from kerasmodels.layers import PositionEmbedding, SegmentEmbedding, TokenEmbedding

_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def text_model(model, path, tokenizer=None, max_length=None, class_names=None):
    """Writes a TensorFlow SavedModel that takes texts as they are, tokenizer included.

    `tf.saved_model.load(path)` needs TensorFlow and tensorflow-text (`import tensorflow_text`),
    neither Keras nor this package, also for a model that was trained on JAX. What it loads has
    these functions, and signatures of the same names:

    - `serve(texts)`: `texts` are strings `(batch,)`, UTF-8.
    - `serve_pairs(texts, pairs)`, for models of two segments: two texts for each row, strings
      `(batch,)` both.

    Both return a dictionary. For a classifier, the likeliest class first:

    - `label`: string `(batch,)`, the name of the likeliest class.
    - `scores`: float32 `(batch, classes)`, probabilities (the softmax of the model's logits).
    - `class_names`: string `(batch, classes)`, the names that belong to them.

    For a model of one class, regression, `value`: float32 `(batch,)`. For any other model
    `vectors`: float32 `(batch, dim)`.

    The ids are those of the tokenizer. Rows longer than `max_length` are cut as it does with
    `truncation=True`, pairs at the end of the longer text, and the batch is padded to its longest
    row. On JAX every new size is compiled when it first comes, so there the length is rounded up to
    a multiple of 16; a batch has at least one row; and the file runs on the kind of device it was
    written on; written on a CPU (`JAX_PLATFORMS=cpu`) it runs on all.

    Args:
        model: a functional `keras.Model` of `token_ids`, `segment_ids` and `padding_mask`, with one
            output `(batch, dim)`, such as `models.BertClassifier`. It is a classifier if it has
            `num_classes`, or if `class_names` are given; its output are logits then.
        path: the folder. A SavedModel that is there already is replaced when the new one is
            complete.
        tokenizer: a `data.BertTokenizer`. Defaults to what came with the model's preset,
            `model.tokenizer`.
        max_length: the longest row in tokens, special ones included. Defaults to what both the
            model and the tokenizer allow.
        class_names: a name for each class. Defaults to `model.class_names`, and where there are
            none to the numbers of the classes.

    Raises:
        ValueError: on the PyTorch backend; if the model is not functional or its inputs or its
            output are others; if there is neither a `tokenizer` nor a `model.tokenizer`, or it has
            more tokens than the model; if `max_length` is below 3 or above what the model or the
            tokenizer allows; if `class_names` does not name every class; if `path` holds something
            else than a SavedModel.
        ImportError: if tensorflow-text is not installed.

    Example:
    ```python
    from kerasmodels import export, models

    model = models.BertClassifier.from_preset(
        "hf://google-bert/bert-base-uncased", num_classes=2, class_names=["bad", "good"]
    )
    export.text_model(model, "served", max_length=128)

    # Elsewhere:
    import tensorflow as tf
    import tensorflow_text

    served = tf.saved_model.load("served")
    answer = served.serve(tf.constant(["A film to remember.", "Two hours of my life."]))
    answer["label"], answer["scores"]  # two names, (2, classes)
    ```
    """
    require_saved_model("`export.onnx` for the model from token ids on")
    specs = input_specs(model)
    free = isinstance(specs, dict) and all(spec.shape == (None, None) for spec in specs.values())
    if not free or set(specs) != set(_INPUTS):
        raise ValueError(
            "`model` must take texts: inputs `token_ids`, `segment_ids` and `padding_mask`, each "
            f"(batch, length) of any length. Received: inputs {specs}"
        )
    width = tuple(getattr(model.output, "shape", ()))[1:]
    if len(width) != 1 or width[0] is None:
        raise ValueError(
            "`model` must have one output, (batch, classes) or (batch, dim). "
            f"Received: outputs {model.output}"
        )
    names = _class_names(model, class_names, width[0])
    tokenizer = getattr(model, "tokenizer", None) if tokenizer is None else tokenizer
    if not hasattr(tokenizer, "special_tokens_in_text"):
        raise ValueError(
            "`tokenizer` must be a `data.BertTokenizer`; it may be left out where the model has "
            f"the `tokenizer` of a preset. Received: tokenizer={tokenizer!r}"
        )
    for count in _of_layers(model, TokenEmbedding, "vocabulary_size"):
        if tokenizer.vocabulary_size > count:
            raise ValueError(
                f"`tokenizer` must have at most as many tokens as the model, {count}. "
                f"Received: {tokenizer.vocabulary_size} tokens"
            )
    max_length = _max_length(model, tokenizer, max_length)
    pairs = all(count > 1 for count in _of_layers(model, SegmentEmbedding, "num_segments"))

    with replacing(path, marker="saved_model.pb") as temporary:
        archive = Archive(model)
        archive.add(
            "serve",
            lambda inputs: model(dict(zip(_INPUTS, inputs, strict=True)), training=False),
            tuple(specs[name] for name in _INPUTS),
            finish=_answer(names, width[0]),
        )
        _put_text_before(archive, tokenizer, max_length, pairs)
        archive.write(temporary)


def _class_names(model, class_names, width):
    """The names of the classes, or `None` for a model that has no classes."""
    class_names = getattr(model, "class_names", None) if class_names is None else class_names
    if class_names is None and getattr(model, "num_classes", None) is None:
        return None
    if class_names is None:
        return [str(number) for number in range(width)]
    return class_names_of(class_names, width)


def _max_length(model, tokenizer, max_length):
    """The length at which rows are cut; `None` if nothing limits it."""
    limits = [*_of_layers(model, PositionEmbedding, "max_sequence_length")]
    if tokenizer.max_sequence_length is not None:
        limits.append(tokenizer.max_sequence_length)
    limit = min(limits, default=None)
    if max_length is None:
        return limit
    if not isinstance(max_length, Integral) or max_length < 3 or max_length > (limit or max_length):
        raise ValueError(
            "`max_length` must be an integer, at least 3, for the special tokens of a pair, and at "
            f"most what the model and the tokenizer allow, {limit}. "
            f"Received: max_length={max_length!r}"
        )
    return max_length


def _of_layers(model, kind, attribute):
    """An attribute of all layers of a kind, those inside of others too."""
    return [getattr(layer, attribute) for layer in all_layers(model) if isinstance(layer, kind)]


def _answer(names, width):
    """What is served, as a function of the model's output (TensorFlow tensors)."""
    import tensorflow as tf

    def answer(outputs):
        outputs = tf.cast(outputs, "float32")
        if names is None:
            return {"vectors": outputs}
        if width == 1:
            return {"value": outputs[:, 0]}
        scores, places = tf.math.top_k(tf.nn.softmax(outputs), width)  # of equals the lower first
        ordered = tf.gather(tf.constant(names), places)
        return {"label": ordered[:, 0], "scores": scores, "class_names": ordered}

    return answer


def _put_text_before(archive, tokenizer, max_length, pairs):
    """Replaces `serve` of the model's inputs by functions of strings."""
    import tensorflow as tf

    served, inputs_of = archive.module.serve, _text_inputs(tokenizer, max_length)
    arguments = [tf.TensorSpec((None,), tf.string, name=name) for name in ("texts", "pairs")]

    @tf.function(input_signature=arguments[:1], autograph=False)
    def serve(texts):
        return served(inputs_of(texts))

    @tf.function(input_signature=arguments, autograph=False)
    def serve_pairs(texts, pairs):
        return served(inputs_of(texts, pairs))

    functions = {"serve": serve, "serve_pairs": serve_pairs} if pairs else {"serve": serve}
    for name, function in functions.items():
        setattr(archive.module, name, function)
        archive.signatures[name] = function.get_concrete_function()


def _text_inputs(tokenizer, max_length):
    """What a call of the tokenizer does, as a function of one or two string tensors."""
    tokenize = graph_tokenizer(tokenizer)
    import tensorflow as tf
    import tensorflow_text as tf_text

    multiple = 16 if keras.backend.backend() == "jax" else 1

    def inputs(*texts):
        if len(texts) == 2:
            tf.debugging.assert_equal(
                *map(tf.size, texts), message="`pairs` must be as many as `texts`."
            )
        sides = [tokenize(text) for text in texts]  # ragged (batch, pieces)
        if max_length is not None:
            sides = _longest_first(sides, max_length - 1 - len(sides))
        rows, segments = tf_text.combine_segments(sides, tokenizer.cls_id, tokenizer.sep_id)
        length = tf.maximum(rows.bounding_shape(axis=1), 2)  # of no rows too
        length = -(-length // multiple) * multiple
        length = length if max_length is None else tf.minimum(length, max_length)
        shape = tf.stack([-1, length])
        return (
            rows.to_tensor(tokenizer.pad_id, shape=shape),
            segments.to_tensor(0, shape=shape),
            tf.sequence_mask(rows.row_lengths(), length),
        )

    return inputs


def _longest_first(sides, room):
    """Cuts the end of one or two texts that have more than `room` pieces in all.

    Pieces are taken from the longer one until both are equally long, and then in turn.
    """
    import tensorflow as tf

    counts = [side.row_lengths() for side in sides]  # (batch,) each
    if len(counts) == 1:
        kept = [tf.minimum(counts[0], room)]
    else:
        half = tf.where(counts[0] <= counts[1], room // 2, room - room // 2)
        half = tf.cast(half, counts[0].dtype)
        first = tf.minimum(counts[0], tf.maximum(room - counts[1], half))
        kept = [first, tf.minimum(counts[1], room - first)]
    return [
        tf.ragged.boolean_mask(side, tf.ragged.range(count) < keep[:, None])
        for side, count, keep in zip(sides, counts, kept, strict=True)
    ]
