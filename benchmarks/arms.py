"""Whether the trajectory matters: the same runs with placebos in its place.

The default uses it to decide which lowered channels may be raised again. `permuted` shuffles risk
and priority within each module, `retain` takes both from retain items in place of those to be
forgotten, `none` lets every lowered channel be raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch

from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.risk import current_risk
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps import common, solved
from tfrnet.methods.tfr.steps.common import RiskScores
from tfrnet.methods.tfr.trajectory import Trajectory, advance

Pool = Callable[[ChannelState, RiskScores, TFRConfig], torch.Tensor]
REAL = "real"


def pool_of(name: str, layout: Sequence[Sequence[Any]]) -> Pool:
    """Return how an arm chooses, given the modules and their widths; a new one for each stream."""
    arms: dict[str, Callable[[], Pool]] = {
        REAL: lambda: common.recovery_pool,
        "permuted": lambda: _permuted([width for _, width in layout]),
        "retain": _retain,
        "none": lambda: lambda state, scores, config: state.mask < 1,
    }
    return arms[name]()


@contextmanager
def recovering(pool: Pool) -> Iterator[None]:
    """Let an arm decide which channels may be raised, within a `with` block."""
    with patch.object(solved, "recovery_pool", pool):
        yield


def _permuted(widths: list[int]) -> Pool:
    """Shuffle anew for each request which channels are of low risk."""
    random = torch.Generator().manual_seed(0)

    def pool(state: ChannelState, scores: RiskScores, config: TFRConfig) -> torch.Tensor:
        # As if all channels were lowered: which of them are of low risk?
        all_lowered = replace(state, mask=torch.zeros_like(state.mask))
        parts = common.recovery_pool(all_lowered, scores, config).split(widths)
        shuffled = [part[torch.randperm(len(part), generator=random)] for part in parts]
        return (state.mask < 1) & torch.cat(shuffled)

    return pool


def _retain() -> Pool:
    """Keep a second trajectory, of the risk of retain items."""
    earlier: list[Trajectory] = []

    def pool(state: ChannelState, scores: RiskScores, config: TFRConfig) -> torch.Tensor:
        nothing = torch.zeros_like(scores.chi)
        chi = current_risk(
            scores.retain_standardised, nothing, config.forget_weight, 0.0, config.risk_margin
        )
        before = earlier[-1] if earlier else Trajectory(*(nothing for _ in range(5)))
        earlier.append(advance(before, chi, config))
        placebo = replace(state, trajectory=before)
        return common.recovery_pool(placebo, replace(scores, chi=chi), config)

    return pool
