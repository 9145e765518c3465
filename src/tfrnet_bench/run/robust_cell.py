"""A cell under attack: apply the whole stream, then every attack on the resulting model."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from tfrnet.core.outcome import Outcome
from tfrnet.evaluation.attacking.subject import Subject
from tfrnet.evaluation.robustness import attack_names, relearning_figures, run_attacks
from tfrnet.unlearner import Unlearner
from tfrnet_bench.run.cell_run import CellRun, StreamData


def run_robust_cell(run: CellRun) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result, and no samples."""
    split, plan = run.context.split(run.cell.stream, run.cell.seed), run.context.plan
    data = StreamData(split.requests(), split.retain_examples(), split.guard_examples())
    options = plan.attack_on(run.cell.stream)
    found: list[dict[str, Any]] = []

    def after(number: int, outcome: Outcome, unlearner: Unlearner[Any]) -> None:
        if number == len(data.requests):
            found.append(attack(unlearner))

    def attack(unlearner: Unlearner[Any]) -> dict[str, Any]:
        settings = plan.settings(run.cell.variant)
        threshold = vars(settings).get("dormant_threshold", options.dormant_threshold)
        own = replace(options, dormant_threshold=threshold)
        with run.progress.time("evaluation"):
            subject = Subject(run.context.evaluator(run.loaded), unlearner.effect, split, own)
            names = attack_names(unlearner.effect)
            rows = run_attacks(subject, names, lambda stage: run.report(f"{run.cell.key}: {stage}"))
        return {
            "n": len(subject.hidden),
            "attacks": [row.to_dict() for row in rows],
            "relearning": relearning_figures(rows),
        }

    run.apply_requests(data, after)
    sizes = asdict(plan.sizes) | {"request_size": split.request_size}
    protocol = sizes | {"attack": asdict(options)}
    return run.header() | {"protocol": protocol, "robustness": found[0]}, []
