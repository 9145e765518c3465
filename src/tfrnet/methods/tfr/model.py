"""TFR-Net on a live model: the order of the parts of one request.

examples -> scores -> risk -> trajectory -> step -> guard -> accept or restore

The step moves the mask; the paper's is suppression and then recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.cost import Account
from tfrnet.core.guard import GuardLoss
from tfrnet.core.outcome import Outcome
from tfrnet.core.search_space import SearchSpace
from tfrnet.core.stage import Report, StepReport
from tfrnet.data.examples import Encoded, Example, tokens_apart, wrong_examples
from tfrnet.data.requests import Request, places_apart
from tfrnet.data.sampling import seeded_order
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask, capacity
from tfrnet.masking.strength import MaskStrength
from tfrnet.methods.tfr.config import SOLVED, TFRConfig
from tfrnet.methods.tfr.scoring import ScoreOptions
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.methods.tfr.steps.calibrate import calibrate_update
from tfrnet.methods.tfr.steps.calibration import Untouched
from tfrnet.methods.tfr.steps.common import Candidate, RiskScores, score_risk
from tfrnet.methods.tfr.steps.fisher import fisher_update
from tfrnet.methods.tfr.steps.passages import PassageReader
from tfrnet.methods.tfr.steps.reference import Reference
from tfrnet.methods.tfr.steps.select import select_update
from tfrnet.methods.tfr.steps.solve import solve_update
from tfrnet.methods.tfr.steps.written import Writer
from tfrnet.methods.tfr.trial_model import RequestExamples, TrialModel
from tfrnet.models.likelihood import losses_by_prompt
from tfrnet.models.passes import Passes, choose_passes
from tfrnet.unlearner import Proposal, Unlearner

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOP_CHANNELS = 128

Update = Callable[[ChannelState, RiskScores, GuardLoss, TrialModel, TFRConfig], Candidate]

_STEPS: dict[str, Update] = {
    "select": select_update,
    "fisher": fisher_update,
    "solve": solve_update,
}


class TFRNet(Unlearner[ChannelState]):
    """TFR-Net on one model, in memory. `tfrnet.Session` adds the state on disk.

    The weights are never changed; a mask scales the outputs of projections until `detach`.
    """

    method = "tfr"
    label = "TFR-Net"
    config_class = TFRConfig
    search_space = SearchSpace(
        {
            "preset": ("default", "deep"),
            "step_margin": (1.0, 3.0, 10.0, 30.0),
            "retain_stiffness": (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0),
            "retain_examples": (24, 72, 240),
        }
    )
    shares_work = True
    can_be_compiled = True
    # Passes have already been made smaller; what remains is data per channel.
    saves_memory = (
        "a new state with fewer retain_examples, repair_examples, guard_examples or memory_rows, "
        "or with step=select, needs less"
    )

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        retain: Sequence[Example] | None,
        config: TFRConfig | None = None,
        **options: Any,
    ) -> None:
        self.config: TFRConfig
        config = config or TFRConfig()
        self._index = find_channels(model, config.target_modules, config.layers)
        # The retain examples, and those of them that are not among the guard's.
        self._parted: tuple[list[Encoded], list[Encoded]] | None = None
        super().__init__(model, tokenizer, retain, config, **options)
        self._untouched: Untouched | None = None
        self._passage_reader = PassageReader(model, tokenizer)
        self._request: Request
        self._reference: Reference | None = None
        if self.passes.compiled:
            # Checked before a state exists; imported here because the compiler is slow to import.
            from tfrnet.masking.compiled import refuse_uncompilable

            refuse_uncompilable(model, [model.get_submodule(each.name) for each in self._index])
        # Last, so that an error above leaves no mask behind on the model.
        self.mask = self.effect = ChannelMask(model, self._index)
        self.state = self._initial()

    @property
    def _options(self) -> ScoreOptions:
        return ScoreOptions(
            batch_size=self.passes.examples,
            tokens=self.config.score_tokens,
            gradient_checkpointing=self.passes.gradient_checkpointing,
            max_tokens=self.passes.tokens,
            overhead=self.passes.overhead,
            team=self.team,
        )

    def _automatic_passes(self, gradient_checkpointing: bool, compiled: bool) -> Passes:
        used = [*self._retain_encoded, *self._guard_encoded, *self._reference_encoded]
        longest = max(len(example.ids) for example in used)
        held = 4 * self._held_rows() * self._index.total
        return choose_passes(self.model, longest, gradient_checkpointing, compiled, held)

    def _held_rows(self) -> int:
        """Return how many numbers per channel are in memory while the model computes.

        Near examples and other answers that `calibrate` holds in place are not counted: how many
        there are is known only once a request is read.
        """
        config = self.config
        if config.step not in SOLVED:
            return 0
        siblings = config.siblings if config.step == "calibrate" else 0
        # Twice: in the scores and in the constraints.
        retain = 2 * (min(config.retain_examples, len(self._usable())) + siblings)
        if config.can_repair:
            retain += 2 * min(config.repair_examples, len(self._usable()))
        guard = len(self._guard_encoded) if config.hold_guard and config.use_retain else 0
        return retain + guard + config.memory_rows

    @property
    def guard_is_apart(self) -> bool:
        """Whether the guard has examples that no request uses."""
        if self.config.effective().get("hold_guard"):
            return False
        return self._leaves_guard_out() or super().guard_is_apart

    @property
    def holdable(self) -> list[Example]:
        """The examples that requests can hold in place."""
        if self.config.effective().get("hold_guard"):
            return [*self.retain, *self.guard]
        if self._leaves_guard_out():
            return [self.retain[i] for i in places_apart(self.retain, self.guard)]
        return self.retain

    def _usable(self) -> list[Encoded]:
        return self._apart_from_guard() if self._leaves_guard_out() else self._retain_encoded

    def _leaves_guard_out(self) -> bool:
        # Of little retain data all is needed to keep it: then it is the guard that gives way.
        return self.config.leaves_guard_out and 2 * len(self._apart_from_guard()) >= len(
            self._retain_encoded
        )

    def _apart_from_guard(self) -> list[Encoded]:
        known = self._retain_encoded
        if self._parted is None or self._parted[0] is not known:
            apart = [known[i] for i in places_apart(self.retain, self.guard)]
            # Once cut to the maximum length, different examples may be the same.
            self._parted = known, tokens_apart(apart, self._guard_encoded)
        return self._parted[1]

    @classmethod
    def attach(cls, model: PreTrainedModel, config: TFRConfig, seed: int = 0) -> ChannelMask:
        """Put a mask of ones on a model."""
        return ChannelMask(model, find_channels(model, config.target_modules, config.layers))

    @classmethod
    def read_state(cls, tensors: Mapping[str, torch.Tensor]) -> ChannelState:
        """Return the state with the given tensors."""
        return ChannelState.from_tensors(tensors)

    def restore(self, state: ChannelState) -> None:
        """Make a state the current one, bit for bit, on the model's device."""
        super().restore(state.to(self.mask.home))

    def _needed(self) -> Set[str]:
        return self._initial().tensors().keys()

    def _initial(self) -> ChannelState:
        return ChannelState.initial(
            self.mask.index.total,
            self.config.step != "select",
            self.mask.home,
            with_memory=self.config.step in SOLVED and self.config.memory_rows > 0,
            with_falls=self.config.memory_fall > 0,
        )

    def prepare(self, requests: Sequence[Request]) -> list[list[Encoded]]:
        """Return the requests' tokens; wrong answers are looked at too, where they are used."""
        if self.config.effective().get("use_wrong_answers"):
            for request in requests:
                self._wrong_answers(request)
        return super().prepare(requests)

    def propose(self, request: Request, report: Report | None = None) -> Proposal[ChannelState]:
        """Work out what a request would do, leaving state and model as they are."""
        self._request = request
        return super().propose(request, report)

    def _propose(
        self, name: str, forget: list[Encoded], say: Report, account: Account
    ) -> Proposal[ChannelState]:
        # First, since it uses hooks inside the model, which compiled layers do not allow.
        retain, update = self._plan(forget, say, account)
        with self.mask.compiled() if self.passes.compiled else nullcontext():
            return self._work_out(name, forget, retain, update, say, account)

    def _plan(
        self, forget: list[Encoded], say: Report, account: Account
    ) -> tuple[list[Encoded], Update]:
        """Return the request's retain examples and the function that moves the mask."""
        config = self.config
        if config.step != "calibrate":
            return self._retain_sample(config.retain_examples), _STEPS[config.step]
        known = self._usable()
        with account.time("levels"):
            say("comparing with retain examples")
            # Without the mask: under it, unknown answers would be less likely than they really are.
            self.mask.set(torch.ones_like(self.state.mask))
            # Nothing is differentiated, so passes are as large as those for losses.
            passes = replace(self._options, max_tokens=self.passes.forward_tokens)
            if self._untouched is None or self._untouched.retain is not known:
                self._untouched = Untouched.of(self.model, known, passes)
            if self._reference_encoded and self._reference is None:
                self._reference = Reference.of(self.model, self._reference_encoded, passes)
            order = seeded_order(len(known), "retain", self.seed, self.requests_seen)
            writer = Writer(self.model, self.tokenizer, self._options)
            calibration = self._untouched.calibrate(
                *(self.model, forget, order, self._losses, self._options, config, writer),
                *(self._passage_reader, say),
                reference=self._reference,
                wrong=self._wrong_answers(self._request) if config.use_wrong_answers else None,
            )
        if config.siblings:
            with account.time("siblings"):
                # Under the mask, so that nothing is held that was forgotten before.
                self.mask.set(self.state.mask)
                if config.untouched_siblings:
                    say("checking siblings of the request")
                    calibration = calibration.with_known_siblings(self._losses)
                else:
                    say("writing siblings of the request")
                    worded = calibration.odds.in_words(forget)
                    siblings = writer.siblings(worded, config.siblings)
                    calibration = calibration.with_siblings(siblings)
        if self._leaves_guard_out():
            calibration = calibration.apart_from(self._guard_encoded)
        return calibration.retain, partial(calibrate_update, calibration)

    def _losses(self, examples: list[Encoded]) -> torch.Tensor:
        # A number of examples given by hand is that of every pass.
        if self.passes.tokens is None:
            return super()._losses(examples)
        # Many are other answers to a request's prompts.
        return losses_by_prompt(self.model, examples, self.passes, super()._losses, self.team)

    def _wrong_answers(self, request: Request) -> list[list[Encoded]]:
        """Return the prompt of each example of a request with the wrong answers that it names."""
        return [
            self.encode(
                wrong_examples(example), f"request {request.id!r}, example {number}, wrong answers"
            )
            for number, example in enumerate(request.examples, start=1)
        ]

    def _work_out(
        self,
        name: str,
        forget: list[Encoded],
        retain: list[Encoded],
        update: Update,
        say: Report,
        account: Account,
    ) -> Proposal[ChannelState]:
        config, state = self.config, self.state
        guard_before = self._guard_before(say, account)
        model = TrialModel(
            mask=self.mask,
            examples=RequestExamples(
                name=name,
                forget=forget,
                retain=retain,
                guard=self._guard_encoded,
                guard_groups=self._guard_groups,
                all_retain=self._usable(),
            ),
            options=self._options,
            losses=self._losses,
            report=StepReport(say),
            cost=account,
            ceiling=self._drift_ceiling,
        )
        forget_scores, retain_scores = model.scores(
            state.mask, config.forget_ceiling, keep_examples=config.step in SOLVED
        )
        scores = score_risk(state, forget_scores, retain_scores, self.mask.index.widths, config)
        candidate = update(state, scores, guard_before, model, config)
        model.report.end()
        with account.time("forget_loss"):
            say("measuring the forget loss")
            self.mask.set(candidate.state.mask)
            forget_after = self._mean_loss(forget)
        after = candidate.state if candidate.accepted else state
        outcome = self._outcome(name, scores, candidate, after, guard_before, forget_after)
        return Proposal(after, outcome)

    def _outcome(
        self,
        name: str,
        scores: RiskScores,
        candidate: Candidate,
        state: ChannelState,
        guard_before: GuardLoss,
        forget_after: float,
    ) -> Outcome:
        threshold = self.config.dormant_threshold
        strength = MaskStrength.of(state.mask.cpu().numpy(), threshold)
        top = torch.sort(scores.chi, descending=True, stable=True).indices[:TOP_CHANNELS]
        return Outcome(
            id=name,
            outcome="accepted" if candidate.accepted else "rejected",
            reason=candidate.reason,
            forget_loss_before=scores.forget.loss,
            forget_loss_after=forget_after,
            retain_loss_before=scores.retain.loss,
            guard_loss_before=guard_before.mean,
            guard_loss_after=candidate.verdict.after,
            guard_groups=candidate.verdict.group_losses(guard_before),
            selected=candidate.suppressed.numel(),
            recovery_pool=candidate.pool,
            recovered=candidate.recovered,
            suppressed_now=int((state.mask < 1).sum()),
            dormant=strength.dormant,
            capacity=capacity(state.mask, threshold),
            mask=strength.to_dict(),
            attempts=candidate.attempts,
            top_channels=tuple(top.tolist()),
        )
