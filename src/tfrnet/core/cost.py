"""What a request costs: seconds per stage and peak memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch
from torch import nn

# Seconds between two samples of a process's memory; a shorter peak may be missed.
_INTERVAL = 0.005


class Account:
    """Measures the time and memory of a `with` block.

    On GPUs memory is exactly what torch has allocated on the model's devices; on a CPU it is the
    resident memory of the process, sampled.
    """

    def __init__(self, model: nn.Module) -> None:
        self._stages: dict[str, float] = {}
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
        self._process = psutil.Process()

    def __enter__(self) -> Account:
        self._start = time.perf_counter()
        for device in self._gpus:
            torch.cuda.reset_peak_memory_stats(device)
        self.before = self.peak = self._now()
        if not self._gpus:
            self._sampler.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._gpus:
            self.peak = sum(torch.cuda.max_memory_allocated(device) for device in self._gpus)
        else:
            self._sampler.join()
            self.peak = max(self.peak, self._now())
        self._end = time.perf_counter()

    @contextmanager
    def time(self, stage: str) -> Iterator[None]:
        """Add the seconds of a block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            for device in self._gpus:
                torch.cuda.synchronize(device)  # work queued in this stage counts towards it
            spent = time.perf_counter() - start
            self._stages[stage] = self._stages.get(stage, 0.0) + spent

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage and in total."""
        total = self._end - self._start
        return {name: round(value, 4) for name, value in (self._stages | {"total": total}).items()}

    def _now(self) -> int:
        if self._gpus:
            return sum(torch.cuda.memory_allocated(device) for device in self._gpus)
        return int(self._process.memory_info().rss)

    def _sample(self) -> None:
        while not self._done.wait(_INTERVAL):
            self.peak = max(self.peak, self._now())
