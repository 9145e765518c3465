import math

import pytest

from tfrnet.core.guard import Verdict, guard_limit, judge
from tfrnet.methods.ga.config import GAConfig
from tfrnet.methods.tfr.config import TFRConfig
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
    assert judge(2.0, 2.15, strict) == Verdict(2.0, 2.15, guard_limit(2.0, 0.05, 0.05))
    assert judge(2.0, 2.15, strict).accepted and not judge(2.0, 2.16, strict).accepted
    assert judge(2.0, 1e9, settings(use_guard=False)).reason == "guard off"


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
