"""A generation's file: its tensors, and beside them the format and the generation's number."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors

from tfrnet.core import files
from tfrnet.core.errors import StateError
from tfrnet.core.tensors import State, TensorState, tensors_file, tensors_file_facts
from tfrnet.state.manifest import FORMAT


def write(path: Path, state: State, number: int) -> None:
    """Write a generation, durably."""
    files.replace_file(path, tensors_file(state.tensors(), _facts(number)), files.PRIVATE)


def parse(data: bytes, path: Path) -> TensorState:
    """Return the tensors in the content of a file."""
    try:
        return TensorState(load_tensors(data))
    except SafetensorError as error:
        raise StateError(f"{path} is damaged: {error}") from None


def problem_of_facts(data: bytes, number: int) -> str:
    """Return what is wrong with the facts beside the tensors, or nothing."""
    found = tensors_file_facts(data)
    if found == _facts(number):
        return ""
    return f"its header should say {_facts(number)} and says {found}"


def _facts(number: int) -> dict[str, str]:
    return {"format": f"tfrnet-state-{FORMAT}", "generation": str(number)}
