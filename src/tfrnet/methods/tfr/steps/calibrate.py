"""Solved steps that lower every forget example to the level of unknown answers, and no further.

Beyond the paper. Like `solve_update`, but each example has its own target (`levels`), examples that
have reached it are held there, and steps are short and as many as needed.
"""

from __future__ import annotations

import torch

from tfrnet.core.guard import GuardLoss
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import ExampleGradients
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.calibration import Calibration
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores
from tfrnet.methods.tfr.steps.levels import (
    AnswerOdds,
)
from tfrnet.methods.tfr.steps.solved import SolvedSteps, wanted_falls
from tfrnet.methods.tfr.trial_model import TrialModel

# How much farther above their levels, in log-odds on average, answers may be after repairs.
_RAISED = 0.5
_UNDONE = "repairs undone: they would have brought answers back"
_UNKNOWN = "nothing to do: the untouched model does not know this (no answer is above its level)"


def calibrate_update(
    calibration: Calibration,
    state: ChannelState,
    scores: RiskScores,
    guard_before: GuardLoss,
    model: TrialModel,
    config: TFRConfig,
) -> Candidate:
    """Return the candidate after as many steps as needed, or as the guard allows."""
    steps = SolvedSteps(
        state,
        scores,
        guard_before,
        model,
        config,
        untouched=calibration.retain_losses if config.give_back else None,
        rivals=calibration.rivals,
    )
    odds, targets = calibration.odds, calibration.odds.targets(model.examples.forget)
    first = forget = model.forget_gradients(steps.mask, odds.values)
    start = over_levels(first, targets)
    for restore in (True, False) if config.give_back else (False,):
        forget = lowered(steps, first, targets, model, odds, restore)
        over = over_levels(forget, targets)
        if not steps.attempts or (
            steps.verdict.accepted and not shortfall_of(over, start, config.least_reached)
        ):
            break
        # What restoring retain examples takes of the guard's tolerance may be what is missing.
        if restore:
            if not steps.restores:
                break
            steps.begin_again()
    undone = ""
    if calibration.repairs and steps.attempts and steps.verdict.accepted:
        least = config.least_reached
        forget, undone = repaired(steps, forget, start, targets, model, calibration, least)
        over = over_levels(forget, targets)
    if not steps.attempts:
        note = _UNKNOWN if calibration.is_unknown else steps.idle_reason("at its level")
        return steps.candidate(note=note)
    if not steps.verdict.accepted:
        return steps.candidate(shortfall=how_far(over))
    note = "; ".join(filter(None, [above_note(over), undone]))
    shortfall = shortfall_of(over, start, config.least_reached)
    return steps.candidate(forget.gradients, note, shortfall)


def lowered(
    steps: SolvedSteps,
    forget: ExampleGradients,
    targets: torch.Tensor,
    model: TrialModel,
    odds: AnswerOdds,
    restore: bool,
) -> ExampleGradients:
    """Take steps until every example is at its level or the guard refuses one.

    `forget` is the objective and its gradient before the first step; those after the last are
    returned.
    """
    for number in range(steps.allowed):
        model.report.begin(number + 1, steps.allowed)
        falls = wanted_falls(forget.values, targets.to(forget.values), steps.reach)
        if not bool((falls > 0).any()) or steps.reach < steps.least_reach:
            break
        if not steps.take(forget.gradients, falls, restore).verdict.accepted:
            # The guard's tolerance is used up, so some examples stay above their level.
            break
        forget = model.forget_gradients(steps.mask, odds.values)
    return forget


def repaired(
    steps: SolvedSteps,
    forget: ExampleGradients,
    start: torch.Tensor,
    targets: torch.Tensor,
    model: TrialModel,
    calibration: Calibration,
    least: float,
) -> tuple[ExampleGradients, str]:
    """Bring other retain examples back, then lower again what that has raised.

    If answers then are higher above their levels by more than `_RAISED` on average, or so high that
    the request would be rejected, all of this is undone, and what is returned says so. `start` is
    how far above them they were before the request, `least` the share of that which has to be gone.
    """
    odds, mask, verdict, now = calibration.odds, steps.mask, steps.verdict, forget
    before = over_levels(forget, targets)
    if shortfall_of(before, start, least):
        return forget, ""
    for part in calibration.repairs:
        found = model.gradients_to_restore(steps.mask, part.examples)
        if not steps.repair(now.gradients, found, part.losses).verdict.accepted:
            break
        now = model.forget_gradients(steps.mask, odds.values)
    if now is forget:
        # The guard refused the first repair.
        return forget, ""
    steps.hold_what_came_back()
    now = lowered(steps, now, targets, model, odds, restore=False)
    over = over_levels(now, targets)
    raised = float((over - before).mean()) > _RAISED
    if raised or shortfall_of(over, start, least):
        steps.go_back(mask, verdict)
        return forget, _UNDONE
    return now, ""


def over_levels(forget: ExampleGradients, targets: torch.Tensor) -> torch.Tensor:
    """Return how far above its level every example is."""
    return (forget.values - targets.to(forget.values)).clamp(min=0)


def above_note(over: torch.Tensor) -> str:
    """Return how many examples are above their level, given by how much; nothing if none is."""
    above = int((over > 0).sum())
    return f"{above} of {len(over)} examples above their level" if above else ""


def shortfall_of(over: torch.Tensor, start: torch.Tensor, least: float) -> str:
    """Return how far a request came that covered too little of the way to its levels; else nothing.

    `over` and `start` say how far above its level every example is and was.
    """
    # An example that was at its level has no way to go; one that rose has covered nothing.
    covered = torch.where(start > 0, 1 - over / start, 1 - over).clamp(min=0)
    if float(covered.mean()) >= least:
        return ""
    return f"{how_far(over)}, and least_reached={least:g} asks for more"


def how_far(over: torch.Tensor) -> str:
    """Return how many examples have reached their level, and how far the others are from it."""
    above = over[over > 0]
    return (
        f"{len(over) - len(above)} of {len(over)} examples reached their level, the others are "
        f"{float(above.mean()):.1f} log-odds above it on average"
    )
