"""Marian: the published encoder-decoder Transformers for more than a thousand language pairs.

Their folders (``hf://Helsinki-NLP/opus-mt-en-de`` and its kin) hold the Transformer of Vaswani et
al. 2017, post-norm and tied, with the sinusoids in halves, swish, and a bias on the logits. This
file is the translation between such a folder and the arguments and weights of a Transformer.
"""

import warnings

from kerasmodels.checkpoints.files import CONFIG, GENERATION_CONFIG
from kerasmodels.checkpoints.keys import Key, KeyTable
from kerasmodels.checkpoints.marian_text import MarianTokenizer
from kerasmodels.checkpoints.presets import Family, Layout
from kerasmodels.token_rules import TokenRules

# transformers' names of activations and Keras's, where the functions are the same.
ACTIVATIONS = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "relu6": "relu6",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "mish": "mish",
    "hardswish": "hard_silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "linear",
}
LAYER_NORM_EPSILON = 1e-5  # torch's default, which Marian's code relies on

# What config.json must say, and what transformers takes for granted where it says nothing.
SIZES = (
    "vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "encoder_attention_heads",
    "decoder_attention_heads",
    "encoder_ffn_dim",
    "decoder_ffn_dim",
)
DEFAULTS = {
    "activation_function": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "max_position_embeddings": 1024,
    "pad_token_id": 58100,
    "decoder_start_token_id": 58100,
    "eos_token_id": 0,
    "forced_eos_token_id": 0,
}
# Another architecture, named by fields of older files: only these values are Marian's.
FIXED = {
    "is_encoder_decoder": True,
    "tie_word_embeddings": True,
    "static_position_embeddings": True,
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
}
TRAINING_ONLY = ("activation_dropout", "encoder_layerdrop", "decoder_layerdrop")
# Fields of generation_config.json that alter the tokens and have no counterpart here, with the
# values that alter nothing.
NEUTRAL_GENERATION = {
    "do_sample": (False,),
    "early_stopping": (False, "never"),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "repetition_penalty": (1.0,),
    "encoder_repetition_penalty": (1.0,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "num_beam_groups": (1,),
    "diversity_penalty": (0.0,),
    "forced_bos_token_id": (),
    "begin_suppress_tokens": ([],),
    "exponential_decay_length_penalty": (),
    "sequence_bias": (),
    "guidance_scale": (1, 1.0),
}


def _attention(name, path):
    keys = []
    for theirs, ours in (("q", "query"), ("k", "key"), ("v", "value")):
        keys.append(
            Key(
                f"{name}.{theirs}_proj.weight",
                f"{path}.{ours}_dense.kernel",
                "transpose",
                hidden=(0,),
            )
        )
        keys.append(Key(f"{name}.{theirs}_proj.bias", f"{path}.{ours}_dense.bias"))
    keys.append(
        Key(f"{name}.out_proj.weight", f"{path}.output_dense.kernel", "transpose", hidden=(1,))
    )
    keys.append(Key(f"{name}.out_proj.bias", f"{path}.output_dense.bias", hidden=(0,)))
    return (*keys, *_norm(f"{name}_layer_norm", f"{path}_norm"))


def _norm(name, path):
    return (
        Key(f"{name}.weight", f"{path}.gamma", hidden=(0,)),
        Key(f"{name}.bias", f"{path}.beta", hidden=(0,)),
    )


def _feed_forward(name, path):
    return (
        Key(f"{name}.fc1.weight", f"{path}.intermediate_dense.kernel", "transpose", hidden=(0,)),
        Key(f"{name}.fc1.bias", f"{path}.intermediate_dense.bias"),
        Key(f"{name}.fc2.weight", f"{path}.output_dense.kernel", "transpose", hidden=(1,)),
        Key(f"{name}.fc2.bias", f"{path}.output_dense.bias", hidden=(0,)),
        *_norm(f"{name}.final_layer_norm", f"{path}_norm"),
    )


ENCODER, DECODER = "model.encoder.layers.{i}", "model.decoder.layers.{i}"
BLOCKS = (
    *_attention(f"{ENCODER}.self_attn", "encoder_blocks.{i}.self_attention"),
    *_feed_forward(ENCODER, "encoder_blocks.{i}.feed_forward"),
    *_attention(f"{DECODER}.self_attn", "decoder_blocks.{i}.self_attention"),
    *_attention(f"{DECODER}.encoder_attn", "decoder_blocks.{i}.cross_attention"),
    *_feed_forward(DECODER, "decoder_blocks.{i}.feed_forward"),
    Key("final_logits_bias", "output_bias.bias", "row", optional=True),
)
EMBED = "model.{}.embed_tokens.weight"
SHARED = (
    Key(
        "model.shared.weight",
        "encoder_embedding.embeddings",
        tied=(EMBED.format("encoder"), EMBED.format("decoder"), "lm_head.weight"),
        hidden=(1,),
    ),
)
SEPARATE = (
    Key(EMBED.format("encoder"), "encoder_embedding.embeddings", hidden=(1,)),
    Key(
        EMBED.format("decoder"),
        "decoder_embedding.embeddings",
        tied=("lm_head.weight",),
        hidden=(1,),
    ),
)


def key_table(arguments):
    """Return the `KeyTable` for a Transformer with these constructor arguments."""
    return KeyTable(
        keys=(SEPARATE if _is_pair(arguments["vocabulary_size"]) else SHARED) + BLOCKS,
        prefix="model.",
        derived=("*embed_positions.weight", "*embed_positions.weights"),
    )


def read_config(config):
    """Translate transformers' configuration of a Marian model.

    Args:
        config: the content of ``config.json``.

    Returns:
        The constructor arguments of a Transformer, without ``generation``.

    Raises:
        ValueError: a size is missing, or something cannot be represented.
    """
    missing = [name for name in SIZES if name not in config]
    if missing:
        raise ValueError(f"config.json lacks {missing}")
    for name, allowed in FIXED.items():
        if config.get(name, allowed) != allowed:
            raise ValueError(f"config.json: {name}={config[name]!r}; only {allowed!r} can be read")
    for name in TRAINING_ONLY:
        if config.get(name):
            warnings.warn(
                f"config.json: {name}={config[name]!r} is not applied in training here",
                stacklevel=2,
            )
    config = {**DEFAULTS, **config}
    activation = config["activation_function"]
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"config.json: activation_function={activation!r}; allowed: {sorted(ACTIVATIONS)}"
        )

    def both(name):
        encoder, decoder = config[f"encoder_{name}"], config[f"decoder_{name}"]
        return encoder if encoder == decoder else (encoder, decoder)

    source = config["vocab_size"]
    target = config.get("decoder_vocab_size") or source
    return {
        "vocabulary_size": (
            source if config["share_encoder_decoder_embeddings"] else (source, target)
        ),
        "num_layers": both("layers"),
        "num_heads": both("attention_heads"),
        "hidden_dim": config["d_model"],
        "intermediate_dim": both("ffn_dim"),
        "dropout": config["dropout"],
        "attention_dropout": config["attention_dropout"],
        "activation": ACTIVATIONS[activation],
        "normalize_first": False,
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "positions": "sinusoidal_halves",
        "scale_embeddings": config["scale_embedding"],
        "output_bias": True,
    }


def read_generation(config, generation=None):
    """Translate ``generation_config.json`` into a Transformer's ``generation`` dictionary.

    `max_length` here counts no start token, so it is one less than in the file. The length
    penalty is transformers' `length ** length_penalty`, which is the rule `"mean"`.

    Args:
        config: the content of ``config.json``, for the ids that the other file leaves out.
        generation: that of ``generation_config.json``; ``None`` where there is none, then
            ``config`` says how to generate, as in older folders.

    Returns:
        A dictionary with the arguments of `TokenRules` and, where the file has them,
        ``max_length``, ``num_beams``, ``length_penalty`` and ``length_rule``.

    Raises:
        ValueError: the file asks for something that generation here does not do.
    """
    config = {**DEFAULTS, **config}
    generation = config if generation is None else generation

    def give_up(name, why):
        raise ValueError(
            f"generation_config.json: {name}={generation[name]!r} cannot be followed: {why}. "
            "Pass generation={...} to choose settings of your own"
        )

    for name, neutral in NEUTRAL_GENERATION.items():
        if generation.get(name) is not None and generation[name] not in neutral:
            give_up(name, f"{neutral[0]!r} is what can be done" if neutral else "it must be null")
    ids = {
        name: generation[name] if generation.get(name) is not None else config[name]
        for name in ("eos_token_id", "pad_token_id", "decoder_start_token_id")
    }
    end = ids["eos_token_id"]
    if end is None:
        raise ValueError("config.json: eos_token_id=None; an id, or a list of ids, is needed")
    ends = end if isinstance(end, list) else [end]
    pad = ends[0] if ids["pad_token_id"] is None else ids["pad_token_id"]
    start = pad if ids["decoder_start_token_id"] is None else ids["decoder_start_token_id"]
    forced = generation.get("forced_eos_token_id")
    if forced is not None and (forced if isinstance(forced, list) else [forced])[0] != ends[0]:
        # Not an error: 0 stands in every configuration whose author never thought of it.
        warnings.warn(
            f"forced_eos_token_id={forced} is not the end token, {end}, and is not forced here",
            stacklevel=2,
        )
        forced = None
    suppressed = list(generation.get("suppress_tokens") or ())
    for words in generation.get("bad_words_ids") or ():
        if len(words) > 1:
            give_up("bad_words_ids", "each may hold one token only")
        if words != ends:  # transformers spares the end token here
            suppressed.extend(words)
    rules = TokenRules(
        pad_id=pad,
        start_id=start,
        end_id=end,
        forced_end=forced is not None,
        suppress_ids=list(dict.fromkeys(suppressed)),
        renormalize=bool(generation.get("renormalize_logits")),
    )
    settings = rules.get_config()
    if generation.get("max_new_tokens"):
        settings["max_length"] = generation["max_new_tokens"]
    elif generation.get("max_length"):
        settings["max_length"] = generation["max_length"] - 1
    if (generation.get("num_beams") or 1) > 1:
        penalty = generation.get("length_penalty")
        settings["num_beams"] = generation["num_beams"]
        settings["length_penalty"] = 1.0 if penalty is None else penalty
        settings["length_rule"] = "mean"
    return settings


def write_config(arguments):
    """Translate a Transformer's constructor arguments; the reverse of `read_config`.

    Args:
        arguments: what the model's ``get_config`` returns.

    Returns:
        The content of ``config.json``.

    Raises:
        ValueError: transformers' Marian cannot be such a model; the message lists why.
    """
    names = {ours: theirs for theirs, ours in reversed(ACTIVATIONS.items())}
    problems = []
    if arguments["normalize_first"]:
        problems.append("normalize_first=True; Marian is post-norm")
    if not arguments["positions"].startswith("sinusoidal"):
        problems.append(f"positions={arguments['positions']!r}; Marian's are sinusoidal")
    if arguments["layer_norm_epsilon"] != LAYER_NORM_EPSILON:
        epsilon = arguments["layer_norm_epsilon"]
        problems.append(f"layer_norm_epsilon={epsilon}; Marian's is {LAYER_NORM_EPSILON}")
    if str(arguments["activation"]) not in names:  # a function of one's own is a dictionary
        problems.append(f"activation={arguments['activation']!r}; allowed: {sorted(names)}")
    if problems:
        raise ValueError("transformers' Marian cannot hold this model:\n  " + "\n  ".join(problems))
    config = {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "tie_word_embeddings": True,
        "d_model": arguments["hidden_dim"],
        "dropout": arguments["dropout"],
        "attention_dropout": arguments["attention_dropout"],
        "activation_dropout": 0.0,
        "activation_function": names[arguments["activation"]],
        "scale_embedding": arguments["scale_embeddings"],
        "share_encoder_decoder_embeddings": not _is_pair(arguments["vocabulary_size"]),
        # Of sinusoids there is no end here; transformers keeps a table of this many.
        "max_position_embeddings": DEFAULTS["max_position_embeddings"],
    }
    config["vocab_size"], config["decoder_vocab_size"] = _both(arguments["vocabulary_size"])
    for ours, theirs in (
        ("num_layers", "layers"),
        ("num_heads", "attention_heads"),
        ("intermediate_dim", "ffn_dim"),
    ):
        config[f"encoder_{theirs}"], config[f"decoder_{theirs}"] = _both(arguments[ours])
    config["num_hidden_layers"] = config["encoder_layers"]
    for name, value in write_generation(arguments).items():
        if name.endswith("token_id"):
            config[name] = value
    # Said even where it is null: transformers would assume 0.
    config.setdefault("forced_eos_token_id", None)
    return config


def write_generation(arguments):
    """Return the content of ``generation_config.json``; the reverse of `read_generation`."""
    settings = arguments["generation"]
    result = {
        "pad_token_id": settings["pad_id"],
        "decoder_start_token_id": settings["start_id"],
        "eos_token_id": settings["end_id"],
    }
    if settings.get("forced_end"):
        result["forced_eos_token_id"] = settings["end_id"]
    if settings.get("suppress_ids"):
        result["bad_words_ids"] = [[index] for index in settings["suppress_ids"]]
    if settings.get("renormalize"):
        result["renormalize_logits"] = True
    if settings.get("max_length"):
        result["max_length"] = settings["max_length"] + 1
    if settings.get("num_beams"):
        if settings.get("length_rule", "mean") != "mean":
            raise ValueError(
                f"generation: length_rule={settings['length_rule']!r}; only 'mean' can be said"
            )
        result["num_beams"] = settings["num_beams"]
        result["length_penalty"] = settings.get("length_penalty", 1.0)
    return result


def feature_order(arguments):
    """Return the order of the hidden features that Marian's position table wants.

    The paper's sines and cosines alternate, Marian's stand in halves. Features have no order of
    their own: with every weight renumbered alike, the model computes the same.
    """
    columns = range(arguments["hidden_dim"])
    return [*columns[::2], *columns[1::2]] if arguments["positions"] == "sinusoidal" else None


def _is_pair(value):
    return isinstance(value, (list, tuple))


def _both(value):
    return tuple(value) if _is_pair(value) else (value, value)


def read(configs, overrides):
    """Return the constructor arguments for a folder, see `Layout`."""
    arguments = {**read_config(configs[CONFIG]), **overrides}
    if "generation" not in overrides:
        arguments["generation"] = read_generation(configs[CONFIG], configs.get(GENERATION_CONFIG))
    return arguments, ()


def write(model):
    """Return the configurations of a Transformer, see `Layout`."""
    arguments = model.get_config()
    return {CONFIG: write_config(arguments), GENERATION_CONFIG: write_generation(arguments)}


FAMILY = Family(
    layouts={
        "transformers": Layout(
            field="model_type",
            values=("marian",),
            configs=(CONFIG, GENERATION_CONFIG),
            read=read,
            write=write,
            key_table=key_table,
            feature_order=feature_order,
        )
    },
    companion=MarianTokenizer,
    companion_name="tokenizer",
    published="hf://Helsinki-NLP/opus-mt-en-de",
)
