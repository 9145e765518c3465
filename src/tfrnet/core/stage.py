"""Where work on a request stands, in words, and as numbers where there are any."""

from __future__ import annotations

from collections.abc import Callable

# Is told what is being done now: a text, or a `Stage`.
Report = Callable[[str], None]


class Stage(str):
    """A text that knows which step it is of how many at most."""

    step: int
    steps: int

    def __new__(cls, text: str, step: int, steps: int) -> Stage:
        """Return a stage whose text begins with the step."""
        stage = super().__new__(cls, f"step {step} of at most {steps}: {text}")
        stage.step, stage.steps = step, steps
        return stage


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
