"""What is kept equals what is computed, and nothing that changed is answered from the cache."""

from __future__ import annotations

import json
import random

import pytest
import torch

from tests import tiny
from tests.evaluation.reference import answer_log_probs, watch_passes
from tfrnet.data.examples import Encoded, Example, encode
from tfrnet.evaluation.cache import Cache
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models.load import LoadedModel

PROMPTS = [example.prompt for example in tiny.examples(5)]


@pytest.fixture
def loaded(tokenizer):
    return LoadedModel(tiny.make_model(), tokenizer)


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path / "kept")


@pytest.fixture
def passes(monkeypatch):
    return watch_passes(monkeypatch)


@pytest.fixture
def groups(tokenizer):
    return [
        [encode(Example(prompt, answer), tokenizer, 128) for answer in ("red", "green blue 7")]
        for prompt in PROMPTS
    ]


def entries(cache):
    return len(list(cache.folder.glob("*"))) if cache.folder.exists() else 0


# The same, without a pass


@pytest.mark.parametrize("moments", [False, True])
def test_scores_from_the_cache_are_those_that_were_computed(loaded, cache, groups, moments, passes):
    plain = Evaluator(loaded).score(groups, moments)
    first = Evaluator(loaded, cache=cache)
    assert first.score(groups, moments) == plain
    assert first.hits == 0
    passes.clear()
    second = Evaluator(loaded, cache=cache)
    assert second.score(groups, moments) == plain
    assert (passes, second.hits) == ([], 1)
    assert bool(plain[0][0].mean) == moments


def test_scores_are_those_of_a_plain_pass(tokenizer, cache, groups):
    model = tiny.make_model(dtype=torch.float64)
    evaluator = Evaluator(LoadedModel(model, tokenizer), cache=cache)
    for _ in range(2):
        for group, scores in zip(groups, evaluator.score(groups), strict=True):
            for answer, score in zip(group, scores, strict=True):
                expected = answer_log_probs(model, answer.ids, answer.answer_start)
                assert score.log_probs == pytest.approx(expected, abs=1e-12)
    assert evaluator.hits == 1


def test_replies_of_the_model_are_never_kept(loaded, cache, groups, passes):
    """They may be answers to what it was made to forget."""
    evaluator = Evaluator(loaded, cache=cache)
    replies = evaluator.generate(PROMPTS, 6)
    assert entries(cache) == 0
    evaluator.score(groups)
    (file,) = cache.folder.iterdir()
    values = json.loads(file.read_text())["value"]
    assert all(word_free(value) for value in values)
    passes.clear()
    assert evaluator.generate(PROMPTS, 6) == replies
    assert passes
    assert (evaluator.hits, entries(cache)) == (0, 1)


def word_free(value):
    """Tell whether a value holds nothing but numbers, under the names of what they are."""
    if isinstance(value, dict):
        names = {"log_probs", "is_argmax", "mean", "variance"}
        return value.keys() <= names and all(map(word_free, value.values()))
    if isinstance(value, list):
        return all(map(word_free, value))
    return isinstance(value, int | float)


def test_a_model_that_is_loaded_anew_finds_its_results(tiny_folder, cache, groups, passes):
    from tfrnet.models.load import load_model

    plain = Evaluator(load_model(str(tiny_folder)), cache=cache).score(groups)
    passes.clear()
    assert Evaluator(load_model(str(tiny_folder)), cache=cache).score(groups) == plain
    assert passes == []


def test_without_a_cache_everything_is_computed_and_nothing_kept(loaded, groups, passes, tmp_path):
    evaluator = Evaluator(loaded, cache=None)
    first = evaluator.score(groups)
    count = len(passes)
    assert count > 0
    assert evaluator.score(groups) == first
    assert (len(passes), evaluator.hits) == (2 * count, 0)
    assert list(tmp_path.iterdir()) == []


def test_progress_counts_what_is_found_too(loaded, cache, groups):
    for _ in range(2):
        done = []
        evaluator = Evaluator(loaded, cache=cache, advance=done.append)
        evaluator.score(groups)
        assert sum(done) == len(groups)
        evaluator.generate(PROMPTS, 2)
        assert sum(done) == len(groups) + len(PROMPTS)


def test_nothing_is_asked_of_no_prompts(loaded, cache, passes):
    evaluator = Evaluator(loaded, cache=cache)
    assert evaluator.generate([], 5) == []
    assert evaluator.score([]) == []
    assert passes == []


# Fresh, whatever changed


def test_one_ulp_of_any_weight_is_a_fresh_computation(loaded, cache, groups, passes):
    evaluator = Evaluator(loaded, cache=cache)
    evaluator.score(groups[:1])
    generator = random.Random(0)
    for _ in range(12):
        weight = generator.choice(list(loaded.model.parameters())).data.reshape(-1)
        place = generator.randrange(weight.numel())
        weight[place] = torch.nextafter(weight[place], torch.tensor(generator.choice([-9.0, 9.0])))
        passes.clear()
        found = evaluator.score(groups[:1])
        assert passes
        assert found == Evaluator(loaded).score(groups[:1])
    assert evaluator.hits == 0


def test_a_weight_that_is_put_back_finds_its_result(loaded, cache, groups, passes):
    evaluator = Evaluator(loaded, cache=cache)
    first = evaluator.score(groups)
    weight = loaded.model.model.layers[0].mlp.up_proj.weight.data
    kept = weight[3, 4].item()
    weight[3, 4] = 2.0
    assert evaluator.score(groups) != first
    weight[3, 4] = kept
    passes.clear()
    assert evaluator.score(groups) == first
    assert (passes, evaluator.hits) == ([], 1)


def test_another_mask_is_a_fresh_computation(loaded, cache, groups, passes):
    evaluator = Evaluator(loaded, cache=cache)
    plain = (evaluator.score(groups), evaluator.generate(PROMPTS, 5))
    with ChannelMask(loaded.model, find_channels(loaded.model)) as mask:
        values = torch.rand(mask.index.total, generator=torch.Generator().manual_seed(0))
        for channel in range(0, mask.index.total, 250):
            values[channel] = 0.0
            mask.set(values)
            passes.clear()
            found = (evaluator.score(groups), evaluator.generate(PROMPTS, 5))
            assert passes
            uncached = Evaluator(loaded)
            assert found == (uncached.score(groups), uncached.generate(PROMPTS, 5))
            assert found != plain
        assert evaluator.hits == 0
        mask.set(torch.ones_like(values))
        assert (evaluator.score(groups), evaluator.generate(PROMPTS, 5)) == plain
        assert evaluator.hits == 1


def test_any_other_input_is_a_fresh_computation(loaded, cache, groups):
    evaluator = Evaluator(loaded, cache=cache)
    evaluator.score(groups)
    answer = groups[0][0]
    others = [
        groups[:-1],
        groups[::-1],
        [groups[0][::-1], *groups[1:]],
        [[answer], [groups[0][1]], *groups[1:]],
        [[Encoded((*answer.ids[:-1], 9), answer.answer_start), groups[0][1]], *groups[1:]],
        [[Encoded(answer.ids, answer.answer_start - 1), groups[0][1]], *groups[1:]],
    ]
    for other in others:
        assert evaluator.score(other) == Evaluator(loaded).score(other)
    assert evaluator.score(groups, moments=True)[0][0].mean
    assert evaluator.hits == 0
    assert entries(cache) == 2 + len(others)


def test_prompt_and_continuation_fit_the_length_together(loaded, passes):
    Evaluator(loaded).generate(PROMPTS, 6, max_length=11)
    assert {width for _, width in passes} == {5, 1}


def test_what_cannot_be_looked_through_is_never_kept(loaded, cache, groups, passes):
    evaluator = Evaluator(loaded, cache=cache)
    kept = evaluator.score(groups)
    before = entries(cache)
    handle = loaded.model.model.norm.register_forward_hook(lambda m, i, output: 2 * output)
    try:
        for _ in range(2):
            passes.clear()
            assert evaluator.score(groups) != kept
            evaluator.generate(PROMPTS, 3)
            assert passes
        assert (evaluator.hits, entries(cache)) == (0, before)
    finally:
        handle.remove()
    assert evaluator.score(groups) == kept
    assert evaluator.hits == 1


# Files


@pytest.mark.parametrize("damage", ["truncated", "edited", "gone"])
def test_a_damaged_entry_is_computed_again(loaded, cache, groups, passes, damage):
    evaluator = Evaluator(loaded, cache=cache)
    first = evaluator.score(groups)
    (file,) = cache.folder.iterdir()
    text = file.read_text()
    if damage == "truncated":
        file.write_text(text[: len(text) // 2])
    elif damage == "edited":
        number = repr(first[0][0].log_probs[0])
        assert number in text
        file.write_text(text.replace(number, "-0.001"))
    else:
        file.unlink()
    passes.clear()
    assert evaluator.score(groups) == first
    assert passes
    assert file.read_text() == text
    assert evaluator.score(groups) == first
    assert evaluator.hits == 1


def test_a_cache_that_cannot_be_written_is_no_error(loaded, groups, tmp_path):
    (tmp_path / "file").write_text("")
    evaluator = Evaluator(loaded, cache=Cache(tmp_path / "file"))
    assert evaluator.score(groups) == evaluator.score(groups) == Evaluator(loaded).score(groups)
    assert evaluator.hits == 0
