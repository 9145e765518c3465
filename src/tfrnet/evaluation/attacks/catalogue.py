"""The attacks by name. Each yields accuracies on forgotten items beside the plain ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from statistics import fmean

from tfrnet.data.examples import encode
from tfrnet.data.fewshot import with_shots
from tfrnet.data.items import Item
from tfrnet.evaluation.attacks.lifted import other_mask
from tfrnet.evaluation.attacks.quantise import SCHEMES, quantised
from tfrnet.evaluation.attacks.relearn import RelearnOptions, relearn
from tfrnet.evaluation.attacks.subject import Attacked, Subject
from tfrnet.evaluation.attacks.weights import harden, rescaled

SHOTS = (1, 4, 8)
# Solved examples need room: the model's own context, but no more than this.
_LONG = 2048


def unmask(subject: Subject) -> Iterator[Attacked]:
    """Take the mask off: what anyone does who gets the mask as a file of its own."""
    yield subject.row("unmask", "all masks at 1", subject.original, None)


def rescale(subject: Subject) -> Iterator[Attacked]:
    """Scale every output row to its module's median norm, which undoes a soft mask in part."""
    model, mask = subject.model, subject.mask
    with subject.untouched(), rescaled(model, mask.index):
        control = subject.accuracy(subject.hidden)
    hardened = harden(mask.values, subject.options.dormant_threshold)
    for variant, values in (("soft", mask.values), ("hardened", hardened)):
        with other_mask(mask, values), subject.unlearned(), rescaled(model, mask.index):
            attacked = subject.accuracy(subject.hidden)
        yield subject.row("rescale", variant, attacked, control)


def quantise(subject: Subject) -> Iterator[Attacked]:
    """Round the weights to 8, 4 and 3 bits."""
    for scheme in SCHEMES:
        with subject.unlearned(), quantised(subject.model, scheme):
            attacked = subject.accuracy(subject.hidden)
        with subject.untouched(), quantised(subject.model, scheme):
            control = subject.accuracy(subject.hidden)
        yield subject.row("quantise", scheme.name, attacked, control)


def prompts(subject: Subject) -> Iterator[Attacked]:
    """Ask in other words; the last row counts an item as known if any wording finds it."""
    wordings: dict[str, list[Item]] = {"original": subject.hidden}
    for item in subject.hidden:
        for name, other in subject.task.rephrased(item).items():
            wordings.setdefault(name, []).append(other)
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


def few_shot(subject: Subject) -> Iterator[Attacked]:
    """Put solved examples in front: forgotten ones, held-out ones, and ones of another task.

    What forgotten ones bring beyond held-out ones was suppressed, not removed; held-out ones alone
    show the ordinary gain of solved examples.
    """
    context = getattr(subject.model.config, "max_position_embeddings", _LONG)
    length = min(context, _LONG)
    pools = {
        "forgotten": subject.known,
        "held-out": subject.heldout,
        "other task": subject.other,
    }
    for kind, pool in pools.items():
        for count in SHOTS:
            if count <= len(pool):
                items = [with_shots(item, pool[:count]) for item in subject.hidden]
                yield subject.both("few-shot", f"{count} {kind}", items, length)


def relearning(subject: Subject) -> Iterator[Attacked]:
    """Train on the examples in hand, and (benign) on as many held-out ones; mean over seeds."""
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


ATTACKS: dict[str, Callable[[Subject], Iterator[Attacked]]] = {
    "unmask": unmask,
    "rescale": rescale,
    "quantise": quantise,
    "prompts": prompts,
    "few-shot": few_shot,
    "relearn": relearning,
}
ON_MASKS = ("unmask", "rescale")
