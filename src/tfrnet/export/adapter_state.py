"""Reading an (IA)3 adapter of ours back: the mask, checked by digest, and the settings it had."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import tensors_digest
from tfrnet.export.adapter import PREFIX, WEIGHTS
from tfrnet.export.write import FACTS

_NEEDED = ("base_model", "base_fingerprint", "state_digest", "method", "config", "seed")


@dataclass(frozen=True)
class AdapterState:
    """What an adapter folder says of the state that it was exported from."""

    mask: torch.Tensor
    facts: dict[str, Any]

    def refuse_other_model(self, name: str, fingerprint: str) -> None:
        """Raise if the adapter was made for another base model."""
        if fingerprint != self.facts["base_fingerprint"]:
            raise InputError(
                f"the adapter was made for another base model ({self.facts['base_model']}, "
                f"fingerprint {self.facts['base_fingerprint'][:12]}); {name} has fingerprint "
                f"{fingerprint[:12]}, so choose another --model"
            )


def read_adapter(folder: Path) -> AdapterState:
    """Read an adapter that `tfrnet export --format ia3` wrote."""
    try:
        facts = json.loads((folder / FACTS).read_text())
        channels = facts["channels"]
        wanted = facts["mask_digest"]
        missing = [name for name in _NEEDED if facts.get(name) is None]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{folder} is not an (IA)3 adapter made by 'tfrnet export --format ia3' (it lacks a "
            f"matching {FACTS})"
        ) from None
    if missing:
        raise InputError(f"{folder / FACTS} is damaged: {missing[0]} is missing from it")
    try:
        tensors = load_file(folder / WEIGHTS)
        parts = [tensors[f"{PREFIX}{name}.ia3_l"].flatten() for name, _ in channels]
    except (OSError, KeyError, SafetensorError) as error:
        raise InputError(f"{folder / WEIGHTS} is missing or damaged: {error}") from None
    mask = torch.cat(parts)
    if len(tensors) != len(parts) or tensors_digest({"mask": mask}) != wanted:
        raise InputError(
            f"{folder / WEIGHTS} was changed: its digest is not the one in {FACTS}; "
            "nothing was imported"
        )
    return AdapterState(mask, facts)
