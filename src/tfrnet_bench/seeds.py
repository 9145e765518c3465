"""A number measured with several seeds, and how it is printed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from tfrnet.evaluation.metrics.intervals import Interval, t_interval

FAILED, NOT_RUN, UNDEFINED = "failed", "not run", "undefined"


@dataclass(frozen=True)
class Seeds:
    """A number by seed, None where it is undefined, with the seeds tried and those that failed.

    `mixed` says that the seeds were not all run with the same settings.
    """

    values: Mapping[int, float | None]
    tried: frozenset[int]
    failed: frozenset[int] = frozenset()
    mixed: bool = False

    @property
    def numbers(self) -> list[float]:
        """The defined numbers, in the order of their seeds."""
        found = (self.values[seed] for seed in sorted(self.values))
        return [value for value in found if value is not None]

    def mean(self) -> tuple[float, Interval | None]:
        """Return the mean and its 95 % Student's t interval."""
        return t_interval(self.numbers)

    def text(self, digits: int = 2) -> str:
        """Return `mean ± half-width`, and what is to be said against it."""
        if not self.numbers:
            return self.absence()
        mean, interval = self.mean()
        reach = f" ± {interval.high - mean:.{digits}f}" if interval else ""
        # Rounded first and a zero added: what is printed as zero has no sign.
        return f"{round(mean, digits) + 0.0:.{digits}f}{reach}{self.remark()}"

    def absence(self) -> str:
        """Return why there is no number."""
        if self.values:
            return UNDEFINED
        return FAILED if self.failed else NOT_RUN

    def remark(self) -> str:
        """Return how many seeds are in the mean, if not all, and whether their settings differ."""
        count, said = len(self.numbers), []
        if count < len(self.tried):
            said.append(f"n = {count} of {len(self.tried)}")
            said += [f"{len(self.failed)} failed"] if self.failed else []
        said += ["settings differ"] if self.mixed else []
        return f" [{', '.join(said)}]" if said else ""

    def minus(self, other: Seeds) -> Seeds:
        """Return the differences, seed by seed."""
        return combine([self, other], lambda pair: pair[0] - pair[1])


def combine(parts: Sequence[Seeds], how: Callable[[Sequence[float]], float] = fmean) -> Seeds:
    """Return one number for each seed that all parts have."""
    common = set.intersection(*(set(part.values) for part in parts))
    values: dict[int, float | None] = {}
    for seed in common:
        numbers = [value for part in parts if (value := part.values[seed]) is not None]
        values[seed] = how(numbers) if len(numbers) == len(parts) else None
    # If one part was never run, the failures of the others say nothing about the whole.
    never = any(part.absence() == NOT_RUN for part in parts)
    failed = frozenset[int]() if never else frozenset().union(*(part.failed for part in parts))
    tried = frozenset[int]().union(*(part.tried for part in parts))
    return Seeds(values, tried, failed, any(part.mixed for part in parts))


def count_text(parts: Sequence[Seeds]) -> str:
    """Return how many seeds there are, part by part where the parts differ."""
    counts = [len(part.numbers) for part in parts]
    return str(counts[0]) if len(set(counts)) == 1 else " / ".join(map(str, counts))
