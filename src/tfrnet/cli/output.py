"""Output of commands: text or JSON on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tfrnet.cli.progress import PlainLines, Steps, duration, which_pass
from tfrnet.core.outcome import verdict
from tfrnet.core.stage import passes_heard
from tfrnet.core.text import printable
from tfrnet.distributed.environment import launched_rank
from tfrnet.masking.strength import MaskStrength

if TYPE_CHECKING:
    from rich.table import Table

    from tfrnet.core.outcome import Outcome
    from tfrnet.state.check import Check


class Output:
    """Where a subcommand writes to."""

    def __init__(self, as_json: bool) -> None:
        # Of several processes only the first prints.
        quiet = launched_rank() > 0
        self.as_json = as_json and not quiet
        self.text = Console(highlight=False, soft_wrap=True, quiet=quiet)
        self.notes = Console(stderr=True, highlight=False, soft_wrap=True, quiet=quiet)
        # When there was last a line about progress, or when the command began.
        self._last_line = time.monotonic()

    @property
    def is_terminal(self) -> bool:
        """Whether a person watches stdout."""
        return self.text.is_terminal and not self.as_json

    def say(self, line: str) -> None:
        """Print a line for a person; what would not show as what it is, is escaped.

        It is there at once, also for a program that reads along.
        """
        if not self.as_json:
            self.text.print(printable(line), markup=False)
            self.text.file.flush()

    def note(self, line: str) -> None:
        """Print a remark on stderr."""
        self.notes.print(printable(line), markup=False)

    def warn(self, line: str) -> None:
        """Print a warning on stderr."""
        self.note(f"tfrnet: warning: {line}")

    def table(self, table: Table) -> None:
        """Print a table for a person."""
        if not self.as_json:
            self.text.print(table)

    def result(self, schema: str, values: dict[str, Any]) -> None:
        """Print the result for a program."""
        if self.as_json:
            sys.stdout.write(json.dumps({"schema": f"tfrnet.{schema}/1"} | values) + "\n")

    def checks(self, schema: str, about: dict[str, Any], checks: Sequence[Check]) -> None:
        """Print what was checked, and whether it held."""
        for check in checks:
            mark = "ok    " if check.passed else "FAILED"
            self.say(f"{mark} {check.name}{': ' if check.detail else ''}{check.detail}")
        passed = all(check.passed for check in checks)
        self.result(schema, about | {"passed": passed, "checks": [vars(each) for each in checks]})

    def _display(self) -> Console:
        """Return the console for progress bars: the one that lines are printed on, if a terminal.

        On one console rich keeps lines and bars apart; on two they would overwrite each other.
        """
        return self.text if self.is_terminal else self.notes

    @contextmanager
    def progress(
        self, total: int, unit: str, names: Sequence[str] = (), took: Sequence[float] = ()
    ) -> Iterator[Steps]:
        """Show how far a command is: a bar on a terminal, plain lines in a pipe.

        With `names`, `unit` is one thing, as in: request 2 of 5 (ticket-2). `took` is how many
        seconds such things took before.
        """
        steps = Steps(total, unit, names, took=took)
        with passes_heard(steps.passing):
            if self._display().is_terminal:
                with self._bar(steps):
                    yield steps
                return
            with self._plain_lines(lambda: f"{steps.where()}; {steps.times()}") as lines:
                steps.changed = lines.changed if lines else steps.changed
                yield steps

    @contextmanager
    def _bar(self, steps: Steps) -> Iterator[None]:
        """Show a bar whose text is true whenever it is drawn, also while nothing changes."""
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task
        from rich.text import Text

        class Place(ProgressColumn):
            def render(self, task: Task) -> Text:
                return Text(printable(f"{steps.where()}; {steps.times()}"))

        columns = (SpinnerColumn(), BarColumn(bar_width=16), Place())
        with Progress(*columns, console=self._display(), transient=True) as bar:
            task = bar.add_task("", total=steps.total)
            steps.changed = lambda: bar.update(task, completed=steps.done)
            yield

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner on a terminal, and now and then a line in a pipe."""
        began, now = time.monotonic(), what

        def heard(number: int, passes: int) -> None:
            nonlocal now
            now = what + which_pass(number, passes)
            if spinner:
                spinner.update(now)

        spinner = self._display().status(what) if self._display().is_terminal else None
        with (
            passes_heard(heard),
            spinner
            or self._plain_lines(lambda: f"{now}; {duration(time.monotonic() - began)} so far"),
        ):
            yield

    @contextmanager
    def _plain_lines(self, line: Callable[[], str]) -> Iterator[PlainLines | None]:
        if self.notes.quiet or os.environ.get("TFRNET_QUIET"):
            yield None
            return
        lines = PlainLines(self.note, line, self._last_line)
        try:
            with lines:
                # What came before may have been long and without a line.
                lines.changed()
                yield lines
        finally:
            self._last_line = lines.last


def outcome_line(outcome: Outcome) -> str:
    """Return a request's outcome in one line."""
    losses = (
        f"forget loss {outcome.forget_loss_before:.2f} -> {outcome.forget_loss_after:.2f}, "
        f"guard loss {outcome.guard_loss_before:.3f} -> {outcome.guard_loss_after:.3f}"
    )
    if not outcome.accepted:
        return f"{outcome.id}: rejected, nothing changed ({outcome.reason}); {losses}"
    word = verdict(outcome.to_dict())
    # Accepted, but short of what was aimed at.
    note = f" ({outcome.reason})" if outcome.reason else ""
    strength = MaskStrength.recorded(outcome.mask)
    if strength is None:
        return (
            f"{outcome.id}: {word}, {losses}, {outcome.seconds['total']:.1f} s, "
            f"peak memory {outcome.memory['peak'] / 1e9:.2f} GB{note}"
        )
    if not outcome.selected and not outcome.recovered:
        return f"{outcome.id}: {word}, without a change{note}; {losses}"
    return (
        f"{outcome.id}: {word}, {losses}, mask {strength.change()}, "
        f"{outcome.seconds['total']:.1f} s{note}"
    )


def short_record(record: Mapping[str, Any], full: bool) -> dict[str, Any]:
    """Return a request's record for a program, without its long list unless that is asked for."""
    return {name: value for name, value in record.items() if full or name != "top_channels"}


def ranges(numbers: list[int]) -> str:
    """Return 0, 3 to 7 for [0, 3, 4, 5, 6, 7]."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]} to {g[-1]}" for g in groups)
