"""Checks before the first cell that all data and models are there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tfrnet.core.errors import InputError
from tfrnet.data.forgotten import read_forgotten
from tfrnet.data.protocol import make_split
from tfrnet.data.sources import Source
from tfrnet.models.load import model_folder
from tfrnet.models.shipped import find_shipped
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.tofu_stream import make_tofu_stream


def check_everything(plan: BenchPlan, source: Source) -> None:
    """Raise if data or models are missing, naming everything that is.

    Models that need to be converted or merged are, so that no two processes do it at once.
    """
    problems: list[str] = []

    def try_it(what: str, attempt: Callable[[], object]) -> None:
        try:
            attempt()
        except (InputError, OSError) as error:
            problems.append(f"{what}: {error}")

    if any(name != "tofu" for name in plan.experiments):
        for stream in plan.streams:
            # One seed is enough: all draw from the same files, as many items.
            seed = plan.seeds[0]
            try_it(stream, lambda: make_split(stream, seed, source, plan.sizes))  # noqa: B023
    if "tofu" in plan.experiments:
        try_it("tofu", lambda: make_tofu_stream(source, plan.tofu))
    if "main" in plan.experiments and plan.task_oracle:
        try_it(f"oracle {plan.task_oracle}", lambda: check_oracle(plan, source))
    for name in dict.fromkeys(plan.models()):
        try_it(f"model {name}", lambda: _find_model(name))  # noqa: B023
    if len(problems) == 1:
        raise InputError(problems[0])
    if problems:
        listed = "; ".join(f"({n}) {problem}" for n, problem in enumerate(problems, start=1))
        raise InputError(f"{len(problems)} things are missing: {listed}")


def check_oracle(plan: BenchPlan, source: Source) -> None:
    """Raise if the oracle may have seen what a stream forgets, naming all such streams."""
    without = read_forgotten(find_shipped(plan.task_oracle) or Path(plan.task_oracle))
    known = []
    for seed in plan.seeds:
        for stream in plan.streams:
            split = make_split(stream, seed, source, plan.sizes)
            if count := without.missing(split):
                known.append(f"{stream} with seed {seed} ({count} of {len(split.forget)} items)")
    if known:
        raise InputError(
            f"it may have been trained on what is to be forgotten: {', '.join(known)}; take other "
            "seeds, or make an oracle with 'tfrnet prepare --without'"
        )


def _find_model(name: str) -> None:
    from transformers import AutoConfig

    folder = model_folder(name)
    if not Path(folder).is_dir():
        try:
            AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"it is not a local folder and could not be loaded from the hub ({reason})"
            ) from error
