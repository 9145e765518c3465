"""Where a browser is asked for, the tests that need one fail without it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from tests.browser import VARIABLE, needed_playwright, open_browser

ROOT = Path(__file__).parents[1]


@pytest.fixture(params=["playwright", "chromium"])
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "playwright":
        monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    else:
        monkeypatch.setattr(shutil, "which", lambda name: None)
        monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", "/nonexistent")
    return request.param


def test_without_it_they_are_skipped(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(pytest.skip.Exception):
        needed_playwright()


def test_where_it_is_asked_for_they_fail(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    lost = pytest.raises(Exception, match=r"playwright\.sync_api|Executable doesn't exist")
    with lost, open_browser(needed_playwright()):
        pass


def test_no_test_finds_its_browser_another_way() -> None:
    found = [
        path.name
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path != Path(__file__) and re.search("importorskip.*playwright", path.read_text())
    ]
    assert found == []


def test_continuous_integration_brings_a_browser_and_asks_for_it() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]
    (step,) = [each for each in jobs["tests"]["steps"] if VARIABLE in each.get("run", "")]
    assert re.search("playwright install .*chromium", step["run"])
    assert jobs["tests"]["steps"].index(step) < len(jobs["tests"]["steps"]) - 1
    local = (ROOT / ".ci" / "run").read_text()
    assert re.search("apt-get install .*chromium", local)
    assert f"export {VARIABLE}=1" in local
