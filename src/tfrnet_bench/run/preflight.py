"""Checks before the first cell: that all data and models are there, and fit one another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tfrnet.core.errors import InputError
from tfrnet.data.forgotten import read_forgotten
from tfrnet.data.protocol import Split, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tofu import SIZES, check_template
from tfrnet.evaluation.published import published_sets
from tfrnet.models.load import model_folder
from tfrnet.models.shipped import find_shipped
from tfrnet_bench.backbones.card import LOG
from tfrnet_bench.run.plan import BenchPlan
from tfrnet_bench.run.tofu_stream import make_tofu_stream

Splits = Mapping[tuple[str, int], Split]


class Problems:
    """Collects what is wrong, so that all of it is told at once."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def attempt(self, what: str, check: Callable[[], object]) -> None:
        """Run a check; a failure is noted and the next check follows."""
        try:
            check()
        except (InputError, OSError) as error:
            self.found.append(f"{what}: {error}")

    def refuse(self) -> None:
        """Raise if anything was wrong."""
        if len(self.found) == 1:
            raise InputError(self.found[0])
        if self.found:
            listed = "; ".join(f"({n}) {text}" for n, text in enumerate(self.found, start=1))
            raise InputError(f"{len(self.found)} things are missing or wrong: {listed}")


def check_everything(plan: BenchPlan, source: Source, trust_remote_code: bool = False) -> None:
    """Raise if data or models are missing or do not fit, naming everything that does not.

    Models that need to be converted or merged are, so that no two processes do it at once.
    """
    problems = Problems()
    splits: dict[tuple[str, int], Split] = {}
    for stream in plan.all_streams():
        problems.attempt(stream, lambda: splits.update(_splits(plan, stream, source)))  # noqa: B023
    if "tofu" in plan.experiments:
        problems.attempt("tofu", lambda: make_tofu_stream(source, plan.tofu))
        problems.attempt(f"oracle {plan.oracle}", lambda: check_tofu_oracle(plan))
    check_oracles(plan, splits, problems)
    for name in dict.fromkeys(plan.models()):
        problems.attempt(f"model {name}", lambda: _check_model(plan, name, trust_remote_code))  # noqa: B023
    problems.refuse()


def check_oracles(plan: BenchPlan, splits: Splits, problems: Problems) -> None:
    """Check every oracle against all streams and seeds that it stands for."""
    places: dict[str, list[tuple[str, int]]] = {}
    for place, name in plan.oracles().items():
        places.setdefault(name, []).append(place)
    for name, own in places.items():
        problems.attempt(
            f"oracle {name}",
            lambda: check_oracle(name, {place: splits[place] for place in own if place in splits}),  # noqa: B023
        )


def check_oracle(name: str, splits: Splits) -> None:
    """Raise if an oracle may have seen what is forgotten, naming all such streams and seeds."""
    without = read_forgotten(find_shipped(name) or Path(name))
    known = [
        f"{stream} with seed {seed} ({count} of {len(split.forget)} items)"
        for (stream, seed), split in splits.items()
        if (count := without.missing(split))
    ]
    if known:
        others = sorted({seed for _, seed in splits} - set(without.seeds))
        seeds = f"it is no oracle of seed {', '.join(map(str, others))}; " if others else ""
        raise InputError(
            f"{seeds}it may have been trained on what is to be forgotten: {', '.join(known)}; take "
            "other seeds, or make an oracle with 'tfrnet prepare --without'"
        )


def check_tofu_oracle(plan: BenchPlan) -> None:
    """Raise if TOFU's oracle says that it was trained on the authors to be forgotten."""
    log = (find_shipped(plan.oracle) or Path(plan.oracle)) / LOG
    if not log.is_file():
        return
    recipe = json.loads(log.read_text())["recipe"]
    trained = re.search(r"tofu.*-(full|retain(\d\d))$", recipe)
    if trained and int(trained[2] or 100) > int(SIZES[plan.tofu.forget]):
        raise InputError(
            f"it was trained on TOFU's {trained[1]}, which has authors of "
            f"forget{plan.tofu.forget} in it; take one trained on retain{SIZES[plan.tofu.forget]}"
        )


def _splits(plan: BenchPlan, stream: str, source: Source) -> dict[tuple[str, int], Split]:
    splits = {(stream, seed): make_split(stream, seed, source, plan.sizes) for seed in plan.seeds}
    for split in splits.values():
        # What is measured beside it may be in files of its own.
        published_sets(split, source, plan.sizes.heldout)
    return splits


def _check_model(plan: BenchPlan, name: str, trust: bool) -> None:
    from transformers import AutoTokenizer

    folder = _find_model(name, trust)
    asked = "tofu" in plan.experiments and name in (plan.tofu_model, plan.oracle)
    if asked and plan.tofu.template != "qa":
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
        check_template(tokenizer, plan.tofu.template)


def _find_model(name: str, trust: bool) -> str:
    from transformers import AutoConfig

    folder = model_folder(name, trust)
    if not Path(folder).is_dir():
        try:
            AutoConfig.from_pretrained(folder, trust_remote_code=trust)
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"it is not a local folder and could not be loaded from the hub ({reason})"
            ) from error
    return folder
