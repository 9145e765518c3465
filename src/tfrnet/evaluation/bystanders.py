"""Side effects on what should not change: fresh examples, text, sibling items and fluency.

None of these examples is in a split, so no method and no guard has ever seen them, and measuring
them does not affect other results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tfrnet.data.examples import Example, encode
from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.sampling import one_per_group, shuffled
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.fluency import fluency
from tfrnet.evaluation.metrics.witness import witness_ratios
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.evaluation.yardsticks import TEXT

_WITNESSES, _SIBLINGS, _PROMPTS = 32, 64, 32
_NEW_TOKENS, _MAX_LENGTH, _CHARACTERS = 32, 256, 600


@dataclass(frozen=True)
class Bystanders:
    """Fresh examples by task, and text; kept items on forgotten topics; forgotten prompts."""

    task: str
    witnesses: Mapping[str, Sequence[Example]]
    siblings: Sequence[Item]
    prompts: Sequence[str]


@dataclass(frozen=True)
class Look:
    """Measurements of the bystanders at one time."""

    losses: Mapping[str, Sequence[float]]
    siblings: Sequence[bool]
    texts: Sequence[str]


def find_bystanders(split: Split, source: Source, most: int) -> Bystanders:
    """Return the bystanders of a stream, at most `most` of a kind."""
    used = {item.group for items in split.parts().values() for item in items}
    witnesses: dict[str, Sequence[Example]] = {}
    siblings: list[Item] = []
    for name in split.retain:
        task = find_task(name)
        training = task.load(task.pool, source)
        fresh = one_per_group(shuffled(training, "witness", name, split.seed))
        unused = [item for item in fresh if item.group not in used]
        witnesses[name] = [item.example() for item in unused[: min(most, _WITNESSES)]]
        if name == split.forget_task:
            related = siblings_of(split, training)
            siblings = shuffled(related, "sibling", split.seed)[: min(most, _SIBLINGS)]
    texts = [_passage(item) for items in split.heldout.values() for item in items if item.passage]
    witnesses[TEXT] = [Example("", text, is_text=True) for text in texts[: min(most, _WITNESSES)]]
    prompts = [item.prompt for item in split.forget[: min(most, _PROMPTS)]]
    kept = {group: examples for group, examples in witnesses.items() if examples}
    return Bystanders(split.forget_task, kept, siblings, prompts)


def siblings_of(split: Split, training: Sequence[Item]) -> list[Item]:
    """Return the training items on the topics of forgotten ones that are nowhere in the split.

    One with the answer of a forgotten item of its topic is left out: it may say the same in other
    words, and a model that forgets ought to lose it.
    """
    task = find_task(split.forget_task)
    topics = {task.topic(item) for item in split.forget}
    forgotten = {(task.topic(item), _compared(item.answer)) for item in split.forget}
    used = {item.digest for items in split.parts().values() for item in items}
    return [
        item
        for item in training
        if task.topic(item) in topics
        and (task.topic(item), _compared(item.answer)) not in forgotten
        and item.digest not in used
    ]


def look(evaluator: Evaluator, bystanders: Bystanders) -> Look:
    """Measure the current model."""
    losses = {
        group: _losses(evaluator, examples) for group, examples in bystanders.witnesses.items()
    }
    right: list[bool] = []
    if bystanders.siblings:
        task = find_task(bystanders.task)
        found = evaluate_task(evaluator, task, bystanders.siblings, "same topic")
        right = [bool(sample["correct"]) for sample in found.samples]
    texts = evaluator.generate(bystanders.prompts, _NEW_TOKENS, _MAX_LENGTH)
    return Look(losses, right, texts)


def bystander_figures(
    untouched: Evaluator, bystanders: Bystanders, before: Look, now: Look
) -> dict[str, Any]:
    """Return the figures as plain JSON values; `untouched` reads the texts of both looks."""
    said, own = (_reading(untouched, bystanders, taken.texts) for taken in (now, before))
    # Where either model says nothing there is no perplexity to compare.
    both = [(a, b) for a, b in zip(said, own, strict=True) if a is not None and b is not None]
    spoken = fluency(now.texts, [a for a, _ in both], [b for _, b in both])
    return {
        "witness": witness_ratios(before.losses, now.losses),
        "same_topic": {
            "n": len(before.siblings),
            "before": 100 * sum(before.siblings) / max(1, len(before.siblings)),
            "now": 100 * sum(now.siblings) / max(1, len(now.siblings)),
        },
        "fluency": asdict(spoken),
    }


def _losses(evaluator: Evaluator, examples: Sequence[Example]) -> list[float]:
    tokenizer = evaluator.loaded.tokenizer
    groups = [[encode(example, tokenizer, _MAX_LENGTH, "witness")] for example in examples]
    return [scores[0].average_loss for scores in evaluator.score(groups)]


def _reading(
    untouched: Evaluator, bystanders: Bystanders, texts: Sequence[str]
) -> list[float | None]:
    """Return the loss of each continuation after its prompt; None for an empty one."""
    spoken = [i for i, text in enumerate(texts) if text.strip()]
    examples = [Example(bystanders.prompts[i].rstrip(), f" {texts[i].strip()}") for i in spoken]
    losses = dict(zip(spoken, _losses(untouched, examples), strict=True))
    return [losses.get(i) for i in range(len(texts))]


def _compared(answer: str) -> str:
    return answer.strip().casefold()


def _passage(item: Item) -> str:
    assert item.passage is not None
    start, end = item.passage
    return item.prompt[start:end].strip()[:_CHARACTERS]
