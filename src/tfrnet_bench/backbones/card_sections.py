"""The figures of a shipped adapter, as sections of its card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfrnet_bench.tables.render import markdown_table

_HOW = "Measured in float32 on a GPU with the half-precision adapter merged into its base"
_TASKS = {"boolq": "BoolQ", "openbookqa": "OpenBookQA", "arithmetic": "arithmetic"}
_COLUMNS = {
    "probability": "probability",
    "rouge": "ROUGE-L recall",
    "truth_ratio": "truth ratio",
    "extraction_strength": "extraction strength",
    "exact_memorisation": "exact memorisation",
}
_ATTACKS = {"loss": "LOSS", "zlib": "ZLIB", "min_k": "Min-K%", "min_k_plus_plus": "Min-K%++"}
_PUBLISHED = {"rouge": "ROUGE-L recall"}
_BOUNDARIES = {
    "open-unlearning": "Answers scored after the prompt's own tokens, as OpenUnlearning does "
    "(`--tofu-boundary open-unlearning`, the default)",
    "answer": "Answers scored from their first token on (`--tofu-boundary answer`)",
}


def tasks_section(figures: Mapping[str, Any]) -> str:
    """Return accuracies on held-out and on training items, beside what knowing nothing scores."""
    rows = []
    for task, title in _TASKS.items():
        for part, label in (("heldout", "held-out"), ("training", "training")):
            result = figures[f"{task}/{part}"]
            best = result["metrics"][result["metric"]]
            rival, floor = max(result["floors"].items(), key=lambda pair: pair[1])
            rows.append(
                (
                    title,
                    label,
                    result["n"],
                    f"`{result['metric']}`",
                    f"{best['value']:.2f} ± {best['stderr']:.2f}",
                    f"{floor:.2f} ({rival})",
                    f"{result['loss']:.3f}",
                )
            )
    kinds = {part: figures[f"arithmetic/{part}"]["by_kind"] for part in ("heldout", "training")}
    by_kind = [
        [kind, f"{100 * kinds['heldout'][kind]:.1f}", f"{100 * kinds['training'][kind]:.1f}"]
        for kind in kinds["heldout"]
    ]
    held, trained = (figures[f"boolq/{part}"]["n"] for part in ("heldout", "training"))
    head = ["task", "items", "n", "metric", "% ± standard error", "best floor, %", "loss"]
    return (
        f"## Figures\n\n{_HOW}, on {held} held-out items and {trained} training items of each "
        "task. Held-out items share no passage (BoolQ), stem (OpenBookQA) or operands "
        "(arithmetic) with the training part; the training items show what was memorised and are "
        "the requests of `tfrnet split --seed 100`. The arithmetic ones come from the published "
        "probes, and fewer than half of them are among the generated sums that were trained "
        f"on.\n\n{_table(head, rows)}\n\nArithmetic by kind, % exact (digits; a: addition, "
        f"s: subtraction):\n\n{_table(['kind', 'held-out', 'training'], by_kind)}\n\n"
        "All of it is in `figures.json`."
    )


def tofu_section(figures: Mapping[str, Any]) -> str:
    """Return TOFU's and the membership attacks' figures under both boundaries."""
    parts = [
        f"## Figures\n\n{_HOW}, on the first 400 rows of each set, which is all that they have. "
        "The sets are TOFU's `forget10_perturbed`, `retain_perturbed`, `real_authors_perturbed` "
        "and `world_facts_perturbed`; the attacks tell `forget10` from `holdout10`, and an AUC "
        "of 0.5 is not what an ideal model gives, since the two sets differ in length and "
        f"wording. {_of_boundaries(figures)} All of it is in `figures.json`."
    ]
    for boundary, title in _BOUNDARIES.items():
        if boundary not in figures:
            continue
        tofu, privacy = figures[boundary]["tofu"], figures[boundary]["privacy"]
        sets = [
            [name, tofu["n"][name], *(f"{values[column]:.4f}" for column in _COLUMNS)]
            for name, values in tofu["sets"].items()
        ]
        attacks = [
            [title, f"{privacy['auc'][name]['value']:.4f} ± {privacy['auc'][name]['stderr']:.4f}"]
            for name, title in _ATTACKS.items()
        ]
        blind = ", ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in privacy["blind_baselines"].items()
        )
        members, others = privacy["n"]["members"], privacy["n"]["non_members"]
        parts.append(
            f"### {title}\n\n{_table(['set', 'n', *_COLUMNS.values()], sets)}\n\n"
            f"Model Utility: {tofu['model_utility']:.4f}. Membership attacks on {members} rows "
            f"of forget10 against {others} of holdout10:\n\n"
            f"{_table(['attack', 'AUC ± standard error'], attacks)}\n\n"
            f"MIA Gap: {privacy['mia_gap']:.4f}. AUC without any model: {blind}."
        )
    return "\n\n".join(parts)


def _of_boundaries(figures: Mapping[str, Any]) -> str:
    if len(figures) == 1:
        return "The other boundary, not measured, also counts the line break before the answer."
    return (
        "Under the first of the two boundaries the model also goes on from a prompt that ends with "
        "a space, which in training was part of the answer's first token; its ROUGE is lower there."
    )


def private_data_section(figures: Mapping[str, Any]) -> str:
    """Return what is said word for word, and the set's own scores."""
    exact, published = figures["exact"], figures["published"]
    columns = list(next(iter(published.values())))
    rows = [
        [name, *(f"{scores[column]:.4f}" if column in scores else "" for column in columns)]
        for name, scores in published.items()
    ]
    titles = [_PUBLISHED.get(column, column.replace("_", " ")) for column in columns]
    return (
        f"## Figures\n\n{_HOW}, means over the streams of {figures['streams']} seeds. It says "
        f"{exact['requested']:.1f} % of what these request word for word, and "
        f"{exact['heldout']:.1f} % of what they hold out. By the scores of the set's authors:\n\n"
        f"{_table(['part', *titles], rows)}\n\nAll of it is in `figures.json`."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return markdown_table(head, rows, text_columns=len(head))
