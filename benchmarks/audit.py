"""What the audit costs: its share of each request's own time, on the default model.

    python -m benchmarks.audit --json FILE [--requests 2] [--facts 8 1]

Some of the demo's facts, eight in each request and then one, are forgotten with the default
settings and an audit. The ratio is taken within one run, so other work on the machine hits both
alike; how much of that there was is in the file too. The bound is 0.3.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from tfrnet import Session, load_model
from tfrnet.demo.corpus import load_facts, split
from tfrnet.models.load import LoadedModel

BOUND = 0.3


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--facts", type=int, nargs="+", default=[8, 1])
    options = parser.parse_args(arguments)
    loads = [os.getloadavg()[0]]
    loaded = load_model(options.model)
    rows = []
    for facts in options.facts:
        for row in measured(loaded, options.requests, facts):
            print(
                f"{row['id']}, facts {facts}: audit {row['audit']:.1f} s of {row['total']:.1f} s, "
                f"{row['ratio']:.3f}"
            )
            rows.append(row)
            loads.append(os.getloadavg()[0])
    worst = max(row["ratio"] for row in rows)
    print(f"largest ratio {worst:.3f}, bound {BOUND}")
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "model": options.model,
        # Of the last minute: before, and after each request, which alone keeps all cores busy.
        "load": loads,
        "bound": BOUND,
        "largest": worst,
        "rows": rows,
    }
    options.json.write_text(json.dumps(result, indent=1) + "\n")


def measured(loaded: LoadedModel, requests: int, facts: int) -> Iterator[dict[str, Any]]:
    """Yield seconds of the audit and of the whole request, and the audit's over the rest's."""
    parts = split(load_facts(), "capitals", requests=requests, per_request=facts)
    retain = [fact.example() for fact in parts.retain]
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(*loaded, Path(folder) / "state", retain, audit=True) as session,
    ):
        for outcome in session.run(parts.requests):
            audit, total = outcome.seconds["audit"], outcome.seconds["total"]
            ratio = audit / (total - audit)
            yield {
                "id": outcome.id,
                "facts": facts,
                "audit": audit,
                "total": total,
                "ratio": ratio,
            }


if __name__ == "__main__":
    main()
