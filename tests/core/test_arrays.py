"""Looking at tensors without torch: the digest is the one that torch's tensors have."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from tfrnet.core.arrays import arrays_digest, first_not_finite, tensors_file_facts
from tfrnet.core.tensors import tensors_digest, tensors_file


def reference(tensors: dict[str, torch.Tensor]) -> str:
    """The digest as the first states had it."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool"]
)
def test_the_digest_of_arrays_is_that_of_tensors(dtype: str) -> None:
    wide = (torch.arange(12.0).reshape(3, 4) % 2).to(getattr(torch, dtype))
    tensors = {"b": wide.T, "a": wide[0], "scalar": wide[0, 0]}
    arrays = [(name, tensors[name].numpy()) for name in sorted(tensors)]
    assert arrays_digest(arrays) == tensors_digest(tensors) == reference(tensors)


def test_what_is_not_finite_is_named() -> None:
    fine = np.ones(3, dtype="float32")
    assert first_not_finite({"a": fine, "count": np.arange(3)}) == ""
    assert first_not_finite({"a": fine, "b": fine * np.inf, "c": fine * np.nan}) == "b"


def test_the_facts_of_a_file_are_read_without_its_tensors() -> None:
    data = tensors_file({"a": torch.ones(3)}, {"format": "f", "generation": "4"})
    assert tensors_file_facts(data) == {"format": "f", "generation": "4"}
