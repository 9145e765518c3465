"""The points that a search tries: spread over a method's grid, then next to the best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scipy.stats import qmc

from tfrnet.core.errors import InputError
from tfrnet.core.search_space import Point, SearchSpace
from tfrnet.core.settings import Settings
from tfrnet.method import METHODS, find_method

PRESET = "preset"


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


def settings_at(method: str, point: Point) -> Settings:
    """Return the settings that a point stands for."""
    config = find_method(method).config_class
    changes = {name: value for name, value in point.items() if name != PRESET}
    return config.from_dict({**config.presets()[point.get(PRESET, "default")], **changes})


def start_point(method: str) -> Point:
    """Return the point that a search of a method begins at."""
    space = search_space(method)
    defaults = {PRESET: "default", **find_method(method).config_class().to_dict()}
    return {name: defaults[name] for name in space.axes} | dict(space.start)


def spread(method: str, count: int) -> list[Point]:
    """Return the first `count` points of a sequence that fills the grid evenly, its start first."""
    axes = search_space(method).axes
    found = [start_point(method)]
    # Each coordinate of a Halton sequence runs through [0, 1) evenly.
    sequence = qmc.Halton(len(axes), scramble=False)
    sequence.fast_forward(1)  # the first is the corner
    total = _size(method)
    while len(found) < min(count, total):
        (row,) = sequence.random(1)
        pairs = zip(axes.items(), row, strict=True)
        point = {name: values[int(share * len(values))] for (name, values), share in pairs}
        if point not in found:
            found.append(point)
    return found[:count]


def neighbours(method: str, point: Point) -> Iterator[Point]:
    """Yield the points one step up or down from a point, setting by setting.

    A point of before may have values that are no longer in the grid.
    """
    for name, values in search_space(method).axes.items():
        if point[name] not in values:
            continue
        here = values.index(point[name])
        for place in (here + 1, here - 1):
            if 0 <= place < len(values):
                yield {**point, name: values[place]}


def next_point(method: str, tried: Sequence[Point]) -> Point | None:
    """Return the first untried neighbour of the best point that has one; the best come first."""
    for point in tried:
        for neighbour in neighbours(method, point):
            if neighbour not in tried:
                return neighbour
    return None


def edges(method: str, best: Point, tried: Sequence[Point]) -> list[str]:
    """Say which numbers of the best point are the lowest or highest that were tried.

    Kinds and `none` are no numbers: beyond them there is nothing to try.
    """
    found = []
    for name, values in search_space(method).axes.items():
        if best[name] not in values:
            continue
        places = [values.index(point[name]) for point in tried if point[name] in values]
        here = values.index(best[name])
        ends = {"lowest": (min(places), 0), "highest": (max(places), len(values) - 1)}
        for word, (end, last) in ends.items():
            if here == end and _is_number(best[name]):
                why = "the grid ends there, widen it" if here == last else "try more"
                found.append(f"{name}={best[name]} is the {word} tried ({why})")
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _size(method: str) -> int:
    size = 1
    for values in search_space(method).axes.values():
        size *= len(values)
    return size
