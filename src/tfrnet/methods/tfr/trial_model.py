"""The live model during one request: scores and losses under trial masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tfrnet.core.cost import Account
from tfrnet.core.errors import OVERFLOW_HINT, InputError
from tfrnet.core.guard import GuardLoss
from tfrnet.core.stage import StepReport
from tfrnet.data.examples import Encoded
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import (
    ChannelScores,
    ExampleGradients,
    Objective,
    ScoreOptions,
    ScoreSet,
    gradients_of,
    score_sets,
)


@dataclass(frozen=True, kw_only=True)
class RequestExamples:
    """The examples of one request; `retain` is a sample of `all_retain`.

    `guard_groups` has the places of every group's examples in `guard`.
    """

    name: str
    forget: list[Encoded]
    retain: list[Encoded]
    guard: list[Encoded]
    guard_groups: Mapping[str, Sequence[int]]
    all_retain: list[Encoded]


@dataclass(frozen=True, kw_only=True)
class TrialModel:
    """Computes scores and losses of a request's examples under a given mask.

    Each call leaves its mask on the model; the caller restores the state's mask at the end.
    """

    mask: ChannelMask
    examples: RequestExamples
    options: ScoreOptions
    losses: Callable[[list[Encoded]], torch.Tensor]
    report: StepReport
    cost: Account
    # The largest mean guard loss of the whole stream.
    ceiling: float = math.inf

    def scores(
        self, mask: torch.Tensor, ceiling: float = math.inf, keep_examples: bool = False
    ) -> tuple[ChannelScores, ChannelScores]:
        """Return the scores on the forget and on the retain examples.

        A forget example whose loss is at the ceiling adds nothing to the gradient;
        `keep_examples` keeps the gradient of every retain example.
        """
        with self.cost.time("score"):
            self.mask.set(mask)
            self.report("scoring forget and retain examples")
            sets = [
                ScoreSet(self.examples.forget, ceiling),
                ScoreSet(self.examples.retain, keep_examples=keep_examples),
            ]
            forget, retain = score_sets(self.mask, sets, self.options)
        _refuse_non_finite(forget, f"request {self.examples.name!r}")
        _refuse_non_finite(retain, "the retain data")
        return forget, retain

    def forget_gradients(self, mask: torch.Tensor, objective: Objective) -> ExampleGradients:
        """Return the objective of every forget example and its gradient."""
        with self.cost.time("margins"):
            self.mask.set(mask)
            self.report("scoring forget examples")
            return gradients_of(self.mask, self.examples.forget, self.options, objective)

    def retain_losses(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the losses of the retain examples."""
        with self.cost.time("retain_loss"):
            self.mask.set(mask)
            self.report("checking the retain examples")
            return self.losses(self.examples.retain)

    def gradients_to_restore(self, mask: torch.Tensor, examples: list[Encoded]) -> ExampleGradients:
        """Return the losses of retain examples that are to be restored, and their gradients."""
        with self.cost.time("repair"):
            self.mask.set(mask)
            self.report("restoring other retain examples")
            return gradients_of(self.mask, examples, self.options)

    def rival_gradients(self, mask: torch.Tensor, rivals: list[Encoded]) -> ExampleGradients:
        """Return the loss of other answers to the request's prompts, and its gradient."""
        with self.cost.time("rivals"):
            self.mask.set(mask)
            self.report("scoring other answers")
            return gradients_of(self.mask, rivals, self.options)

    def rival_losses(self, mask: torch.Tensor, rivals: list[Encoded]) -> torch.Tensor:
        """Return the losses of other answers to the request's prompts."""
        with self.cost.time("rivals"):
            self.mask.set(mask)
            self.report("checking other answers")
            return self.losses(rivals)

    def guard_gradients(self, mask: torch.Tensor) -> ExampleGradients:
        """Return every guard example's loss and its gradient."""
        with self.cost.time("guard_gradients"):
            self.mask.set(mask)
            self.report("scoring guard examples")
            return gradients_of(self.mask, self.examples.guard, self.options)

    def guard_losses(self, mask: torch.Tensor) -> torch.Tensor:
        """Return the losses of the guard examples."""
        with self.cost.time("guard"):
            self.mask.set(mask)
            self.report("checking the guard")
            return self.losses(self.examples.guard)

    def guard_loss(self, mask: torch.Tensor) -> GuardLoss:
        """Return the guard loss."""
        return self.mean_guard_loss(self.guard_losses(mask))

    def mean_guard_loss(self, losses: torch.Tensor) -> GuardLoss:
        """Return the guard loss, given the losses of the guard examples."""
        return GuardLoss.of(losses, self.examples.guard_groups)


def _refuse_non_finite(scores: ChannelScores, what: str) -> None:
    if not math.isfinite(scores.loss):
        raise InputError(
            f"the loss on {what} is {scores.loss}, so nothing was changed; {OVERFLOW_HINT}"
        )
    if not bool(torch.isfinite(scores.square).all()):
        raise InputError(
            f"the gradient on {what} is not finite, so nothing was changed; {OVERFLOW_HINT}"
        )
