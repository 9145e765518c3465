"""The pictures of the documents: small, shown, true, and not in the wheel."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

from tools.pictures import LARGEST, PICTURES, draw_terminal

ROOT = Path(__file__).parents[1]
FILES = sorted(PICTURES.iterdir())


def test_they_are_small_and_each_is_shown() -> None:
    assert {path.name for path in FILES} == {
        *("dashboard.png", "facts.png", "mask.svg"),
        *("report.png", "terminal.svg", "trajectory.png"),
    }
    assert all(path.stat().st_size <= LARGEST for path in FILES)
    assert sum(path.stat().st_size for path in FILES) < 500_000
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {Path(name).name for page in pages for name in _shown(page)}
    assert shown == {path.name for path in FILES}


def _shown(page: Path) -> list[str]:
    return re.findall(r"!\[[^\]]+\]\(([^)\s]+)\)", page.read_text())


def test_the_terminal_shows_the_figures_of_the_readme() -> None:
    told = re.findall(
        r"^    (?:forgotten|kept, .*?)  +(.*)$", (ROOT / "README.md").read_text(), re.M
    )
    assert len(told) == 3
    text = _text(PICTURES / "terminal.svg")
    for row in told:
        before, after, change = re.fullmatch(r"(\S+) % +(\S+) % +(\S+)", row).groups()
        assert re.search(rf"{before} % │ +{after} % +│ +{re.escape(change)} ", text), row


def test_what_was_printed_is_drawn_without_the_network(tmp_path: Path) -> None:
    draw_terminal("tfrnet status", "state  here\n<b> & 100 %\n", tmp_path / "drawn.svg")
    text = _text(tmp_path / "drawn.svg")
    assert all(line in text for line in ("$ tfrnet status", "state  here", "<b> & 100 %"))
    assert not re.findall(r"url\(\W?http", (tmp_path / "drawn.svg").read_text())


def _text(path: Path) -> str:
    return unescape(re.sub(r"<[^>]+>", "", path.read_text())).replace("\xa0", " ")
