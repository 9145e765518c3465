"""A state's file: the library's format, and the same bytes for the same content."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tfrnet.core.tensors import tensors_file

TENSORS = {
    "mask": torch.linspace(0, 1, 7),
    "forgotten": torch.arange(6.0).reshape(2, 3).T,  # not contiguous
    "überall": torch.tensor([1, 2], dtype=torch.int32),
    "nothing": torch.empty(0, 4, dtype=torch.bfloat16),
}
FACTS = {"format": "tfrnet-state-1", "generation": "12", "method": 'größer als "tfr"'}


def read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, "pt") as file:
        return load_file(path), file.metadata() or {}


@pytest.mark.parametrize("facts", [FACTS, {}])
def test_the_library_reads_back_what_was_written(tmp_path: Path, facts: dict[str, str]) -> None:
    (tmp_path / "file").write_bytes(tensors_file(TENSORS, facts))
    tensors, found = read(tmp_path / "file")
    assert found == facts
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == TENSORS[name].dtype
        assert torch.equal(tensor, TENSORS[name])


def test_equal_content_has_equal_bytes() -> None:
    """The library alone had two facts in either order, and three in any of six."""
    backwards = dict(reversed(FACTS.items()))
    assert len({tensors_file(TENSORS, facts) for facts in [FACTS, backwards] * 10}) == 1
    assert tensors_file(TENSORS, FACTS) != tensors_file(TENSORS, FACTS | {"generation": "13"})
