"""The documents: links lead somewhere, and the picture of the rooms is that of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_layers import LAYERS
from tfrnet.cli.app import COMMANDS, OTHERS, group_of
from tools.command_list import command_list

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
_SKIPPED = {"_build", ".git", ".venv", "node_modules", "fixtures", "build", "dist"}
PAGES = sorted(
    path.relative_to(ROOT)
    for path in ROOT.rglob("*.md")
    if not _SKIPPED & set(path.relative_to(ROOT).parts)
)
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_lead_somewhere(page):
    folder = (ROOT / page).parent
    assert [link for link in links(ROOT / page) if not leads_somewhere(folder, link)] == []


def test_a_link_that_leads_nowhere_is_found():
    assert not leads_somewhere(ROOT, "docs/missing.md")
    assert not leads_somewhere(ROOT, "README.md#missing")
    assert leads_somewhere(ROOT, "README.md#install")


def test_every_page_can_be_reached_from_the_readme():
    reached, todo = set(), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page)]
        todo += [page.parent / f"{name}.md" for name in in_toctree(page)]
    assert [str(page) for page in (ROOT / "docs").glob("*.md") if page not in reached] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_method_that_contributors_see_is_that_of_the_example_package():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    shown = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)[1].splitlines()
    example = (ROOT / "tests/example_package/tfrnet_example/flatten.py").read_text()
    # But for the signature, which has types there.
    assert [line for line in shown if "def " not in line and line not in example] == []


def test_the_picture_shows_the_rooms_in_their_layers():
    shown = re.findall(r"^ .*\|  (\w+) {2,}\w", ARCHITECTURE, flags=re.MULTILINE)[::-1]
    layers = [layer.removeprefix("tfrnet.") for layer in LAYERS]
    assert shown == [layer for layer in layers if layer in shown]
    folders = {path.parent.name for path in (SOURCE / "tfrnet").glob("*/__init__.py")}
    assert {*folders, "unlearner", "session", "tfrnet_bench"} <= set(shown)


def test_the_list_of_commands_is_that_of_the_code():
    assert command_list() in (ROOT / "docs" / "commands.md").read_text()
    # Each of ours has a group of its own.
    assert OTHERS not in {group_of(name) for name in COMMANDS.names()}


def links(page: Path) -> list[str]:
    """Return the page's links to files and headings of this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", page.read_text()))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def in_toctree(page: Path) -> list[str]:
    """Return the pages that the site's navigation lists."""
    blocks = re.findall(r"^```{toctree}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if re.match(r"[\w-]+$", line)]


def leads_somewhere(folder: Path, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = folder / name
    if not target.exists():
        return False
    return not heading or target.suffix != ".md" or heading in headings(target)


def headings(page: Path) -> set[str]:
    """Return the anchors that GitHub gives a page's headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
