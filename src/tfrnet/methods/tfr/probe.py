"""What a request may ask of the model: scores and losses under a mask that is only tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from tfrnet.core.cost import Account
from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.scoring import (
    ChannelScores,
    ExampleGradients,
    ScoreOptions,
    ScoreSet,
    gradients_of,
    score_sets,
)
from tfrnet.methods.tfr.steps.rivals import Rivals
from tfrnet.unlearner import Report


@dataclass(frozen=True)
class Probe:
    """The model, the examples of one request, and where time and progress are told."""

    mask: ChannelMask
    name: str
    forget: list[Encoded]
    retain: list[Encoded]
    guard: list[Encoded]
    rivals: Rivals
    without_depth: torch.Tensor
    options: ScoreOptions
    config: TFRConfig
    losses: Callable[[list[Encoded]], torch.Tensor]
    say: Report
    account: Account

    def scores(self, mask: torch.Tensor) -> tuple[ChannelScores, ChannelScores]:
        """Return the scores on the forget and on the retain examples."""
        with self.account.time("score"):
            self.mask.set(mask)
            self.say("scoring forget and retain examples")
            sets = [
                ScoreSet(self.forget, self.config.forget_ceiling),
                ScoreSet(self.retain, keep_examples=self.config.step == "solve"),
            ]
            forget, retain = score_sets(self.mask, sets, self.options)
        _refuse_non_finite(forget, f"request {self.name!r}")
        _refuse_non_finite(retain, "the retain data")
        return forget, retain

    def forget_margins(self, mask: torch.Tensor, deep: bool) -> ExampleGradients:
        """Return every forget answer's margin, at its weakest token or (deep) on average."""
        with self.account.time("margins"):
            self.mask.set(mask)
            self.say("scoring forget examples")
            objective = self.rivals.mean_margins if deep else self.rivals.weakest_margins
            return gradients_of(self.mask, self.forget, self.options, objective)

    def retain_losses(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the losses of the retain examples."""
        with self.account.time("retain_loss"):
            self.mask.set(mask)
            self.say("checking the retain examples")
            return self.losses(self.retain)

    def guard_gradients(self, mask: torch.Tensor) -> ExampleGradients:
        """Return every guard example's loss and its gradient."""
        with self.account.time("guard_gradients"):
            self.mask.set(mask)
            self.say("scoring guard examples")
            return gradients_of(self.mask, self.guard, self.options)

    def guard_losses(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the losses of the guard examples."""
        with self.account.time("guard"):
            self.mask.set(mask)
            self.say("checking the guard")
            return self.losses(self.guard)

    def guard_loss(self, mask: torch.Tensor) -> float:
        """Return the guard loss."""
        return float(self.guard_losses(mask).mean())


def _refuse_non_finite(scores: ChannelScores, what: str) -> None:
    if not math.isfinite(scores.loss):
        raise InputError(f"the loss on {what} is {scores.loss}; nothing was changed")
    if not bool(torch.isfinite(scores.square).all()):
        raise InputError(f"the gradient on {what} is not finite; nothing was changed")
