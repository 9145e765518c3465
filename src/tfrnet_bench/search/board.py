"""Which trial comes next, given those that are done and those that run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from tfrnet.core.search_space import Point
from tfrnet_bench.constants import UNTOUCHED
from tfrnet_bench.search.choice import Objective, by_point, score
from tfrnet_bench.search.grid import next_point, spread
from tfrnet_bench.search.plan import Place, SearchPlan
from tfrnet_bench.search.rows import Row
from tfrnet_bench.search.trial import Trial


class Board:
    """The state of a search; it follows from the rows alone, so that a search can go on."""

    def __init__(self, plan: SearchPlan, rows: Sequence[Row], objective: Objective) -> None:
        self.plan, self.objective = plan, objective
        self._rows = by_point(rows, plan)

    def add(self, row: Row) -> None:
        """Take in a finished trial."""
        self._rows[row["method"]][row["point"]][row["stream"], row["seed"]] = row

    def untouched(self, stream: str, seed: int) -> Row | None:
        """Return what was measured before the first request, if it was."""
        return self._rows[UNTOUCHED][0].get((stream, seed))

    def waiting(self, running: Collection[str]) -> list[Trial]:
        """Return the trials that may start, neither done nor running, the first ones first."""
        found = [t for t in self._of(UNTOUCHED, 0, {}) if t.key not in running]
        ready = [place for place in self.plan.places if self.untouched(*place)]
        for method in self.plan.methods:
            for number, point in self.points(method).items():
                found += [
                    trial
                    for trial in self._of(method, number, point)
                    if trial.key not in running and (trial.stream, trial.seed) in ready
                ]
        # Ended early, all methods have got equally far.
        return sorted(found, key=lambda trial: (trial.method != UNTOUCHED, trial.point))

    def points(self, method: str) -> dict[int, Point]:
        """Return the points known so far, by number: those tried, those spread, and the next.

        The next is known only when all before it are whole.
        """
        rows, plan = self._rows[method], self.plan
        points: dict[int, Point] = {
            number: dict(next(iter(found.values()))["settings"]) for number, found in rows.items()
        }
        for point in spread(method, plan.spread_trials):
            if len(points) < plan.trials and point not in points.values():
                points[_first_free(points)] = point
        is_whole = all(len(rows.get(number, {})) == len(plan.places) for number in points)
        if len(points) < plan.trials and is_whole:
            best = sorted(points, key=lambda number: -score(rows[number], self.objective))
            tried = [points[number] for number in best]
            if found := next_point(method, tried):
                points[_first_free(points)] = found
        return points

    def expected_seconds(self, trial: Trial) -> float:
        """Return how long a trial may take: as its point did elsewhere, or as its method did."""
        points = self._rows[trial.method]
        same = list(points.get(trial.point, {}).values())
        rows = same or [row for point in points.values() for row in point.values()]
        return fmean(row["seconds"] for row in rows) if rows else 0.0

    def _of(self, method: str, number: int, point: Point) -> Iterator[Trial]:
        done: Collection[Place] = self._rows[method].get(number, {})
        for stream, seed in self.plan.places:
            if (stream, seed) not in done:
                yield Trial(method, number, point, stream, seed)


def _first_free(points: Collection[int]) -> int:
    return next(number for number in range(len(points) + 1) if number not in points)
