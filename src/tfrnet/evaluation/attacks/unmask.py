"""Unmask: what anyone does who gets the mask as a file of its own."""

from __future__ import annotations

from collections.abc import Iterator

from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def unmask(subject: Subject) -> Iterator[Attacked]:
    """Take the mask off."""
    yield subject.row("unmask", "all masks at 1", subject.original, None)


ATTACK = Attack("unmask", unmask, needs_mask=True, rank=1)
