"""The scores that a dataset's authors publish, and the sets that they are measured on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

from tfrnet.data.items import Item
from tfrnet.data.protocol import Split
from tfrnet.data.sampling import shuffled
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tasks.lume import COMPLETION, REAL, STORIES
from tfrnet.evaluation.metrics import knowundo, lume
from tfrnet.evaluation.metrics.tofu_scores import rouge_l_recall

Samples = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class PublishedSet:
    """Items of one set; `task` may have options, as in lume:stories."""

    name: str
    task: str
    items: Sequence[Item]


def published_sets(split: Split, source: Source, most: int) -> list[PublishedSet]:
    """Return the sets that a stream's published scores are measured on; most tasks have none."""
    name = split.forget_task
    if name == "lume":
        sets = [
            PublishedSet("forget", name, split.forget),
            PublishedSet("retain", name, split.heldout[name]),
        ]
        for part in (STORIES, REAL):
            items = find_task(f"{name}:{part}").load("retain", source)
            drawn = shuffled(items, "published", split.seed)[:most]
            sets.append(PublishedSet(part, f"{name}:{part}", drawn))
        return sets
    if name == "knowundo":
        task = find_task(name)
        authors = {task.topic(item) for item in split.forget}
        return [
            PublishedSet(kind, name, [item for item in items if task.topic(item) in authors][:most])
            for kind, items in (
                ("unlearn", task.load("unlearn_val", source)),
                ("retention", task.load("retention_val", source)),
            )
        ]
    return []


def published_figures(task: str, items: Sequence[Item], samples: Samples) -> dict[str, Any]:
    """Return a task's own scores under `published`; nothing for a task without any."""
    figures = _FIGURES.get(task.partition(":")[0])
    return {"published": figures(items, samples)} if figures else {}


def scored_whole(task: str, item: Item) -> bool:
    """Tell whether all lines of an answer count: LUME's completions are passages of text."""
    return task.partition(":")[0] == "lume" and item.stratum == COMPLETION


def _lume(items: Sequence[Item], samples: Samples) -> dict[str, float]:
    """Return both scores, as far as there are items of their kind."""
    found: dict[str, list[float]] = {}
    for item, sample in zip(items, samples, strict=True):
        if item.stratum == COMPLETION:
            score = lume.regurgitation(item.answer, sample["generated"])
            found.setdefault("regurgitation", []).append(score)
        else:
            score = lume.knowledge(item.answer, sample["generated"])
            found.setdefault("knowledge", []).append(score)
    return {name: fmean(values) for name, values in found.items()}


def _knowundo(items: Sequence[Item], samples: Samples) -> dict[str, float]:
    shares = [sample["memorised"] for sample in samples]
    pairs = zip(items, samples, strict=True)
    return {
        "retention_success": knowundo.retention_success(shares),
        "unlearn_success": knowundo.unlearn_success(shares),
        "perplexity": knowundo.perplexity([sample["loss"] for sample in samples]),
        "rouge": fmean(rouge_l_recall(item.answer, sample["generated"]) for item, sample in pairs),
    }


_FIGURES: dict[str, Callable[[Sequence[Item], Samples], dict[str, float]]] = {
    "lume": _lume,
    "knowundo": _knowundo,
}


def lume_aggregate(sets: Mapping[str, Mapping[str, float]]) -> float | None:
    """Return the task aggregate of the people: what is kept of some, and not left of others.

    None if a set is so small that it lacks completions or questions.
    """
    people = [sets[name] for name in ("forget", "retain")]
    if any(len(scores) < len(fields(lume.LumeScores)) for scores in people):
        return None
    forget, retain = ({"people": lume.LumeScores(**scores)} for scores in people)
    return lume.task_aggregate(forget, retain)
