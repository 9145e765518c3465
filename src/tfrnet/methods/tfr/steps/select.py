"""The paper's step: suppress the few channels of highest priority."""

from __future__ import annotations

from tfrnet.core.guard import GuardLoss, judge
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores, with_recovery
from tfrnet.methods.tfr.suppression import select_channels, suppress
from tfrnet.methods.tfr.trial_model import TrialModel


def select_update(
    state: ChannelState,
    scores: RiskScores,
    guard_before: GuardLoss,
    model: TrialModel,
    config: TFRConfig,
) -> Candidate:
    """Return the paper's update: suppress the channels of highest priority, recover, guard.

    With `backtracks`, a rejected update is tried again with a smaller budget.
    """
    budget = config.budget
    for attempt in range(1, config.backtracks + 2):
        selected = select_channels(
            state.mask,
            scores.trajectory.priority,
            budget,
            config.dormant_threshold,
            config.max_sparsity,
        )
        lowered = suppress(state.mask, selected, config.suppress_strength)
        mask, pool, recovered = with_recovery(state, scores, lowered, selected, config)
        verdict = judge(guard_before, model.guard_loss(mask), config, model.ceiling)
        candidate = Candidate(
            ChannelState(mask, scores.trajectory, state.fisher),
            verdict,
            selected,
            pool,
            recovered,
            attempt,
            "" if selected.numel() else "no channel could be suppressed",
        )
        if verdict.accepted or selected.numel() <= 1:
            break
        budget = max(1, int(selected.numel() * verdict.shrink(config.backtrack_factor)))
    return candidate
