"""Few-shot: solved examples in front of each question."""

from __future__ import annotations

from collections.abc import Iterator

from tfrnet.data.fewshot import with_shots
from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.subject import Attacked, Subject

SHOTS = (1, 4, 8)


def few_shot(subject: Subject) -> Iterator[Attacked]:
    """Put solved examples in front: forgotten ones, held-out ones, and ones of another task.

    Held-out examples show the ordinary gain of solved examples. If forgotten ones gain more, the
    knowledge was suppressed, not removed.
    """
    pools = {
        "forgotten": subject.known,
        "held-out": subject.heldout,
        "other task": subject.other,
    }
    for kind, pool in pools.items():
        for count in SHOTS:
            if count <= len(pool):
                items = [with_shots(item, pool[:count]) for item in subject.hidden]
                yield subject.both("few-shot", f"{count} {kind}", items, subject.longest)


ATTACK = Attack("few-shot", few_shot, rank=5)
