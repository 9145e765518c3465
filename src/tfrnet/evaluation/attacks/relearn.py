"""Relearn: how fast the model learns again what it forgot, from a few examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from statistics import fmean

from tfrnet.data.examples import encode
from tfrnet.data.items import Item
from tfrnet.evaluation.attacking.attack import Attack
from tfrnet.evaluation.attacking.relearning import RelearnOptions, relearn
from tfrnet.evaluation.attacking.subject import Attacked, Subject


def relearning(subject: Subject) -> Iterator[Attacked]:
    """Train on the attacker's examples, or on as many held-out ones (benign); mean over seeds."""
    for variant, items in (
        ("forgotten", subject.known),
        ("benign", subject.heldout[: len(subject.known)]),
    ):
        curves = [_curve(subject, state, items) for state in (subject.unlearned, subject.untouched)]
        for (step, attacked), (_, control) in zip(*curves, strict=True):
            yield subject.row("relearn", f"{variant}, {step} steps", attacked, control)


def _curve(
    subject: Subject, state: Callable[[], AbstractContextManager[None]], items: Sequence[Item]
) -> list[tuple[int, float]]:
    options = subject.options
    tokenizer = subject.evaluator.loaded.tokenizer
    rows = [encode(item.example(), tokenizer, options.max_length, item.key) for item in items]
    curves = []
    for seed in range(options.relearn_seeds):
        plan = RelearnOptions(steps=options.relearn_steps, seed=seed)
        with state():
            curves.append(
                relearn(subject.model, rows, plan, lambda: subject.accuracy(subject.hidden))
            )
    return [
        (step, fmean(curve[i][1] for curve in curves))
        for i, step in enumerate(options.relearn_steps)
    ]


ATTACK = Attack("relearn", relearning, rank=6)
