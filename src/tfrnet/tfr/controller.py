"""TFR-Net on a live model: the order of the steps of one request, and nothing else.

examples -> scores -> risk -> trajectory -> suppression -> recovery -> guard -> accept or restore
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.accounting import Account
from tfrnet.base import BaseUnlearner
from tfrnet.config import TFRConfig
from tfrnet.data.examples import Encoded, Example
from tfrnet.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask, capacity, dormant
from tfrnet.outcome import Outcome
from tfrnet.tfr.memory import ChannelState
from tfrnet.tfr.scoring import ChannelScores, ScoreOptions, score_channels
from tfrnet.tfr.update import Candidate, Evidence, fisher_update, gather_evidence, select_update
from tfrnet.unlearner import Proposal, Report

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOP_CHANNELS = 128


class TFRNet(BaseUnlearner[ChannelState]):
    """The method on one model, in memory. `tfrnet.Session` adds the state on disk.

    The model's weights are never touched; the mask scales what projections return until `detach`.
    """

    method = "tfr"

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        retain: Sequence[Example],
        config: TFRConfig | None = None,
        **options: Any,
    ) -> None:
        self.config: TFRConfig
        super().__init__(model, tokenizer, retain, config or TFRConfig(), **options)
        self._options = ScoreOptions(
            batch_size=self.batch_size,
            tokens=self.config.score_tokens,
            gradient_checkpointing=self.gradient_checkpointing,
        )
        # Last, so that an error above leaves no mask behind on the model.
        self.mask = self.effect = ChannelMask(model, find_channels(model, self.config))
        self.state = ChannelState.initial(self.mask.index.total, self.config.step == "fisher")

    def _read_state(self, tensors: Mapping[str, torch.Tensor]) -> ChannelState:
        return ChannelState.from_tensors(tensors)

    def _propose(
        self, name: str, forget: list[Encoded], say: Report, account: Account
    ) -> Proposal[ChannelState]:
        retain = self._retain_sample(self.config.retain_examples)

        def score(mask: torch.Tensor) -> tuple[ChannelScores, ChannelScores]:
            with account.time("score"):
                self.mask.set(mask)
                say("scoring forget examples")
                on_forget = score_channels(
                    self.mask, forget, self._options, self.config.forget_ceiling
                )
                say("scoring retain examples")
                on_retain = score_channels(self.mask, retain, self._options)
            _refuse_non_finite(on_forget, f"request {name!r}")
            _refuse_non_finite(on_retain, "the retain data")
            return on_forget, on_retain

        def guard_loss(mask: torch.Tensor) -> float:
            self.mask.set(mask)
            return self._timed_guard_loss(say, account)

        before = self._guard_before(say, account)
        evidence = gather_evidence(
            self.state, *score(self.state.mask), self.mask.index.widths, self.config
        )
        if self.config.step == "fisher":
            candidate = fisher_update(self.state, evidence, before, guard_loss, score, self.config)
        else:
            candidate = select_update(self.state, evidence, before, guard_loss, self.config)
        with account.time("forget_loss"):
            say("measuring the forget loss")
            self.mask.set(candidate.state.mask)
            forget_after = self._mean_loss(forget)
        state = candidate.state if candidate.verdict.accepted else self.state
        outcome = self._outcome(name, evidence, candidate, state, before, forget_after)
        return Proposal(state, outcome)

    def _outcome(
        self,
        name: str,
        evidence: Evidence,
        candidate: Candidate,
        state: ChannelState,
        guard_before: float,
        forget_after: float,
    ) -> Outcome:
        threshold = self.config.dormant_threshold
        top = torch.sort(evidence.chi, descending=True, stable=True).indices[:TOP_CHANNELS]
        return Outcome(
            id=name,
            outcome="accepted" if candidate.verdict.accepted else "rejected",
            reason=candidate.reason,
            forget_loss_before=evidence.forget.loss,
            forget_loss_after=forget_after,
            retain_loss_before=evidence.retain.loss,
            guard_loss_before=guard_before,
            guard_loss_after=candidate.verdict.after,
            selected=candidate.suppressed.numel(),
            recovery_pool=candidate.pool,
            recovered=candidate.recovered,
            suppressed_now=int((state.mask < 1).sum()),
            dormant=int(dormant(state.mask, threshold).sum()),
            capacity=capacity(state.mask, threshold),
            attempts=candidate.attempts,
            top_channels=tuple(top.tolist()),
        )


def _refuse_non_finite(scores: ChannelScores, what: str) -> None:
    if not math.isfinite(scores.loss):
        raise InputError(f"the loss on {what} is {scores.loss}; nothing was changed")
    if not bool(torch.isfinite(scores.square).all()):
        raise InputError(f"the gradient on {what} is not finite; nothing was changed")
