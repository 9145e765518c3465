"""A method under observation: what each request does to examples that the method never sees.

Everything is measured before the commit, under the candidate state, so that the figures stand in
the same line of the ledger as the request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from tfrnet.audit.change import Change
from tfrnet.core.stage import Report
from tfrnet.core.tensors import State
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request, refuse_overlap, refuse_shared
from tfrnet.unlearner import Proposal, Unlearner

HOLDOUT = "hold-out data"


class Observer:
    """Proposes and adopts requests with a method, and adds to each outcome what it measured.

    `holdout` is data of the user's own: no step and no guard uses it.
    """

    def __init__(self, net: Unlearner[Any], holdout: Sequence[Example] = ()) -> None:
        refuse_shared(holdout, net.retain, HOLDOUT, "retain data")
        refuse_shared(holdout, net.guard, HOLDOUT, "guard data")
        self.net = net
        self.holdout = list(holdout)
        self._encoded = net.encode(holdout, HOLDOUT)
        # The losses of the untouched model, and of the current and the proposed state.
        self._untouched: torch.Tensor | None = None
        self._now: torch.Tensor | None = None
        self._next: torch.Tensor | None = None

    def refuse(self, requests: Sequence[Request]) -> None:
        """Raise if a request is in the hold-out data."""
        refuse_overlap(requests, self.holdout, HOLDOUT)

    def propose(self, request: Request, report: Report | None = None) -> Proposal[Any]:
        """Propose as the method does; the outcome says besides what became of the hold-out data."""
        self.refuse([request])
        if not self.holdout:
            return self.net.propose(request, report)
        proposal = self.net.propose(request, report)
        if report:
            report("measuring the hold-out data")
        begin = time.perf_counter()
        change = self._measured(proposal)
        return Proposal(
            proposal.state,
            replace(
                proposal.outcome,
                holdout=change.to_dict(),
                seconds=_with_stage(proposal.outcome.seconds, "holdout", begin),
            ),
        )

    def adopt(self, proposal: Proposal[Any]) -> None:
        """Make the result of a request current, accepted or not."""
        self.net.adopt(proposal)
        self._now, self._next = self._next, None

    def restore(self, state: State, requests_seen: int, is_untouched: bool) -> None:
        """Make a state the current one, bit for bit."""
        self.net.restore(state)
        self.net.requests_seen = requests_seen
        self.net.is_untouched = is_untouched
        self._now = self._next = None

    def _measured(self, proposal: Proposal[Any]) -> Change:
        net = self.net
        if self._now is None:
            with net.showing(net.state):
                self._now = self._losses()
        if self._untouched is None and net.is_untouched:
            self._untouched = self._now
        if self._untouched is None:
            with net.untouched():
                self._untouched = self._losses()
        self._next = self._now
        if proposal.outcome.accepted:
            with net.showing(proposal.state):
                self._next = self._losses()
        return Change.of(self._untouched, self._now, self._next)

    def _losses(self) -> torch.Tensor:
        return self.net.answers(self._encoded).losses


def _with_stage(seconds: Any, stage: str, begin: float) -> dict[str, float]:
    """Return a request's seconds with one more stage, which counts in the total."""
    spent = round(time.perf_counter() - begin, 4)
    return dict(seconds) | {stage: spent, "total": round(seconds["total"] + spent, 4)}
