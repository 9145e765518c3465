"""A cell on TOFU: forget one author after another, then measure privacy and utility."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tfrnet.core.outcome import Outcome
from tfrnet.data.tofu import TofuRow
from tfrnet.evaluation.privacy import PrivacyResult, evaluate_privacy
from tfrnet.evaluation.tofu import FORGET, TofuResult, evaluate_tofu
from tfrnet.unlearner import Unlearner
from tfrnet_bench.run.cell_run import CellRun, StreamData

_SHOWN = 16


def run_tofu_cell(run: CellRun) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the result, and some questions and answers in words."""
    stream, tokenizer = run.context.tofu, run.loaded.tokenizer
    retain, guard = stream.retain(run.cell.seed, tokenizer)
    requests = stream.requests(run.cell.seed, tokenizer)
    found: list[tuple[TofuResult, PrivacyResult]] = []

    def after(number: int, outcome: Outcome, unlearner: Unlearner[Any]) -> None:
        if number == len(requests):
            found.append(_measure(run))

    if run.cell.variant.acts:
        run.apply_requests(StreamData(requests, retain, guard), after)
    else:
        found.append(_measure(run))
    tofu, privacy = found[0]
    result = run.header() | {
        "protocol": asdict(stream.sizes) | {"request_size": len(requests[0].examples)},
        "tofu": tofu.to_dict(),
        "privacy": privacy.to_dict(),
        # What Forget Quality and PrivLeak compare with the oracle's.
        "truth_ratios": _rounded(tofu.truth_ratios()),
        "privacy_scores": {
            attack: [_rounded(side) for side in sides] for attack, sides in privacy.scores.items()
        },
        "answers": [],
    }
    file = stream.sizes.options.files()[FORGET]
    return result, _samples(file, stream.sets[FORGET], tofu)


def _measure(run: CellRun) -> tuple[TofuResult, PrivacyResult]:
    stream = run.context.tofu
    evaluator = run.context.evaluator(run.loaded)
    options = stream.sizes.options
    with run.progress.time("evaluation"):
        run.report(f"{run.cell.key}: measuring")
        tofu = evaluate_tofu(evaluator, stream.sets, options)
        privacy = evaluate_privacy(evaluator, stream.members, stream.non_members, options)
    return tofu, privacy


def _samples(file: str, rows: Any, result: TofuResult) -> list[dict[str, Any]]:
    shown: list[tuple[TofuRow, Any]] = list(zip(rows, result.rows[FORGET], strict=True))[:_SHOWN]
    return [
        {
            "key": f"tofu/{file}/{row.number}",
            "prompt": row.question,
            "gold": row.answer,
            "before": None,  # the cell of the untouched model has it
            "after": figures["generated"],
        }
        for row, figures in shown
    ]


def _rounded(values: Any) -> list[float]:
    return [float(f"{value:.7g}") for value in values]
