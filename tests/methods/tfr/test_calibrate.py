"""A calibrated step: forms, levels, and where it stops."""

from __future__ import annotations

import functools
import itertools
import math

import pytest
import torch

from tests import tiny
from tests.methods.tfr.plain import PLAIN
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.drift import DRIFT_LIMIT
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.requests import Request
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import ExampleGradients, ScoreOptions
from tfrnet.methods.tfr.steps import calibration, solved
from tfrnet.methods.tfr.steps.calibrate import above_note, shortfall_of
from tfrnet.methods.tfr.steps.calibration import mixed
from tfrnet.methods.tfr.steps.constraints import RetainConstraints
from tfrnet.methods.tfr.steps.levels import (
    Form,
    form_of,
    level_of,
    odds_of,
    rival_examples,
    weakest_odds,
)
from tfrnet.methods.tfr.steps.neighbours import (
    likeness,
    nearest_to_any,
    prompt_states,
)
from tfrnet.methods.tfr.steps.solved import SolvedSteps, wanted_falls
from tfrnet.methods.tfr.trial_model import TrialModel

PROMPT = (9, 8)
UNKNOWN = "nothing to do: the untouched model does not know this (no answer is above its level)"
FULL = {"give_back": True, "hold_rivals": True, "held_rivals": None, "level_quantile": 0.5}
# Other prompts than those of the retained examples, and answers of words.
RETAIN = tiny.examples(20, 100)


def answers(*given: tuple[int, ...]) -> list[Encoded]:
    return [Encoded((*PROMPT, *answer), 2) for answer in given]


# Forms and levels


def test_a_label_is_unknown_at_chance() -> None:
    form = form_of(Encoded((7, 1), 1), answers(*[(1,), (2,)] * 10))
    assert form.symbols == (1, 2)
    assert level_of(form, [], 0.5) == 0


def test_digits_are_symbols_and_unknown_at_a_guess() -> None:
    digits = [(i % 10, (3 * i) % 10) for i in range(40)]
    form = form_of(Encoded((7, 1, 5), 1), answers(*digits))
    assert form.symbols == tuple(range(10))
    assert level_of(form, [], 0.5) == -1


def test_words_have_rivals() -> None:
    words = [(100 + i, 200 + i) for i in range(40)]
    form = form_of(Encoded((7, 100, 200), 1), answers(*words), rivals=4)
    assert form.symbols == ()
    assert form.rivals == tuple(words[1:5])
    assert rival_examples(Encoded((7, 100, 200), 1), form, 64, None)[0] == Encoded((7, 101, 201), 1)


def test_rivals_are_about_as_long_where_there_are_such() -> None:
    long = [tuple(range(50 * i, 50 * i + 9)) for i in range(2, 20)]
    form = form_of(Encoded((7, 1, 2), 1), answers(*long, (30, 31)))
    assert form.rivals == ((30, 31),)


def test_the_prompt_of_a_long_rival_is_cut_but_not_its_bos() -> None:
    example, form = Encoded((1, 2, 3, 4, 5), 4), Form((), ((6, 7, 8), (9,), tuple(range(6, 11))))
    cut = [[each.ids, each.answer_start, each.cut] for each in rival_examples(example, form, 6, 1)]
    kept_whole = [(1, 2, 3, 4, 9), 4, 0]
    assert cut == [[(1, 3, 4, 6, 7, 8), 3, 1], kept_whole, [(1, 6, 7, 8, 9, 10), 1, 3]]
    assert rival_examples(example, form, 6, None)[0].ids == (2, 3, 4, 6, 7, 8)


def test_a_model_with_learnt_positions_has_no_rivals_beyond_them() -> None:
    retain = [Example(f"Item {i} is", f"{i * 37 % 100} old boxes {i}") for i in range(12)]
    net = TFRNet(
        tiny.make_model("gpt2"),
        tiny.make_tokenizer(),
        retain,
        TFRConfig.from_dict(PLAIN | {"max_length": 500}),
    )
    assert net.max_length == 128
    assert net.forget(Request("a", (Example("so " * 200, "old box"),))).accepted


def test_a_level_is_a_quantile_of_the_rivals() -> None:
    form = form_of(Encoded((7, 100, 200), 1), answers(*[(i, i + 1) for i in range(50, 90, 2)]))
    losses = [4.0, 6.0, 8.0]
    assert level_of(form, losses, 0) == pytest.approx(float(odds_of(torch.tensor(4.0))))
    assert level_of(form, losses, 0.5) == pytest.approx(float(odds_of(torch.tensor(6.0))))


def test_odds_are_those_of_the_probability() -> None:
    losses = -torch.tensor([0.5, 0.8]).log()
    assert odds_of(losses).tolist() == pytest.approx([0, math.log(4)], abs=1e-6)
    assert float(odds_of(torch.tensor(200.0))) == -200


def test_the_weakest_token_counts() -> None:
    logits = torch.tensor([[5.0, 0.0, 0.0], [0.0, 0.0, -9.0]])
    value = weakest_odds(logits, torch.tensor([0, 0]), (0, 1))
    assert 0 < float(value) < math.log(2) + 0.01


def test_what_is_at_its_level_is_not_lowered() -> None:
    falls = wanted_falls(torch.tensor([2.0, -3.0, 9.0]), torch.tensor([0.0, -3.0, 1.0]), 3.0)
    assert falls.tolist() == [2.5, 0, 3]


# Neighbours


def test_each_rows_nearest_come_first() -> None:
    known = torch.eye(4)
    cosines = likeness(known[[2, 0]], known)
    assert set(nearest_to_any(cosines, 2)) == {0, 2}


def test_the_nearest_are_not_drawn_again() -> None:
    assert mixed([4, 1], [0, 1, 2, 3, 4], 4) == [4, 1, 0, 2]
    assert mixed([1, 0], [0, 1], 4) == [1, 0]


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_states_come_in_the_order_of_the_examples(family) -> None:
    model = tiny.make_model(family)
    examples = [Encoded(tuple(range(3, 3 + n)), n - 2) for n in (9, 4, 7, 5)]
    together = prompt_states(model, examples, ScoreOptions(batch_size=3))
    alone = [prompt_states(model, [each], ScoreOptions())[0] for each in examples]
    torch.testing.assert_close(together, torch.stack(alone))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_a_prompts_state_does_not_depend_on_its_answer(family) -> None:
    model = tiny.make_model(family)
    short, long = Encoded((3, 4, 5, 6), 3), Encoded((3, 4, 5, 9, 8, 7), 3)
    states = prompt_states(model, [short, long], ScoreOptions())
    torch.testing.assert_close(states[0], states[1])


# What is kept


def test_retained_examples_are_asked_back_to_where_they_were_but_not_all_at_once() -> None:
    # Probabilities of 0.5 now, once 0.8, 0.9999 and 0.2.
    now = torch.full((3,), math.log(2))
    once = -torch.tensor([0.8, 0.9999, 0.2]).log()
    found = RetainConstraints(ExampleGradients(torch.eye(3), now), 0.0, 3.0, once)
    rows = found.each(now, restore=True)
    assert rows.falls.tolist() == pytest.approx([-math.log(4), -2, 0], abs=1e-5)


# Requests


def forget(tokenizer, count=1, *, compiled=False, **changes):
    settings = {"guard_relative": 1, "retain_examples": 8, "steps": 6} | changes
    config = TFRConfig.from_dict(PLAIN | settings)
    model = tiny.make_trained_model()
    net = TFRNet(model, tokenizer, RETAIN, config, batch_size=4, compiled=compiled)
    outcomes = [net.forget(request) for request in tiny.requests(count)]
    net.detach()
    return outcomes, net.state


@pytest.mark.parametrize("more", [{}, FULL, {"use_retain": False}, {"memory_rows": 0}])
def test_a_request_lowers_answers_within_the_mask(tokenizer, more) -> None:
    (outcome,), state = forget(tokenizer, **more)
    assert outcome.accepted
    assert outcome.forget_loss_after > outcome.forget_loss_before
    assert bool(((state.mask >= 0) & (state.mask <= 1)).all())
    assert (state.forgotten is None) == (more.get("memory_rows") == 0)


def test_what_earlier_requests_forgot_falls_a_little_in_the_first_step(
    tokenizer, tmp_path, monkeypatch
) -> None:
    asked, fallen = [], []
    real = solved.solved_step

    def spy(mask, wanted, *given):
        move = real(mask, wanted, *given)
        # The rows of earlier requests come last.
        asked.append(wanted[-1].falls)
        fallen.append(float((wanted[-1].gradients @ move).mean()))
        return move

    monkeypatch.setattr(solved, "solved_step", spy)

    def net(fall: float) -> TFRNet:
        changes = {"guard_relative": 1, "retain_examples": 8, "steps": 6, "step_margin": 3}
        changes |= {"memory_stiffness": 100, "memory_fall": fall}
        config = TFRConfig.from_dict(PLAIN | changes)
        return TFRNet(tiny.make_trained_model(), tokenizer, RETAIN, config, batch_size=4)

    first, second = tiny.requests(2)
    size, found = len(first.examples), []
    for fall in (0.0, 0.5):
        one = net(fall)
        assert one.forget(first).accepted
        one.save(tmp_path / "state")
        asked.clear()
        fallen.clear()
        assert one.forget(second).accepted
        assert [falls.tolist() for falls in asked] == [[fall] * size] + [[0] * size] * (
            len(asked) - 1
        )
        assert len(asked) > 1
        found.append(fallen[0])
        falls = one.state.forgotten_falls
        assert (falls is None) == (fall == 0)
        one.detach()
    assert found[1] - found[0] == pytest.approx(0.5, abs=0.1)
    # What the second request needs is in the state.
    again = net(0.5)
    again.load(tmp_path / "state")
    again.forget(second)
    again.detach()
    assert again.state.digest() == one.state.digest()


@pytest.mark.parametrize("settings", [PLAIN, TFRConfig.presets()["deep"]], ids=["plain", "deep"])
def test_where_the_memory_is_full_merged_rows_fall_too(tokenizer, monkeypatch, settings) -> None:
    asked = []
    real = solved.solved_step

    def spy(mask, wanted, *given):
        asked.append(wanted[-1].falls)
        return real(mask, wanted, *given)

    monkeypatch.setattr(solved, "solved_step", spy)
    changes = {"guard_relative": 5, "memory_rows": 4, "memory_fall": 0.5, "retain_examples": 8}
    config = TFRConfig.from_dict({**settings, **changes})
    net = TFRNet(tiny.make_trained_model(), tokenizer, RETAIN, config, batch_size=4)
    for request in tiny.requests(2):
        assert net.forget(request).accepted
    falls = net.state.forgotten_falls
    assert falls is not None
    assert len(falls) == len(net.state.forgotten) == 4
    assert not bool((falls == 1).all())
    asked.clear()
    assert net.forget(tiny.requests(3)[2]).accepted
    net.detach()
    torch.testing.assert_close(asked[0], 0.5 * falls[net.state.forgotten.any(1)])


def test_what_the_model_never_knew_needs_no_step(tokenizer) -> None:
    """The answer is the least likely of all that the retain data shows after its prompt."""
    model = tiny.make_trained_model()
    net = TFRNet(model, tokenizer, RETAIN, TFRConfig.preset("calibrated"), batch_size=4)
    answers = {example.answer for example in RETAIN}
    asked = [Example("Item 3 of the old box is", answer) for answer in sorted(answers)]
    (encoded,) = net.prepare([Request("all", tuple(asked))])
    losses = net._losses(encoded)
    outcome = net.forget(Request("unknown", (asked[int(losses.argmax())],)))
    net.detach()
    assert outcome.accepted
    assert outcome.reason == UNKNOWN
    assert outcome.forget_loss_after == pytest.approx(outcome.forget_loss_before)
    assert (outcome.selected, outcome.recovered, outcome.attempts) == (0, 0, 0)
    assert bool((net.state.mask == 1).all())


def test_where_all_is_unknown_already_nothing_moves(tokenizer, monkeypatch) -> None:
    monkeypatch.setattr(calibration, "level_of", lambda *_: 100.0)
    (outcome,), state = forget(tokenizer)
    assert outcome.reason == UNKNOWN
    assert bool((state.mask == 1).all())


def test_without_a_budget_nothing_moves(tokenizer) -> None:
    (outcome,), state = forget(tokenizer, budget=0)
    assert outcome.reason == "nothing to do: the budget is 0"
    assert bool((state.mask == 1).all())


def test_a_guard_that_allows_nothing_rejects(tokenizer) -> None:
    (outcome,), state = forget(tokenizer, guard_relative=0, backtracks=0)
    assert not outcome.accepted
    assert outcome.reason.startswith("0 of 3 examples reached their level, the others are ")
    assert "on average; guard loss would rise from " in outcome.reason
    assert bool((state.mask == 1).all())


def test_a_request_that_the_guard_stops_short_is_rejected_with_how_far_it_came(tokenizer) -> None:
    tight = {"guard_relative": 0.03, **FULL, "give_back": False}
    (partly,), moved = forget(tokenizer, **tight)
    assert partly.accepted
    assert partly.reason == "3 of 3 examples above their level"
    assert bool((moved.mask < 1).any())
    (outcome,), state = forget(tokenizer, least_reached=0.5, **tight)
    assert not outcome.accepted
    assert outcome.reason.startswith("0 of 3 examples reached their level, the others are ")
    assert outcome.reason.endswith("on average, and least_reached=0.5 asks for more")
    # What it would have come to is on record; nothing was changed.
    assert outcome.forget_loss_after == partly.forget_loss_after
    assert outcome.guard_loss_after == partly.guard_loss_after
    assert bool((state.mask == 1).all())
    assert state.forgotten is not None
    assert not bool(state.forgotten.any())


def test_how_far_a_request_came_is_counted_by_hand() -> None:
    # All, a half, a quarter and all of the way: 0.6875 on average.
    over, start = torch.tensor([0.0, 1.0, 3.0, 0.0]), torch.tensor([2.0, 2.0, 4.0, 0.0])
    assert above_note(over) == "2 of 4 examples above their level"
    assert shortfall_of(over, start, 0.5) == ""
    assert shortfall_of(over, start, 0.68) == ""
    assert shortfall_of(over, start, 0.7) == (
        "2 of 4 examples reached their level, the others are 2.0 log-odds above it on average, "
        "and least_reached=0.7 asks for more"
    )
    assert above_note(torch.zeros(2)) == ""
    assert shortfall_of(torch.zeros(2), torch.ones(2), 1.0) == ""


def test_one_example_that_rose_does_not_undo_what_the_others_covered() -> None:
    over, start = torch.tensor([0.2, *[0.0] * 7]), torch.tensor([0.01, *[5.0] * 7])
    assert shortfall_of(over, start, 0.8) == ""
    assert "asks for more" in shortfall_of(over, start, 0.9)


def test_a_share_of_zero_accepts_any() -> None:
    assert shortfall_of(torch.tensor([3.0, 0.0]), torch.tensor([0.0, 1.0]), 0.0) == ""
    assert shortfall_of(torch.tensor([3.0]), torch.tensor([1.0]), 0.0) == ""


def test_where_restoring_takes_too_much_of_the_tolerance_the_request_does_without(
    tokenizer, monkeypatch
) -> None:
    """Its second try begins where the request began, and is that of a request that never restores.

    A first request has nothing to restore, so restoring is made to move the mask too far.
    """
    monkeypatch.setattr(SolvedSteps, "restores", True)
    real = SolvedSteps.take
    tried: list[bool] = []

    def take(self, gradients, falls, restore=False):
        tried.append(restore)
        return real(self, -gradients if restore else gradients, falls, restore)

    monkeypatch.setattr(SolvedSteps, "take", take)
    (plain,), without = forget(tokenizer, least_reached=0.1)
    tried.clear()
    (outcome,), state = forget(tokenizer, least_reached=0.1, give_back=True)
    assert outcome.accepted
    assert tried[0]
    assert not tried[-1]
    torch.testing.assert_close(state.mask, without.mask, atol=0, rtol=0)
    assert outcome.forget_loss_after == plain.forget_loss_after
    assert outcome.attempts > plain.attempts


def test_a_request_that_has_nothing_to_restore_is_tried_once(tokenizer, monkeypatch) -> None:
    tried: list[bool] = []
    real = SolvedSteps.take

    def take(self, gradients, falls, restore=False):
        tried.append(restore)
        return real(self, gradients, falls, restore)

    monkeypatch.setattr(SolvedSteps, "take", take)
    (outcome,), _ = forget(tokenizer, guard_relative=0, give_back=True)
    assert outcome.outcome == "rejected"
    assert tried == [True]


def test_steps_may_be_short(tokenizer) -> None:
    (outcome,), _ = forget(tokenizer, step_margin=0.05, steps=3)
    assert outcome.attempts == 3
    assert outcome.forget_loss_after > outcome.forget_loss_before


def test_as_many_near_retain_examples_are_held_for_each_forget_example(
    tokenizer, monkeypatch
) -> None:
    held: list[int] = []
    real = TrialModel.retain_losses

    def seen(self, mask):
        held.append(len(self.examples.retain))
        return real(self, mask)

    monkeypatch.setattr(TrialModel, "retain_losses", seen)
    forget(tokenizer, retain_examples=4, near_examples=2)
    # Three forget examples.
    assert set(held) == {4 + 2 * 3}


def test_a_step_is_followed_by_one_pass_over_the_forget_examples(tokenizer, monkeypatch) -> None:
    masks: list[torch.Tensor] = []
    real = TrialModel.forget_gradients

    def counted(self, mask, objective):
        masks.append(mask)
        return real(self, mask, objective)

    monkeypatch.setattr(TrialModel, "forget_gradients", counted)
    (outcome,), _ = forget(tokenizer, steps=2)
    assert outcome.attempts == 2
    assert len(masks) == 3
    assert not any(torch.equal(a, b) for a, b in itertools.pairwise(masks))


@pytest.mark.slow
def test_compiled_layers_give_the_same_mask(tokenizer, monkeypatch) -> None:
    monkeypatch.setattr(
        ChannelMask, "compiled", functools.partialmethod(ChannelMask.compiled, "aot_eager")
    )
    (_, plain), (_, compiled) = (forget(tokenizer, 1, compiled=c, **FULL) for c in (False, True))
    torch.testing.assert_close(plain.mask, compiled.mask, atol=1e-4, rtol=1e-3)


def test_new_retain_data_is_looked_at_anew(tokenizer) -> None:
    config = TFRConfig.from_dict(PLAIN | {"guard_relative": 1, "retain_examples": 8} | FULL)
    net = TFRNet(tiny.make_trained_model(), tokenizer, RETAIN, config, batch_size=4)
    first, second = tiny.requests(2)
    net.forget(first)
    before = net._untouched
    net.forget(second, tiny.examples(20, 200))
    assert before is not None
    assert net._untouched is not before
    assert net._untouched.retain is net._retain_encoded
    # It was the untouched model that looked, not the masked one.
    net.mask.set(torch.ones_like(net.state.mask))
    again = prompt_states(net.model, net._retain_encoded, net._options)
    torch.testing.assert_close(net._untouched.states, again)
    net.detach()


def test_the_preset_is_the_variant_that_was_measured() -> None:
    measured = {
        "steps": 10,
        "step_margin": 3,
        "retain_examples": 240,
        "retain_stiffness": 1000,
        "guard_absolute": 0.02,
        "drift_limit": 17,
        "memory_rows": 160,
        "memory_stiffness": 10,
        "least_reached": 0.5,
    }
    assert TFRConfig.preset("calibrated") == TFRConfig.from_dict(PLAIN | measured | FULL)


def test_what_the_default_does_otherwise() -> None:
    default, plain = (TFRConfig.preset(name).to_dict() for name in ("default", "calibrated"))
    assert {name: value for name, value in default.items() if value != plain[name]} == {
        "retain_examples": 24,
        "near_examples": 6,
        "hold_guard": False,
        "drift_limit": DRIFT_LIMIT,
        "level_quantile": 0.3,
        "use_wrong_answers": True,
        "request_rivals": True,
        "own_symbols": True,
        "every_digit": True,
        "held_rivals": 8,
        "siblings": 24,
        "untouched_siblings": True,
    }
