"""Commands whose standard streams are closed, or lack characters."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.commands import FAST, Files, run_main, write_lines

ID = "ticket-\U0001f600"


def ascii_stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")


def written(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode("ascii")


def test_an_id_that_the_terminal_cannot_show_is_escaped(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an error after the commit it made a request that was applied seem to have failed."""
    request = json.loads(files.request.read_text().splitlines()[0]) | {"id": ID}
    path = write_lines(tmp_path / "one.jsonl", [request])
    opening = files.opening(tmp_path / "state")
    for command in (
        ("forget", "--request", path, *opening, *FAST),
        ("history", "--state", tmp_path / "state"),
    ):
        with monkeypatch.context() as patch:
            out, err = ascii_stream(), ascii_stream()
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            assert run_main(command) in (0, 1)
        assert "ticket-\\U0001f600" in written(out)
        assert "unexpected" not in written(err)


def test_a_chat_without_standard_input_is_told_so() -> None:
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m tfrnet chat <&-"],
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "tfrnet: error: 'tfrnet chat' reads what you say from standard input, which is closed\n"
    )
