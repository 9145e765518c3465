"""Steps after the forgetting ones that bring other retain examples back."""

from __future__ import annotations

from dataclasses import replace

import torch

from tests import tiny
from tests.methods.tfr.plain import PLAIN
from tfrnet import TFRConfig, TFRNet
from tfrnet.core.guard import GuardLoss
from tfrnet.methods.tfr.scoring import gradients_of
from tfrnet.methods.tfr.steps import calibrate
from tfrnet.methods.tfr.steps.calibration import repair_parts
from tfrnet.methods.tfr.steps.constraints import RetainConstraints
from tfrnet.methods.tfr.steps.margins import log_odds, log_odds_gradients
from tfrnet.methods.tfr.steps.solved import SolvedSteps
from tfrnet.methods.tfr.trial_model import TrialModel

RETAIN = tiny.examples(40, 100)


def request_of(tokenizer, **changes):
    """Return the outcome of a request that holds four retain examples, and the state after it."""
    settings = {"guard_relative": 5, "retain_examples": 4, "steps": 6, "hold_guard": False}
    config = TFRConfig.from_dict(PLAIN | settings | changes)
    net = TFRNet(
        tiny.make_trained_model(),
        tokenizer,
        RETAIN,
        config,
        guard=tiny.examples(8, 60),
        batch_size=4,
    )
    outcome = net.forget(tiny.requests(1)[0])
    net.detach()
    assert outcome.accepted
    return outcome, net.state


def test_each_repair_takes_others_than_are_held_and_than_the_one_before():
    order = [5, 3, 8, 1, 9, 0, 2, 4, 7, 6]
    config = TFRConfig(repairs=2, repair_examples=3)
    assert repair_parts([3, 9], order, config) == [[5, 8, 1], [0, 2, 4]]
    assert repair_parts([3, 9], order, TFRConfig(repairs=4, repair_examples=3)) == [
        [5, 8, 1],
        [0, 2, 4],
        [7, 6],
    ]
    assert repair_parts(order, order, config) == []
    assert repair_parts([3, 9], order, TFRConfig(repairs=0)) == []
    assert repair_parts([3, 9], order, TFRConfig(repairs=2, use_retain=False)) == []
    # Nothing would hold what earlier requests forgot.
    assert repair_parts([3, 9], order, TFRConfig(repairs=2, memory_rows=0)) == []
    assert repair_parts([3, 9], order, TFRConfig(repairs=2, use_history=False)) == []


def test_examples_that_no_step_holds_come_back_and_answers_stay_forgotten(tokenizer, monkeypatch):
    parts, missing = [], []
    scored, repair = TrialModel.gradients_to_restore, SolvedSteps.repair

    def scoring(self, mask, examples):
        parts.append(examples)
        return scored(self, mask, examples)

    def measured(self, forgotten, found, untouched):
        step = repair(self, forgotten, found, untouched)
        self._model.mask.set(step.mask)
        for losses in (found.values, self._model.losses(parts[-1])):
            fallen = log_odds(untouched) - log_odds(losses.cpu())
            missing.append(float(fallen.clamp(min=0).mean()))
        return step

    plain, _ = request_of(tokenizer)
    monkeypatch.setattr(TrialModel, "gradients_to_restore", scoring)
    monkeypatch.setattr(SolvedSteps, "repair", measured)
    mended, state = request_of(tokenizer, repairs=1, repair_examples=8)
    before, after = missing
    assert after < 0.6 * before
    assert mended.attempts > plain.attempts
    assert mended.forget_loss_after > 0.9 * plain.forget_loss_after
    assert bool(((state.mask >= 0) & (state.mask <= 1)).all())


def test_by_its_rows_a_repair_leaves_the_request_where_it_is(tokenizer, monkeypatch):
    seen = []
    real = SolvedSteps.repair

    def repair(self, forgotten, found, untouched):
        start = self.mask
        step = real(self, forgotten, found, untouched)
        seen.append((step.mask - start, forgotten, found, untouched))
        return step

    monkeypatch.setattr(SolvedSteps, "repair", repair)
    request_of(tokenizer, repairs=1, repair_examples=8)
    ((move, forgotten, found, untouched),) = seen
    # The log-odds that were lost, and those that the move gives back to the first order.
    lost = log_odds(untouched) - log_odds(found.values)
    given = log_odds_gradients(found.gradients, found.values) @ move
    asked = lost > 0.5
    assert bool(asked.any())
    assert float(given[asked].mean()) > 0.5 * float(lost[asked].mean())
    assert float((forgotten @ move).abs().mean()) < 0.1 * float(given[asked].mean())


def test_what_a_repair_cannot_do_without_raising_answers_is_not_done(tokenizer, monkeypatch):
    plain, state = request_of(tokenizer)

    def worse(self, forgotten, found, untouched):
        self.mask = torch.ones_like(self.mask)
        return real(self, forgotten, found, untouched)

    real = SolvedSteps.repair
    lowered = calibrate.lowered
    calls = []

    def once(*given, **named):
        calls.append(named)
        # After the repair no step is allowed, so that the answers stay up.
        return lowered(*given, **named) if len(calls) == 1 else given[1]

    monkeypatch.setattr(SolvedSteps, "repair", worse)
    monkeypatch.setattr(calibrate, "lowered", once)
    outcome, after = request_of(tokenizer, repairs=1, repair_examples=8)
    assert len(calls) == 2
    assert outcome.reason.endswith("repairs undone: they would have brought answers back")
    assert outcome.forget_loss_after == plain.forget_loss_after
    assert torch.equal(after.mask, state.mask)


def test_repairs_after_which_a_request_would_fall_short_are_undone(tokenizer, monkeypatch):
    plain, state = request_of(tokenizer, least_reached=1.0)
    lowered = calibrate.lowered
    calls = []

    def raised(steps, forget, targets, *given, **named):
        calls.append(named)
        found = lowered(steps, forget, targets, *given, **named)
        # A little above its level: less than repairs may raise it otherwise.
        return found if len(calls) == 1 else replace(found, values=targets + 0.1)

    monkeypatch.setattr(calibrate, "lowered", raised)
    outcome, after = request_of(tokenizer, least_reached=1.0, repairs=1, repair_examples=8)
    assert len(calls) == 2
    assert "repairs undone" in outcome.reason
    assert torch.equal(after.mask, state.mask)
    assert outcome.forget_loss_after == plain.forget_loss_after


def test_a_request_that_falls_short_is_not_repaired(tokenizer, monkeypatch):
    called = []
    monkeypatch.setattr(SolvedSteps, "repair", lambda *given: called.append(given))
    config = PLAIN | {"guard_relative": 0.03, "least_reached": 0.5, "level_quantile": 0.5}
    config |= {"hold_rivals": True, "retain_examples": 8, "steps": 6, "repairs": 1}
    net = TFRNet(
        tiny.make_trained_model(), tokenizer, RETAIN, TFRConfig.from_dict(config), batch_size=4
    )
    outcome = net.forget(tiny.requests(1)[0])
    net.detach()
    assert not outcome.accepted
    assert "least_reached" in outcome.reason
    assert called == []


def test_a_repair_that_the_guard_refuses_changes_nothing_and_is_the_last(tokenizer, monkeypatch):
    plain, state = request_of(tokenizer)
    tried = []
    real = SolvedSteps.repair

    def refused(self, forgotten, found, untouched):
        allowed = self._config
        self._config = replace(allowed, guard_relative=0, guard_absolute=0, backtracks=0)
        # The guard loss before the request cannot be reached any more.
        self._guard_before = GuardLoss(-1.0)
        step = real(self, forgotten, found, untouched)
        self._config = allowed
        tried.append(step.verdict.accepted)
        return step

    monkeypatch.setattr(SolvedSteps, "repair", refused)
    lowered = calibrate.lowered
    calls = []

    def counted(*given, **named):
        calls.append(named)
        return lowered(*given, **named)

    monkeypatch.setattr(calibrate, "lowered", counted)
    outcome, after = request_of(tokenizer, repairs=3, repair_examples=8)
    assert tried == [False]
    # Nothing was raised, so there is nothing to lower again.
    assert len(calls) == 1
    assert torch.equal(after.mask, state.mask)
    assert outcome.forget_loss_after == plain.forget_loss_after


def test_steps_after_a_repair_are_as_long_as_the_first(tokenizer, monkeypatch):
    reach = []
    real = SolvedSteps.repair

    def repair(self, forgotten, found, untouched):
        # As if the guard had shortened the steps before.
        self.reach = 0.05
        step = real(self, forgotten, found, untouched)
        assert step.verdict.accepted
        reach.append((self.reach, self._config.step_margin))
        return step

    monkeypatch.setattr(SolvedSteps, "repair", repair)
    request_of(tokenizer, repairs=1, repair_examples=8)
    ((now, first),) = reach
    assert now == first


def test_a_repair_holds_what_earlier_requests_forgot(tokenizer, monkeypatch):
    """By its rows: of the second request, the directions of the first stay where they are."""
    seen = []
    real = SolvedSteps.repair

    def repair(self, forgotten, found, untouched):
        start = self.mask
        step = real(self, forgotten, found, untouched)
        seen.append((self._state.forgotten, step.mask - start, found, untouched))
        return step

    monkeypatch.setattr(SolvedSteps, "repair", repair)
    config = PLAIN | {"guard_relative": 5, "retain_examples": 4, "steps": 6, "hold_guard": False}
    config |= {"repairs": 1, "repair_examples": 8, "memory_stiffness": 10}
    net = TFRNet(
        tiny.make_trained_model(), tokenizer, RETAIN, TFRConfig.from_dict(config), batch_size=4
    )
    for request in tiny.requests(2):
        assert net.forget(request).accepted
    net.detach()
    (first, *_), (earlier, move, found, untouched) = seen
    assert not bool(first.any())
    assert bool(earlier.any())
    lost = log_odds(untouched) - log_odds(found.values)
    given = log_odds_gradients(found.gradients, found.values) @ move
    asked = lost > 0.5
    assert float((earlier @ move).abs().max()) < 0.2 * float(given[asked].mean())


def test_steps_after_repairs_ask_no_held_example_to_become_worse(tokenizer, monkeypatch):
    asked, repaired = [], []
    each, repair = RetainConstraints.each, SolvedSteps.repair

    def raised(self, forgotten, found, untouched):
        # Without rows that hold the request, so that there is something to lower again.
        repaired.append(True)
        return repair(self, forgotten[:0], found, untouched)

    def spy(self, losses, restore=False):
        rows = each(self, losses, restore)
        if repaired and not restore:
            asked.append(rows.falls)
        return rows

    monkeypatch.setattr(SolvedSteps, "repair", raised)
    monkeypatch.setattr(RetainConstraints, "each", spy)
    request_of(tokenizer, repairs=1, repair_examples=30, give_back=False, hold_rivals=False)
    # A positive fall of its log-odds would make it worse.
    assert float(asked[0].max()) <= 1e-6


def test_the_gradients_of_a_repair_are_those_under_the_mask_of_then(tokenizer, monkeypatch):
    seen = []
    real = TrialModel.gradients_to_restore

    def spy(self, mask, examples):
        self.mask.set(torch.ones_like(mask))
        found = real(self, mask, examples)
        self.mask.set(mask)
        again = gradients_of(self.mask, examples, self.options)
        seen.append((mask, len(examples), torch.equal(found.gradients, again.gradients)))
        return found

    monkeypatch.setattr(TrialModel, "gradients_to_restore", spy)
    request_of(tokenizer, repairs=2, repair_examples=10)
    assert [count for _, count, _ in seen] == [10, 10]
    assert all(same for *_, same in seen)
    assert bool((seen[0][0] < 1).any())
    assert not torch.equal(seen[0][0], seen[1][0])


def test_the_preset_repairs_and_is_else_the_default():
    default, thorough = TFRConfig().to_dict(), TFRConfig.preset("thorough").to_dict()
    assert {n: v for n, v in thorough.items() if v != default[n]} == {"repairs": 3}


def test_the_preset_goes_on_where_it_stopped(tokenizer, monkeypatch, tmp_path):
    repaired = []
    real = SolvedSteps.repair

    def repair(self, forgotten, found, untouched):
        step = real(self, forgotten, found, untouched)
        repaired.append(step.verdict.accepted)
        return step

    monkeypatch.setattr(SolvedSteps, "repair", repair)
    # Held examples are fewer than there are, and the guard of a tiny model is wide.
    changes = {"guard_relative": 5, "retain_examples": 8, "near_examples": 1}
    config = TFRConfig.from_dict(TFRConfig.presets()["thorough"] | changes)

    def net() -> TFRNet:
        guard = tiny.examples(8, 60)
        return TFRNet(
            tiny.make_trained_model(), tokenizer, RETAIN, config, guard=guard, batch_size=4
        )

    first, second = tiny.requests(2)
    whole, begun, resumed = net(), net(), net()
    assert whole.forget(first).accepted
    assert begun.forget(first).accepted
    begun.save(tmp_path / "state")
    resumed.load(tmp_path / "state")
    found = [each.forget(second) for each in (whole, resumed)]
    for each in (whole, begun, resumed):
        each.detach()
    assert any(repaired)
    assert found[0].accepted
    assert whole.state.digest() == resumed.state.digest()
