"""The plans that a run was made with, kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.method import find_method
from tfrnet_bench.results import CellResult, read_run
from tfrnet_bench.run.plan import BenchPlan, TofuSizes
from tfrnet_bench.run_folder import is_run_folder, read_plans, write_plans

# What all cells of a run have in common, and what those of some experiments have.
_COMMON = ("dtype", "sizes", "reduced")
_STREAMS = ("main", "ablation", "structure", "robust")
_OF_SOME = {
    "model": _STREAMS,
    "tofu_model": ("tofu",),
    "oracle": ("tofu",),
    "tofu": ("tofu",),
    "lume_model": ("lume",),
    "knowundo_model": ("knowundo",),
    "attack": ("robust",),
    "task_oracle": ("main",),
    "lume_oracle": ("lume",),
    "knowundo_oracle": ("knowundo",),
}


def record_plan(run: Path, plan: BenchPlan) -> None:
    """Add a plan to those that the run was made with.

    Raise if it could not be shown in one table with them: another model, other sizes, or another
    preset of a method that has cells.
    """
    plans = read_plans(run)
    # Through JSON, so that tuples compare equal to what was read.
    wanted = json.loads(json.dumps(asdict(plan)))
    for earlier in plans:
        for name in _in_common(earlier, wanted):
            if _whole(earlier, name) != wanted[name]:
                raise InputError(
                    f"the run in {run} was made with another {name}; choose another folder with "
                    "--out"
                )
    _refuse_other_preset(run, plan)
    if wanted not in plans:
        plans.append(wanted)
    write_plans(run, plans)


def _refuse_other_preset(run: Path, plan: BenchPlan) -> None:
    """Raise if cells of a variant have the settings of another preset: their means would mix both.

    Under one preset settings may change with the code; then the cells are computed again.
    """
    variants = {cell.variant.label: cell.variant for cell in plan.cells()}
    for result in read_run(run).results if is_run_folder(run) else ():
        variant = variants.get(result.variant)
        if variant is None or result.preset == variant.preset:
            continue
        settings = plan.settings(variant)
        if settings and _filed_under(result) != settings.filed_under():
            raise InputError(
                f"the run in {run} has cells of {result.variant} with the preset {result.preset}, "
                f"whose settings are not those of {variant.preset}; choose another folder with "
                "--out"
            )


def _filed_under(result: CellResult) -> dict[str, Any] | None:
    """Return the settings that a result is filed under; None if the method has others by now."""
    try:
        return find_method(result.method).config_class.from_record(result.settings).filed_under()
    except InputError:
        return None


def _in_common(*plans: Mapping[str, Any]) -> list[str]:
    """Return what has to be the same in all of these plans."""
    shared = [
        name
        for name, users in _OF_SOME.items()
        # An oracle can be added to a run that has none.
        if all(plan.get(name) and set(users) & set(plan["experiments"]) for plan in plans)
    ]
    return [*_COMMON, *shared]


def _whole(plan: Mapping[str, Any], name: str) -> Any:
    """Return a part of an earlier plan, with the defaults of fields that came later."""
    return {**asdict(TofuSizes()), **plan[name]} if name == "tofu" else plan[name]
