"""Shared prefixes change nothing but the time: every score equals that of a plain pass."""

import pytest
import torch

from tests import tiny
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, encode
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models import likelihood
from tfrnet.models.likelihood import score_answers

CHOICES = ("red", "red green", "white and blue", "no")
_SINGLE = ("mixtral", "qwen2_moe")  # their experts run in float32 at most


def _groups(tokenizer, most=4):
    groups = []
    for number in range(7):
        prompt = f"Item {number} of the " + "very " * (number * 4) + "old box is"
        choices = CHOICES[: 1 + number % most]
        groups.append([encode(Example(prompt, choice), tokenizer, 128) for choice in choices])
    return groups


def _plain(model, answer: Encoded) -> list[float]:
    log_p = torch.log_softmax(model(torch.tensor([answer.ids])).logits[0].double(), -1)
    return [log_p[p - 1, answer.ids[p]].item() for p in range(answer.answer_start, len(answer.ids))]


@pytest.mark.parametrize("architecture", tiny.ARCHITECTURES)
@pytest.mark.parametrize("batch_size", [1, 3, 16])
@torch.no_grad()
def test_scores_are_those_of_a_plain_pass(architecture, batch_size, tokenizer):
    single = architecture in _SINGLE
    model = tiny.make_model(architecture, torch.float32 if single else torch.float64)
    groups = _groups(tokenizer)
    found = score_answers(model, groups, batch_size)
    tolerance = 1e-4 if single else 1e-12
    for group, scores in zip(groups, found, strict=True):
        for answer, score in zip(group, scores, strict=True):
            assert score.log_probs == pytest.approx(_plain(model, answer), abs=tolerance)


def test_argmax_and_moments_come_with_them(tokenizer):
    model = tiny.make_trained_model().double().requires_grad_(False)
    groups = [
        [encode(example, tokenizer, 128), encode(Example(example.prompt, "no"), tokenizer, 128)]
        for example in tiny.examples(4)
    ]
    for group, scores in zip(groups, score_answers(model, groups, 8, moments=True), strict=True):
        for answer, score in zip(group, scores, strict=True):
            logits = model(torch.tensor([answer.ids])).logits[0]
            p = logits.softmax(-1)[answer.answer_start - 1 : -1]
            mean = (p * p.log()).sum(-1)
            variance = (p * p.log() ** 2).sum(-1) - mean**2
            assert score.mean == pytest.approx(mean.tolist(), abs=1e-9)
            assert score.variance == pytest.approx(variance.tolist(), abs=1e-9)
            expected = p.argmax(-1) == torch.tensor(answer.ids[answer.answer_start :])
            assert list(score.is_argmax) == expected.tolist()
    assert score_answers(model, groups, 8)[0][0].mean == ()


@torch.no_grad()
def test_answers_that_begin_differently_are_computed_apart(tokenizer):
    """As truncation by the harness's rule leaves them: each window begins somewhere else."""
    model = tiny.make_model(dtype=torch.float64)
    prompt = "Item 1 of the very very very old and dusty box is"
    group = [
        encode(Example(prompt, choice), tokenizer, 9, truncation="lm_eval") for choice in CHOICES
    ]
    assert len({answer.ids[0] for answer in group}) > 1
    (scores,) = score_answers(model, [group], 4)
    for answer, score in zip(group, scores, strict=True):
        assert score.log_probs == pytest.approx(_plain(model, answer), abs=1e-12)


def _count_tokens(model, monkeypatch):
    seen = []
    forward = model.forward
    monkeypatch.setattr(
        model,
        "forward",
        lambda **inputs: seen.append(inputs["input_ids"].shape) or forward(**inputs),
    )
    return seen


def test_a_shared_prefix_is_computed_once(tokenizer, monkeypatch):
    model = tiny.make_model()
    prompt = "Item 1 of the very very very old and dusty box is"
    group = [encode(Example(prompt, choice), tokenizer, 128) for choice in CHOICES]
    seen = _count_tokens(model, monkeypatch)
    score_answers(model, [group], 4)
    first, second = seen
    assert first[0] == 1
    assert second[0] <= 4
    assert first[1] + second[1] <= max(len(answer.ids) for answer in group)


def test_single_token_answers_need_one_pass(tokenizer, monkeypatch):
    model = tiny.make_model()
    ids = tuple(tokenizer("The old box is")["input_ids"])
    group = [Encoded((*ids, token), len(ids)) for token in (5, 6)]
    seen = _count_tokens(model, monkeypatch)
    first, second = score_answers(model, [group], 4)[0]
    assert [tuple(shape) for shape in seen] == [(1, len(ids))]
    assert first.log_probs != second.log_probs


def test_logits_are_never_computed_for_more_positions_than_memory_allows(tokenizer, monkeypatch):
    model = tiny.make_model(dtype=torch.float64)
    groups = [[encode(example, tokenizer, 128)] for example in tiny.examples(6)]
    expected = score_answers(model, groups, 6)
    monkeypatch.setattr(likelihood, "_MAX_LOGITS", 4)
    seen = _count_tokens(model, monkeypatch)
    found = score_answers(model, groups, 6)
    assert len(seen) > 1
    for one, other in zip(expected, found, strict=True):
        assert one[0].log_probs == pytest.approx(other[0].log_probs, abs=1e-12)


@pytest.mark.parametrize(
    "room", [*(pytest.param(room, marks=pytest.mark.slow) for room in (1, 2)), 3]
)
def test_what_the_memory_does_not_hold_is_done_in_smaller_passes(room, tokenizer, monkeypatch):
    model = tiny.make_model()
    groups = _groups(tokenizer)
    whole = score_answers(model, groups, 8)
    real, rows = likelihood._forward, []

    def short(model, ids, *others, **named):
        if len(ids) > room:
            raise torch.OutOfMemoryError("no")
        rows.append(len(ids))
        return real(model, ids, *others, **named)

    monkeypatch.setattr(likelihood, "_forward", short)
    found = score_answers(model, groups, 8)
    assert max(rows) == room
    for ours, theirs in zip(found, whole, strict=True):
        for answer, expected in zip(ours, theirs, strict=True):
            assert answer.log_probs == pytest.approx(expected.log_probs, abs=1e-5)
            assert answer.is_argmax == expected.is_argmax


def test_an_answer_that_alone_is_too_much_is_said(tokenizer, monkeypatch):
    def full(*arguments, **named):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(likelihood, "_forward", full)
    with pytest.raises(InputError, match="one example alone does not fit into the device's memory"):
        score_answers(tiny.make_model(), _groups(tokenizer), 8)


def test_a_stateful_model_is_asked_without_sharing(tokenizer, monkeypatch):
    model = tiny.make_model(dtype=torch.float64)
    groups = _groups(tokenizer)
    expected = score_answers(model, groups, 4)
    monkeypatch.setattr(type(model), "_is_stateful", True)
    for one, other in zip(expected, score_answers(model, groups, 4), strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.log_probs == pytest.approx(b.log_probs, abs=1e-12)


def test_a_live_mask_takes_part(tokenizer):
    model = tiny.make_model(dtype=torch.float64)
    groups = _groups(tokenizer)
    plain = score_answers(model, groups, 4)
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(torch.rand(mask.index.total, generator=torch.Generator().manual_seed(0)))
        masked = score_answers(model, groups, 4)
        with torch.no_grad():
            assert masked[6][0].log_probs == pytest.approx(_plain(model, groups[6][0]), abs=1e-12)
    assert masked != plain


def test_progress_counts_groups(tokenizer):
    groups = _groups(tokenizer)
    done = []
    score_answers(tiny.make_model(), groups, 2, advance=done.append)
    assert sum(done) == len(groups)
