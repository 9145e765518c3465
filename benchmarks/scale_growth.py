"""A long stream on one state: whether time, memory and the state's size stay flat."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from benchmarks.scale_rates import synchronise
from benchmarks.scale_shapes import Sizes, Writer, build_tokenizer
from tfrnet import TFRConfig
from tfrnet.data.requests import Request
from tfrnet.session import Session
from tfrnet.state.layout import Layout

SIZES = Sizes(forget=2, retain=4, guard=8)
TOKENS = 32
_RETAIN_POOL = 64
_WINDOW = 100


def growth_settings(preset: str = "paper") -> TFRConfig:
    """Return a preset for short examples, with a guard that accepts every request."""
    return replace(
        TFRConfig.preset(preset),
        max_length=TOKENS,
        retain_examples=SIZES.retain,
        guard_examples=SIZES.guard,
        guard_relative=1000,
    )


def measure_growth(
    model: PreTrainedModel,
    shape: str,
    count: int,
    batch_size: int | None = 8,
    deadline: float = float("inf"),
    preset: str = "paper",
) -> dict[str, Any]:
    """Run a stream, for as long as the clock is before the deadline, and return its numbers."""
    writer = Writer(shape, TOKENS)
    config = growth_settings(preset)
    columns: dict[str, list[Any]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(
            model,
            build_tokenizer(shape),
            Path(folder) / "state",
            writer.examples(_RETAIN_POOL),
            config=config,
            guard=writer.examples(SIZES.guard),
            batch_size=batch_size,
        ) as session,
    ):
        for _ in range(count):
            if time.monotonic() > deadline:
                break
            for name, value in _one_request(session, writer.request(SIZES.forget)).items():
                columns.setdefault(name, []).append(value)
    return {
        "shape": shape,
        "preset": preset,
        "asked": count,
        "batch_size": batch_size,
        "settings": config.to_dict(),
        "summary": summary(columns),
        "requests": columns,
    }


def summary(columns: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, float]]:
    """Return the medians of the first and of the last requests, and the one over the other.

    The very first request also pays for loading kernels, so a median and no mean.
    """
    result = {}
    for name, values in columns.items():
        if name == "accepted":
            continue
        window = min(_WINDOW, max(1, len(values) // 2))
        first, last = statistics.median(values[:window]), statistics.median(values[-window:])
        result[name] = {"first": first, "last": last, "ratio": last / first if first else 1.0}
    return result


def _one_request(session: Session, request: Request) -> dict[str, Any]:
    device = session.unlearner.model.device
    synchronise(device)
    start = time.perf_counter()
    outcome = session.forget(request)
    synchronise(device)
    seconds = time.perf_counter() - start
    layout = session.store.layout
    return {
        "seconds": round(seconds, 5),
        "accepted": outcome.accepted,
        "resident_bytes": _resident_bytes(),
        "gpu_bytes": torch.cuda.memory_allocated(device) if device.type == "cuda" else 0,
        "folder_bytes": sum(p.stat().st_size for p in layout.folder.rglob("*") if p.is_file()),
        "generation_bytes": _newest_generation(layout).stat().st_size,
        "ledger_bytes": layout.ledger.stat().st_size,
    }


def _newest_generation(layout: Layout) -> Path:
    return layout.generation(layout.numbers()[-1])


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
