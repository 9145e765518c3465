"""The tables of notebook/tofu-chat.md, from the cells of benchmarks.calibrated.

python -m benchmarks.tofu_chat_table
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from benchmarks.default_table import Row, read_cells
from benchmarks.neighbours_table import table
from tfrnet.evaluation.metrics.membership import auc, privleak, reference_score
from tfrnet.evaluation.metrics.tofu_scores import forget_quality
from tfrnet.evaluation.privacy import ATTACKS, GRADIENT_NORM, LEAK_ATTACK
from tfrnet.evaluation.tofu import FORGET, SETS

# Where the cells of a forget set are.
FORGET10, FORGET01, TUNING = "tofu-chat", "tofu-chat-01", "tofu-chat-tuning"
UNTOUCHED, ORACLE = "untouched", "oracle"
PRESETS = ("default", "thorough")
OTHERS = ("simnpo", "npo", "graddiff", "o3")
METHODS = (UNTOUCHED, ORACLE, *PRESETS, *OTHERS)
_SHOWN = {"probability": "p", "rouge": "ROUGE"}
_OF_TWO = (
    *((name, figure) for name in ("forget", "retain") for figure in _SHOWN),
    ("real_authors", "probability"),
)


def rows_of(candidate: str, file: str = FORGET10) -> list[Row]:
    """Return a candidate's cells, by seed."""
    return [row for row in read_cells(file) if row["candidate"] == candidate]


def oracle(file: str = FORGET10) -> Row:
    """Return the cell of the model that never saw forget10."""
    (row,) = rows_of(ORACLE, file)
    return row


def leak(row: Row, file: str = FORGET10) -> float:
    """Return PrivLeak, signed: 0 where forgotten answers look as unseen as to the oracle."""
    sides = (row, oracle(file))
    found = privleak(*(each["privacy"]["auc"][LEAK_ATTACK]["value"] for each in sides))
    assert found.signed is not None
    return found.signed


def quality(row: Row, file: str = FORGET10) -> float:
    """Return Forget Quality, a p-value."""
    return forget_quality(row["truth_ratios"], oracle(file)["truth_ratios"]).p_value


def reference_auc(row: Row, file: str) -> float:
    """Return the AUC of the attack whose reference model is the oracle."""
    known = oracle(file)["losses"]
    members, others = (
        [reference_score(a, b) for a, b in zip(own, its, strict=True)]
        for own, its in zip(row["losses"], known, strict=True)
    )
    return auc(members, others)


def of_set(rows: Sequence[Row], name: str, figure: str) -> float:
    """Return the mean over cells of one figure of a set."""
    return fmean(row["sets"][name][figure] for row in rows)


def sets_table() -> str:
    """Return a line for each model: probability and ROUGE-L recall of the four sets."""
    lines = []
    for name in METHODS:
        rows = rows_of(name)
        figures = [of_set(rows, each, figure) for each in SETS for figure in _SHOWN]
        utility = fmean(row["utility"] for row in rows)
        lines.append((name, len(rows), *(f"{each:.2f}" for each in figures), f"{utility:.2f}"))
    sets = [f"{each.replace('_', ' ')} {figure}" for each in SETS for figure in _SHOWN.values()]
    return table(", ".join(["model", "cells", *sets, "utility"]), lines)


def oracle_table() -> str:
    """Return a line for each model: how far it is from one that never saw the authors."""
    lines = []
    for name in METHODS:
        rows = rows_of(name)
        forms = [
            fmean(row["truth_ratio_forms"][form][FORGET] for row in rows)
            for form in ("geometric", "arithmetic")
        ]
        lines.append(
            (
                name,
                " ".join(f"{quality(row):.0e}" for row in rows),
                " ".join(f"{leak(row):+.0f}" for row in rows),
                *(f"{each:.2f}" for each in forms),
                f"{of_set(rows, FORGET, 'extraction_strength'):.2f}",
                *(
                    f"{fmean(row['privacy']['auc'][each]['value'] for row in rows):.2f}"
                    for each in ATTACKS
                ),
            )
        )
    head = "model, Forget Quality, PrivLeak, truth ratio, arithmetic, extraction"
    return table(f"{head}, AUC of LOSS, ZLIB, Min-K%, Min-K%++", lines)


def requests_table() -> str:
    """Return a line for each cell: how deep the requests are right after each, and in the end."""
    lines = []
    for name in METHODS[2:]:
        for row in rows_of(name):
            after = [outcome["forget_loss_after"] for outcome in row["outcomes"]]
            end = row["forget_loss_end"]
            quarters = [
                f"{fmean(after[i : i + 5]):.1f} > {fmean(end[i : i + 5]):.1f}"
                for i in range(0, 20, 5)
            ]
            lines.append(
                (
                    *(name, row["seed"], f"{row['accepted']} of {row['requests']}", *quarters),
                    f"{row['fresh_loss'][0]:.2f} > {row['fresh_loss'][-1]:.2f}",
                    f"{row['request_seconds']:.0f}",
                )
            )
    head = (
        "method, seed, accepted, requests 1 to 5, 6 to 10, 11 to 15, 16 to 20, fresh, s a request"
    )
    return table(head, lines)


def tuning_table() -> str:
    """Return a line for each cell of a tuning seed: each request right after it, and in the end."""
    lines = []
    for row in read_cells(TUNING):
        falls = [
            f"{outcome['forget_loss_after']:.1f} > {end:.1f}"
            for outcome, end in zip(row["outcomes"], row["forget_loss_end"], strict=True)
        ]
        lines.append(
            (
                *(row["candidate"], row["requests"], "; ".join(falls)),
                *(f"{row['sets'][name]['rouge']:.2f}" for name in ("forget", "retain")),
                f"{row['sets']['retain']['probability']:.2f}",
                *(f"{row['utility']:.2f}", f"x{row['fresh_ratio']:.1f}"),
                sum(outcome["attempts"] for outcome in row["outcomes"]),
            )
        )
    head = (
        "settings, requests, nats of each, not requested ROUGE, retain ROUGE, retain p, utility, "
        "fresh, tries"
    )
    return table(head, lines)


def two_authors_table() -> str:
    """Return a line for each cell of forget01."""
    lines = []
    for row in read_cells(FORGET01):
        asked = "forget_loss_end" in row
        lines.append(
            (
                *(row["candidate"], row["seed"] if asked else ""),
                *(f"{row['sets'][name][figure]:.2f}" for name, figure in _OF_TWO),
                *(f"{row['utility']:.2f}", f"{quality(row, FORGET01):.2g}"),
                *(f"{leak(row, FORGET01):+.0f}", f"{row['privacy']['auc']['loss']['value']:.2f}"),
                f"{reference_auc(row, FORGET01):.2f}" if "losses" in row else "",
                f"{row['privacy']['auc'][GRADIENT_NORM]['value']:.2f}" if "losses" in row else "",
                " ".join(f"{nats:.1f}" for nats in row["forget_loss_end"]) if asked else "",
                f"x{row['fresh_ratio']:.1f}" if asked else "",
            )
        )
    head = (
        "model, seed, forget p, forget ROUGE, retain p, retain ROUGE, real authors p, utility, "
        "Forget Quality, PrivLeak, AUC of LOSS, reference, gradient norm, nats, fresh"
    )
    return table(head, lines)


if __name__ == "__main__":
    print(
        sets_table(),
        oracle_table(),
        requests_table(),
        two_authors_table(),
        tuning_table(),
        sep="\n\n",
    )
