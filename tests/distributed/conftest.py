"""A launcher of teams, and what they run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import tiny
from tests.distributed.launcher import REQUESTS, Launcher


# For the session: a worker that takes tests of other modules in between keeps it.
@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    launcher.close()


@pytest.fixture(scope="module")
def command(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """`tfrnet run` but for the state; five examples in batches of two are three passes."""
    folder = tmp_path_factory.mktemp("data")
    retain, stream = folder / "retain.jsonl", folder / "stream.jsonl"
    retain.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in tiny.examples(12)))
    requests = tiny.requests(REQUESTS, size=5)
    stream.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in requests))
    return [
        *("run", "--stream", stream, "--retain", retain, "--model", tiny_folder),
        *("--device", "cpu", "--batch-size", "2", "--set", "guard_examples=5"),
        *("--set=retain_examples=5", "--set", "guard_relative=0.05", "--set=steps=2"),
    ]
