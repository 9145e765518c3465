"""Accuracy on a task: candidate ranking, or generation where there are no candidates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.data.examples import Encoded, Example, Truncation, encode, tokenise
from tfrnet.data.items import Item
from tfrnet.data.task import Task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.intervals import standard_error
from tfrnet.evaluation.metrics.oracle import Answers
from tfrnet.evaluation.published import published_figures, scored_whole
from tfrnet.evaluation.ranking import Ranking, encode_choices

RANKED = ("acc", "acc_norm", "acc_bytes")
GENERATED = ("exact", "strict", "greedy")
# Longer than any choice.
_CHOICE_LENGTH = 1024


@dataclass(frozen=True)
class Measure:
    """A mean in percent with its standard error; None for a single item."""

    value: float
    stderr: float | None

    @classmethod
    def of(cls, values: Sequence[bool]) -> Measure:
        """Return the share of true values."""
        numbers = [100.0 * value for value in values]
        return cls(sum(numbers) / len(numbers), standard_error(numbers))


@dataclass(frozen=True)
class TaskResult:
    """What was measured on some items of a task; `metric` names the headline among `metrics`.

    A sample holds `key`, `correct` (by the headline metric), `loss` (the mean negative
    log-likelihood of the right answer's tokens) and what its kind of task adds.
    """

    task: str
    part: str
    metric: str
    metrics: Mapping[str, Measure]
    floors: Mapping[str, float]
    samples: Sequence[Mapping[str, Any]] = field(repr=False)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def accuracy(self) -> float:
        """The headline figure in percent."""
        return self.metrics[self.metric].value

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, without the samples."""
        return {
            "task": self.task,
            "part": self.part,
            "n": len(self.samples),
            "metric": self.metric,
            "metrics": {name: vars(measure) for name, measure in self.metrics.items()},
            "floors": dict(self.floors),
            **self.details,
        }


def said(item: Item, sample: Mapping[str, Any] | None, metric: str, in_words: bool) -> str:
    """Return what the model answered, or (without a sample) the right answer.

    Not in words, a choice is yes or no or a letter: the words are the dataset's.
    """
    if not item.choices:
        return item.answer.strip() if sample is None else str(sample["generated"]).strip()
    chosen = item.choices.index(item.answer)
    if sample is not None:
        chosen = sample["chosen_norm" if metric == "acc_norm" else "chosen"]
    if in_words or set(item.choices) == {"yes", "no"}:
        return item.choices[chosen]
    return ascii_uppercase[chosen]


def answers(items: Sequence[Item], result: TaskResult) -> Answers:
    """Return what was answered, to be compared with another model's answers to these items."""
    pairs = zip(items, result.samples, strict=True)
    return Answers(
        [bool(sample["correct"]) for sample in result.samples],
        [float(sample["loss"]) for sample in result.samples],
        [said(item, sample, result.metric, in_words=False) for item, sample in pairs],
    )


def evaluate_task(
    evaluator: Evaluator,
    task: Task,
    items: Sequence[Item],
    part: str,
    max_length: int | None = None,
    truncation: Truncation = "passage_left",
    mutual_info: bool = False,
) -> TaskResult:
    """Measure a task on the given items, by default with the task's own maximum length.

    `mutual_info` also measures by how much the prompt raises a choice's log-likelihood, which takes
    another pass over the choices.
    """
    max_length = max_length or task.max_length
    ranked = bool(items[0].choices)
    names = [*(RANKED if ranked else GENERATED)]
    if task.metric not in names:
        have, use = ("choices", "acc or acc_norm") if ranked else ("no choices", "exact")
        raise InputError(
            f"the task {task.name!r} has the metric {task.metric}, but its items have {have}; "
            f"use {use}"
        )
    if ranked:
        samples, truncated = _rank(evaluator, items, max_length, truncation, mutual_info)
    else:
        samples, truncated = _generate(evaluator, task, items, max_length, truncation)
    if ranked and mutual_info:
        names.append("acc_mutual_info")
    details: dict[str, Any] = {"truncated": truncated}
    if ranked:
        chosen = "chosen_norm" if task.metric == "acc_norm" else "chosen"
        details |= _class_figures(task, items, [sample[chosen] for sample in samples])
    for sample in samples:
        sample["correct"] = sample[task.metric]
    details |= published_figures(task.name, items, samples)
    if task.secret:
        for sample in samples:
            for words in ("gold", "generated"):
                sample.pop(words, None)
    return TaskResult(
        task=task.name,
        part=part,
        metric=task.metric,
        metrics={name: Measure.of([sample[name] for sample in samples]) for name in names},
        floors=task.floors(items),
        samples=samples,
        details=details,
    )


def _rank(
    evaluator: Evaluator,
    items: Sequence[Item],
    max_length: int,
    truncation: Truncation,
    mutual_info: bool,
) -> tuple[list[dict[str, Any]], int]:
    tokenizer = evaluator.loaded.tokenizer
    groups = [
        encode_choices(item.question(), tokenizer, max_length, item.key, truncation)
        for item in items
    ]
    unasked = iter(_unconditional(evaluator, items) if mutual_info else ())
    samples = []
    for item, answers in zip(items, evaluator.score(groups), strict=True):
        gold = item.choices.index(item.answer)
        totals = tuple(answer.total for answer in answers)
        ranking = Ranking(totals, gold, item.choices, next(unasked, ()))
        samples.append(
            {
                "key": item.key,
                "gold": gold,
                "log_likelihoods": list(totals),
                "chosen": ranking.chosen,
                "chosen_norm": ranking.chosen_norm,
                "acc": ranking.correct,
                "acc_norm": ranking.correct_norm,
                "acc_bytes": ranking.chosen_bytes == gold,
                "margin": ranking.margin,
                "loss": answers[gold].average_loss,
            }
        )
        if mutual_info:
            samples[-1]["acc_mutual_info"] = ranking.chosen_mutual_info == gold
    return samples, sum(any(answer.cut for answer in group) for group in groups)


def _unconditional(evaluator: Evaluator, items: Sequence[Item]) -> list[tuple[float, ...]]:
    """Return the log-likelihood of every choice after an empty prompt, with its leading space."""
    groups = [
        [
            encode(Example("", f" {choice}"), evaluator.loaded.tokenizer, _CHOICE_LENGTH, item.key)
            for choice in item.choices
        ]
        for item in items
    ]
    return [tuple(answer.total for answer in group) for group in evaluator.score(groups)]


def _class_figures(task: Task, items: Sequence[Item], chosen: Sequence[int]) -> dict[str, Any]:
    """Return how often each choice was picked and, for fixed choices, the balanced accuracy.

    If accuracy falls because one choice is always picked, that is a bias, not lost knowledge.
    """
    names = items[0].choices if task.fixed_choices else tuple(ascii_uppercase)
    counts = Counter(names[choice] for choice in chosen)
    figures: dict[str, Any] = {"chosen": dict(sorted(counts.items()))}
    if task.fixed_choices:
        from sklearn.metrics import recall_score

        gold = [item.choices.index(item.answer) for item in items]
        recall = recall_score(gold, chosen, average="macro", labels=sorted(set(gold)))
        figures["balanced_accuracy"] = 100 * float(recall)
    return figures


def _generate(
    evaluator: Evaluator,
    task: Task,
    items: Sequence[Item],
    max_length: int,
    truncation: Truncation,
) -> tuple[list[dict[str, Any]], int]:
    tokenizer = evaluator.loaded.tokenizer
    encoded = [
        encode(item.example(), tokenizer, max_length, item.key, truncation) for item in items
    ]
    texts, cut = _continued(evaluator, task, items, encoded, max_length)
    scores = evaluator.score([[each] for each in encoded])
    samples = []
    for item, text, (gold,) in zip(items, texts, scores, strict=True):
        opening = _opening(text, item.answer)
        samples.append(
            {
                "key": item.key,
                "gold": item.answer,
                "generated": text,
                "exact": task.is_right(opening, item),
                "strict": opening == item.answer.strip(),
                "greedy": all(gold.is_argmax),
                "memorised": sum(gold.is_argmax) / len(gold.is_argmax),
                "log_likelihoods": [gold.total],
                "loss": gold.average_loss,
            }
        )
    return samples, cut


def _continued(
    evaluator: Evaluator,
    task: Task,
    items: Sequence[Item],
    encoded: Sequence[Encoded],
    max_length: int,
) -> tuple[list[str], int]:
    """Return what the model says to each item, and how many prompts were cut to make room for it.

    That is one line, or what is scored whole: then there is room for the longest right answer.
    """
    texts, cut = [""] * len(items), 0
    for whole in (False, True):
        places = [i for i, item in enumerate(items) if scored_whole(task.name, item) == whole]
        longest = max((encoded[i].answer_length for i in places if whole), default=0)
        added = max(task.new_tokens, longest)
        prompts = [items[i].prompt for i in places]
        found = evaluator.generate(prompts, added, max_length, one_line=not whole)
        for i, text in zip(places, found, strict=True):
            texts[i] = text
        tokenizer, room = evaluator.loaded.tokenizer, max_length - added
        cut += sum(len(tokenise(prompt, tokenizer)) > room for prompt in prompts)
    return texts, cut


def _opening(text: str, answer: str) -> str:
    """Return as many lines of a text as the right answer has."""
    count = len(answer.strip().split("\n"))
    return "\n".join(text.split("\n")[:count]).strip()
