"""How far a cell has come, on disk: a killed one goes on from there."""

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
    """What has been done and seen so far; all but `masks` is plain JSON values."""

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
    """Keep everything that a resume needs, in the place of what was kept before."""
    new, place = cell / f"{_FOLDER}.new", cell / _FOLDER
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    record = {name: value for name, value in vars(progress).items() if name != "masks"}
    (new / _RECORD).write_text(json.dumps({"inputs": inputs} | record))
    if progress.masks:
        save_file({"masks": torch.stack(progress.masks)}, new / _MASKS)
    unlearner.save(new / _STATE)
    # Between these two nothing is kept, and a cell that is killed there begins again.
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)


def load_progress(cell: Path, inputs: str) -> tuple[Progress, Path] | None:
    """Return what was kept of a cell with the same inputs, and the file of the method's state."""
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
    """Forget what was kept: the cell is finished."""
    shutil.rmtree(cell / _FOLDER, ignore_errors=True)
