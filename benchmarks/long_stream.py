"""A long stream of small requests for sums, and what comes back: see notebook/drift.md.

    python -m benchmarks.long_stream RESULTS.jsonl --fall 0.1 --data-dir DATA

One line is written at the end: after every tenth request the losses of all items requested so far.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Example
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.models.load import load_model

Row = dict[str, Any]
_EVERY = 10


def main() -> None:
    """Run one stream and append its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--fall", type=float, required=True, help="memory_fall")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--request-size", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    row = stream(options)
    with options.results.open("a") as file:
        file.write(json.dumps(row) + "\n")


def stream(options: argparse.Namespace) -> Row:
    """Return what every tenth request leaves of all before it, and of held-out sums."""
    sizes = Sizes(
        requests=options.requests,
        request_size=options.request_size,
        forget_eval=1,
        heldout=64,
        retain=(120, 0),
        guard=(32, 0),
    )
    source = Source("folder", options.data_dir)
    split = make_split("arithmetic", options.seed, source, sizes, streams=("arithmetic",))
    loaded = load_model("smollm2-tasks", "float32")
    net = TFRNet(
        loaded.model,
        loaded.tokenizer,
        split.retain_examples(),
        TFRConfig(memory_fall=options.fall),
        guard=split.guard_examples(),
        seed=options.seed,
    )
    heldout = [item.example() for items in split.heldout.values() for item in items]

    def losses(examples: list[Example]) -> list[float]:
        measured: torch.Tensor = net._losses(net.encode(examples, "measured"))
        return [round(float(loss), 4) for loss in measured]

    requests = split.requests()
    every = [example for request in requests for example in request.examples]
    points = [{"request": 0, "losses": losses(every), "heldout": losses(heldout)}]
    outcomes, start = [], time.perf_counter()
    for number, request in enumerate(requests, 1):
        outcomes.append(net.forget(request).outcome)
        if number % _EVERY == 0 or number == len(requests):
            taken = every[: number * options.request_size]
            points.append({"request": number, "losses": losses(taken), "heldout": losses(heldout)})
            print(f"{number}: {time.perf_counter() - start:.0f} s", flush=True)
    return {
        "memory_fall": options.fall,
        "seed": options.seed,
        "request_size": options.request_size,
        "accepted": outcomes.count("accepted"),
        "checkpoints": points,
    }


if __name__ == "__main__":
    main()
