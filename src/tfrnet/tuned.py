"""The settings that the hyper-parameter search chose, as a preset of each method."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CHOSEN = Path(__file__).parent / "tuned.json"


def tuned_preset(method: str) -> dict[str, Mapping[str, Any]]:
    """Return the preset `tuned` of a method, if it was searched; see docs/baselines.md."""
    chosen = json.loads(_CHOSEN.read_text()) if _CHOSEN.is_file() else {}
    return {"tuned": chosen[method]["settings"]} if method in chosen else {}
