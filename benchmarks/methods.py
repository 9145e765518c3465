"""What one request costs and does under every method, in one run.

    python -m benchmarks.methods --data-dir DATA --out benchmarks/results/methods-cpu.json

The first request of a stream is applied to a prepared backbone by each method at each preset, and
taken back again. Seconds are those of the request, without the guard and the loss measurements,
which are the same for all; memory is the peak above what was there before the request began.
Inference is the evaluation of some held-out items after the request, over that of the untouched
model.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path
from typing import Any

import torch

from tfrnet.core.versions import versions
from tfrnet.data.protocol import Split, make_split
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.method import find_method, method_names
from tfrnet.models.load import LoadedModel, load_model

MEASURED = ("guard", "forget_loss")


def main() -> None:
    """Run every method and write one row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--model", default="smollm2-tasks")
    parser.add_argument("--task", default="boolq")
    parser.add_argument("--methods", default=",".join(method_names()))
    parser.add_argument("--presets", default="default,tuned")
    parser.add_argument("--trained", default="", help="full or lora, where a method has both")
    parser.add_argument("--items", type=int, default=32, help="held-out items for inference")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    loaded = load_model(options.model, options.dtype, options.device)
    source = Source("folder", options.data_dir) if options.data_dir else Source()
    split = make_split(options.task, 0, source)
    rows = []
    # Once for nothing: the first request of a process also pays for loading kernels.
    run(loaded, "ga", "default", options.trained, split, options.items)
    untouched = inference_seconds(loaded, split, options.items)
    for name in options.methods.split(","):
        presets = find_method(name).config_class.presets()
        for preset in options.presets.split(","):
            if preset not in presets:
                continue
            row = run(loaded, name, preset, options.trained, split, options.items)
            rows.append(row | {"inference": row["inference_seconds"] / untouched})
            print(line(rows[-1]), flush=True)
            if options.out:
                result = facts(options, loaded, split) | {"rows": rows}
                options.out.write_text(json.dumps(result, indent=1) + "\n")


def facts(options: argparse.Namespace, loaded: LoadedModel, split: Split) -> dict[str, Any]:
    """Return what a result depends on."""
    device = next(loaded.model.parameters()).device
    return {
        "model": options.model,
        "task": options.task,
        "examples": split.request_size,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine(),
        "memory": "torch's allocator" if device.type == "cuda" else "resident memory, sampled",
        "dtype": options.dtype,
        "threads": torch.get_num_threads(),
        "versions": versions("peft"),
    }


def run(
    loaded: LoadedModel, name: str, preset: str, trained: str, split: Split, items: int
) -> dict[str, Any]:
    """Apply the first request by one method, and take it back."""
    method = find_method(name)
    config = method.config_class.preset(preset)
    if trained and "trained" in config.to_dict() and name not in ("llm-eraser", "o3"):
        config = config.with_overrides([f"trained={trained}"])
    retain, guard = split.retain_examples(), split.guard_examples()
    unlearner = method(loaded.model, loaded.tokenizer, retain, config, guard=guard)
    try:
        outcome = unlearner.forget(split.requests()[0])
        moved = changed_share(unlearner)
        inference = inference_seconds(loaded, split, items)
    finally:
        unlearner.detach()
    seconds = dict(outcome.seconds)
    measured = sum(seconds.get(stage, 0.0) for stage in MEASURED)
    return {
        "method": name,
        "preset": preset,
        "trained": config.to_dict().get("trained", "mask"),
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "forget_loss": [outcome.forget_loss_before, outcome.forget_loss_after],
        "guard_loss": [outcome.guard_loss_before, outcome.guard_loss_after],
        "seconds": round(seconds["total"] - measured, 3),
        "seconds_by_stage": seconds,
        "peak_above_before": outcome.memory["peak"] - outcome.memory["before"],
        "state_bytes": outcome.memory["state"],
        "changed": moved,
        "inference_seconds": round(inference, 3),
        "details": dict(outcome.details),
        "settings": config.to_dict(),
    }


def inference_seconds(loaded: LoadedModel, split: Split, items: int) -> float:
    """Return the seconds that some held-out items of every task take."""
    start = time.perf_counter()
    for task, held in split.heldout.items():
        evaluate_task(Evaluator(loaded, 16), find_task(task), held[:items], "heldout")
    return time.perf_counter() - start


def changed_share(unlearner: Any) -> float:
    """Return the share of the method's own scalars that the request changed."""
    after = unlearner.snapshot().tensors()
    if unlearner.method == "tfr":
        return float((after["mask"] < 1).float().mean())
    effect = unlearner.effect
    shown = {name: p.detach().cpu().float() for name, p in effect.parameters.items()}
    effect.show(type(unlearner.state)())
    changed = sum(
        int((shown[name] != p.detach().cpu().float()).sum())
        for name, p in effect.parameters.items()
    )
    effect.show(unlearner.state)
    return changed / sum(value.numel() for value in shown.values())


def line(row: dict[str, Any]) -> str:
    """Return a row for a person."""
    forget, guard = row["forget_loss"], row["guard_loss"]
    return (
        f"{row['method']:<11}{row['preset']:<9}{row['trained']:<6}{row['outcome']:<9} "
        f"forget {forget[0]:.3f} -> {forget[1]:.3f}  guard {guard[0]:.3f} -> {guard[1]:.3f}  "
        f"{row['seconds']:.2f} s  +{row['peak_above_before'] / 1e6:.0f} MB  "
        f"state {row['state_bytes'] / 1e6:.1f} MB  changed {100 * row['changed']:.1f} %  "
        f"inference x {row['inference']:.2f}"
    )


if __name__ == "__main__":
    main()
