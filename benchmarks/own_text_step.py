"""One request without retain data, with and without `own_symbols`: see notebook/witness.md.

    python -m benchmarks.own_text_step RESULTS.jsonl --data-dir DATA --tasks arithmetic boolq

Without tasks it prints the table of the committed results.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.neighbours_table import table
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.anchors import without_answers
from tfrnet.data.examples import Example
from tfrnet.data.protocol import STREAMS, Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.models.load import LoadedModel, load_model
from tfrnet.models.own_text import write_own_text
from tfrnet_bench.constants import FIRST_TUNING_SEED

RESULTS = Path(__file__).parent / "results" / "research" / "own-symbols.jsonl"
_FRESH = 20
_NEXT = "next"


def main() -> None:
    """Run the request of each task, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--tasks", nargs="*", choices=STREAMS, default=[])
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    if not options.tasks:
        print(own_symbols_table(read_rows(options.results)))
        return
    loaded = load_model("smollm2-tasks", "float32", "auto")
    with options.results.open("a") as file:
        for task in options.tasks:
            for own_symbols in (True, False):
                row = measured(loaded, task, own_symbols, Source("folder", options.data_dir))
                file.write(json.dumps(row) + "\n")
                file.flush()


def measured(loaded: LoadedModel, task: str, own_symbols: bool, source: Source) -> dict[str, Any]:
    """Apply a stream's first request; measure fresh examples and the next two requests."""
    sizes = Sizes(requests=3, forget_eval=24, heldout=8)
    split = make_split(task, FIRST_TUNING_SEED, source, sizes)
    first, *later = split.requests()
    sets: dict[str, list[Example]] = {
        name: [item.example() for item in items[:_FRESH]] for name, items in split.guard.items()
    }
    sets[_NEXT] = [example for request in later for example in request.examples]
    text = write_own_text(loaded)
    net = TFRNet(
        loaded.model,
        loaded.tokenizer,
        without_answers(text.retain, first),
        TFRConfig(own_symbols=own_symbols),
        guard=text.guard,
        seed=FIRST_TUNING_SEED,
        batch_size=16,
    )
    encoded = {name: net.encode(examples, name) for name, examples in sets.items()}

    def losses() -> dict[str, float]:
        return {name: float(net._losses(examples).mean()) for name, examples in encoded.items()}

    try:
        before, start = losses(), time.perf_counter()
        outcome = net.forget(first).to_dict()
        seconds, after = time.perf_counter() - start, losses()
    finally:
        net.detach()
    names = ("outcome", "forget_loss_before", "forget_loss_after", "guard_loss_before")
    return {
        "task": task,
        "seed": FIRST_TUNING_SEED,
        "own_symbols": own_symbols,
        **{name: outcome[name] for name in (*names, "guard_loss_after")},
        "before": before,
        "after": after,
        "seconds": round(seconds),
    }


def read_rows(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the results of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def own_symbols_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line for each task, with and without."""
    lines = []
    for row in rows:
        before, after = row["before"], row["after"]
        shown = [row["task"], _NEXT, *(name for name in STREAMS if name != row["task"])]
        lines.append(
            (
                row["task"],
                "yes" if row["own_symbols"] else "no",
                f"{row['forget_loss_before']:.2f} to {row['forget_loss_after']:.2f}",
                *(f"{before[name]:.3f} to {after[name]:.3f}" for name in shown[:2]),
                ", ".join(f"{before[name]:.3f} to {after[name]:.3f}" for name in shown[2:]),
                f"{row['guard_loss_before']:.3f} to {row['guard_loss_after']:.3f}",
                row["seconds"],
            )
        )
    head = "stream, own symbols, forgotten, fresh of the task, next requests, other tasks, guard, s"
    return table(head, lines)


if __name__ == "__main__":
    main()
