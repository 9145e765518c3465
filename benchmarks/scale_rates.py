"""What the machine can do: products of matrices, memory, and what it is."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tfrnet.core.versions import versions

_TRIALS = 7
# Rows, inner size, columns: squares, and a batch through projections of LLaMA 7B.
_PRODUCTS = {
    "cuda": [
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (16384, 8192, 8192),
        (2048, 4096, 4096),
        (2048, 4096, 11008),
        (2048, 11008, 4096),
        (16384, 4096, 11008),
    ],
    "cpu": [(256, 256, 256), (512, 512, 512), (768, 768, 768)],
}
_PRODUCTS_A_TRIAL = {"cuda": 10, "cpu": 1}
_COPIED_BYTES = {"cuda": 4 << 30, "cpu": 64 << 20}


@dataclass(frozen=True)
class Rates:
    """Multiplications and additions a second, and bytes read or written a second."""

    matrix: float
    bandwidth: float


def find_device(name: str) -> torch.device:
    """Return a torch device; `auto` is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def measure_rates(device: torch.device) -> tuple[Rates, list[dict[str, Any]]]:
    """Return the best rate over all products and that of a large copy, and every product's."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    products = [
        {"rows": m, "inner": k, "columns": n, "rate": _product_rate(m, k, n, device, dtype)}
        for m, k, n in _PRODUCTS[device.type]
    ]
    rates = Rates(max(product["rate"] for product in products), _copy_rate(device))
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return rates, products


def describe_machine(device: torch.device) -> dict[str, Any]:
    """Return what a result depends on."""
    on_gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if on_gpu else _host_memory()
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else platform.machine(),
        "memory_bytes": memory,
        "dtype": "bfloat16" if on_gpu else "float32",
        "cuda": torch.version.cuda,
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "float32_products": torch.get_float32_matmul_precision(),
        "versions": versions("peft", "accelerate"),
    }


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was asked to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(action: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Return the seconds that an action takes, and what it returns."""
    synchronise(device)
    start = time.perf_counter()
    result = action()
    synchronise(device)
    return time.perf_counter() - start, result


def _product_rate(m: int, k: int, n: int, device: torch.device, dtype: torch.dtype) -> float:
    # Random numbers: a GPU multiplies zeros at a higher clock than it keeps up with others.
    left = torch.randn(m, k, device=device, dtype=dtype)
    right = torch.randn(n, k, device=device, dtype=dtype).T
    into = torch.empty(m, n, device=device, dtype=dtype)
    count = _PRODUCTS_A_TRIAL[device.type]

    def multiply() -> None:
        for _ in range(count):
            torch.mm(left, right, out=into)

    return count * 2 * m * k * n / _median_seconds(multiply, device)


def _copy_rate(device: torch.device) -> float:
    source = torch.ones(_COPIED_BYTES[device.type] // 4, device=device)
    target = torch.empty_like(source)
    # Every byte is read once and written once.
    return 2 * source.nbytes / _median_seconds(lambda: target.copy_(source), device)


def _median_seconds(action: Callable[[], Any], device: torch.device) -> float:
    action()
    return statistics.median(timed(action, device)[0] for _ in range(_TRIALS))


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
