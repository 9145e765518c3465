"""The settings that the hyper-parameter search chose for each method."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CHOSEN = Path(__file__).parent / "tuned.json"


def tuned_settings(method: str) -> dict[str, Any]:
    """Return what the search chose; see docs/baselines.md."""
    settings: dict[str, Any] = json.loads(_CHOSEN.read_text())[method]["settings"]
    return settings
