"""What an attack is, and the attacks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrnet.core.registry import Registry

if TYPE_CHECKING:
    from tfrnet.evaluation.attacking.subject import Attacked, Subject

ATTACKS = Registry("attack", "tfrnet.evaluation.attacks", "tfrnet.attacks", "ATTACK", "name")


@dataclass(frozen=True)
class Attack:
    """A way to bring back what was forgotten.

    A file of `evaluation/attacks/`, or an entry point of `tfrnet.attacks`, is all that a new one
    needs. `run` measures a subject under attack and leaves it as it was.
    """

    name: str
    run: Callable[[Subject], Iterable[Attacked]]
    # Whether it is on a mask over channels, which only some methods have.
    needs_mask: bool = False
    # Its place among the others when they are run and shown.
    rank: int = 100


def all_attacks() -> list[Attack]:
    """Return the attacks in their order."""
    return sorted(ATTACKS.all().values(), key=lambda attack: (attack.rank, attack.name))
