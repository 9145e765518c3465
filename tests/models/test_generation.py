"""Greedy continuations: what a loop over argmax gives, however many are made at a time."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch

from tests import tiny
from tests.evaluation.reference import greedy, watch_passes
from tfrnet.core.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models import generation
from tfrnet.models.generation import continue_rows, continue_texts, stream_text
from tfrnet.models.load import LoadedModel

EOS = 0
PROMPTS = [example.prompt for example in tiny.examples(5)] + ["The", "Item 3 of the very"]


@pytest.fixture(scope="module")
def loaded(tokenizer):
    """In float64, so that a batch rounds nothing visibly."""
    return LoadedModel(tiny.make_model(dtype=torch.float64), tokenizer)


@pytest.fixture
def passes(monkeypatch):
    return watch_passes(monkeypatch)


@pytest.fixture(scope="module")
def expected(loaded):
    return [by_hand(loaded, prompt, 10) for prompt in PROMPTS]


def by_hand(loaded, prompt, count, keep=None):
    ids = loaded.tokenizer(prompt)["input_ids"]
    added = greedy(loaded.model, ids[-keep:] if keep else ids, count, EOS)
    return loaded.tokenizer.decode(added)


@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_any_batch_gives_what_a_loop_over_argmax_gives(loaded, expected, batch_size):
    assert len(set(expected)) > 4
    assert continue_texts(loaded, PROMPTS, 10, batch_size) == expected


def test_what_the_memory_does_not_hold_is_done_in_halves(loaded, expected, monkeypatch):
    real, sizes = generation._generate, []

    def short(loaded, rows, *others):
        if len(rows) > 2:
            raise torch.OutOfMemoryError("no")
        sizes.append(len(rows))
        return real(loaded, rows, *others)

    monkeypatch.setattr(generation, "_generate", short)
    assert continue_texts(loaded, PROMPTS, 10, batch_size=16) == expected
    assert max(sizes) == 2


def test_a_limit_on_tokens_counts_padding_and_changes_nothing_else(loaded, passes):
    rows = [[5] * length for length in (9, 2, 3, 30, 9)]
    expected = continue_rows(loaded, rows, 4, batch_size=8)
    assert passes[0] == (5, 30)
    passes.clear()
    assert continue_rows(loaded, rows, 4, batch_size=8, max_tokens=18) == expected
    assert [each for each in passes if each[1] > 1] == [(2, 3), (2, 9), (1, 30)]


@pytest.mark.parametrize("architecture", ["gpt2", "gemma3"])
def test_left_padding_changes_nothing_in_other_models(architecture, tokenizer):
    loaded = LoadedModel(tiny.make_model(architecture, torch.float64), tokenizer)
    expected = [by_hand(loaded, prompt, 6) for prompt in PROMPTS[:4]]
    assert continue_texts(loaded, PROMPTS[:4], 6, batch_size=4) == expected


def test_the_live_mask_takes_part(loaded):
    plain = continue_texts(loaded, PROMPTS, 8, batch_size=4)
    with ChannelMask(loaded.model, find_channels(loaded.model)) as mask:
        mask.set(torch.rand(mask.index.total, generator=torch.Generator().manual_seed(0)).round())
        masked = continue_texts(loaded, PROMPTS, 8, batch_size=4)
        assert masked == [by_hand(loaded, prompt, 8) for prompt in PROMPTS]
    assert masked != plain
    assert continue_texts(loaded, PROMPTS, 8, batch_size=4) == plain


def test_progress_counts_prompts(loaded):
    done = []
    continue_texts(loaded, PROMPTS, 1, batch_size=4, advance=done.append)
    assert done == [4, 3]


def test_nothing_is_asked_of_no_prompts(loaded, passes):
    assert continue_texts(loaded, [], 4) == []
    assert passes == []


@pytest.mark.parametrize("keep", [3, 200])
def test_a_prompt_that_is_too_long_keeps_its_end(loaded, keep, passes):
    expected = [by_hand(loaded, prompt, 6, keep) for prompt in PROMPTS]
    passes.clear()
    assert continue_texts(loaded, PROMPTS, 6, 3, max_prompt=keep) == expected
    assert max(width for _, width in passes) <= keep


# How a text ends, with a model whose next token hangs on the last one alone


@torch.no_grad()
def speaker(*chains):
    """Return a model that says each chain's tokens one after another."""
    model = tiny.make_model()
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    embeddings = torch.nn.functional.normalize(torch.randn(tiny.VOCABULARY, 32), dim=-1)
    model.model.embed_tokens.weight.copy_(embeddings)
    model.model.norm.weight.fill_(1.0)
    model.lm_head.weight.zero_()
    for chain in chains:
        for token, following in pairwise(chain):
            model.lm_head.weight[following] += embeddings[token]
    return model


def token_of(tokenizer, text):
    (token,) = tokenizer(text)["input_ids"]
    return token


@pytest.fixture
def ending(tokenizer):
    """After a: b, EOS. After d: e, newline, f. After g: h for ever."""
    a, b, d, e, f, g, h = (token_of(tokenizer, letter) for letter in "abdefgh")
    newline = token_of(tokenizer, "\n")
    return LoadedModel(speaker([a, b, EOS, a], [d, e, newline, f, f], [g, h, h]), tokenizer)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_eos_ends_a_text_and_is_no_part_of_it(ending, batch_size):
    texts = continue_texts(ending, ["a", "g", "xa"], 5, batch_size)
    assert texts == ["b", "hhhhh", "b"]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_one_line_stops_at_the_newline_and_leaves_it_out(ending, batch_size):
    prompts = ["d", "g", "a"]
    assert continue_texts(ending, prompts, 5, batch_size) == ["e\nfff", "hhhhh", "b"]
    assert continue_texts(ending, prompts, 5, batch_size, one_line=True) == ["e", "hhhhh", "b"]


def test_a_newline_of_the_prompt_ends_nothing(ending):
    assert continue_texts(ending, ["x\ng", "y\n\nd"], 3, 2, one_line=True) == ["hhh", "e"]


def test_no_pass_is_made_after_all_texts_have_ended(ending, passes):
    continue_texts(ending, ["d", "a", "xd"], 50, 3, one_line=True)
    # e or b, newline or EOS; then nothing is left to say.
    assert len(passes) == 2
    passes.clear()
    continue_texts(ending, ["a"], 50)
    assert len(passes) == 2


def test_a_checkpoint_may_have_several_tokens_that_end_a_text(ending, tokenizer):
    config = ending.model.generation_config
    config.eos_token_id = [EOS, token_of(tokenizer, "h")]
    assert continue_texts(ending, ["g", "a", "d"], 4, 3) == ["", "b", "e\nff"]
    config.eos_token_id = token_of(tokenizer, "f")
    assert continue_texts(ending, ["a", "d"], 4, 2) == ["b", "e\n"]


def test_padding_that_is_not_eos_is_no_part_of_a_text(ending, tokenizer):
    padded = copy.deepcopy(tokenizer)
    padded.pad_token = "z"
    texts = continue_texts(LoadedModel(ending.model, padded), ["a", "g", "xxd"], 5, 3)
    assert texts == ["b", "hhhhh", "e\nfff"]


def test_special_tokens_are_no_part_of_a_text(tokenizer):
    a, b, c = (token_of(tokenizer, letter) for letter in "abc")
    marked = copy.deepcopy(tokenizer)
    marked.add_special_tokens({"additional_special_tokens": ["b"]})
    assert token_of(marked, "b") == b
    loaded = LoadedModel(speaker([a, b, c, c]), marked)
    assert continue_texts(loaded, ["a"], 4) == ["ccc"]


def test_a_tokenizer_without_eos_goes_on_to_the_last_token(ending, tokenizer):
    bare = copy.deepcopy(tokenizer)
    bare.eos_token = bare.pad_token = None
    ending.model.generation_config.eos_token_id = None
    assert continue_texts(LoadedModel(ending.model, bare), ["g"], 3) == ["hhh"]


def test_the_checkpoints_own_settings_are_kept_for_others(tokenizer):
    model = tiny.make_model(dtype=torch.float64)
    own = model.generation_config
    own.repetition_penalty = 3.0
    before = own.to_dict()
    continue_texts(LoadedModel(model, tokenizer), PROMPTS[:1], 2)
    assert model.generation_config is own
    assert own.to_dict() == before


@pytest.mark.parametrize(
    "asked",
    [
        {"do_sample": True, "temperature": 5.0, "top_k": 0},
        {"repetition_penalty": 3.0},
        {"num_beams": 3},
        {"no_repeat_ngram_size": 1},
        {"suppress_tokens": list(range(1, 200))},
        {"max_new_tokens": 1, "max_length": 3},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_a_checkpoint_asks_for_plays_no_part(tokenizer, expected, asked):
    model = tiny.make_model(dtype=torch.float64)
    loaded = LoadedModel(model, tokenizer)
    for name, value in asked.items():
        setattr(model.generation_config, name, value)
    torch.manual_seed(1)
    assert continue_texts(loaded, PROMPTS, 10, batch_size=4) == expected


def test_a_cut_prompt_keeps_bos():
    class Tokenizer:
        bos_token_id = 9

    assert generation._shortened([9, 1, 2, 3, 4], Tokenizer, 3) == [9, 3, 4]
    assert generation._shortened([5, 1, 2, 3, 4], Tokenizer, 3) == [2, 3, 4]
    assert generation._shortened([9, 1, 2], Tokenizer, 3) == [9, 1, 2]
    assert generation._shortened([9, 1, 2], Tokenizer, 1) == [2]
    with pytest.raises(InputError, match="no room is left for the prompt"):
        generation._shortened([9, 1, 2], Tokenizer, 0)


def test_a_text_that_comes_in_pieces_is_the_same_text(loaded):
    counts = []
    for prompt in PROMPTS:
        pieces = []
        whole = stream_text(loaded, prompt, 24, pieces.append)
        assert [whole] == continue_texts(loaded, [prompt], 24)
        assert "".join(pieces) == whole
        counts.append(len([piece for piece in pieces if piece]))
    assert max(counts) > 1
