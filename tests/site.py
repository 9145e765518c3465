"""The site of the documents, built for tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def build_site(out: Path) -> Path:
    """Build it as `make docs` does; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]
    done = subprocess.run([*command, DOCS, out], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return out
