"""How far a command is, and how long it will still take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime

from tfrnet.core.stage import Stage

# A reader of a pipe sees a line when something changes, though not too many of them, and one now
# and then when nothing does: at least every ten seconds, also on a machine that is slow to print.
_SOONEST, _LATEST = 5.0, 8.0


class Steps:
    """Counts what is done, and estimates the time left from what has been done so far.

    `names` are those of the things to do, in order, if they have any; `took` is how many seconds
    things of this kind took before.
    """

    def __init__(
        self,
        total: int,
        unit: str,
        names: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
        took: Sequence[float] = (),
    ) -> None:
        self.total, self.done = total, 0
        self._unit, self._names, self._clock = unit, names, clock
        self._stage = self._pass = ""
        # How long what is done took, without what was skipped.
        self._took = list(took)
        self._began = self._part_began = clock()
        # When the first step of a part began, and the one that it is in now.
        self._first_step = self._this_step = 0.0
        self._step = 0
        # Of passes that belong together: which one it is, of how many, and when both began.
        self._number = self._passes = 0
        self._first_pass = self._this_pass = 0.0
        self.changed: Callable[[], None] = lambda: None

    def stage(self, what: str) -> None:
        """Say what is being done now."""
        self._stage, self._pass, self._number = what, "", 0
        if isinstance(what, Stage) and what.step != self._step:
            self._this_step = self._clock()
            if not 0 < self._step < what.step:  # they begin, perhaps once more
                self._first_step = self._this_step
            self._step = what.step
        self.changed()

    def passing(self, number: int, passes: int) -> None:
        """Say which pass of the stage begins; this alone is not worth a line."""
        self._pass = which_pass(number, passes)
        self._this_pass = self._clock()
        if number == 1 or passes != self._passes:
            self._first_pass = self._this_pass
        self._number, self._passes = number, passes

    def advance(self, count: int = 1) -> None:
        """Count more as done."""
        now = self._clock()
        self._took += [(now - self._part_began) / max(count, 1)] * count
        self._next(count, now)

    def skip(self) -> None:
        """Count one as done that took no work."""
        self._next(1, self._clock())

    def _next(self, count: int, now: float) -> None:
        self.done += count
        self._part_began, self._step, self._stage, self._pass = now, 0, "", ""
        self._number = 0
        self.changed()

    def time_left(self) -> float | None:
        """Return the seconds still to go, or None while there is nothing to judge by."""
        left = self.total - self.done
        if self._unplanned():
            return None
        if left <= 0:
            return 0.0
        spent = self._clock() - self._part_began
        each = sum(self._took) / len(self._took) if self._took else self._whole_part(spent)
        return None if each is None else max(0.0, each - spent) + (left - 1) * each

    def _whole_part(self, spent: float) -> float | None:
        """Return how long the first part will take in all, by the steps that it has done."""
        if not isinstance(self._stage, Stage) or self._stage.step < 2:
            return None
        per_step = (self._this_step - self._first_step) / (self._stage.step - 1)
        this_one = max(0.0, per_step - (self._clock() - self._this_step))
        return spent + this_one + per_step * (self._stage.steps - self._stage.step)

    def _passes_left(self) -> float | None:
        """Return the seconds that the passes which belong together still take, by those done."""
        if self._number < 2:
            return None
        each = (self._this_pass - self._first_pass) / (self._number - 1)
        this_one = max(0.0, each - (self._clock() - self._this_pass))
        return this_one + each * (self._passes - self._number)

    def _unplanned(self) -> bool:
        """Tell whether there is more to do than was counted beforehand, as with a stream."""
        return not self._names and (self.done > self.total or not self.total)

    def where(self) -> str:
        """Return how far it is, in words."""
        if self._unplanned():
            place = f"{self.done} {self._unit}"
        elif not self._names:
            place = f"{self.done} of {self.total} {self._unit}"
        elif self.done >= self.total:
            place = f"all {self.total} {self._unit}s"
        else:
            place = f"{self._unit} {self.done + 1} of {self.total} ({self._names[self.done]})"
        return f"{place}: {self._stage}{self._pass}" if self._stage else place

    def times(self) -> str:
        """Return the time spent and left, in words."""
        left = self.time_left()
        spent = f"{duration(self._clock() - self._began)} so far"
        if left is None and (passes := self._passes_left()):
            return f"{spent}, these passes about {duration(passes)} more"
        if left is None or self.done >= self.total:
            return spent
        if not left:
            return f"{spent}, longer than thought"
        # Without a whole part to go by, all the steps that there may be are counted.
        most = "" if self._took else "at most "
        return f"{spent}, {most}about {duration(left)} left"


class PlainLines:
    """Prints where a command is while it works: when that changes, and every few seconds.

    `last` is when its last line was printed, or when it began.
    """

    def __init__(self, say: Callable[[str], None], line: Callable[[], str], last: float) -> None:
        self._say, self._line = say, line
        self.last = last
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._go_on, name="progress", daemon=True)

    def __enter__(self) -> PlainLines:
        self._beat.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._beat.join()

    def changed(self) -> None:
        """Print a line, unless the last one is quite new."""
        self._print_if_older(_SOONEST)

    def _go_on(self) -> None:
        while not self._over.wait(max(0.1, self.last + _LATEST - time.monotonic())):
            self._print_if_older(_LATEST)

    def _print_if_older(self, age: float) -> None:
        with self._lock:
            if time.monotonic() - self.last < age:
                return
            self.last = time.monotonic()
            self._say(f"{datetime.now():%H:%M:%S} {self._line()}")


def which_pass(number: int, passes: int) -> str:
    """Return which pass of how many is on, to be added to what they are for."""
    return f", pass {number} of {passes}" if passes > 1 else ""


def duration(seconds: float) -> str:
    """Return 0:07, 12:30 or 2:03:09."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
