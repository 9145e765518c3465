"""The total drift: how much of its limit is used up, when to warn, and the guard's ceiling."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from tfrnet.core.drift import DRIFT_LIMIT, Drift, drift_ceiling
from tfrnet.core.guard import GuardLoss, judge

STRICT = SimpleNamespace(use_guard=True, guard_relative=0.05, guard_absolute=0.0)


@pytest.mark.parametrize(
    ("now", "limit", "used"),
    [(2.0, 3.0, 0.0), (1.0, 3.0, 0.0), (4.0, 3.0, 0.5), (6.0, 3.0, 1.0), (9.0, None, None)],
)
def test_how_much_of_the_limit_is_used_up(
    now: float, limit: float | None, used: float | None
) -> None:
    assert Drift(2.0, now, limit).used == used


def test_there_is_a_warning_from_80_percent_on() -> None:
    assert not Drift(1.0, 2.59, 3.0).warning
    warning = Drift(1.0, 2.6, 3.0).warning
    assert "80 % of drift_limit 3 used up" in warning
    assert "--set drift_limit" in warning
    assert not Drift(1.0, 100.0, None).warning


def test_the_default_allows_twenty_requests_at_the_full_tolerance() -> None:
    assert 1.05**20 < DRIFT_LIMIT < 1.05**25


def test_the_tighter_of_the_two_limits_decides() -> None:
    assert judge(GuardLoss(2.0), GuardLoss(2.09), STRICT).accepted
    assert judge(GuardLoss(2.0), GuardLoss(2.09), STRICT, ceiling=2.2).accepted
    refused = judge(GuardLoss(2.0), GuardLoss(2.09), STRICT, ceiling=2.05)
    assert not refused.accepted
    assert "over the limit 2.0500 of the whole stream (drift_limit)" in refused.reason
    assert "tfrnet rollback" in refused.reason
    by_request = judge(GuardLoss(2.0), GuardLoss(2.2), STRICT, ceiling=2.15)
    assert by_request.reason.endswith("over the limit 2.1000")
    none = SimpleNamespace(use_guard=True, guard_relative=0.0, guard_absolute=0.0)
    assert judge(GuardLoss(2.0), GuardLoss(2.000004), none).reason == (
        "guard loss would rise from 2.000000 to 2.000004, over the limit 2.000000"
    )
    unguarded = SimpleNamespace(use_guard=False, guard_relative=0.05, guard_absolute=0.0)
    assert judge(GuardLoss(2.0), GuardLoss(9.0), unguarded, ceiling=2.0).accepted


def test_no_limit_is_no_ceiling() -> None:
    assert drift_ceiling(2.0, 3.0) == 6.0
    assert drift_ceiling(None, 3.0) == drift_ceiling(2.0, None) == math.inf
