"""Unmask: remove the mask, as anyone can who gets it as a separate file."""

from __future__ import annotations

from collections.abc import Iterator

from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def unmask(subject: Subject) -> Iterator[Attacked]:
    """Remove the mask."""
    yield subject.row("unmask", "all masks at 1", subject.original, None)


ATTACK = Attack("unmask", unmask, needs_mask=True, rank=1)
