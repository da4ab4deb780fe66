"""Beam search against transformers' own, token for token, where both may finish early or late."""

import keras
import numpy as np
import pytest

from kerasmodels import decoding
from tests.decoding import toys

SOURCES, VOCABULARY = 24, 12
PAD = 11  # transformers takes a padding id of 0 for none and fills with the end token


def transformers_beams(decoder, beams, alpha, length, early_stopping, rules):
    import torch
    from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
    from transformers.modeling_outputs import CausalLMOutput

    class Toy(PreTrainedModel, GenerationMixin):
        config_class = PretrainedConfig
        _supports_cache_class = False

        def __init__(self, config):
            super().__init__(config)
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def prepare_inputs_for_generation(self, input_ids, **kwargs):
            return {"input_ids": input_ids}

        def forward(self, input_ids, **kwargs):
            logits = []
            for row, tokens in enumerate(input_ids.tolist()):
                hashed = 0
                for index, token in enumerate(tokens):
                    hashed = (hashed * 31 + token * 7 + index) % toys.STATES
                logits.append(decoder.table[row * SOURCES // len(input_ids), hashed])
            return CausalLMOutput(logits=torch.tensor(np.array(logits))[:, None])

    config = PretrainedConfig(vocab_size=VOCABULARY)
    config.is_encoder_decoder = False
    result = Toy(config).generate(
        torch.ones((SOURCES, 1), dtype=torch.long),
        max_new_tokens=length,
        num_beams=beams,
        num_return_sequences=beams,
        length_penalty=alpha,
        early_stopping=early_stopping,
        do_sample=False,
        use_cache=False,
        pad_token_id=PAD,
        return_dict_in_generate=True,
        output_scores=True,
        **rules,
    )
    ids = result.sequences[:, 1:].numpy().reshape(SOURCES, beams, -1)
    ids = np.pad(ids, ((0, 0), (0, 0), (0, length - ids.shape[-1])), constant_values=PAD)
    return ids, result.sequences_scores.numpy().reshape(SOURCES, beams)


@pytest.mark.parametrize(
    ("beams", "alpha", "stop", "theirs", "ours"),
    [
        (4, 1.0, None, {"eos_token_id": 2}, {}),
        (4, 2.0, "bound", {"eos_token_id": 2}, {}),
        (2, -1.0, None, {"eos_token_id": 2, "forced_eos_token_id": 2}, {"forced_end": True}),
        (
            3,
            1.5,
            None,
            {"eos_token_id": [2, 5], "bad_words_ids": [[4], [0]], "renormalize_logits": True},
            {"end_id": [2, 5], "suppress_ids": [4, 0], "renormalize": True},
        ),
    ],
)
def test_beams(beams, alpha, stop, theirs, ours):
    decoder = toys.HistoryDecoder(SOURCES, VOCABULARY, seed=beams, spread=1.5)
    early_stopping = "never" if stop == "bound" else False
    expected = transformers_beams(decoder, beams, alpha, 14, early_stopping, theirs)
    ids, scores = decoding.generate(
        decoder,
        {"source": np.arange(SOURCES)},
        decoding.BeamSearch(beams, alpha, "mean", num_return=beams, stop_rule=stop),
        max_length=14,
        rules=decoding.TokenRules(pad_id=PAD, **ours),
        return_scores=True,
        jit_compile=keras.backend.backend() == "jax",
    )
    np.testing.assert_array_equal(ids, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-6, atol=1e-5)
