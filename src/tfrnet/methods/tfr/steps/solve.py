"""Solved steps until every forget example counts as forgotten, each within the guard.

Beyond the paper: the rule of the preset `deep`.
"""

from __future__ import annotations

import math

from tfrnet.core.guard import GuardLoss, Verdict
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import Objective
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores
from tfrnet.methods.tfr.steps.margins import (
    Rivals,
    answer_tokens,
    label_tokens,
    without_depth,
)
from tfrnet.methods.tfr.steps.solved import SolvedSteps, wanted_falls
from tfrnet.methods.tfr.trial_model import RequestExamples, TrialModel

# The least that is left of the reach of a step that was refused.
_LEAST_SHARE = 0.1


def solve_update(
    state: ChannelState,
    scores: RiskScores,
    guard_before: GuardLoss,
    model: TrialModel,
    config: TFRConfig,
) -> Candidate:
    """Return the candidate after up to `steps` solved steps, each shortened to pass the guard."""
    steps = SolvedSteps(state, scores, guard_before, model, config)
    margins, deep = ForgetMargins(model.examples, config), False
    for number in range(steps.allowed):
        model.report.begin(number + 1, steps.allowed)
        forget = model.forget_gradients(steps.mask, margins.of(deep))
        # Only what is forgotten is remembered; after the last step that is a prediction.
        forgotten = forget.gradients[(forget.values < 0) | deep]
        if deep or bool((forget.values <= config.forget_margin).all()):
            if not _is_cheap(steps.verdict, config):
                break
            if not deep:
                deep, forget = True, model.forget_gradients(steps.mask, margins.of(deep=True))
        target = config.deep_margin if deep else config.forget_margin
        falls = wanted_falls(forget.values, target, steps.reach)
        if deep:
            falls[margins.without_depth.to(falls.device)] = 0
        if not bool((falls > 0).any()):
            break
        step = steps.take(forget.gradients, falls)
        if step.verdict.accepted:
            forgotten = forget.gradients[(forget.values < step.share * falls) | deep]
        elif not steps.verdict.accepted:
            break
        else:
            steps.reach *= max(step.share, _LEAST_SHARE)
    if not steps.attempts:
        return steps.candidate(note=steps.idle_reason("at forget_margin"))
    return steps.candidate(forgotten)


class ForgetMargins:
    """The objectives of a request: how far its answers are ahead of their rivals."""

    def __init__(self, examples: RequestExamples, config: TFRConfig) -> None:
        """Take rivals from the answers of all retain examples."""
        labels = label_tokens(examples.all_retain) if config.labels else None
        allowed = answer_tokens(examples.all_retain)
        self._rivals = Rivals(allowed, config.deep_rivals, labels or ())
        self.without_depth = without_depth(examples.forget, labels)

    def of(self, deep: bool) -> Objective:
        """Return the margin at an answer's weakest token, or (deep) on average."""
        return self._rivals.mean_margins if deep else self._rivals.weakest_margins


def _is_cheap(verdict: Verdict, config: TFRConfig) -> bool:
    if math.isinf(verdict.limit):
        return True
    return all(
        part.after - part.before <= config.cheap_share * (part.limit - part.before)
        for part in verdict.parts
    )
