"""A generation's file: its tensors, and beside them the format and the generation's number."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core import files
from tfrnet.core.errors import DamagedError
from tfrnet.state.manifest import FORMAT

# Tensors bring torch along, which whoever only looks at the ledger should not wait for.
if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays
    from tfrnet.core.tensors import State, TensorState


def write(path: Path, state: State, number: int) -> None:
    """Write a generation, durably."""
    files.replace_file(path, to_bytes(state, number), files.PRIVATE)


def to_bytes(state: State, number: int) -> bytes:
    """Return the content of a generation's file."""
    from tfrnet.core.tensors import tensors_file

    return tensors_file(state.tensors(), _facts(number))


def parse(data: bytes, path: Path) -> TensorState:
    """Return the tensors in the content of a file."""
    from safetensors import SafetensorError
    from safetensors.torch import load as load_tensors

    from tfrnet.core.tensors import TensorState

    try:
        return TensorState(load_tensors(data))
    except SafetensorError as error:
        raise DamagedError(f"{path} is damaged: {error}") from None


def parse_arrays(data: bytes, path: Path) -> Arrays:
    """Return the tensors in the content of a file as arrays, in the order of their names."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as load_arrays

    try:
        return dict(sorted(load_arrays(data).items()))
    except (SafetensorError, KeyError) as error:  # a type that states never have
        raise DamagedError(f"{path} is damaged: {error}") from None


def problem_of_facts(data: bytes, number: int) -> str:
    """Return what is wrong with the facts beside the tensors, or nothing."""
    from tfrnet.core.arrays import tensors_file_facts

    found = tensors_file_facts(data)
    if found == _facts(number):
        return ""
    return f"its header should say {_facts(number)} and says {found}"


def _facts(number: int) -> dict[str, str]:
    return {"format": f"tfrnet-state-{FORMAT}", "generation": str(number)}
