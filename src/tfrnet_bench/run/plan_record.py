"""The plans that a run was made with, kept in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet_bench.run.plan import BenchPlan, TofuSizes
from tfrnet_bench.run_folder import read_plans, write_plans

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
}


def record_plan(run: Path, plan: BenchPlan) -> None:
    """Add a plan to those that the run was made with.

    Raise if it could not be shown in one table with them: another model, or other sizes.
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
    if wanted not in plans:
        plans.append(wanted)
    write_plans(run, plans)


def _in_common(*plans: Mapping[str, Any]) -> list[str]:
    """Return what has to be the same in all of these plans."""
    shared = [
        name
        for name, users in _OF_SOME.items()
        if all(name in plan and set(users) & set(plan["experiments"]) for plan in plans)
    ]
    return [*_COMMON, *shared]


def _whole(plan: Mapping[str, Any], name: str) -> Any:
    """Return a part of an earlier plan, with the defaults of fields that came later."""
    return {**asdict(TofuSizes()), **plan[name]} if name == "tofu" else plan[name]
