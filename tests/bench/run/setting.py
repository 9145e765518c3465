"""A small bench: a random model, made-up datasets, two requests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.datasets import made_up_folder, tofu_rows, write_lines
from tfrnet.data.protocol import Sizes
from tfrnet.data.sources import Source
from tfrnet.evaluation.attacking.subject import AttackOptions
from tfrnet_bench.machine import Machine
from tfrnet_bench.run.plan import BenchPlan, TofuSizes
from tfrnet_bench.run.runner import Tally, run_bench
from tfrnet_bench.run.worker import Event

SIZES = Sizes(requests=2, request_size=3, forget_eval=5, heldout=4, retain=(8, 4), guard=(4, 2))


def make_plan(model: Path, **changes: Any) -> BenchPlan:
    options: dict[str, Any] = {
        "experiments": ("main",),
        "methods": ("ga", "tfr"),
        "streams": ("arithmetic",),
        "seeds": (0,),
        "model": str(model),
        "tofu_model": str(model),
        "oracle": str(model),
        "sizes": SIZES,
        "tofu": TofuSizes(requests=1, retain=8, guard=4, rows=4, new_tokens=4),
        "attack": AttackOptions(relearn_steps=(0, 1), relearn_seeds=1),
        "reduced": (("steps", 1), ("retain_examples", 4), ("guard_examples", 4)),
    }
    return BenchPlan(**(options | changes))


def make_machine(tmp_path: Path, **changes: Any) -> Machine:
    data = tmp_path / "data"
    if not data.is_dir():
        made_up_folder(data)
        # Authors beside those whom `retain_perturbed` measures.
        write_lines(data / "tofu" / "retain90.jsonl", tofu_rows(40, offset=400))
    return Machine(Source("folder", data), "cpu", **changes)


def bench(
    plan: BenchPlan, machine: Machine, out: Path, **options: Any
) -> tuple[Tally, list[Event]]:
    events: list[Event] = []
    tally = run_bench(plan, machine, out, events.append, **options)
    return tally, [event for event in events if event.kind != "now"]
