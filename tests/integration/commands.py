"""Commands run in this process, what comes of them, and a user's files."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tfrnet.cli.main import main

FEW = ["--set", "steps=1", "--set", "guard_examples=4", "--set", "retain_examples=6"]
# The default would leave a tiny model as it is: it knows nothing of what is to be forgotten.
DEEP = ["--preset", "deep"]
FAST = [*DEEP, *FEW]
SMALL = ["--requests", 3, "--request-size", 2, "--evaluated", 5]
NOWHERE = "./no-such-model"
TOFU = ["--tasks", "tofu,privacy", "--limit", 4]


class Result(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        assert len(self.out.splitlines()) == 1
        return json.loads(self.out)

    @property
    def unexpected(self) -> list[str]:
        """The lines on stderr besides warnings: so few data as in tests give some."""
        return [x for x in self.err.splitlines() if not x.startswith("tfrnet: warning: ")]

    @property
    def error(self) -> str:
        """The one line on stderr, besides warnings."""
        (line,) = self.unexpected
        assert line.startswith("tfrnet: error: ")
        return line.removeprefix("tfrnet: error: ")


Tfrnet = Callable[..., Result]
Refused = Callable[..., str]


def run_main(arguments: tuple[object, ...]) -> int:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as caught:
        patch.setattr(sys, "argv", ["tfrnet", *map(str, arguments)])
        main()
    return int(caught.value.code or 0)


class Files(NamedTuple):
    """A user's files."""

    model: Path
    retain: Path
    stream: Path
    request: Path
    close_guard: Path  # the examples of the requests with a word more
    state: Path  # two accepted requests; a copy for each test

    def opening(self, state: Path | None = None) -> list[object]:
        """The options that `forget` and `run` need."""
        return [
            *("--model", self.model, "--retain", self.retain, "--device", "cpu"),
            *("--state", state or self.state),
        ]


def write_lines(path: Path, values: list[Any]) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def evaluated(data: Path, model: Path, *more: object) -> list[object]:
    """Return the arguments of an evaluation."""
    return ["eval", "--data-dir", data, "--model", model, "--device", "cpu", *more]
