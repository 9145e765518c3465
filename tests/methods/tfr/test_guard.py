import math
from dataclasses import replace

import pytest

from tests import tiny
from tfrnet.core.guard import GuardLoss, Verdict, guard_limit, judge
from tfrnet.methods.ga.config import GAConfig
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.steps import fisher, solve, solved
from tfrnet.methods.tfr.steps.common import Candidate


@pytest.mark.parametrize(
    ("after", "relative", "absolute", "accepted"),
    [
        (2.1, 0.05, 0.0, True),
        (2.1000001, 0.05, 0.0, False),
        (2.15, 0.05, 0.05, True),
        (1.0, 0.0, 0.0, True),
        (math.nan, 0.05, 0.0, False),
        (math.inf, 0.05, 0.0, False),
    ],
)
def test_acceptance(after, relative, absolute, accepted):
    assert Verdict(2.0, after, guard_limit(2.0, relative, absolute)).accepted is accepted


def test_without_a_limit_any_finite_loss_passes():
    assert Verdict(2.0, 1e9, math.inf).accepted
    assert not Verdict(2.0, math.nan, math.inf).accepted


@pytest.mark.parametrize("settings", [TFRConfig, GAConfig])
def test_every_method_asks_the_same_guard(settings):
    strict = settings(use_guard=True, guard_relative=0.05, guard_absolute=0.05)
    assert judge(GuardLoss(2.0), GuardLoss(2.15), strict) == Verdict(
        2.0, 2.15, guard_limit(2.0, 0.05, 0.05)
    )
    assert (
        judge(GuardLoss(2.0), GuardLoss(2.15), strict).accepted
        and not judge(GuardLoss(2.0), GuardLoss(2.16), strict).accepted
    )
    assert judge(GuardLoss(2.0), GuardLoss(1e9), settings(use_guard=False)).reason == "guard off"


def test_reason_names_the_numbers():
    assert "from 2.0000 to 3.0000" in Verdict(2.0, 3.0, 2.1).reason


def test_a_refused_step_shrinks_in_proportion_to_its_excess():
    # A rise of 1.0 where 0.1 is allowed: a tenth, less a little.
    assert Verdict(2.0, 3.0, 2.1).shrink(0.5) == pytest.approx(0.09)


def test_a_narrow_miss_shrinks_by_the_largest_share():
    assert Verdict(2.0, 2.11, 2.1).shrink(0.5) == 0.5


def test_a_non_finite_loss_shrinks_by_the_largest_share():
    assert Verdict(2.0, math.nan, 2.1).shrink(0.5) == 0.5


def test_a_refusal_is_never_hidden_behind_a_note():
    refused = Candidate(None, Verdict(2.0, 3.0, 2.1), note="no channel could be suppressed")
    assert "over the limit" in refused.reason
    accepted = Candidate(None, Verdict(2.0, 2.0, 2.1), note="no channel could be suppressed")
    assert accepted.reason == "no channel could be suppressed"


# By group

BEFORE = GuardLoss(2.0, {"laws": 1.0, "letters": 3.0})


def loose(**changes):
    return TFRConfig.from_dict({"guard_relative": 0.1, "guard_absolute": 0.0} | changes)


def test_a_solved_step_is_shortened_for_the_group_that_allows_least():
    config = loose()
    now = judge(BEFORE, GuardLoss(2.0, {"laws": 1.0, "letters": 3.1}), config)
    # Of all 0.2 is left and 0.8 taken, of the laws 0.1 and 0.9, of the letters 0.2 and 0.1.
    tried = judge(BEFORE, GuardLoss(2.8, {"laws": 1.9, "letters": 3.2}), config)
    assert solved._shorter(now, tried, config) == pytest.approx(0.9 * math.sqrt(0.1 / 0.9))
    # Without groups the mean alone decides.
    now, tried = (judge(GuardLoss(2.0), GuardLoss(loss), config) for loss in (2.0, 2.8))
    assert solved._shorter(now, tried, config) == pytest.approx(0.9 * math.sqrt(0.2 / 0.8))


def test_what_is_dear_to_one_group_is_not_cheap():
    config = tiny.deep(guard_relative=0.1, guard_absolute=0.0, cheap_share=0.5)
    half = GuardLoss(2.1, {"laws": 1.05, "letters": 3.15})
    assert solve._is_cheap(judge(BEFORE, half, config), config)
    more = GuardLoss(2.1, {"laws": 1.051, "letters": 3.15})
    assert not solve._is_cheap(judge(BEFORE, more, config), config)
    unguarded = replace(config, use_guard=False)
    assert solve._is_cheap(judge(BEFORE, more, unguarded), unguarded)


def test_one_fisher_step_may_raise_each_group_by_so_much():
    config = TFRConfig.preset("fisher").with_overrides(["guard_relative=1", "step_guard=0.1"])
    last = judge(BEFORE, GuardLoss(2.1, {"laws": 1.5, "letters": 3.0}), config)
    # The step may reach 2.31, 1.65 and 3.3.
    fine = judge(BEFORE, GuardLoss(2.3, {"laws": 1.64, "letters": 3.3}), config)
    assert fisher._of_step(fine, last, config).accepted
    tried = judge(BEFORE, GuardLoss(2.3, {"laws": 1.8, "letters": 3.3}), config)
    assert tried.accepted  # by the request's limits
    of_step = fisher._of_step(tried, last, config)
    assert of_step.reason == (
        "guard loss of one step in group 'laws' would rise from 1.5000 to 1.8000, over the limit "
        "1.6500"
    )
    assert of_step.shrink(0.9) == pytest.approx(0.9 * 0.15 / 0.3)
