"""Running an evaluation plan on a model and comparing with the retain-only model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tfrnet.core.effect import Effect
from tfrnet.data.tofu import check_template
from tfrnet.evaluation.attacking.subject import Subject
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.oracle import Answers
from tfrnet.evaluation.metrics.tofu_scores import forget_quality
from tfrnet.evaluation.plan import Plan
from tfrnet.evaluation.privacy import PrivacyResult, compare_with_oracle, evaluate_privacy
from tfrnet.evaluation.robustness import relearning_figures, run_attacks
from tfrnet.evaluation.stream import StreamResult, forgotten_answers, measure_stream
from tfrnet.evaluation.tasks import TaskResult, evaluate_task
from tfrnet.evaluation.tofu import TofuResult, evaluate_tofu
from tfrnet.state.store import StateStore

Report = Callable[[str], None]

NO_ORACLE = (
    "{} compares with a model that never saw the forget set; give --oracle MODEL, a model that was "
    "fine-tuned in the same way on TOFU's retain90 alone (for smollm2-tofu-full: "
    "--oracle smollm2-tofu-retain90)"
)
NO_TASK_ORACLE = (
    "It takes a model that was trained in the same way without the forgotten items; give --oracle "
    "MODEL (for smollm2-tasks and seeds 3 to 7: --oracle smollm2-tasks-oracle)"
)


@dataclass(frozen=True)
class Measurements:
    """The results of one model; `forgotten` are an oracle's answers to a stream's items."""

    tasks: Sequence[TaskResult] = ()
    tofu: TofuResult | None = None
    privacy: PrivacyResult | None = None
    robustness: Mapping[str, Any] | None = None
    stream: StreamResult | None = None
    forgotten: Answers | None = None

    def samples(self) -> Iterator[dict[str, Any]]:
        """Yield the results of every item."""
        for result in self.tasks:
            for sample in result.samples:
                yield {"task": result.task, "part": result.part, **sample}
        if self.tofu:
            for name, rows in self.tofu.rows.items():
                for number, row in zip(self.tofu.numbers[name], rows, strict=True):
                    yield {"task": "tofu", "part": name, "row": number, **row}
        if self.privacy:
            for attack, sides in self.privacy.scores.items():
                names = ("member", "non-member")
                for name, scores, numbers in zip(names, sides, self.privacy.numbers, strict=True):
                    for number, score in zip(numbers, scores, strict=True):
                        yield {
                            "task": "privacy",
                            "part": name,
                            "row": number,
                            "attack": attack,
                            "score": score,
                        }


@dataclass(frozen=True)
class Compared:
    """Results ready to be shown, and what could not be computed and why."""

    results: list[dict[str, Any]]
    missing: list[dict[str, str]] = field(default_factory=list)


def measure(
    evaluator: Evaluator,
    plan: Plan,
    effect: Effect | None,
    report: Report,
    store: StateStore | None = None,
) -> Measurements:
    """Run a plan on a model with a state applied. A stream needs the state's folder too."""
    options = plan.options
    if "robustness" in options.tasks and effect:
        effect.folded()  # raises now, not at the end, if the effect cannot be exported
    if plan.tofu or plan.privacy:
        check_template(evaluator.loaded.tokenizer, options.tofu.template)
    tasks = []
    for part in plan.parts:
        report(f"{part.task.name} {part.name}")
        tasks.append(
            evaluate_task(
                evaluator,
                part.task,
                part.items,
                part.name,
                options.max_length,
                options.truncation,
                options.mutual_info,
            )
        )
    reference = measure_reference(evaluator, plan, report)
    robustness = stream = None
    if "robustness" in options.tasks and effect and plan.split:
        report("attacks")
        subject = Subject(evaluator, effect, plan.split, options.attack)
        rows = run_attacks(subject, options.attacks, report)
        robustness = {
            "task": "robustness",
            "forget_task": plan.split.forget_task,
            "n": len(subject.hidden),
            "attacks": [row.to_dict() for row in rows],
            "relearning": relearning_figures(rows),
        }
    if "stream" in options.tasks and effect and store and plan.split:
        length, beside = options.max_length, plan.bystanders
        stream = measure_stream(evaluator, effect, store, plan.split, length, report, beside)
    return Measurements(tasks, reference.tofu, reference.privacy, robustness, stream)


def measure_oracle(evaluator: Evaluator, plan: Plan, report: Report) -> Measurements:
    """Measure what the model is compared with: a model that never saw the forgotten data."""
    found = measure_reference(evaluator, plan, report)
    if "stream" not in plan.options.tasks or plan.split is None:
        return found
    report("forgotten items")
    forgotten = forgotten_answers(evaluator, plan.split, plan.options.max_length)
    return replace(found, forgotten=forgotten)


def measure_reference(evaluator: Evaluator, plan: Plan, report: Report) -> Measurements:
    """Measure TOFU and privacy, which are compared with the retain-only model."""
    options = plan.options
    tofu = privacy = None
    if plan.tofu:
        report("TOFU")
        tofu = evaluate_tofu(evaluator, plan.tofu, options.tofu)
    if plan.privacy:
        report("privacy")
        privacy = evaluate_privacy(
            evaluator, *plan.privacy, options.tofu, options.min_k, options.gradient_norm
        )
    return Measurements(tofu=tofu, privacy=privacy)


def compare(found: Measurements, oracle: Measurements | None) -> Compared:
    """Return all results; without an oracle, those that need one are listed as missing."""
    results = [result.to_dict() for result in found.tasks]
    missing = []
    if found.tofu:
        entry = found.tofu.to_dict()
        if oracle and oracle.tofu:
            quality = forget_quality(found.tofu.truth_ratios(), oracle.tofu.truth_ratios())
            entry |= {"forget_quality": asdict(quality), "oracle": oracle.tofu.to_dict()}
        else:
            missing.append({"figure": "forget_quality", "why": NO_ORACLE.format("Forget Quality")})
        results.append(entry)
    if found.privacy:
        entry = found.privacy.to_dict()
        if oracle and oracle.privacy:
            entry |= compare_with_oracle(found.privacy, oracle.privacy)
        else:
            missing.append({"figure": "privleak", "why": NO_ORACLE.format("PrivLeak")})
        results.append(entry)
    if found.robustness:
        results.append(dict(found.robustness))
    if found.stream:
        results.append(found.stream.to_dict(oracle.forgotten if oracle else None))
        if oracle is None:
            missing.append({"figure": "distance to the oracle", "why": NO_TASK_ORACLE})
    return Compared(results, missing)
