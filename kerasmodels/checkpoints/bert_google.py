"""BERT as the authors' program keeps it (Devlin et al. 2018, github.com/google-research/bert).

The folders that Google published, ``uncased_L-12_H-768_A-12`` and its kin, and those that the
program's scripts left behind after fine-tuning: ``bert_config.json``, ``vocab.txt`` and a
TensorFlow checkpoint with weights by name. This file gives those names to the layers that `bert`
knows by transformers' names.

``hidden_act="gelu"`` is read as the exact function, as transformers reads it. The program had it
so at first, and later the approximation by tanh, under the same name: ``activation="gelu_tanh"``
(of a head: ``backbone={"activation": "gelu_tanh"}``) asks for that one.
"""

from kerasmodels.checkpoints import bert, files, tensorflow_files
from kerasmodels.checkpoints.keys import Key, KeyTable
from kerasmodels.checkpoints.presets import TENSORS, Layout

CONFIG = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
# What tf.train.Checkpoint keeps beside the weights, whose names are then other ones.
OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"

# === Names ===

# Where the last layers of run_pretraining.py, run_classifier.py and run_squad.py are, by their
# names in transformers. They keep (classes, hidden).
OUTPUTS = {
    "cls.seq_relationship": "cls/seq_relationship/",
    "classifier": "",
    "qa_outputs": "cls/squad/",
}
# By kind: ending of the name, attribute of the layer, transform.
KINDS = {
    "dense": (("/kernel", "kernel", None), ("/bias", "bias", None)),
    "norm": (("/gamma", "gamma", None), ("/beta", "beta", None)),
    "embedding": (("", "embeddings", None),),
    "output": (("output_weights", "kernel", "transpose"), ("output_bias", "bias", None)),
}
# The part of a name by which a head is known, by that in transformers.
HEADS = {
    "cls": ("cls",),
    "classifier": ("output_weights", "output_bias"),
    "qa_outputs": ("squad",),
    "pooler": ("pooler",),
}


def key_table(task, arguments):
    """Return the `KeyTable` for a task and the constructor arguments of its model."""
    keys = []
    for module in bert.modules(task, arguments):
        if module.name in OUTPUTS:
            name, kind = OUTPUTS[module.name], "output"
        else:
            name = module.name.replace("layer.{i}", "layer_{i}").replace(".", "/")
            kind = module.kind
        for ending, attribute, transform in KINDS[kind]:
            keys.append(Key(name + ending, f"{module.path}.{attribute}", transform))
    if task == "pretraining":
        keys.append(Key("cls/predictions/output_bias", bert.MLM_BIAS.path))
    return KeyTable(
        keys=tuple(keys),
        derived=("beta1_power", "beta2_power"),  # of tf.train.AdamOptimizer
        heads=("cls/*", "output_weights", "output_bias", "bert/pooler/*"),
    )


# === Configurations ===

# The names that the program knows; "gelu_new" is what transformers calls its later gelu.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "tanh": "tanh"}
LAYER_NORM_EPSILON = 1e-12  # the program has no other


def read(task, configs, overrides):
    """Return the constructor arguments for a folder and what is new, see `Layout`.

    Raises:
        ValueError: the checkpoint is one of objects, or `bert.read` fails.
    """
    config, shapes = dict(configs[CONFIG]), configs.get(TENSORS)
    # Both tables are in one order.
    tables = (table(task, {"next_sentence": True}).keys for table in (key_table, bert.key_table))
    names = {theirs.name: ours.name for theirs, ours in zip(*tables, strict=True)}
    translated = {files.CONFIG: config}
    if shapes is not None:
        if OBJECT_GRAPH in shapes:
            raise ValueError(
                "the checkpoint was written by tf.train.Checkpoint, which names weights by "
                "attributes of objects; only that of Google's first program can be read"
            )
        translated[TENSORS] = {names[name]: shapes[name] for name in shapes if name in names}
        if "output_weights" in shapes and "id2label" not in config:
            config.setdefault("num_labels", shapes["output_weights"][0])
    spelling = {ours: theirs for theirs, ours in names.items()}
    arguments, heads = bert.read(task, translated, overrides, spelling)
    return arguments, tuple(part for head in heads for part in HEADS[head])


def write(task, model):
    """Return the configurations of a model, see `Layout`.

    Beside what the program reads are the fields of transformers, which it ignores: the names of
    classes and which head it is come back.

    Raises:
        ValueError: the program cannot compute this model.
    """
    if task == "sentence_encoder":
        raise ValueError(
            "Google's BERT cannot say how a sentence's vectors are pooled: save the model's "
            "`backbone` in this layout, or the model in the layout 'transformers'"
        )
    arguments = model.get_config()
    arguments = arguments.get("backbone", arguments)
    activation, epsilon = arguments["activation"], arguments["layer_norm_epsilon"]
    problems = []
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        problems.append(f"activation={activation!r}; allowed: {sorted(ACTIVATIONS)}")
    if epsilon != LAYER_NORM_EPSILON:
        problems.append(f"layer_norm_epsilon={epsilon}; only {LAYER_NORM_EPSILON} can be written")
    if problems:
        raise ValueError("Google's BERT cannot hold this model:\n  " + "\n  ".join(problems))
    config = bert.write(task, model)[files.CONFIG]
    return {CONFIG: {**config, "hidden_act": ACTIVATIONS[activation]}}


def layout(task):
    """Return the `Layout` of the models for a task."""
    return Layout(
        field="model_type",
        values=("bert", None),
        configs=(CONFIG,),
        read=lambda configs, overrides: read(task, configs, overrides),
        write=lambda model: write(task, model),
        key_table=lambda arguments: key_table(task, arguments),
        inspects=True,
        open_tensors=tensorflow_files.TensorFlowFiles,
        write_tensors=lambda folder, tensors: tensorflow_files.write_tensors(
            folder / CHECKPOINT, tensors
        ),
    )
