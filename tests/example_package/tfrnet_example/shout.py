"""Shout: the same questions in capital letters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def shout(subject: Subject) -> Iterator[Attacked]:
    """Ask the model that forgot and, as the control, the untouched one."""
    loud = [replace(item, prompt=item.prompt.upper()) for item in subject.hidden]
    yield subject.both("shout", "capital letters", loud)


ATTACK = Attack("shout", shout)
