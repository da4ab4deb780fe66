"""BERT as transformers writes it: the encoder alone, or with a head.

Their folders (``hf://google-bert/bert-base-uncased`` and its kin) hold the encoder of Devlin et al.
2018, post-norm, with learned positions and segments. This file is the translation between such a
folder and the arguments and weights of a Bert and of the heads around it, which are named here by
their task.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from kerasmodels.checkpoints import sentence_transformers
from kerasmodels.checkpoints.files import CONFIG
from kerasmodels.checkpoints.keys import Key, KeyTable
from kerasmodels.checkpoints.presets import TENSORS, Family, Layout, read_class_names

PUBLISHED = "hf://google-bert/bert-base-uncased"

# === Names ===


@dataclass(frozen=True)
class Module:
    """A layer: its name in files, the path of attributes that leads to ours, and its kind.

    The kind is ``"dense"``, ``"norm"`` or ``"embedding"``. That is all that a table for files of
    another library needs, too.
    """

    name: str
    path: str
    kind: str


_BLOCK, _OURS = "encoder.layer.{i}", "encoder_blocks.{i}"
TOKENS = Module("embeddings.word_embeddings", "token_embedding", "embedding")
POOLER = Module("pooler.dense", "pooler", "dense")
ENCODER = (
    TOKENS,
    Module("embeddings.position_embeddings", "position_embedding", "embedding"),
    Module("embeddings.token_type_embeddings", "segment_embedding.embedding", "embedding"),
    Module("embeddings.LayerNorm", "embedding_norm", "norm"),
    *(
        Module(f"{_BLOCK}.attention.self.{part}", f"{_OURS}.self_attention.{part}_dense", "dense")
        for part in ("query", "key", "value")
    ),
    Module(f"{_BLOCK}.attention.output.dense", f"{_OURS}.self_attention.output_dense", "dense"),
    Module(f"{_BLOCK}.attention.output.LayerNorm", f"{_OURS}.self_attention_norm", "norm"),
    Module(f"{_BLOCK}.intermediate.dense", f"{_OURS}.feed_forward.intermediate_dense", "dense"),
    Module(f"{_BLOCK}.output.dense", f"{_OURS}.feed_forward.output_dense", "dense"),
    Module(f"{_BLOCK}.output.LayerNorm", f"{_OURS}.feed_forward_norm", "norm"),
)
# The layers of each head, beside the encoder's.
HEADS = {
    "encoder": (),
    "pretraining": (
        Module("cls.predictions.transform.dense", "mlm_dense", "dense"),
        Module("cls.predictions.transform.LayerNorm", "mlm_norm", "norm"),
        Module("cls.seq_relationship", "nsp_dense", "dense"),
    ),
    "classifier": (Module("classifier", "classifier", "dense"),),
    "token_classifier": (Module("classifier", "classifier", "dense"),),
    "span_classifier": (Module("qa_outputs", "span.dense", "dense"),),
    "sentence_encoder": (),
}
# transformers' classes; for pre-training with and without next sentence prediction.
ARCHITECTURES = {
    "encoder": ("BertModel",),
    "pretraining": ("BertForPreTraining", "BertForMaskedLM"),
    "classifier": ("BertForSequenceClassification",),
    "token_classifier": ("BertForTokenClassification",),
    "span_classifier": ("BertForQuestionAnswering",),
    "sentence_encoder": ("BertModel",),
}
# By kind: ending of the name, attribute of the layer, transform.
KINDS = {
    "dense": (("weight", "kernel", "transpose"), ("bias", "bias", None)),
    "norm": (("weight", "gamma", None), ("bias", "beta", None)),
    "embedding": (("weight", "embeddings", None),),
}
DECODER = "cls.predictions.decoder.weight"  # the token embedding once more
MLM_BIAS = Key("cls.predictions.bias", "mlm_bias.bias", tied=("cls.predictions.decoder.bias",))


def modules(task, arguments):
    """Return each `Module` of a task's model, with the name that it has where there is a head.

    Args:
        task: a key of ``HEADS``.
        arguments: the constructor arguments of the model.
    """
    backbone = "" if task == "encoder" else "backbone."
    pooled = task in ("encoder", "classifier", "sentence_encoder")
    pooled = pooled or arguments.get("next_sentence", False)
    encoder = (
        Module(f"bert.{module.name}", backbone + module.path, module.kind)
        for module in (*ENCODER, *([POOLER] if pooled else []))
    )
    return (*encoder, *HEADS[task])


def key_table(task, arguments):
    """Return the `KeyTable` for a task and the constructor arguments of its model."""
    prefix = "bert." if ARCHITECTURES[task] == ("BertModel",) else ""  # has no place there
    keys = []
    for module in modules(task, arguments):
        is_decoder = task == "pretraining" and module.path == f"backbone.{TOKENS.path}"
        base = module.name.removeprefix(prefix)
        for ending, attribute, transform in KINDS[module.kind]:
            name, path = f"{base}.{ending}", f"{module.path}.{attribute}"
            keys.append(Key(name, path, transform, tied=(DECODER,) if is_decoder else ()))
    if task == "pretraining":
        keys.append(MLM_BIAS)
    return KeyTable(
        keys=tuple(keys),
        prefix="bert.",
        derived=("*token_type_ids",),
        heads=("cls.*", "classifier.*", "qa_outputs.*", "pooler.*", "bert.pooler.*"),
        # As Google's program calls them, and the first files that were converted from it.
        old_endings={".gamma": ".weight", ".beta": ".bias"},
    )


# === Configurations ===

# transformers' names of activations and ours. Those by tanh are one function, written variously.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "mish": "mish",
}
# Our arguments and their names: first what config.json must say, then what may be taken for
# granted.
SIZES = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
}
OTHERS = {
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "max_sequence_length": ("max_position_embeddings", 512),
    "num_segments": ("type_vocab_size", 2),
    "layer_norm_epsilon": ("layer_norm_eps", 1e-12),
    "initializer_range": ("initializer_range", 0.02),
}
# What a Bert has not: only these values can be read.
FIXED = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False,),
    "add_cross_attention": (False,),
    "is_encoder_decoder": (False,),
    "pruned_heads": ({}, None),
}


def read_config(config):
    """Translate transformers' configuration of a BERT.

    Args:
        config: the content of ``config.json``, or of what an older program calls it.

    Returns:
        The constructor arguments of a Bert.

    Raises:
        ValueError: a size is missing, or something cannot be represented.
    """
    missing = [name for name in SIZES.values() if name not in config]
    if missing:
        raise ValueError(f"the configuration lacks {missing}")
    problems = [
        f"{name}={config[name]!r}; only {allowed[0]!r} can be read"
        for name, allowed in FIXED.items()
        if name in config and config[name] not in allowed
    ]
    family = config.get("architectures") or ()
    if config.get("model_type") is None and not all(str(f).startswith("Bert") for f in family):
        problems.append(f"architectures={family}; only BERT's can be read")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        problems.append(f"hidden_act={activation!r}; allowed: {sorted(ACTIVATIONS)}")
    if problems:
        raise ValueError("the configuration cannot be read:\n  " + "\n  ".join(problems))
    return {
        **{ours: config[theirs] for ours, theirs in SIZES.items()},
        **{ours: config.get(theirs, default) for ours, (theirs, default) in OTHERS.items()},
        "activation": ACTIVATIONS[activation],
    }


def write_config(arguments):
    """Translate a Bert's constructor arguments; the reverse of `read_config`.

    Raises:
        ValueError: transformers has no such activation.
    """
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    activation = arguments["activation"]
    if not isinstance(activation, str) or activation not in names:
        raise ValueError(
            "transformers' BERT cannot hold this model:\n  "
            f"activation={activation!r}; allowed: {sorted(names)}"
        )
    return {
        "model_type": "bert",
        **{theirs: arguments[ours] for ours, theirs in SIZES.items()},
        **{theirs: arguments[ours] for ours, (theirs, _) in OTHERS.items()},
        "hidden_act": names[activation],
    }


def read(task, configs, overrides, spelling=None):
    """Return the constructor arguments for a folder and what is new, see `Layout`.

    Args:
        task: a key of ``HEADS``.
        configs: see `Layout`.
        overrides: see `Layout`.
        spelling: how the folder spells the names of tensors, for the error message.

    Raises:
        ValueError: the folder has no such head and none was asked for, or `read_config` fails.
    """
    config, shapes = configs[CONFIG], configs.get(TENSORS)
    overrides = dict(overrides)

    def has(part):  # where no weights are loaded, nothing is missing
        return shapes is None or any(part in name for name in shapes)

    if task == "encoder":
        return {**read_config(config), "pooler": has("pooler."), **overrides}, ()
    backbone = {
        **read_config(config),
        "dtype": overrides.get("dtype"),
        **overrides.get("backbone", {}),
    }
    if task == "sentence_encoder":  # it reads no pooler, but what the folder has goes back there
        return {**overrides, "backbone": {"pooler": has("pooler."), **backbone}}, ()
    new_head = overrides.pop("new_head", False)
    arguments = {**overrides, "backbone": backbone}
    held = _holds(task, config, has)
    if task in ("classifier", "token_classifier"):
        classes, other = _read_classes(config, held, overrides)
        dropout = config.get("classifier_dropout")
        dropout = arguments["backbone"]["dropout"] if dropout is None else dropout
        arguments = {"dropout": dropout, **arguments, **classes}
        new_head = new_head or other
        problem, several = config.get("problem_type"), classes["num_classes"] > 1
        other = {"multi_label_classification": "each class for itself"}
        other |= {"regression": "several numbers"} if several else {}
        if problem in other and not new_head:
            raise ValueError(
                f"{CONFIG}: problem_type={problem!r}, {other[problem]}; only one class of several, "
                "or one number, can be read"
            )
    if not held and not new_head:
        wanted = MLM_BIAS.name if task == "pretraining" else f"{HEADS[task][0].name}.weight"
        ask = "num_classes=... or new_head=True" if "num_classes" in arguments else "new_head=True"
        known = config.get("architectures")
        raise ValueError(
            f"the preset lacks the head of {ARCHITECTURES[task][0]}: missing: "
            f"{(spelling or {}).get(wanted, wanted)}"
            f"{f'; its architectures are {known}' if known else ''}. Pass {ask} for a new head"
        )
    if task == "pretraining":
        # A file that has the one task's head alone was trained without the other.
        both, known = ARCHITECTURES[task], config.get("architectures") or ()
        if shapes is None and both[1] in known and not new_head:
            arguments.setdefault("next_sentence", False)
        arguments.setdefault("next_sentence", new_head or has("seq_relationship."))
        if config.get("tie_word_embeddings") is False and not new_head:
            raise ValueError(f"{CONFIG}: tie_word_embeddings=False; only True can be read")
    pooled = task == "classifier" or arguments.get("next_sentence", False)
    arguments["backbone"].setdefault("pooler", pooled)
    heads = ("cls" if task == "pretraining" else HEADS[task][0].name,) if new_head else ()
    if new_head and pooled and not has("pooler."):
        heads += ("pooler",)
    return arguments, heads


def _holds(task, config, has):
    """Whether a folder has the head of a task."""
    if task == "pretraining":
        return has("cls.predictions.")
    if task == "span_classifier":
        return has("qa_outputs.")
    # Both kinds of classifiers have one name for their heads.
    known = config.get("architectures")
    return has("classifier.") and (not known or ARCHITECTURES[task][0] in known)


def _read_classes(config, held, overrides):
    """Number and names of the classes, and whether they are others than the folder's."""
    own = read_class_names(config.get("id2label")) if held else None
    number = config.get("num_labels", len(own) if own else 2)
    if own == [f"LABEL_{i}" for i in range(number)]:
        own = None  # numbers are no names
    names, count = overrides.get("class_names"), overrides.get("num_classes")
    names = list(names) if isinstance(names, Iterator) else names
    asked = names is not None or count is not None
    if count is None:
        count = number if names is None else len(names)
    # Other names are other classes; where the folder has no names, they only name its own.
    other = count != number or (own is not None and names is not None and list(names) != own)
    if names is None and count == number:
        names = own
    return {"num_classes": count, "class_names": names}, other or (asked and not held)


def write(task, model):
    """Return the configurations of a model, see `Layout`.

    Raises:
        ValueError: transformers' BERT cannot be such a model.
    """
    arguments = model.get_config()
    config = write_config(arguments.get("backbone", arguments))
    architectures = ARCHITECTURES[task]
    next_sentence = arguments.get("next_sentence", True)
    config["architectures"] = [architectures[0 if next_sentence else 1]]
    config["pad_token_id"] = getattr(model.tokenizer, "pad_id", 0)
    if "num_classes" in arguments:
        count = arguments["num_classes"]
        names = arguments["class_names"] or [f"LABEL_{i}" for i in range(count)]
        config["id2label"] = {str(i): name for i, name in enumerate(names)}
        config["label2id"] = {name: i for i, name in enumerate(names)}
        config["classifier_dropout"] = arguments["dropout"]
        if task == "classifier" and count == 1:
            config["problem_type"] = "regression"
    if task == "sentence_encoder":
        return {CONFIG: config, **sentence_transformers.write(model)}
    return {CONFIG: config}


def family(task, companion):
    """Return the `Family` of the models for a task.

    Args:
        task: a key of ``HEADS``.
        companion: the class of the tokenizer.
    """
    from kerasmodels.checkpoints import bert_google  # which stands on this file

    return Family(
        layouts={
            "transformers": Layout(
                field="model_type",
                values=("bert", None),  # the oldest folders do not say
                read=lambda configs, overrides: read(task, configs, overrides),
                write=lambda model: write(task, model),
                key_table=lambda arguments: key_table(task, arguments),
                inspects=True,
            ),
            "google": bert_google.layout(task),
        },
        companion=companion,
        companion_name="tokenizer",
        published=PUBLISHED,
    )
