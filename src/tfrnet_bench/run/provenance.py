"""Where a result comes from: code, versions, device, and the files of a model."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from tfrnet.core.versions import versions
from tfrnet.models.adapters import base_of
from tfrnet.models.bundled import BUNDLED, GEMMA, bundled_gguf
from tfrnet.models.gemma import gemma_digest
from tfrnet.models.place import ADAPTER_CONFIG
from tfrnet.models.shipped import find_shipped

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Names the code's commit where a copy of it runs outside of its repository.
COMMIT_VARIABLE = "TFRNET_COMMIT"
_SETTINGS = ("config.json", ADAPTER_CONFIG, "tokenizer.json")


def provenance(model: PreTrainedModel, dtype: str, started: str) -> dict[str, Any]:
    """Return what a result was computed with."""
    device = next(model.parameters()).device
    return {
        "versions": versions("peft", "accelerate", "numpy", "scipy", "scikit-learn"),
        "commit": code_commit(),
        "device": torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{platform.machine()} {device.type}",
        "dtype": dtype,
        "matmul_precision": torch.get_float32_matmul_precision(),
        "started": started,
    }


@cache
def code_commit() -> str | None:
    """Return the commit of the code, with `+` where files differ from it; None if unknown."""
    if named := os.environ.get(COMMIT_VARIABLE):
        return named
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        changed = _git(folder, "status", "--porcelain", str(folder.parents[1]))
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def model_identity(name: str) -> str:
    """Return a digest of a model's files, or of its name where it comes from the hub."""
    if name == BUNDLED:
        return _identity(bundled_gguf().resolve())
    if name == GEMMA:
        return gemma_digest()
    path = Path(name).expanduser()
    found = path if path.exists() else find_shipped(name)
    if found is None:
        return hashlib.sha256(f"hub {name}".encode()).hexdigest()
    return _identity(found.resolve())


def _identity(path: Path) -> str:
    """Return the digest of a file, or of the files of a folder that make up a model."""
    if path.is_file():
        return _digest([path])
    weights = [file for file in path.iterdir() if file.suffix in (".safetensors", ".bin")]
    settings = [path / name for name in _SETTINGS if (path / name).is_file()]
    base = model_identity(base_of(path)) if (path / ADAPTER_CONFIG).is_file() else ""
    return _digest(sorted(weights) + settings, base)


def _digest(files: list[Path], *more: str) -> str:
    digest = hashlib.sha256(" ".join(more).encode())
    for file in files:
        found = file.stat()
        content = _content(file, found.st_size, found.st_mtime_ns)
        digest.update(f"{file.name} {content} ".encode())
    return digest.hexdigest()


@cache
def _content(file: Path, _size: int, _written: int) -> str:
    """Return the SHA-256 of a whole file, which is read again only when it was written again."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
