"""Models with a recurrent state, some of which read padding as text: a batch gives what one does.

Losses are padded on the right everywhere, and have tests of their own.
"""

from __future__ import annotations

import pytest
import torch
import transformers

from tests import tiny
from tests.evaluation.reference import answer_log_probs, greedy
from tfrnet.data.examples import Example, encode
from tfrnet.models import generation
from tfrnet.models.generation import continue_rows
from tfrnet.models.likelihood import score_answers
from tfrnet.models.load import LoadedModel

SIZES = {"vocab_size": tiny.VOCABULARY, "hidden_size": 32, "num_hidden_layers": 3}
CONFIGS = {
    "rwkv": lambda: transformers.RwkvConfig(**SIZES, intermediate_size=48),
    "recurrent_gemma": lambda: transformers.RecurrentGemmaConfig(
        **SIZES, intermediate_size=48, num_attention_heads=4, num_key_value_heads=2
    ),
    # Its widths are multiples of 64.
    "xlstm": lambda: transformers.xLSTMConfig(
        **(SIZES | {"hidden_size": 128}), num_blocks=3, num_heads=4
    ),
}


def make_model(architecture):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[architecture]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.15)
    return model


@pytest.mark.parametrize("architecture", CONFIGS)
def test_scores_of_a_batch_are_those_of_each_answer(architecture, tokenizer):
    model = make_model(architecture)
    groups = [
        [encode(example, tokenizer, 128), encode(Example(example.prompt, "no"), tokenizer, 128)]
        for example in tiny.examples(4)
    ]
    for group, scores in zip(groups, score_answers(model, groups, 8), strict=True):
        for answer, score in zip(group, scores, strict=True):
            expected = answer_log_probs(model, answer.ids, answer.answer_start)
            assert score.log_probs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("architecture", CONFIGS)
def test_a_batch_of_prompts_is_continued_as_each_is(architecture, tokenizer):
    loaded = LoadedModel(make_model(architecture), tokenizer)
    rows = [[7 * n % 300 + 1 for n in range(length, 2 * length)] for length in (1, 2, 5, 19)]
    expected = [greedy(loaded.model, row, 8) for row in rows]
    assert continue_rows(loaded, rows, 8, batch_size=4) == expected


def test_prompts_of_one_length_need_no_padding_and_are_continued_together(tokenizer, monkeypatch):
    loaded = LoadedModel(make_model("rwkv"), tokenizer)
    sizes, padded = [], generation.padded
    monkeypatch.setattr(
        generation, "padded", lambda rows, *others: sizes.append(len(rows)) or padded(rows, *others)
    )
    continue_rows(loaded, [[5, 6], [7, 8], [9, 10]], 2, batch_size=4)
    continue_rows(loaded, [[5, 6], [7]], 2, batch_size=4)
    assert sizes == [3, 1, 1]
