"""`examples/finetune_translation.py`: it trains as transformers does, and writes what it reads."""

import re

import keras
import numpy as np
import pytest

from kerasmodels import checkpoints, models
from tests.examples.scripts import assert_is_a_picture, load, run

LENGTH = 12
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "under", "mat", "sun"]


def sentences(lines, seed=0):
    random = np.random.default_rng(seed)
    sources = [" ".join(random.choice(WORDS, random.integers(2, 6))) for _ in range(lines)]
    return sources, [" ".join(w[::-1] for w in source.split()) for source in sources]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A published folder: a Marian of transformers, random, with its SentencePiece models."""
    import torch
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    folder = tmp_path_factory.mktemp("marian")
    tokenizer = checkpoints.MarianTokenizer.train(*sentences(60), vocabulary_size=40)
    pad = tokenizer.pad_id
    config = MarianConfig(
        vocab_size=pad + 1,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        dropout=0.0,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        init_std=0.3,
    )
    torch.manual_seed(0)
    model = MarianMTModel(config)
    model.generation_config = GenerationConfig(
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
        forced_eos_token_id=0,
        bad_words_ids=[[pad]],
        num_beams=2,
        max_length=LENGTH + 1,
    )
    model.save_pretrained(folder)
    for name, content in tokenizer.files.items():
        (folder / name).write_bytes(content)
    return folder


def original(folder):
    from transformers import MarianMTModel

    return MarianMTModel.from_pretrained(folder)


def losses_of_transformers(folder, batches, rate, label_smoothing):
    """The losses of transformers' own fine-tuning on batches, one step of AdamW each.

    Two things are set right first. Its class makes the tables of sinusoids frozen, and its loader
    thaws them. And the start token, which has the number of the pad token, would learn nothing as
    an input, since PyTorch's `padding_idx` takes its gradient away.
    """
    import torch
    from transformers.trainer_pt_utils import LabelSmoother

    model = original(folder).train()
    for side in (model.model.encoder, model.model.decoder):
        side.embed_positions.weight.requires_grad_(False)
        side.embed_tokens.padding_idx = None
    decayed = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    others = [p for p in model.parameters() if p.requires_grad and p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], rate
    )
    losses = []
    for step, (inputs, targets, weight) in enumerate(batches):
        real = weight.any(axis=1)  # rows that fill a batch are no sentences

        def tensor(values, real=real):
            return torch.tensor(np.asarray(values)[real]).long()

        labels = tensor(np.where(weight > 0, targets, -100))
        output = model(
            input_ids=tensor(inputs["encoder_token_ids"]),
            attention_mask=tensor(inputs["encoder_padding_mask"]),
            labels=labels,
        )
        loss = LabelSmoother(label_smoothing)(output, labels) if label_smoothing else output.loss
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            # Up to the peak in one step, then down to 0; update n has the rate of step n - 1.
            group["lr"] = rate * (1 - max(step - 1, 0) / len(batches))
        optimizer.step()
    return losses


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_losses_are_those_of_transformers(folder, label_smoothing):
    rate = 1e-3
    example = load("finetune_translation")
    keras.utils.set_random_seed(0)
    model = example.load_model(str(folder), None, None, None)
    pairs = sentences(90, seed=1)
    shapes = {"tokens_per_batch": 80, "buckets": [(4, 4), (7, 7)]}
    train = example.batches(model, pairs, LENGTH, **shapes)
    given = [train[i] for i in range(5)]
    assert len({x["encoder_token_ids"].shape for x, *_ in given}) > 1
    example.compile_model(model, 5, rate, label_smoothing)
    ours = [
        model.train_on_batch(x, y, sample_weight=w, return_dict=True)["loss"] for x, y, w in given
    ]
    theirs = losses_of_transformers(folder, given, rate, label_smoothing)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4)
    assert max(theirs) - min(theirs) > 0.1  # the steps do something


def translations(folder, sources):
    """What transformers says, with the folder's own settings."""
    import torch
    from transformers import MarianTokenizer

    tokenizer, model = MarianTokenizer.from_pretrained(folder), original(folder).eval()
    inputs = tokenizer(sources, return_tensors="pt", padding=True)
    with torch.no_grad():
        ids = model.generate(**inputs, max_length=LENGTH + 1)
    return tokenizer.batch_decode(ids, skip_special_tokens=True)


@pytest.mark.skipif(
    keras.backend.backend() != "torch",
    reason="compiling takes half a minute; the steps have a test on every backend",
)
@pytest.mark.parametrize("new", [False, True])
def test_what_the_user_gets(folder, new, tmp_path):
    file, output = tmp_path / "pairs.tsv", tmp_path / "new" / "run"
    lines = [f"{source}\t{target}" for source, target in zip(*sentences(60), strict=True)]
    file.write_text("\n".join(lines) + "\n")
    given = ["--lines", 40, "--vocabulary-size", 40]
    given = given if new else [file, "--preset", folder, "--learning-rate", 0.01]
    given += ["--epochs", 2, "--average", 2, "--held-out", 5, "--max-length", LENGTH]
    printed = run("finetune_translation", *given, "--output", output)
    scores = re.findall(r"^(Before|After): BLEU \d+\.\d\d of \d+ test", printed, re.MULTILINE)
    assert scores == ["Before", "After"]
    assert re.search(r"BLEU \d+\.\d\d of the best epoch, \d+\.\d\d of the average", printed)
    assert_is_a_picture(output / "learning_curve.png")

    # Ours says the same as transformers, from the folder alone.
    model = models.Transformer.from_preset(output / "preset")
    sources = ["two hundred and four", "nine"] if new else sentences(6, seed=3)[0]
    ids = model.generate(model.tokenizer(sources), max_length=LENGTH)
    said = model.tokenizer.decode(ids)
    assert said == translations(output / "preset", sources)
    if not new:
        assert said != translations(folder, sources)  # it has learned something
        # Its ids are the folder's, though nobody named one.
        assert model.generation == models.Transformer.from_preset(folder).generation


def test_numbers_in_words():
    example = load("finetune_translation")
    for number, words in (
        (7, "seven"),
        (40, "forty"),
        (342, "three hundred and forty-two"),
        (1_002, "one thousand and two"),
        (90_100, "ninety thousand one hundred"),
        (5_000_019, "five million and nineteen"),
        (
            123_456_789,
            "one hundred and twenty-three million four hundred and fifty-six thousand seven "
            "hundred and eighty-nine",
        ),
    ):
        assert example.in_words(number) == words
    sources, targets = example.made_pairs(200)
    assert len(set(sources)) == 200 and example.made_pairs(200) == (sources, targets)
    numbers = [int(target.replace(" ", "")) for target in targets]
    assert sources == [example.in_words(number) for number in numbers]
    assert all(" ".join(str(n)) == t for n, t in zip(numbers, targets, strict=True))


def test_no_source_stands_in_two_parts():
    example = load("finetune_translation")
    sources = [f"s{i % 20}" for i in range(50)]
    targets = [f"t{i}" for i in range(50)]
    parts = example.split(sources, targets, 4, seed=1)
    names = [set(part[0]) for part in parts]
    assert [len(n) for n in names] == [12, 4, 4] and len(set.union(*names)) == 20
    pairs = [pair for part in parts for pair in zip(*part, strict=True)]
    assert sorted(pairs) == sorted(zip(sources, targets, strict=True))
    with pytest.raises(ValueError, match="20 different ones, held_out=10"):
        example.split(sources, targets, 10)


def test_a_preset_without_tokenizer_is_refused(folder, tmp_path):
    model = models.Transformer.from_preset(folder)
    model.tokenizer = None
    model.save_to_preset(tmp_path / "bare")
    with pytest.raises(ValueError, match="source.spm"):
        load("finetune_translation").load_model(str(tmp_path / "bare"), None, None, None)
