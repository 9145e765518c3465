"""The one form of a JSON value that is hashed and signed."""

from __future__ import annotations

import json
from typing import Any


def canonical(value: Any) -> bytes:
    """Return JSON with sorted keys and no spaces, in UTF-8; what is not ASCII stands as \\uXXXX."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")
