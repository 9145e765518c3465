"""Whole streams under candidate settings of TFR-Net, on tuning seeds: see notebook/research.md.

    python -m benchmarks.research PLAN.json RESULTS.jsonl --data-dir DATA --workers 16
    python -m benchmarks.research_table RESULTS.jsonl

PLAN.json names the candidates: {"name": {"setting": value}, ...}, settings as in `TFRConfig`. Every
candidate runs on every stream and seed. One line is written per run as it ends; what the file holds
already is not run again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from tfrnet import TFRConfig, TFRNet
from tfrnet.data.protocol import STREAMS, Sizes, Split, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.methods.tfr.presets import DEEP
from tfrnet.models.load import LoadedModel, load_model, use_tensor_cores
from tfrnet_bench.constants import FIRST_TUNING_SEED
from tfrnet_bench.search.rows import read_rows

Row = dict[str, Any]
_EVERY = 5


def main() -> None:
    """Run what is missing and print a line for each run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-tasks")
    parser.add_argument("--streams", default=",".join(STREAMS))
    parser.add_argument("--seeds", default=str(FIRST_TUNING_SEED))
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--heldout", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--minutes", type=float, default=60, help="no run begins after this")
    options = parser.parse_args()
    seeds = [int(seed) for seed in options.seeds.split(",")]
    if min(seeds) < FIRST_TUNING_SEED:
        parser.error(f"seeds below {FIRST_TUNING_SEED} are for reporting")
    if options.requests < _EVERY:
        parser.error(f"at least {_EVERY} requests: accuracies are measured after every {_EVERY}")
    candidates = json.loads(options.plan.read_text())
    for settings in candidates.values():
        TFRConfig.from_record(DEEP | settings)
    known = {(row["candidate"], row["stream"], row["seed"]) for row in read_rows(options.results)}
    # The longest streams first, so that none is left alone at the end.
    todo = [
        (name, candidates[name], stream, seed)
        for seed in seeds
        for name in candidates
        for stream in reversed(options.streams.split(","))
        if (name, stream, seed) not in known
    ]
    deadline = time.time() + 60 * options.minutes
    with (
        options.results.open("a") as file,
        ProcessPoolExecutor(
            options.workers, multiprocessing.get_context("spawn"), _start, (options, deadline)
        ) as pool,
    ):
        for future in as_completed([pool.submit(_run, *one) for one in todo]):
            if row := future.result():
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(_line(row), flush=True)


_options: argparse.Namespace
_deadline: float
_loaded: LoadedModel


def _start(options: argparse.Namespace, deadline: float) -> None:
    global _options, _deadline, _loaded
    use_tensor_cores(options.device)
    _options, _deadline = options, deadline
    _loaded = load_model(options.model, "float32", options.device)


def _run(name: str, settings: Row, stream: str, seed: int) -> Row | None:
    if time.time() > _deadline:
        return None
    start = time.perf_counter()
    sizes = Sizes(
        requests=_options.requests,
        forget_eval=min(100, 8 * _options.requests),
        heldout=_options.heldout,
    )
    split = make_split(stream, seed, Source("folder", _options.data_dir), sizes)
    net = TFRNet(
        _loaded.model,
        _loaded.tokenizer,
        split.retain_examples(),
        TFRConfig.from_record(DEEP | settings),
        guard=split.guard_examples(),
        seed=seed,
        batch_size=_options.batch_size,
    )
    checkpoints, outcomes = [_measure(split)], []
    try:
        for number, request in enumerate(split.requests(), 1):
            outcome = net.forget(request).to_dict()
            outcomes.append({key: outcome[key] for key in _KEPT})
            if number % _EVERY == 0:
                checkpoints.append(_measure(split))
        mask = net.state.mask
    finally:
        net.detach()
    forget = sum(c["forget"] for c in checkpoints[1:]) / (len(checkpoints) - 1)
    retain = [value for c in checkpoints[1:] for value in c["heldout"].values()]
    return {
        "candidate": name,
        "settings": settings,
        "stream": stream,
        "seed": seed,
        "trade_off": trade_off(forget, sum(retain) / len(retain)),
        "forget": forget,
        "retain": sum(retain) / len(retain),
        "accepted": sum(o["outcome"] == "accepted" for o in outcomes),
        "drift": outcomes[-1]["guard_loss_after"] / outcomes[0]["guard_loss_before"],
        "lowered": [int((mask < limit).sum()) for limit in (1, 0.9, 0.5, 0.1)],
        "checkpoints": checkpoints,
        "outcomes": outcomes,
        "seconds": round(time.perf_counter() - start, 1),
        "request_seconds": sum(o["seconds"]["total"] for o in outcomes) / len(outcomes),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }


_KEPT = (
    "outcome",
    "forget_loss_before",
    "forget_loss_after",
    "guard_loss_before",
    "guard_loss_after",
    "selected",
    "recovered",
    "dormant",
    "attempts",
    "seconds",
)


def _measure(split: Split) -> Row:
    """Return accuracies now; of the forget items also by request."""
    evaluator = Evaluator(_loaded, 64)
    result = evaluate_task(evaluator, find_task(split.forget_task), split.forget, "forget")
    correct = {sample["key"]: bool(sample["correct"]) for sample in result.samples}
    right = [correct[item.key] for item in split.forget]
    fixed = [value for value, counts in zip(right, split.is_fixed(), strict=True) if counts]
    size = split.request_size
    return {
        "forget": 100 * sum(fixed) / len(fixed),
        "by_request": [100 * sum(right[i : i + size]) / size for i in range(0, len(right), size)],
        "heldout": {
            name: evaluate_task(evaluator, find_task(name), items, "heldout").accuracy
            for name, items in split.heldout.items()
        },
    }


def _line(row: Row) -> str:
    last = row["checkpoints"][-1]["heldout"].values()
    seen = [
        sum(c["by_request"][: _EVERY * i]) / (_EVERY * i)
        for i, c in enumerate(row["checkpoints"])
        if i
    ]
    return (
        f"{row['candidate']:<16} {row['stream']:<10} {row['seed']} T {row['trade_off']:5.1f} "
        f"F {row['forget']:5.1f} R {row['retain']:5.1f} acc {row['accepted']:2d} "
        f"drift x{row['drift']:.2f} seen {' '.join(f'{x:.0f}' for x in seen)} "
        f"held {' '.join(f'{x:.0f}' for x in last)} low {row['lowered']} "
        f"{row['request_seconds']:.2f} s/request {row['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
