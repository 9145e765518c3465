"""Shared prefixes change nothing but the time: every score equals that of a plain pass."""

from functools import partial

import pytest
import torch
import transformers

from tests import tiny
from tfrnet.core.errors import CheckFailedError, InputError
from tfrnet.core.team import Team
from tfrnet.data.examples import Encoded, Example, encode
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.models import likelihood
from tfrnet.models.forward import evaluate_losses
from tfrnet.models.likelihood import losses_by_prompt, score_answers
from tfrnet.models.passes import Passes
from tfrnet.models.prompts import known_prompts

CHOICES = ("red", "red green", "white and blue", "no")
_SINGLE = ("mixtral", "qwen2_moe")  # their experts run in float32 at most


def _quick(names, *quick):
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in names]


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


def _memories():
    """Models that remember more of a prefix than keys and values, or nothing."""
    sizes = {"vocab_size": tiny.VOCABULARY, "hidden_size": 32, "intermediate_size": 48}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    return {
        "convolutions": transformers.Lfm2Config(
            **sizes, **heads, layer_types=["conv", "full_attention"]
        ),
        "linear attention": transformers.MiniMaxConfig(
            **sizes,
            **heads,
            num_local_experts=2,
            layer_types=["linear_attention", "full_attention"],
        ),
        "nothing": transformers.OpenAIGPTConfig(
            vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=128
        ),
    }


@pytest.mark.parametrize("memory", _quick(_memories(), "convolutions"))
@torch.no_grad()
def test_where_a_prefix_cannot_be_continued_answers_are_computed_whole(memory, tokenizer):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(_memories()[memory]).eval()
    groups = _groups(tokenizer)
    for group, scores in zip(groups, score_answers(model, groups, 3), strict=True):
        for answer, score in zip(group, scores, strict=True):
            assert score.log_probs == pytest.approx(_plain(model, answer), abs=1e-5)


def test_log_probabilities_that_are_not_numbers_are_refused(tokenizer):
    model = tiny.make_model()
    model.get_input_embeddings().weight.data.fill_(torch.nan)
    with pytest.raises(CheckFailedError, match="not numbers"):
        score_answers(model, _groups(tokenizer), 4)


# Losses of examples, some of which have the same prompt


def _answers(prompt, *lengths):
    """Return answers of some lengths to a prompt of `prompt` tokens."""
    generator = torch.Generator().manual_seed(prompt)
    draw = partial(torch.randint, 1, tiny.VOCABULARY, generator=generator)
    ids = draw((prompt,)).tolist()
    return [Encoded((*ids, *draw((length,)).tolist()), prompt) for length in lengths]


def _examples():
    """Return answers to prompts of 30, 7 and 1 tokens and to one of their own, in turn."""
    made = [_answers(30, 1, 5, 2, 1, 3, 4), _answers(7, 1, 1, 2, 1, 2, 1), _answers(1, *[1] * 6)]
    return [each for turn in zip(*made, _answers(9, 5) * 6, strict=True) for each in turn]


def _ordinary(model):
    return partial(evaluate_losses, model, batch_size=8)


@pytest.mark.parametrize("architecture", _quick(tiny.ARCHITECTURES, "llama", "gemma3", "gpt2"))
def test_losses_by_prompt_are_those_of_whole_passes(architecture, monkeypatch):
    model, examples = tiny.make_model(architecture), _examples()
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(torch.rand(mask.index.total, generator=torch.Generator().manual_seed(0)))
        seen = _count_tokens(model, monkeypatch)
        expected = evaluate_losses(model, examples, 8)
        whole = sum(rows * columns for rows, columns in seen)
        seen.clear()
        found = losses_by_prompt(model, examples, Passes(), _ordinary(model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert sum(rows * columns for rows, columns in seen) < 0.6 * whole


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_losses_by_prompt_in_half_precision_are_close(dtype):
    model, examples = tiny.make_model(dtype=dtype), _examples()
    found = losses_by_prompt(model, examples, Passes(), _ordinary(model))
    expected = evaluate_losses(model, examples, 8)
    torch.testing.assert_close(found, expected, rtol=4 * torch.finfo(dtype).eps, atol=0)


def test_every_row_is_known_to_answer_its_prompt(monkeypatch):
    model, examples = tiny.make_model(), _examples()
    prompts = {each.ids[: each.answer_start] for each in examples}
    forward, rows = model.forward, []

    def spy(**inputs):
        known = list(map(tuple, known_prompts()))
        assert len(known) == len(inputs["input_ids"])
        rows.extend(known)
        return forward(**inputs)

    monkeypatch.setattr(model, "forward", spy)
    losses_by_prompt(model, examples, Passes(), _ordinary(model))
    assert set(rows) == prompts


class _Lockstep(Team):
    in_lockstep = True


@pytest.mark.parametrize("why", ["compiled", "in lockstep", "stateful", "little to save"])
def test_otherwise_losses_are_computed_as_ever(why, monkeypatch):
    model, examples = tiny.make_model(), _examples()
    if why == "little to save":
        # Texts: all begin with the same token, and nothing else is shared.
        examples = _answers(1, *range(20, 60)) + _answers(12, 1, 1)
    expected, forward = evaluate_losses(model, examples, 8), model.forward
    monkeypatch.setattr(type(model), "_is_stateful", why == "stateful")

    def spy(**inputs):
        assert not inputs["use_cache"]
        assert inputs["attention_mask"][:, 0].all()  # padded on the right, as a state needs it
        return forward(**inputs)

    monkeypatch.setattr(model, "forward", spy)
    found = losses_by_prompt(
        model,
        examples,
        Passes(compiled=why == "compiled"),
        _ordinary(model),
        _Lockstep() if why == "in lockstep" else Team(),
    )
    assert torch.equal(found, expected)


def test_losses_by_prompt_keep_to_the_limits_of_a_pass(monkeypatch):
    """Tokens whose keys and values are kept count too."""
    model, examples = tiny.make_model(), [each for each in _examples() if each.answer_start > 9]
    expected, passes = evaluate_losses(model, examples, 8), Passes(examples=4, tokens=72)
    forward, sizes = model.forward, []

    def spy(**inputs):
        sizes.append(inputs["attention_mask"].shape)
        return forward(**inputs)

    monkeypatch.setattr(model, "forward", spy)
    found = losses_by_prompt(model, examples, passes, _ordinary(model))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert len(sizes) > 2
    assert max(rows for rows, _ in sizes) == 2
    assert max(rows * columns for rows, columns in sizes) <= 72


def test_losses_that_are_not_numbers_are_left_to_the_caller():
    model, examples = tiny.make_model(), _examples()
    model.get_input_embeddings().weight.data[examples[0].ids[0]] = torch.nan
    found = losses_by_prompt(model, examples, Passes(), _ordinary(model))
    torch.testing.assert_close(
        found, evaluate_losses(model, examples, 8), rtol=1e-5, atol=1e-5, equal_nan=True
    )
    assert found.isnan().any()
