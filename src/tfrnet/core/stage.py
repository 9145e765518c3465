"""Where work on a request stands, in words, and as numbers where there are any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

# Is told what is being done now: a text, or a `Stage`.
Report = Callable[[str], None]
# Is told which pass of the model begins, of how many that belong together.
Heard = Callable[[int, int], None]

T = TypeVar("T")

# Not handed on from function to function: everything that runs the model would have to know it.
_heard: ContextVar[Heard | None] = ContextVar("heard", default=None)


class Stage(str):
    """A text that knows which step it is of how many at most."""

    step: int
    steps: int

    def __new__(cls, text: str, step: int, steps: int) -> Stage:
        """Return a stage whose text begins with the step."""
        stage = super().__new__(cls, f"step {step} of at most {steps}: {text}")
        stage.step, stage.steps = step, steps
        return stage


@contextmanager
def passes_heard(heard: Heard) -> Iterator[None]:
    """Listen to the passes of the model in this block."""
    token = _heard.set(heard)
    try:
        yield
    finally:
        _heard.reset(token)


def told(passes: Sequence[T]) -> Iterator[T]:
    """Yield passes one after another, and tell of each when it begins."""
    heard = _heard.get()
    for number, each in enumerate(passes, 1):
        if heard:
            heard(number, len(passes))
        yield each


class StepReport:
    """Puts before each text in which step it is said, and which try it is of the step, and why."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._step = self._steps = 0
        self._again = ""

    def begin(self, step: int, steps: int) -> None:
        """Begin a step."""
        self._step, self._steps, self._again = step, steps, ""

    def again(self, number: int, why: str) -> None:
        """Begin another try of the step."""
        self._again = f"try {number}, because {why}: "

    def end(self) -> None:
        """End the last step."""
        self._step, self._again = 0, ""

    def __call__(self, text: str) -> None:
        """Say what is being done now."""
        text = f"{self._again}{text}"
        self._report(Stage(text, self._step, self._steps) if self._step else text)
