"""What the package's page on PyPI shows: the README, with links that work there, and addresses.

The address of the repository is that of the workflow that builds the release; a build elsewhere
has none, and shows the README as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)\s]+)\)")


class Page(MetadataHookInterface):
    """Fills in `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set what pyproject.toml leaves to the build."""
        home = _repository()
        text = (Path(self.root) / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": _linked(text, home)}
        metadata["urls"] = _addresses(home) if home else {}


def _repository() -> str | None:
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


def _addresses(home: str) -> dict[str, str]:
    return {
        "Source": home,
        "Documentation": f"{home}/blob/main/docs/index.md",
        "Changelog": f"{home}/blob/main/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }


def _linked(text: str, home: str | None) -> str:
    if home is None:
        return text

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({home}/{kind}/main/{match[3]})"

    return _RELATIVE.sub(absolute, text)
