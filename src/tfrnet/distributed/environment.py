"""The environment variables that a launcher sets. Imports no torch."""

from __future__ import annotations

import os


def launched_size() -> int:
    """Return how many processes were launched; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launched_rank() -> int:
    """Return the number of this process among those launched; 0 without a launcher."""
    return int(os.environ.get("RANK", "0")) if launched_size() > 1 else 0
