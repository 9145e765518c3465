"""The site of the documents builds without a warning, and every link on it leads somewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import tfrnet
from tests.site import build_site
from tfrnet.cli.app import COMMANDS

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The links of a page and what can be linked to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.links += [found[name] for name in ("href", "src") if found.get(name)]
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


def test_every_link_leads_somewhere_and_nothing_comes_from_the_network(site: Path) -> None:
    pages = {path: Page(path) for path in site.glob("*.html")}
    assert len(pages) > 15
    broken = []
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = link.partition("#")
            target = path if not name else path.parent / unquote(name.partition("?")[0])
            if link.startswith(("http:", "https:", "mailto:", "data:")):
                continue
            known = target not in pages or not anchor or unquote(anchor) in pages[target].anchors
            if not target.exists() or not known:
                broken.append(f"{path.name}: {link}")
    assert broken == []
    loaded = [
        link for page in pages.values() for link in page.links if link.endswith((".js", ".css"))
    ]
    assert [link for link in loaded if link.startswith("http")] == []


def test_the_references_are_those_of_the_code(site: Path) -> None:
    commands = Page(site / "commands.html").anchors
    assert {f"tfrnet-{name}" for name in COMMANDS.names()} <= commands
    # A help text that was cut ends in dots.
    listed = re.findall(r"<li>.*?</li>", (site / "commands.html").read_text(), re.DOTALL)
    assert [item for item in listed if re.search(r"(…|\.\.\.)</p></li>$", item)] == []
    names = Page(site / "api.html").anchors
    hidden = {"__version__", "TFRConfig"}  # its fields are in `tfrnet settings`
    missing = [
        n for n in tfrnet.__all__ if n not in hidden and not any(a.endswith(f".{n}") for a in names)
    ]
    assert missing == []


def test_it_can_be_searched_offline(site: Path) -> None:
    index = (site / "searchindex.js").read_text()
    assert "tutorial" in index and "rollback" in index
