"""The documents: links lead somewhere, and the picture of the rooms is that of the code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
_SKIPPED = {".git", ".venv", "node_modules", "fixtures", "build", "dist"}
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
    assert [str(page) for page in (ROOT / "docs").glob("*.md") if page not in reached] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_rooms_are_those_of_the_code():
    names = {path.stem for path in (SOURCE / "tfrnet").iterdir() if path.name[0] not in "_."}
    assert set(layers()) == {*names - {"py"}, "tfrnet_bench"}
    for room in layers():
        assert re.search(rf"^    \|.*\b{room}\b", ARCHITECTURE, flags=re.MULTILINE), room


def test_a_room_imports_only_rooms_below_it():
    rank = layers()
    upwards = {
        f"{path.relative_to(SOURCE)} imports {target}"
        for path in SOURCE.rglob("*.py")
        if (own := room_of(path)) in rank
        for target in imported_rooms(path)
        if target in rank and target != own and rank[target] >= rank[own]
    }
    assert upwards == set()


def links(page: Path) -> list[str]:
    """Return the page's links to files and headings of this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", _CODE.sub("", page.read_text()))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


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


def layers() -> dict[str, int]:
    """Return the rank of every room, as the table of the architecture has it."""
    rows = re.findall(r"^\| (\d+) \| (.*?) \|", ARCHITECTURE, flags=re.MULTILINE)
    return {room: int(rank) for rank, rooms in rows for room in re.findall(r"`(\w+)`", rooms)}


def room_of(path: Path) -> str:
    package, *inside = path.relative_to(SOURCE).with_suffix("").parts
    return package if package != "tfrnet" else inside[0]


def imported_rooms(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
            if node.module == "tfrnet":
                names = [f"tfrnet.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, *inside = name.split(".")
            if package == "tfrnet" and inside:
                yield inside[0]
            elif package == "tfrnet_bench":
                yield package
