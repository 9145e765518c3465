"""The versions that a result depends on."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from tfrnet.core import __version__


def versions(*more: str) -> dict[str, str]:
    """Return the versions that a result depends on, and those of further installed packages."""
    found = {name: version(name) for name in ("torch", "transformers", "safetensors")}
    for name in more:
        # A missing version must not lose a finished result.
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return {"tfrnet": __version__, "python": platform.python_version()} | found
