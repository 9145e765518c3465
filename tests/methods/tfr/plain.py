"""The calibrated step by itself: the defaults of when it was not yet the default."""

from __future__ import annotations

from typing import Any

PLAIN: dict[str, Any] = {
    "step": "calibrate",
    "steps": 4,
    "step_margin": 10,
    "retain_stiffness": 100,
    "memory_rows": 32,
    "memory_stiffness": 1,
    "level_quantile": 0.25,
    "give_back": False,
    "hold_rivals": False,
    "use_wrong_answers": False,
    "request_rivals": False,
    "own_symbols": False,
    "every_digit": False,
    "siblings": 0,
    "untouched_siblings": False,
    "near_examples": None,
    "least_reached": 0,
    "hold_guard": True,
    "guard_absolute": 0,
}
