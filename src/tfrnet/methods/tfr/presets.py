"""The presets of TFR-Net: settings that go together, and where each comes from."""

from __future__ import annotations

from typing import Any

# The paper's method, spelled out so that new defaults never change its results.
PAPER: dict[str, Any] = {
    "score_tokens": "all",
    "max_length": 256,
    "retain_examples": 24,
    "guard_examples": 64,
    "forget_weight": 1,
    "retain_weight": 1,
    "risk_margin": 1,
    "risk_decay": 0.7,
    "variance_decay": 0.7,
    "hit_decay": 0.7,
    "hit_weight": 1,
    "hit_quantile": 0.9,
    "step": "select",
    "budget": 128,
    "suppress_strength": 1,
    "dormant_threshold": 0.1,
    "max_sparsity": 0.04,
    "current_risk_ceiling": 0.5,
    "history_risk_ceiling": 0.5,
    "recovery_threshold": 0,
    "retain_gain": 1,
    "current_penalty": 1,
    "history_penalty": 1,
    "hit_penalty": 1,
    "recover_strength": 0.5,
    "guard_relative": 0.05,
    "guard_absolute": 0,
    "drift_limit": None,
    "signed_scores": False,
    "backtracks": 0,
}
# The default before `solve`: cheaper, but forgets less.
FISHER: dict[str, Any] = {
    "step": "fisher",
    "steps": 2,
    "budget": 2048,
    "guard_absolute": 0,
    "backtracks": 4,
}
# What `tfrnet search` chose for it.
TUNED_FISHER: dict[str, Any] = {
    "step_guard": 0.075,
    "steps": 4,
    "guard_relative": 0.15,
    "drift_limit": 17,
}
# For the paper's Trade-off: cheaper than the default, but answers wrongly on purpose and loses
# what is near. It was the default: benchmarks/notebook/research.md.
DEEP: dict[str, Any] = {
    "step": "solve",
    "steps": 4,
    "step_margin": 10,
    "retain_stiffness": 100,
    "memory_rows": 32,
    "memory_stiffness": 1,
    "hold_guard": True,
    "guard_absolute": 0,
}
# The first to stop at a level: deeper than the default, and held by more of the retain data but by
# nothing that the model writes itself: benchmarks/notebook/calibrated.md.
CALIBRATED: dict[str, Any] = {
    "retain_examples": 240,
    "hold_guard": True,
    "drift_limit": 17,
    "level_quantile": 0.5,
    "use_wrong_answers": False,
    "request_rivals": False,
    "own_symbols": False,
    "every_digit": False,
    "siblings": 0,
    "untouched_siblings": False,
    "near_examples": None,
    "held_rivals": None,
}
# The default in about 0.6 of its time on a CPU: fewer examples are held in place, so that a little
# less is kept and forgotten: benchmarks/notebook/cost.md.
QUICK: dict[str, Any] = {
    "retain_examples": 8,
    "near_examples": 2,
    "siblings": 8,
    "held_rivals": 2,
}
# For much retain data with long answers: after every request up to 720 more retain examples are
# brought back, in about twice the time: benchmarks/notebook/repair.md.
THOROUGH: dict[str, Any] = {"repairs": 3}
