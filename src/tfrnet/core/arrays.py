"""The tensors of a state as numpy arrays: to look at a state without waiting for torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]
# A safetensors file begins with the length of its header.
LENGTH_BYTES = 8


def arrays_digest(named: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return a hash of arrays in the order of their names that does not depend on the file.

    The types bear torch's names, whose tensors they come from.
    """
    digest = hashlib.sha256()
    for name, array in named:
        digest.update(f"{name} torch.{array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def first_not_finite(arrays: Arrays) -> str:
    """Return the name of the first array that holds an infinity or NaN, or nothing."""
    return next((name for name, array in arrays.items() if not np.isfinite(array).all()), "")


def tensors_file_facts(data: bytes) -> dict[str, str]:
    """Return the facts beside the tensors of a safetensors file that the library can read."""
    size = int.from_bytes(data[:LENGTH_BYTES], "little")
    header = json.loads(data[LENGTH_BYTES : LENGTH_BYTES + size])
    facts: dict[str, str] = header.get("__metadata__") or {}
    return facts
