"""The guard by group: every group is held to the tolerance of all examples, computed by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch

from tfrnet.core.guard import GuardLoss, Verdict, judge

STRICT = SimpleNamespace(use_guard=True, guard_relative=0.1, guard_absolute=0.05)
BEFORE = GuardLoss(2.0, {"laws": 1.0, "letters": 3.0})  # limits: 2.25, 1.15 and 3.35


def test_means_of_all_and_of_each_group() -> None:
    losses = torch.tensor([1.0, 2.0, 3.0, 6.0, 8.0])
    found = GuardLoss.of(losses, {"laws": [0, 2], "letters": [1, 3]})
    assert found == GuardLoss(4.0, {"laws": 2.0, "letters": 4.0})  # the last is in neither
    assert GuardLoss.of(losses, {}) == GuardLoss(4.0)


@pytest.mark.parametrize(
    ("mean", "laws", "letters", "accepted"),
    [
        (2.25, 1.15, 3.35, True),
        (2.0, 1.16, 2.9, False),  # the mean has not moved at all
        (2.2, 1.15, 3.36, False),
        (2.26, 1.15, 3.35, False),
        (2.0, 0.5, 1.0, True),
    ],
)
def test_all_and_every_group_must_be_within(
    mean: float, laws: float, letters: float, accepted: bool
) -> None:
    after = GuardLoss(mean, {"laws": laws, "letters": letters})
    assert judge(BEFORE, after, STRICT).accepted is accepted
    assert judge(GuardLoss(2.0), GuardLoss(mean), STRICT).accepted is (mean <= 2.25)


def test_a_refusal_names_the_group_that_is_farthest_over_its_limit() -> None:
    after = GuardLoss(2.6, {"laws": 1.5, "letters": 3.7})  # 1.16, 1.30 and 1.10 times their limits
    reason = judge(BEFORE, after, STRICT).reason
    assert reason == (
        "guard loss in group 'laws' would rise from 1.0000 to 1.5000, over the limit 1.1500"
    )
    after = GuardLoss(9.0, {"laws": 1.5, "letters": 3.7})
    assert judge(BEFORE, after, STRICT).reason.startswith("guard loss would rise from 2.0000 to 9")


def test_a_group_that_is_not_finite_is_refused_and_named() -> None:
    after = GuardLoss(2.0, {"laws": 99.0, "letters": math.nan})
    assert judge(BEFORE, after, STRICT).reason == "guard loss in group 'letters' would be nan"
    unguarded = SimpleNamespace(use_guard=False, guard_relative=0.1, guard_absolute=0.05)
    assert not judge(BEFORE, after, unguarded).accepted


def test_without_a_guard_no_group_has_a_limit() -> None:
    unguarded = SimpleNamespace(use_guard=False, guard_relative=0.1, guard_absolute=0.05)
    verdict = judge(BEFORE, GuardLoss(9.0, {"laws": 99.0, "letters": 9.0}), unguarded)
    assert (verdict.accepted, verdict.reason) == (True, "guard off")


def test_the_limit_of_the_whole_stream_is_for_the_mean_alone() -> None:
    after = GuardLoss(2.1, {"laws": 1.1, "letters": 3.1})
    assert judge(BEFORE, after, STRICT, ceiling=2.1).accepted  # though the letters are above it
    refused = judge(BEFORE, after, STRICT, ceiling=2.05)
    assert refused.reason.startswith(
        "guard loss would rise from 2.0000 to 2.1000, over the limit 2.0500 of the whole stream"
    )


def test_a_group_whose_loss_was_nothing_may_not_rise_without_an_absolute_tolerance() -> None:
    known = GuardLoss(1.0, {"laws": 0.0})
    exact = SimpleNamespace(use_guard=True, guard_relative=0.1, guard_absolute=0.0)
    assert judge(known, known, exact).accepted
    assert "in group 'laws'" in judge(known, GuardLoss(1.0, {"laws": 0.01}), exact).reason
    assert judge(known, GuardLoss(1.0, {"laws": 0.01}), STRICT).accepted


def test_a_refused_step_shrinks_for_the_group_that_allows_least() -> None:
    # Allowed: 0.25, 0.15, 0.35; risen: 0.5, 1.5, 0.7. What is left is a tenth, less a little.
    after = GuardLoss(2.5, {"laws": 2.5, "letters": 3.7})
    assert judge(BEFORE, after, STRICT).shrink(0.5) == pytest.approx(0.09)
    # A group within its limit does not count, however much of it is used.
    after = GuardLoss(2.25, {"laws": 1.15, "letters": 4.4})
    assert judge(BEFORE, after, STRICT).shrink(0.99) == pytest.approx(0.9 * 0.35 / 1.4)


def test_the_record_has_the_losses_before_the_request() -> None:
    after = GuardLoss(2.1, {"laws": 1.1, "letters": 3.1})
    assert judge(BEFORE, after, STRICT).group_losses(BEFORE) == {
        "laws": {"before": 1.0, "after": 1.1},
        "letters": {"before": 3.0, "after": 3.1},
    }


def test_without_groups_a_verdict_is_what_it_was() -> None:
    verdict = judge(GuardLoss(2.0), GuardLoss(2.2), STRICT)
    assert verdict == Verdict(2.0, 2.2, 1.1 * 2.0 + 0.05)
    assert verdict.parts == (verdict,)
    assert verdict.group_losses(GuardLoss(2.0)) == {}
