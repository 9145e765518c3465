"""Runs the campaigns and writes what they found: `python -m tests.campaign [NAME ...]`.

With names only those run, and nothing is written. `--quick` makes a few attempts of each.
"""

from __future__ import annotations

import os

# Before torch is imported: its threads survive no fork, and beside another process only wait.
os.environ.update({"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tests.campaign import attacks, calls, flips, inputs, kills, power, readers
from tests.campaign.processes import in_processes
from tests.campaign.result import Result
from tests.campaign.table import RESULTS, update_documents
from tfrnet.core.versions import versions

SEED = 20261116
Run = Callable[[int, Path], Result]


def parts(quick: bool) -> dict[str, list[Run]]:
    """Return each campaign in parts that may run at the same time, with different seeds.

    The counts are those of the page; None is everything there is.
    """
    few = lambda full, some: some if quick else full  # noqa: E731
    return {
        "kills": [lambda seed, work: kills.run(few(500, 6), seed, work)] * 2,
        "calls": [
            lambda seed, work, names=names: calls.run(few(None, 10), seed, work, names)
            for names in calls.HALVES
        ],
        "inputs": [lambda seed, work: inputs.run(few(50_000, 300), seed, work)] * 2,
        "flips": [lambda seed, work: flips.run(few(None, 60), seed, work)],
        "power": [lambda seed, work: power.run(few(None, 1), seed, work)],
        "attacks": [lambda seed, work: attacks.run(few(30, 10), seed, work)],
        "readers": [lambda seed, work: readers.run(few(60, 3), seed, work)],
    }


def main() -> int:
    """Run the campaigns, two parts at a time, and return 1 if anything went wrong."""
    options = _options()
    torch.set_num_threads(1)
    chosen = {name: runs for name, runs in parts(options.quick).items() if name in options.names}
    start = time.monotonic()
    results = [_campaign(name, runs, options.seed) for name, runs in chosen.items()]
    seconds = time.monotonic() - start
    wrong = sum(len(result.wrong) for result in results)
    print(f"{sum(result.tried for result in results)} attempts, {wrong} wrong, {seconds:.0f} s")
    if len(chosen) == len(parts(False)) and not options.quick:
        document = {
            "seed": options.seed,
            "seconds": round(seconds),
            "cores": os.cpu_count(),
            "versions": versions(),
            "campaigns": [result.to_dict() for result in results],
        }
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
        update_documents()
    return 1 if wrong else 0


def _options() -> argparse.Namespace:
    names = list(parts(False))
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("names", nargs="*", default=names, help=", ".join(names))
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no campaign {min(unknown)}; there are {', '.join(names)}")
    return options


def _campaign(name: str, runs: list[Run], seed: int) -> Result:
    """Run the parts of a campaign at the same time, each in a process of its own."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"campaign-{name}-") as folder:
        jobs = [
            lambda run=run, part=part: run(seed + part, Path(folder) / str(part)).to_json()
            for part, run in enumerate(runs)
        ]
        first, *others = map(Result.from_json, in_processes(jobs))
    for other in others:
        first.add(other)
    first.seconds = round(time.monotonic() - start)
    seeds = seed if len(runs) == 1 else f"{seed} to {seed + len(runs) - 1}"
    print(
        f"{name}: {first.tried} attempts, {len(first.wrong)} wrong, {first.seconds} s, seed {seeds}"
    )
    for problem in first.wrong[:5]:
        print(f"  {problem}")
    sys.stdout.flush()
    return first


if __name__ == "__main__":
    sys.exit(main())
