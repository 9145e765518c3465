"""What every process of a team but the leader does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfrnet.core.errors import TeamError
from tfrnet.distributed.messages import Adopt, Begin, End, Load, Propose, Restore
from tfrnet.distributed.together import load_together
from tfrnet.method import find_method
from tfrnet.unlearner import Proposal, Unlearner

if TYPE_CHECKING:
    from tfrnet.core.team import Team
    from tfrnet.models.load import LoadedModel


def follow(team: Team, load: Callable[[Load], LoadedModel]) -> None:
    """Carry out the leader's messages until it ends the run.

    Errors that all processes share are left to the leader to report.
    """
    loaded: LoadedModel | None = None
    net: Unlearner[Any] | None = None
    proposal: Proposal[Any] | None = None
    try:
        while not isinstance(message := team.broadcast(None), End):
            match message:
                case Load():
                    loaded = load_together(team, lambda: load(message))
                case Begin() if loaded:
                    net = _begin(team, loaded, message)
                case Restore() if net:
                    net.restore(find_method(net.method).read_state(message.tensors))
                    net.requests_seen = message.requests_seen
                case Propose() if net:
                    with team.together():
                        proposal = net.propose(message.request)
                        team.agree({"the new state": proposal.state.digest()})
                case Adopt() if net and proposal:
                    net.adopt(proposal)
                case _:
                    raise TeamError(f"the leader said {type(message).__name__} too early")
    finally:
        if net:
            net.detach()


def _begin(team: Team, loaded: LoadedModel, begin: Begin) -> Unlearner[Any]:
    with team.together():
        method = find_method(begin.method)
        net = method(
            *loaded,
            begin.retain,
            method.config_class.from_dict(begin.config),
            guard=begin.guard,
            seed=begin.seed,
            passes=begin.passes,
            team=team,
        )
        team.agree({})
    return net
