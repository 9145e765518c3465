"""The declared grid of the hyper-parameter search: twelve points for every method, no more for any.

Three strengths of a step (the sources' learning rate, a fifth of it and five times it), one and two
times the sources' number of steps, and two values of one setting that is the method's own. TFR-Net
has no learning rate; the rise of the guard loss that a step may use up takes its place. Its grid
is about the Fisher step; the default that came after it was chosen in docs/research.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfrnet.config import FISHER
from tfrnet.errors import InputError
from tfrnet.unlearner import find_method

Point = Mapping[str, Any]

# Factors on strength and steps, and which of the method's own values; the second half of the grid
# has the other one.
_FIRST_HALF = ((1.0, 1, 0), (5.0, 1, 1), (1.0, 2, 1), (5.0, 2, 0), (0.2, 2, 1), (0.2, 1, 0))
# The first value of each is the source's default.
_OWN: dict[str, Sequence[Point]] = {
    "tfr": ({"guard_relative": 0.05}, {"guard_relative": 0.15}),
    "ga": ({"forget_ceiling": 6.0}, {"forget_ceiling": 3.0}),
    "graddiff": ({"forget_weight": 1.0}, {"forget_weight": 0.3}),
    "npo": ({"beta": 0.1}, {"beta": 1.0}),
    "simnpo": ({"beta": 4.5, "forget_weight": 0.125}, {"beta": 0.5, "forget_weight": 1.0}),
    "rmu": ({"retain_weight": 1200.0}, {"retain_weight": 1.0}),
    "asu": ({"forget_weight": 0.1}, {"forget_weight": 1.0}),
    "llm-eraser": ({"forget_weight": 0.01}, {"forget_weight": 0.3}),
    "o3": ({"gate": "tofu"}, {"gate": "soft"}),
}


def searched_from(method: str) -> Point:
    """Return what differs from a method's defaults at every point."""
    return FISHER if method == "tfr" else {}


def grid(method: str) -> list[Point]:
    """Return a method's points, its defaults first.

    The first six hold every strength with both numbers of steps and both values of the method's
    own setting, so that half the budget still covers the grid.
    """
    if method not in _OWN:
        raise InputError(f"there is no grid for method {method!r}")
    default = find_method(method).config.from_dict(searched_from(method)).to_dict()
    strength = "step_guard" if method == "tfr" else "learning_rate"
    return [
        {
            strength: float(f"{factor * default[strength]:.6g}"),
            "steps": times * default["steps"],
            **_OWN[method][own if half == 0 else 1 - own],
        }
        for half in (0, 1)
        for factor, times, own in _FIRST_HALF
    ]
