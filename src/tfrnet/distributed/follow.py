"""What every process of a team but the leader does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfrnet.audit.observer import Observer
from tfrnet.core.errors import TeamError
from tfrnet.distributed.messages import Adopt, Begin, End, Load, Propose, Restore
from tfrnet.distributed.together import load_together
from tfrnet.method import find_method
from tfrnet.unlearner import Proposal

if TYPE_CHECKING:
    from tfrnet.core.team import Team
    from tfrnet.models.load import LoadedModel


def follow(team: Team, load: Callable[[Load], LoadedModel]) -> None:
    """Carry out the leader's messages until it ends the run.

    Errors that all processes share are left to the leader to report.
    """
    loaded: LoadedModel | None = None
    observer: Observer | None = None
    proposal: Proposal[Any] | None = None
    try:
        while not isinstance(message := team.broadcast(None), End):
            match message:
                case Load():
                    loaded = load_together(team, lambda: load(message))
                case Begin() if loaded:
                    observer = _begin(team, loaded, message)
                case Restore() if observer:
                    state = observer.net.read_state(message.tensors)
                    observer.restore(state, message.requests_seen, message.origin)
                case Propose() if observer:
                    with team.together():
                        proposal = observer.propose(message.request)
                        team.agree({"the new state": proposal.state.digest()})
                case Adopt() if observer and proposal:
                    observer.adopt(proposal)
                case _:
                    raise TeamError(
                        f"process 0 sent {type(message).__name__} before the work began; start the "
                        "command again"
                    )
    finally:
        if observer:
            observer.net.detach()


def _begin(team: Team, loaded: LoadedModel, begin: Begin) -> Observer:
    with team.together():
        method = find_method(begin.method)
        net = method(
            *loaded,
            begin.retain,
            method.config_class.from_dict(begin.config),
            guard=begin.guard,
            reference=begin.reference,
            seed=begin.seed,
            passes=begin.passes,
            team=team,
        )
        observer = Observer(net, begin.holdout, begin.audits)
        team.agree({})
    return observer
