"""What the audit costs: its share of each request's own time, on the default model.

    python -m benchmarks.audit --json audit.json [--requests 2] [--small-requests]

The demo's requests (eight facts each; with --small-requests of one fact) are applied with the
default settings and an audit. The ratio is taken within one run, so other work on the machine hits
both alike. The bound is 0.3.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfrnet import Session, load_model
from tfrnet.demo.corpus import load_facts, split

BOUND = 0.3


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--small-requests", action="store_true")
    options = parser.parse_args(arguments)
    rows = []
    for row in measured(options.model, options.requests, 1 if options.small_requests else 8):
        print(
            f"{row['id']}: audit {row['audit']:.1f} s of {row['total']:.1f} s, {row['ratio']:.3f}"
        )
        rows.append(row)
    worst = max(row["ratio"] for row in rows)
    print(f"largest ratio {worst:.3f}, bound {BOUND}")
    result = {"model": options.model, "bound": BOUND, "largest": worst, "rows": rows}
    options.json.write_text(json.dumps(result, indent=1) + "\n")


def measured(name: str, requests: int, size: int) -> Iterator[dict[str, Any]]:
    """Yield seconds of the audit and of the request without it."""
    loaded = load_model(name)
    parts = split(load_facts(), "capitals", requests=requests, per_request=size)
    retain = [fact.example() for fact in parts.retain]
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(*loaded, Path(folder) / "state", retain, audit=True) as session,
    ):
        for outcome in session.run(parts.requests):
            audit, total = outcome.seconds["audit"], outcome.seconds["total"]
            ratio = audit / (total - audit)
            yield {"id": outcome.id, "audit": audit, "total": total, "ratio": ratio}


if __name__ == "__main__":
    main()
