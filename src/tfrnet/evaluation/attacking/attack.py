"""The definition of an attack, and all attacks by name."""

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

    To add one, add a file to `evaluation/attacks/` or an entry point of `tfrnet.attacks`. `run`
    measures a subject under attack and then restores it.
    """

    name: str
    run: Callable[[Subject], Iterable[Attacked]]
    # Whether it attacks a channel mask, which only some methods have.
    needs_mask: bool = False
    # Attacks run and are shown in ascending order of rank.
    rank: int = 100
    # Whether it runs only when it is named, because not everybody has what it needs.
    on_request: bool = False
    # Raises, before any work, if it cannot run here.
    refuse: Callable[[], None] = lambda: None


def all_attacks() -> list[Attack]:
    """Return the attacks, sorted by rank and name."""
    return sorted(ATTACKS.all().values(), key=lambda attack: (attack.rank, attack.name))
