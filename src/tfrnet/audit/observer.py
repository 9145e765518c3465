"""A method under observation: what each request does to examples that the method never sees.

Everything is measured before the commit, under the candidate state, so that the figures stand in
the same line of the ledger as the request.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tfrnet.audit.answers import shown_prompts
from tfrnet.audit.change import Change
from tfrnet.audit.figures import Figures, given_by_kind
from tfrnet.audit.measure import GENERAL, HOLDOUT, KEPT, WORDINGS, Measured, Sets, measure
from tfrnet.audit.probe import ProbeMaker
from tfrnet.core.errors import TfrnetWarning
from tfrnet.core.stage import Report
from tfrnet.core.tensors import State
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request, refuse_overlap, refuse_shared
from tfrnet.models.forward import fitting_length
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel
from tfrnet.unlearner import REFERENCE, Proposal, Unlearner

_HOLDOUT = "hold-out data"
_SHOWN_TOKENS = 10


@dataclass(frozen=True)
class Origin:
    """The untouched model: whether a state is where it was, and its guard loss, if known."""

    is_here: bool
    guard_loss: float | None


class Observer:
    """Proposes and adopts requests with a method, and adds to each outcome what it measured.

    `holdout` is data of the user's own: no step and no guard uses it. With `audits` each request is
    also asked for in other words, and kept and general text is looked at.
    """

    def __init__(
        self, net: Unlearner[Any], holdout: Sequence[Example] = (), audits: bool = False
    ) -> None:
        refuse_shared(holdout, net.retain, _HOLDOUT, "retain data")
        refuse_shared(holdout, net.guard, _HOLDOUT, "guard data")
        refuse_shared(holdout, net.reference, _HOLDOUT, REFERENCE)
        self.net = net
        self.holdout = list(holdout)
        self.audits = audits
        kept = [*net.retain, *net.guard]
        self._maker = ProbeMaker(net.tokenizer, net.max_length, kept) if audits else None
        # The sets that are the same at every request, and what they showed: of the untouched model,
        # of the current state, and of the proposed one.
        self._fixed: Sets = {HOLDOUT: net.encode(holdout, _HOLDOUT)} if holdout else {}
        if self._maker:
            general = self._maker.general.items()
            self._fixed = {**self._fixed, **{GENERAL + kind: texts for kind, texts in general}}
        self._untouched: Measured | None = None
        self._now: Measured | None = None
        self._next: Measured | None = None

    def refuse(self, requests: Sequence[Request]) -> None:
        """Raise if a request is in the hold-out data."""
        refuse_overlap(requests, self.holdout, _HOLDOUT)

    def propose(self, request: Request, report: Report | None = None) -> Proposal[Any]:
        """Propose as the method does; the outcome says besides what else the request did."""
        self.refuse([request])
        if not self._fixed:
            return self.net.propose(request, report)
        watch = _Watch()
        with watch:
            _say(report, "looking at the model before the request")
            look = _Look(self, request)
            before = look.at(self.net.state, self._now)
            self._learn_untouched(before.measured)
        if look.kinds and not bool(before.measured[WORDINGS].given.any()):
            warnings.warn(
                f"request {request.id!r}: the model gives the answer in none of {len(look.kinds)} "
                "wordings even before it, so there may be nothing to forget",
                TfrnetWarning,
                stacklevel=3,
            )
        proposal = self.net.propose(request, report)
        with watch:
            _say(report, "looking at the model after the request")
            after = look.at(proposal.state) if proposal.outcome.accepted else before
        self._next = after.measured
        return Proposal(
            proposal.state,
            replace(
                proposal.outcome,
                holdout=self._holdout_change(before.measured, after.measured),
                audit=self._figures(look, before.measured, after.measured),
                answers=tuple(zip(look.prompts, before.texts, after.texts, strict=True)),
                seconds=watch.added_to(proposal.outcome.seconds),
            ),
        )

    def adopt(self, proposal: Proposal[Any]) -> None:
        """Make the result of a request current, accepted or not."""
        self.net.adopt(proposal)
        self._now, self._next = self._next, None

    def restore(self, state: State, requests_seen: int, origin: Origin) -> None:
        """Make a state the current one, bit for bit."""
        self.net.restore(state)
        self.net.requests_seen = requests_seen
        self.net.is_untouched = origin.is_here
        self.net.count_drift(origin.guard_loss)
        self._now = self._next = None

    def _learn_untouched(self, now: Measured) -> None:
        if self._untouched is None and self.net.is_untouched:
            self._untouched = now
        if self._untouched is None:
            with self.net.untouched():
                self._untouched = measure(self.net.answers, self._fixed)

    def _holdout_change(self, before: Measured, after: Measured) -> Mapping[str, Any]:
        return self._change(HOLDOUT, before, after).to_dict() if self.holdout else {}

    def _figures(self, look: _Look, before: Measured, after: Measured) -> Mapping[str, Any]:
        if not self._maker:
            return {}
        given = [m[WORDINGS].given.tolist() if look.kinds else [] for m in (before, after)]
        kept = Change.of(None, before[KEPT].losses, after[KEPT].losses)
        return Figures(
            wordings=given_by_kind(look.kinds, *given),
            kept=kept,
            general={
                kind: self._change(GENERAL + kind, before, after) for kind in self._maker.general
            },
        ).to_dict()

    def _change(self, name: str, before: Measured, after: Measured) -> Change:
        assert self._untouched is not None
        return Change.of(*(found[name].losses for found in (self._untouched, before, after)))


@dataclass(frozen=True)
class _Seen:
    measured: Measured
    texts: list[str]


class _Look:
    """What is looked at for one request, under one state and then under another."""

    def __init__(self, observer: Observer, request: Request) -> None:
        self._net, self._fixed = observer.net, observer._fixed
        self._own: dict[str, Any] = {}
        self.kinds: list[str] = []
        self.prompts: list[str] = []
        if not (maker := observer._maker):
            return
        asked = maker.wordings(request)
        self.kinds = [each.kind for each in asked]
        self._own = {
            WORDINGS: [each.encoded for each in asked],
            KEPT: maker.nearest_kept(request),
        }
        # Decoding is not shared by several processes, and the words are only for the screen.
        if self._net.team.size == 1:
            self.prompts = shown_prompts(request)

    def at(self, state: State, known: Measured | None = None) -> _Seen:
        """Measure everything under a state, except for what is known, and let the model answer."""
        fixed = {} if known else self._fixed
        net = self._net
        with net.showing(state):
            measured = measure(net.answers, {**fixed, **self._own})
            texts = continue_texts(
                LoadedModel(net.model, net.tokenizer),
                self.prompts,
                _SHOWN_TOKENS,
                batch_size=max(len(self.prompts), 1),
                # Positions may end at the maximum length, and some are needed for the answers.
                max_prompt=fitting_length(net.model, net.max_length + _SHOWN_TOKENS)
                - _SHOWN_TOKENS,
                one_line=True,
            )
        return _Seen({**(known or {}), **measured}, texts)


class _Watch:
    """Adds up the time of several blocks."""

    def __init__(self) -> None:
        self._spent = 0.0

    def __enter__(self) -> None:
        self._begin = time.perf_counter()

    def __exit__(self, *exception: object) -> None:
        self._spent += time.perf_counter() - self._begin

    def added_to(self, seconds: Mapping[str, float]) -> dict[str, float]:
        """Return a request's seconds with this stage, which counts in the total."""
        spent = round(self._spent, 4)
        return dict(seconds) | {"audit": spent, "total": round(seconds["total"] + spent, 4)}


def _say(report: Report | None, stage: str) -> None:
    if report:
        report(stage)
