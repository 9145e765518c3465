"""Made-up results of cells, in the form in which a bench writes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from tfrnet.evaluation.forgetting import ItemHistory, forgetting_figures, structure_figures
from tfrnet.evaluation.metrics.continual import score_stream
from tfrnet_bench.results import CellFailure, CellResult, Run

STREAMS = ("arithmetic", "openbookqa", "boolq")
VARIANTS = ("none", "ga", "graddiff", "tfr-paper", "tfr", "tfr-no-recovery", "tfr-no-suppression")
# Accuracy on forgotten items is at least (1 - this) of what it was, by the stream's end.
_FORGETS = {"ga": 0.9, "graddiff": 0.7, "tfr": 0.8, "tfr-no-recovery": 0.85}
_CHANNELS, _LAYERS = 2048, 4
_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def header(kind: str, variant: str, stream: str, seed: int) -> dict:
    method = variant.partition("-")[0]
    return {
        "schema": "tfrnet.cell/1",
        "kind": kind,
        "variant": variant,
        "method": method,
        "preset": "paper" if variant == "tfr-paper" else "tuned",
        "overrides": {"tfr-no-recovery": ["use_recovery=false"]}.get(variant, []),
        "stream": stream,
        "seed": seed,
        "settings": {} if method == "none" else {"steps": 4, "use_recovery": "no-rec" in variant},
        "protocol": {"requests": 20, "request_size": 8, "forget_eval": 100, "heldout": 100},
        "inputs": "0" * 64,
        "model": {"name": "smollm2-tasks", "digest": "1" * 64},
        "provenance": {
            "versions": {"tfrnet": "0.1.0", "torch": "2.13.0"},
            "commit": "abcdef0",
            "device": "cpu",
            "dtype": "float32",
            "started": "2026-01-01T00:00:00+00:00",
        },
        "seconds": {"total": 12.5, "unlearning": 9.0, "evaluation": 3.0, "saving": 0.5},
        "peak_bytes": 5_000_000_000,
    }


def outcome(number: int, variant: str, stream: str, seed: int, accepted: bool = True) -> dict:
    masked = variant.startswith("tfr")
    return {
        "id": f"{stream}-{seed}-{number:02d}",
        "outcome": "accepted" if accepted else "rejected",
        "reason": "" if accepted else "guard loss 0.2000 is over its limit 0.1670",
        "forget_loss_before": 0.1 * number,
        "forget_loss_after": 0.1 * number + 2,
        "retain_loss_before": 0.15,
        "guard_loss_before": 0.15,
        "guard_loss_after": 0.15 + 0.001 * number,
        "selected": 100 if masked else 0,
        "recovery_pool": 4 if masked else 0,
        "recovered": 2 if masked and "recovery" not in variant else 0,
        "suppressed_now": 50 * number if masked else 0,
        "dormant": 3 * number if masked else 0,
        "capacity": 1 - 3 * number / _CHANNELS if masked else 1.0,
        "attempts": 2,
        "method": variant.partition("-")[0],
        "seconds": {"score": 0.4, "guard": 0.3, "total": 0.9},
        "memory": {"peak": 2_000_000_000, "before": 600_000_000, "state": 4_000_000},
        "details": {},
    }


def stream_result(variant: str, stream: str, seed: int, requests: int = 20) -> dict:
    random = np.random.default_rng([STREAMS.index(stream), len(variant), seed])
    items = 8 * requests
    share = _FORGETS.get(variant, 0.0)
    right = random.random(items) < 0.95
    gone = np.sort(random.random(items)) * requests / max(share, 1e-9)
    correct = np.stack([right & ~(gone < t) for t in range(requests + 1)])
    history = ItemHistory(correct, np.where(correct, 0.1, 4.0))
    checkpoints = [0, *range(5, requests + 1, 5)]
    forget = {t: 100.0 * correct[t, : min(100, items)].mean() for t in checkpoints}
    base = {"arithmetic": 97.0, "openbookqa": 40.0, "boolq": 76.0}
    retain = {t: {n: v - share * 0.4 * t for n, v in base.items()} for t in checkpoints}
    scores = score_stream(
        forget, {t: [*values.values()] for t, values in retain.items()}, checkpoints[1:]
    )
    untouched = score_stream(forget, {t: [*v.values()] for t, v in retain.items()}, (0,))
    accepted = [number != 7 for number in range(1, requests + 1)]
    result = header("stream", variant, stream, seed) | {
        "requests": []
        if variant == "none"
        else [outcome(n + 1, variant, stream, seed, a) for n, a in enumerate(accepted)],
        "checkpoints": [
            {
                "request": t,
                "forget": forget[t],
                "retain": retain[t],
                "details": {"boolq": {"balanced_accuracy": 70.0, "chosen": {"no": 40, "yes": 60}}},
            }
            for t in checkpoints
        ],
        "scores": vars(scores) | {"trade_off": scores.trade_off},
        "untouched": vars(untouched) | {"trade_off": untouched.trade_off},
        "floors": {
            "forget": {"random": 25.0, "longest choice": 41.0 + 2 * seed},
            "arithmetic": {"random": 0.0},
            "openbookqa": {"random": 25.0, "longest choice": 37.0},
            "boolq": {"random": 50.0, "always yes": 62.0},
        },
        "forgetting": forgetting_figures(history, [True] * 100 + [False] * (items - 100), 8),
        "answers": [
            {"key": f"{stream}/train/{i}", "gold": "yes", "before": "yes", "after": "no"}
            for i in range(6)
        ],
    }
    if variant.startswith("tfr"):
        rankings = [random.permutation(_CHANNELS)[:128].tolist() for _ in range(requests)]
        masks = [torch.ones(_CHANNELS)]
        for t in range(requests):
            mask = masks[-1].clone()
            mask[rankings[t][:10]] *= 0.2
            masks.append(mask)
        counts = random.integers(0, 30, (_LAYERS, len(_PROJECTIONS)))
        result |= {
            "structure": structure_figures(masks, rankings, 0.1),
            "channel_map": {
                "projections": list(_PROJECTIONS),
                "layers": list(range(_LAYERS)),
                "channels": np.full((_LAYERS, len(_PROJECTIONS)), 64).tolist(),
                "suppressed": counts.tolist(),
                "dormant": (counts // 4).tolist(),
                "recovered": (counts // 6).tolist(),
            },
        }
    return result


def tofu_result(variant: str, seed: int, rows: int = 40) -> dict:
    random = np.random.default_rng([len(variant), seed])
    kept = {"none": 1.0, "retain90": 0.1}.get(variant, 0.5)
    sets = {
        name: {"probability": 0.9, "rouge": 0.8, "truth_ratio": 0.5}
        for name in ("forget", "retain", "real_authors", "world_facts")
    }
    members = random.normal(2 - kept, 1, rows)
    result = header("tofu", variant, "tofu", seed) | {
        "requests": [outcome(n + 1, variant, "tofu", seed) for n in range(20)]
        if variant not in ("none", "retain90")
        else [],
        "tofu": {"task": "tofu", "n": {"forget": rows}, "model_utility": 0.5 * kept, "sets": sets},
        "privacy": {
            "auc": {
                name: {"value": 0.5 + 0.4 * kept, "stderr": 0.02}
                for name in ("loss", "zlib", "min_k", "min_k_plus_plus")
            },
            "mia_gap": 0.4 * kept,
        },
        "truth_ratios": random.random(rows).tolist(),
        "privacy_scores": {
            name: [members.tolist(), random.normal(2, 1, rows).tolist()]
            for name in ("loss", "zlib", "min_k", "min_k_plus_plus")
        },
        "answers": [
            {"key": "tofu/forget10_perturbed/0", "before": "in the attic", "after": "a river"}
        ],
    }
    result["model"] = {
        "name": "smollm2-tofu-retain90" if variant == "retain90" else "smollm2-tofu-full",
        "digest": "2" * 64,
    }
    return result


def robust_result(variant: str, stream: str, seed: int) -> dict:
    rows = [
        ("quantise", "int4-row", 22.0),
        ("quantise", "nf4", 23.0),
        ("prompts", "any wording", 40.0),
        ("few-shot", "8 forgotten", 31.0),
        ("relearn", "forgotten, 0 steps", 20.0),
        ("relearn", "forgotten, 80 steps", 70.0),
    ]
    return header("robust", variant, stream, seed) | {
        "requests": [outcome(n + 1, variant, stream, seed) for n in range(20)],
        "robustness": {
            "n": 144,
            "attacks": [
                {
                    "attack": attack,
                    "variant": name,
                    "plain": 20.0,
                    "attacked": value,
                    "untouched": 95.0,
                    "untouched_attacked": 94.0,
                    "recovery": (value - 20) / 75,
                }
                for attack, name, value in rows
            ],
            "relearning": {"forgotten": {"area_between": 0.4, "steps_to_half_recovery": 40}},
        },
    }


def run_of(results: Iterable[dict], failures: Sequence[CellFailure] = ()) -> Run:
    """Return the run that has these results."""
    return Run([CellResult.from_dict(result) for result in results], failures)


def write_run(folder: Path, seeds: int = 3, variants: tuple[str, ...] = VARIANTS) -> Path:
    """Write a whole run, one of its cells failed."""
    results = [
        *(stream_result(v, s, n) for v in variants for s in STREAMS for n in range(seeds)),
        *(tofu_result(v, n) for v in ("none", "retain90", "ga", "tfr") for n in range(seeds)),
        *(robust_result("tfr", s, 0) for s in STREAMS),
    ]
    for result in results:
        name = "{kind}/{stream}/{variant}/{seed}".format(**result)
        cell = folder / "cells" / name
        cell.mkdir(parents=True)
        (cell / "result.json").write_text(json.dumps(result))
    failed = folder / "cells" / "stream" / "boolq" / "rmu" / "0"
    failed.mkdir(parents=True)
    (failed / "error.json").write_text(
        json.dumps({"cell": "stream/boolq/rmu/0", "error": "InputError: no such layer"})
    )
    (folder / "bench.json").write_text(
        json.dumps(
            {
                "schema": "tfrnet.bench/1",
                "plans": [{"experiments": ["main", "tofu"], "seeds": [*range(seeds)]}],
            }
        )
    )
    return folder
