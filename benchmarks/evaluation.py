"""Ranking against lm-evaluation-harness: same machine, model, dtype, batch size and items, one run.

    python -m benchmarks.evaluation --data-dir DATA [--items 100] [--json FILE]

Times are of the whole call, tokenisation included; loading the model and reading the data is not.
Both sides first run on a few items, so that neither pays for warming up.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

from tests.integration.harness import run_harness, write_tasks
from tfrnet import load_model
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import evaluate_task

TASKS = ("boolq", "openbookqa")


def _timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - start


def compare(data: Path, count: int, batch_size: int, max_length: int, device: str) -> dict:
    source = Source("folder", data)
    loaded = load_model("smollm2-135m", "float32", device)
    evaluator = Evaluator(loaded, batch_size)
    figures: dict = {}
    for name in TASKS:
        task = find_task(name)
        items = task.load(task.evaluation, source)[:count]
        for some in (items[:4], items):
            result, ours = _timed(
                evaluate_task, evaluator, task, some, "peer", max_length, "lm_eval"
            )
            with tempfile.TemporaryDirectory() as folder:
                write_tasks({name: some}, Path(folder))
                peers, theirs = _timed(
                    run_harness, loaded, Path(folder), [name], batch_size, max_length
                )
        metric = task.metric
        pairs = list(zip(result.samples, peers[name], strict=True))
        figures[name] = {
            "items": len(items),
            "ours_s": ours,
            "lm_eval_s": theirs,
            "times_faster": theirs / ours,
            "same_decisions": sum(a[metric] == b[metric] for a, b in pairs),
            "largest_difference": max(
                abs(mine - response[0])
                for a, b in pairs
                for mine, response in zip(a["log_likelihoods"], b["filtered_resps"], strict=True)
            ),
        }
    both = {key: sum(figures[name][key] for name in TASKS) for key in ("ours_s", "lm_eval_s")}
    figures["together"] = both | {"times_faster": both["lm_eval_s"] / both["ours_s"]}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder with the datasets")
    parser.add_argument("--items", type=int, default=100, help="items of each task")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--max-length", type=int, default=2048)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "setting": f"float32, batch size {arguments.batch_size}, "
        f"max_length {arguments.max_length}, lm-eval's truncation",
    } | compare(
        arguments.data_dir,
        arguments.items,
        arguments.batch_size,
        arguments.max_length,
        arguments.device,
    )
    print(json.dumps(figures, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
