"""Prompts: the same questions in other words."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from tfrnet.data.items import Item
from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def prompts(subject: Subject) -> Iterator[Attacked]:
    """Ask in other words; the last row counts an item as known if any wording finds it.

    An item that has no such wording is asked as it is.
    """
    wordings: dict[str, list[Item]] = {"original": subject.hidden}
    others = [subject.task.rephrased(item) for item in subject.hidden]
    for name in dict.fromkeys(name for own in others for name in own):
        pairs = zip(subject.hidden, others, strict=True)
        wordings[name] = [own.get(name, item) for item, own in pairs]
    found: list[list[list[bool]]] = []
    for state in (subject.unlearned, subject.untouched):
        with state():
            found.append([subject.correct(items) for items in wordings.values()])
    for number, name in enumerate(wordings):
        yield subject.row("prompts", name, *(100 * fmean(side[number]) for side in found))
    means = [100 * fmean(fmean(right) for right in side) for side in found]
    yield subject.row("prompts", "mean of wordings", *means)
    worst = [100 * fmean(map(any, zip(*side, strict=True))) for side in found]
    yield subject.row("prompts", "any wording", *worst)


ATTACK = Attack("prompts", prompts, rank=4)
