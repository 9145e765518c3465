"""One rule for the version: the code, the changelog's first entry and the tag say the same.

The version is written in `src/tfrnet/core/__init__.py`; pyproject.toml reads it there. The first
entry of CHANGELOG.md is `## VERSION (unreleased)`, and on the day of the release
`## VERSION (YYYY-MM-DD)`. The tag is `vVERSION`.
"""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path
from typing import NamedTuple

_ENTRY = re.compile(r"^## (.*)$", flags=re.MULTILINE)
_FORM = re.compile(r"(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?) \((unreleased|\d{4}-\d\d-\d\d)\)")


class Entry(NamedTuple):
    """A heading of the changelog."""

    version: str
    released: date | None


def entries(changelog: str) -> list[Entry]:
    """Return the changelog's entries, newest first; raise ValueError for one of another form."""
    found = []
    for heading in _ENTRY.findall(changelog):
        match = _FORM.fullmatch(heading)
        if match is None:
            raise ValueError(f"changelog: {heading!r} is not 'VERSION (unreleased or date)'")
        day = None if match[2] == "unreleased" else date.fromisoformat(match[2])
        found.append(Entry(match[1], day))
    return found


def version_of(root: Path) -> str:
    """Return the version that the code states."""
    text = (root / "src/tfrnet/core/__init__.py").read_text()
    (found,) = re.findall(r'^__version__ = "(.*)"$', text, flags=re.MULTILINE)
    return str(found)


def ready_for(tag: str, root: Path) -> None:
    """End the program with one line unless code and changelog are ready for this tag."""
    version, newest = version_of(root), entries((root / "CHANGELOG.md").read_text())[0]
    if tag != f"v{version}":
        sys.exit(f"the tag is {tag}, but the code says {version}")
    if newest.version != version:
        sys.exit(f"the code says {version}, but the changelog begins with {newest.version}")
    if newest.released is None:
        sys.exit(f"the changelog calls {version} unreleased; put the date there")
