"""TFR-Net on a live model: the order of the steps of one request, and nothing else.

examples -> scores -> risk -> trajectory -> suppression -> recovery -> guard -> accept or restore
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tfrnet.config import TFRConfig
from tfrnet.data.examples import Encoded, Example, encode_all
from tfrnet.data.requests import Request, refuse_overlap
from tfrnet.data.sampling import sample_indices
from tfrnet.errors import InputError
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask, capacity, dormant
from tfrnet.models.forward import evaluate_losses
from tfrnet.tfr.memory import ChannelState
from tfrnet.tfr.outcome import Outcome
from tfrnet.tfr.scoring import ChannelScores, ScoreOptions, frozen, score_channels
from tfrnet.tfr.update import Candidate, Evidence, fisher_update, gather_evidence, select_update

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOP_CHANNELS = 128

Report = Callable[[str], None]


@dataclass(frozen=True)
class Proposal:
    """What a request would do: the state to commit and its record."""

    state: ChannelState
    outcome: Outcome


class TFRNet:
    """The method on one model, in memory. `tfrnet.Session` adds the state on disk.

    The model's weights are never touched; the mask scales what projections return until `detach`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        retain: Sequence[Example],
        config: TFRConfig | None = None,
        *,
        guard: Sequence[Example] | None = None,
        seed: int = 0,
        batch_size: int = 8,
        gradient_checkpointing: bool = False,
    ) -> None:
        if not retain:
            raise InputError("retain data is needed: without it nothing says what to keep")
        if batch_size < 1:
            raise InputError(f"the batch size must be at least 1, not {batch_size}")
        self.config = config or TFRConfig()
        self.tokenizer = tokenizer
        self.seed = seed
        self.batch_size = batch_size
        self.retain = list(retain)
        self.guard = choose_guard(guard or retain, self.config.guard_examples, seed)
        self.requests_seen = 0
        self._options = ScoreOptions(
            batch_size=batch_size,
            tokens=self.config.score_tokens,
            gradient_checkpointing=gradient_checkpointing,
        )
        positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        self._max_length = min(self.config.max_length, positions or self.config.max_length)
        self._retain_encoded = self._encode(self.retain, "retain data")
        self._guard_encoded = self._encode(self.guard, "guard data")
        self._guard_loss: float | None = None
        # Last, so that an error above leaves no mask behind on the model.
        self.mask = ChannelMask(model, find_channels(model, self.config))
        self.state = ChannelState.initial(self.mask.index.total, self.config.step == "fisher")

    @property
    def model(self) -> PreTrainedModel:
        """The model that the mask is attached to."""
        return self.mask.model

    def forget(self, request: Request, report: Report | None = None) -> Outcome:
        """Apply one request: accept its new state, or leave everything as it was."""
        proposal = self.propose(request, report)
        self.adopt(proposal)
        return proposal.outcome

    def adopt(self, proposal: Proposal) -> None:
        """Take over the result of a request, accepted or not."""
        self.requests_seen += 1
        if proposal.outcome.accepted:
            self.restore(proposal.state)
            self._guard_loss = proposal.outcome.guard_loss_after

    def restore(self, state: ChannelState) -> None:
        """Make `state` the current one."""
        self.state = state
        self._guard_loss = None
        self.mask.set(state.mask)

    def detach(self) -> None:
        """Take the mask off the model, which is then what it was before."""
        self.mask.detach()

    def check(self, requests: Sequence[Request]) -> list[list[Encoded]]:
        """Return the requests' tokens, or raise if one cannot be applied for what it holds."""
        refuse_overlap(requests, self.retain, "retain data")
        refuse_overlap(requests, self.guard, "guard data")
        return [self._encode(r.examples, f"request {r.id!r}") for r in requests]

    def propose(self, request: Request, report: Report | None = None) -> Proposal:
        """Work out what a request would do, leaving state and mask as they are."""
        say = report or (lambda stage: None)
        (forget,) = self.check([request])
        clock = _Clock()
        with frozen(self.model):
            try:
                return self._propose(request.id, forget, self._retain_sample(), say, clock)
            finally:
                # Also on an error or Ctrl-C: no tentative mask survives.
                self.mask.set(self.state.mask)

    def _propose(
        self, name: str, forget: list[Encoded], retain: list[Encoded], say: Report, clock: _Clock
    ) -> Proposal:
        def score(mask: torch.Tensor) -> tuple[ChannelScores, ChannelScores]:
            with clock.time("score"):
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
            with clock.time("guard"):
                say("checking the guard")
                return self._mean_loss(mask, self._guard_encoded)

        if self._guard_loss is None:
            self._guard_loss = guard_loss(self.state.mask)
        before = self._guard_loss
        if not math.isfinite(before):
            raise InputError(f"the guard loss is {before} before the request; nothing was changed")
        evidence = gather_evidence(
            self.state, *score(self.state.mask), self.mask.index.widths, self.config
        )
        if self.config.step == "fisher":
            candidate = fisher_update(self.state, evidence, before, guard_loss, score, self.config)
        else:
            candidate = select_update(self.state, evidence, before, guard_loss, self.config)
        with clock.time("forget_loss"):
            say("measuring the forget loss")
            forget_after = self._mean_loss(candidate.state.mask, forget)
        state = candidate.state if candidate.verdict.accepted else self.state
        outcome = self._outcome(name, evidence, candidate, state, before, forget_after, clock)
        return Proposal(state, outcome)

    def _outcome(
        self,
        name: str,
        evidence: Evidence,
        candidate: Candidate,
        state: ChannelState,
        guard_before: float,
        forget_after: float,
        clock: _Clock,
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
            seconds=clock.seconds(),
        )

    def _mean_loss(self, mask: torch.Tensor, examples: list[Encoded]) -> float:
        self.mask.set(mask)
        return float(evaluate_losses(self.model, examples, self._options.batch_size).mean())

    def _encode(self, examples: Sequence[Example], label: str) -> list[Encoded]:
        return encode_all(examples, self.tokenizer, self._max_length, label)

    def _retain_sample(self) -> list[Encoded]:
        """Return the retain examples of this request: seeded, and new for each request."""
        chosen = sample_indices(
            len(self.retain), self.config.retain_examples, "retain", self.seed, self.requests_seen
        )
        return [self._retain_encoded[i] for i in chosen]


def choose_guard(examples: Sequence[Example], size: int, seed: int) -> list[Example]:
    """Return the guard examples: all, or one seeded sample for the life of the state."""
    return [examples[i] for i in sample_indices(len(examples), size, "guard", seed)]


def _refuse_non_finite(scores: ChannelScores, what: str) -> None:
    if not math.isfinite(scores.loss):
        raise InputError(f"the loss on {what} is {scores.loss}; nothing was changed")
    if not bool(torch.isfinite(scores.square).all()):
        raise InputError(f"the gradient on {what} is not finite; nothing was changed")


class _Clock:
    """Seconds spent, by stage."""

    def __init__(self) -> None:
        self._start = time.perf_counter()
        self._stages: dict[str, float] = {}

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self._stages[stage] = self._stages.get(stage, 0.0) + spent

    def seconds(self) -> dict[str, float]:
        total = time.perf_counter() - self._start
        return {name: round(value, 4) for name, value in (self._stages | {"total": total}).items()}
