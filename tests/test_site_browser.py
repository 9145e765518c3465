"""The site in a real browser, from the disk: on a phone and on a desk, and its search."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import needed_playwright, open_browser
from tests.site import build_site

sync_api = needed_playwright()
pytestmark = pytest.mark.slow
# What sticks out of the window, but for what can be scrolled by itself.
STICKING_OUT = """() => [...document.querySelectorAll("article *")]
    .filter(e => e.getBoundingClientRect().right > innerWidth + 1)
    .filter(e => !e.closest(".table-wrapper, pre"))
    .map(e => e.tagName + ": " + e.textContent.slice(0, 60))"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_site(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser(sync_api) as browser:
        yield browser


@pytest.mark.parametrize("width", [400, 1400])
def test_every_page_fits_the_window_and_shows_its_pictures(
    site: Path, browser: Any, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
    page.on("request", lambda r: r.url.startswith("http") and problems.append(r.url))
    pages = sorted(site.glob("*.html"))
    assert len(pages) > 25
    for path in pages:
        page.goto(path.as_uri())
        wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        problems += [f"{path.name} is {wider} px too wide"] * (wider > 0)
        problems += [f"{path.name}: {found}" for found in page.evaluate(STICKING_OUT)]
        sizes = page.eval_on_selector_all("article img", "all => all.map(i => i.naturalWidth)")
        problems += [f"{path.name}: a picture is missing"] * (0 in sizes)
    assert problems == []


@pytest.mark.parametrize(("width", "beside"), [(400, False), (1400, True)])
def test_pictures_of_the_first_page_can_be_made_out(
    site: Path, browser: Any, width: int, beside: bool
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((site / "index.html").as_uri())
    first, second = (picture.bounding_box() for picture in page.locator("table img").all())
    assert min(first["width"], second["width"]) > 300
    assert (abs(first["y"] - second["y"]) < 100) == beside


def test_the_search_finds_pages_without_the_network(site: Path, browser: Any) -> None:
    page = browser.new_page()
    page.goto((site / "search.html").as_uri() + "?q=rollback")
    page.locator(".search-summary", has_text="finished").wait_for()
    links = page.locator("#search-results li a").all()
    found = {Path(link.get_attribute("href").partition("#")[0]).name for link in links}
    assert {"tutorial.html", "state.html"} <= found
