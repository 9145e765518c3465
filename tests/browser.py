"""A real browser for tests. Where one is asked for, they fail without it and are not skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

# Set by continuous integration.
VARIABLE = "TFRNET_NEEDS_BROWSER"


def needed_playwright() -> Any:
    """Return playwright; without it, or without Chromium, the file that asks is skipped."""
    if not os.environ.get(VARIABLE):
        if shutil.which("chromium") is None:
            pytest.skip("there is no chromium on this machine", allow_module_level=True)
        pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    return import_module("playwright.sync_api")


@contextmanager
def open_browser(sync_api: Any) -> Iterator[Any]:
    """Start Chromium: the distribution's, or where there is none playwright's own."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        yield browser
        browser.close()
