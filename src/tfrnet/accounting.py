"""What a request costs: seconds by stage, and the peak of the memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import torch

# How often the memory of a process is looked at; a peak shorter than this may be missed.
_INTERVAL = 0.005


class Account:
    """Measures from `with` to its end. On GPUs torch's own counters are exact; on a CPU it is the
    resident memory of the process, sampled.
    """

    def __init__(self) -> None:
        self._stages: dict[str, float] = {}
        self._done = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._on_gpu = torch.cuda.is_available()

    def __enter__(self) -> Account:
        self._start = time.perf_counter()
        if self._on_gpu:
            for device in range(torch.cuda.device_count()):
                torch.cuda.reset_peak_memory_stats(device)
        self.before = self.peak = self._now()
        if not self._on_gpu:
            self._sampler.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        if self._on_gpu:
            devices = range(torch.cuda.device_count())
            self.peak = sum(torch.cuda.max_memory_allocated(device) for device in devices)
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
            spent = time.perf_counter() - start
            self._stages[stage] = self._stages.get(stage, 0.0) + spent

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each stage, and of all."""
        total = self._end - self._start
        return {name: round(value, 4) for name, value in (self._stages | {"total": total}).items()}

    def _now(self) -> int:
        if self._on_gpu:
            devices = range(torch.cuda.device_count())
            return sum(torch.cuda.memory_allocated(device) for device in devices)
        return int(psutil.Process().memory_info().rss)

    def _sample(self) -> None:
        while not self._done.wait(_INTERVAL):
            self.peak = max(self.peak, self._now())
