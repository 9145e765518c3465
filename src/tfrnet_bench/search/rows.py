"""The file of finished trials: one line of JSON each."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError

Row = Mapping[str, Any]


def read_rows(results: Path) -> list[Row]:
    """Return the results in a file; a last line without an end is what a crash leaves."""
    text = results.read_text() if results.is_file() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [_read(line, f"{results}:{number}") for number, line in enumerate(lines, start=1)]


def _read(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{where} is not a trial ({error}); remove the line") from None
    if not isinstance(row, dict):
        raise InputError(f"{where} is not a trial; remove the line")
    return row


def cut_torn_line(results: Path) -> None:
    """Remove a last line without an end."""
    data = results.read_bytes() if results.is_file() else b""
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(results, whole)
