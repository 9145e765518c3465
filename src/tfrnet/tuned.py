"""The settings that the hyper-parameter search chose for each method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CHOSEN = Path(__file__).parent / "tuned.json"


def tuned_settings(method: str) -> dict[str, Any] | None:
    """Return what the search chose; None for a method that was not searched."""
    chosen = json.loads(_CHOSEN.read_text()).get(method)
    return chosen["settings"] if chosen else None
