"""Output of commands: text or JSON on stdout, progress and notes on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from tfrnet.core.text import printable
from tfrnet.distributed.environment import launched_rank

if TYPE_CHECKING:
    from rich.progress import Progress
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

    def say(self, line: str) -> None:
        """Print a line for a person; what would not show as what it is, is escaped."""
        if not self.as_json:
            self.text.print(printable(line), markup=False)

    def note(self, line: str) -> None:
        """Print a remark on stderr."""
        self.notes.print(printable(line), markup=False)

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
        return self.text if self.text.is_terminal and not self.as_json else self.notes

    @contextmanager
    def progress(self, total: int, unit: str) -> Iterator[Steps]:
        """Show a bar on a terminal, and nothing in a pipe."""
        if not self._display().is_terminal:
            yield Steps(None)
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        with Progress(
            SpinnerColumn(),
            TextColumn(unit),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=self._display(),
            transient=True,
        ) as bar:
            bar.add_task("", total=total)
            yield Steps(bar)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show a spinner on a terminal."""
        if not self._display().is_terminal:
            yield
            return
        with self._display().status(what):
            yield


class Steps:
    """A running progress bar, or nothing."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar

    def stage(self, what: str) -> None:
        """Show what is being done now."""
        if self._bar:
            self._bar.update(self._bar.task_ids[0], description=printable(what))

    def advance(self, count: int = 1) -> None:
        """Count more as done."""
        if self._bar:
            self._bar.advance(self._bar.task_ids[0], count)


def outcome_line(outcome: Outcome) -> str:
    """Return a request's outcome in one line."""
    losses = (
        f"forget loss {outcome.forget_loss_before:.2f} -> {outcome.forget_loss_after:.2f}, "
        f"guard loss {outcome.guard_loss_before:.3f} -> {outcome.guard_loss_after:.3f}"
    )
    if not outcome.accepted:
        return f"{outcome.id}: rejected, nothing changed ({outcome.reason}); {losses}"
    if outcome.selected is None:  # no mask
        return (
            f"{outcome.id}: accepted, {losses}, {outcome.seconds['total']:.1f} s, "
            f"peak memory {outcome.memory['peak'] / 1e9:.2f} GB"
        )
    assert outcome.capacity is not None
    if not outcome.selected and not outcome.recovered:
        return f"{outcome.id}: accepted without a change ({outcome.reason}); {losses}"
    return (
        f"{outcome.id}: accepted, {losses}, suppressed {outcome.selected}, "
        f"recovered {outcome.recovered}, capacity {100 * outcome.capacity:.2f} %, "
        f"{outcome.seconds['total']:.1f} s"
    )


def holdout_words(values: Mapping[str, Any]) -> str:
    """Return in a few words what a request did to the hold-out data, and all before it."""
    from tfrnet.audit.change import Change

    change = Change.from_dict(values)
    return (
        f"loss {change.loss_before:.3f} -> {change.loss_after:.3f} ({change.words}; "
        f"{change.loss_untouched:.3f} untouched, {change.examples} examples)"
    )


def ranges(numbers: list[int]) -> str:
    """Return 0, 3 to 7 for [0, 3, 4, 5, 6, 7]."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]} to {g[-1]}" for g in groups)
