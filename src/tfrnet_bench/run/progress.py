"""The progress of a cell, saved to disk so that a killed cell can resume."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tfrnet.unlearner import Unlearner

_FOLDER, _RECORD, _MASKS, _STATE = "partial", "record.json", "masks.safetensors", "state"


@dataclass
class Progress:
    """What has been done and measured so far; everything but `masks` is JSON."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    rankings: list[list[int]] = field(default_factory=list)
    correct: list[list[bool]] = field(default_factory=list)
    losses: list[list[float]] = field(default_factory=list)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    masks: list[torch.Tensor] = field(default_factory=list)

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the seconds of a block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[stage] = self.seconds.get(stage, 0.0) + spent


def save_progress(cell: Path, inputs: str, progress: Progress, unlearner: Unlearner[Any]) -> None:
    """Save everything that a resume needs, replacing what was saved before."""
    new, place = cell / f"{_FOLDER}.new", cell / _FOLDER
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    record = {name: value for name, value in vars(progress).items() if name != "masks"}
    (new / _RECORD).write_text(json.dumps({"inputs": inputs} | record))
    if progress.masks:
        save_file({"masks": torch.stack(progress.masks)}, new / _MASKS)
    unlearner.save(new / _STATE)
    # A cell that is killed between these two lines starts over.
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)


def load_progress(cell: Path, inputs: str) -> tuple[Progress, Path] | None:
    """Return the saved progress of a cell with these inputs and the file of the method's state."""
    place = cell / _FOLDER
    try:
        record = json.loads((place / _RECORD).read_text())
        masks = load_file(place / _MASKS)["masks"] if (place / _MASKS).is_file() else ()
    except (OSError, ValueError):
        return None
    if record.pop("inputs") != inputs:
        return None
    return Progress(**record, masks=list(masks)), place / _STATE


def drop_progress(cell: Path) -> None:
    """Delete the saved progress of a finished cell."""
    shutil.rmtree(cell / _FOLDER, ignore_errors=True)
