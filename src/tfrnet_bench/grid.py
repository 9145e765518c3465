"""The grid of the hyper-parameter search: twelve points for every method.

Three strengths of a step (the sources' learning rate, a fifth of it and five times it), one and two
times the sources' number of steps, and two values of one setting that is the method's own. TFR-Net
has no learning rate; the rise of the guard loss that a step may use up takes its place. Its grid
is about the Fisher step; benchmarks/notebook/research.md tells how today's default was found.
"""

from __future__ import annotations

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import Point, SearchSpace
from tfrnet.method import METHODS, find_method

# Factors on strength and steps, and which of the method's own values; the second half of the grid
# has the other one.
_FIRST_HALF = ((1.0, 1, 0), (5.0, 1, 1), (1.0, 2, 1), (5.0, 2, 0), (0.2, 2, 1), (0.2, 1, 0))


def searchable() -> tuple[list[str], list[str]]:
    """Return the methods that declare a search space, and those that do not."""
    spaces = {name: method.search_space for name, method in METHODS.all().items()}
    return [n for n in spaces if spaces[n]], [n for n in spaces if not spaces[n]]


def search_space(method: str) -> SearchSpace:
    """Return the search space of a method."""
    space = find_method(method).search_space
    if space is None:
        raise InputError(f"method {method} declares no search_space, so it cannot be searched")
    return space


def grid(method: str) -> list[Point]:
    """Return a method's points, its defaults first.

    The first six hold every strength with both numbers of steps and both values of the method's
    own setting, so that half the budget still covers the grid.
    """
    space = search_space(method)
    default = find_method(method).config_class.from_dict(space.start).to_dict()
    strength = space.strength
    return [
        {
            strength: float(f"{factor * default[strength]:.6g}"),
            "steps": times * default["steps"],
            **space.own[own if half == 0 else 1 - own],
        }
        for half in (0, 1)
        for factor, times, own in _FIRST_HALF
    ]
