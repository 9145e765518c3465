"""The report in a real browser: it loads by itself, sorts, explains, changes and prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench import made_up
from tests.browser import needed_playwright, open_browser
from tests.serve.running import make_session
from tfrnet_bench.report import make_report

sync_api = needed_playwright()

STATES = Path(__file__).parents[1] / "fixtures" / "states"
REASON = "guard loss <script>document.title = 'broken'</script> & <b>more</b>"
GROUPS = {"laws": {"before": 1.0, "after": 1.25}, "<b>": {"before": 1.0, "after": 2.0}}
TABLE = "#scores table >> nth=0"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of few cells, one with a reason that looks like markup, and texts before and after."""
    run = tmp_path_factory.mktemp("report") / "run"
    made_up.write_run(run, seeds=1, variants=("none", "ga", "tfr", "tfr-no-recovery"))
    path = run / "cells/stream/arithmetic/ga/0/result.json"
    result = json.loads(path.read_text())
    result["requests"][2] |= {"outcome": "rejected", "reason": REASON}
    result["requests"][1] |= {"guard_groups": GROUPS}
    path.write_text(json.dumps(result))
    sample = {"key": "k", "prompt": "2 + 2 =", "gold": "4", "before": "4", "after": "<i>fish</i>"}
    path.with_name("samples.jsonl").write_text(json.dumps(sample) + "\n")
    return make_report(run).write(run / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser(sync_api) as browser:
        yield browser


class Opened:
    """A page with what it said and asked for while it was open."""

    def __init__(self, browser: Any, path: Path, width: int = 1280) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 900})
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(path.as_uri())

    def numbers(self, column: int) -> list[float]:
        cells = self.page.locator(f"{TABLE} >> tbody >> nth=0 >> td:nth-child({column})")
        return [float(cell.get_attribute("data-number")) for cell in cells.all()]

    def overflow(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@pytest.fixture
def opened(browser: Any, report: Path) -> Iterator[Opened]:
    """Every test ends with a page that has complained of nothing and loaded nothing else."""
    opened = Opened(browser, report)
    yield opened
    assert opened.said == []
    assert opened.asked == [report.as_uri()]
    opened.page.close()


def test_it_loads_alone_and_fits_the_screen(opened: Opened) -> None:
    assert opened.overflow() <= 0
    assert opened.page.locator("section").count() == 10
    assert opened.page.locator("#charts svg.plot").count() == 4


def test_a_header_sorts_both_ways_and_by_keyboard(opened: Opened) -> None:
    head = opened.page.locator(f"{TABLE} >> thead >> th:nth-child(2)")
    button = head.locator("button")
    button.click()
    down = opened.numbers(2)
    assert head.get_attribute("aria-sort") == "descending"
    assert down == sorted(down, reverse=True)
    assert len(set(down)) > 1
    button.press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert opened.numbers(2) == sorted(down)
    others = opened.page.locator(f"{TABLE} >> thead >> th[aria-sort=none]").count()
    assert others == 5
    fixed = opened.page.locator(f"{TABLE} >> tbody.fixed >> th").all_inner_texts()
    assert fixed == ["floor: random", "floor: longest choice"]


def test_names_sort_by_their_letters(opened: Opened) -> None:
    opened.page.locator(f"{TABLE} >> thead >> button >> nth=0").click()
    names = opened.page.locator(f"{TABLE} >> tbody >> nth=0 >> th").all_inner_texts()
    assert [name.split()[0] for name in names] == ["ga", "none", "tfr"]


def test_pointing_at_a_method_shows_its_numbers(opened: Opened, report: Path) -> None:
    opened.page.locator("#charts select").first.select_option("boolq")
    path = report.parent / "cells/stream/boolq/ga/0/result.json"
    scores = json.loads(path.read_text())["scores"]
    tooltip = opened.page.locator("#tooltip")
    assert tooltip.is_hidden()
    point = opened.page.locator("#charts [data-variant=ga]")
    point.hover()
    assert tooltip.is_visible()
    text = tooltip.inner_text()
    assert text.startswith("ga, boolq")
    assert f"F Avg {scores['forget_average']:.1f}" in text
    assert f"R Avg {scores['retain_average']:.1f}" in text
    assert f"Trade-off {scores['trade_off']:.1f}" in text
    opened.page.mouse.move(2, 2)
    assert tooltip.is_hidden()
    point.focus()
    assert tooltip.inner_text() == text


def test_a_guard_with_groups_has_a_column_of_them(opened: Opened) -> None:
    chosen = opened.page.get_by_label("variant", exact=True)
    chosen.select_option("ga")
    table = opened.page.locator("#timeline table")
    place = table.locator("thead th").all_inner_texts().index("Guard by group") + 1
    cells = table.locator(f"tbody td:nth-child({place})").all_inner_texts()
    words = "<b> 1.000 -> 2.000, laws 1.000 -> 1.250"
    assert [cell for cell in cells if cell] == [words]
    opened.page.locator("#timeline svg.plot >> nth=1 >> .target >> nth=1").hover()
    assert f"guard by group: {words}" in opened.page.locator("#tooltip").inner_text()
    chosen.select_option("tfr")
    assert "Guard by group" not in opened.page.locator("#timeline").inner_text()


def test_a_state_without_a_guard_has_nothing_accepted(browser: Any, tmp_path: Path) -> None:
    opened = Opened(browser, make_report(STATES / "graddiff").write(tmp_path / "state.html"))
    timeline = opened.page.locator("#timeline")
    counted = "3 applied, not checked, 0 rejected, 1 undone since"
    assert timeline.locator("h3").inner_text() == f"Requests: {counted}"
    assert "applied, not checked, undone since" in timeline.locator("table").inner_text()
    assert "accepted" not in timeline.inner_text()
    opened.page.close()


def test_a_state_without_requests_has_a_page(browser: Any, tmp_path: Path, tokenizer) -> None:
    make_session(tmp_path / "state", tokenizer).close()
    opened = Opened(browser, make_report(tmp_path / "state").write(tmp_path / "state.html"))
    assert "No request has been made." in opened.page.locator("#chosen").inner_text()
    assert opened.page.locator("#chosen svg").count() > 0
    assert opened.said == []
    opened.page.close()


def test_the_axes_of_losses_end_where_the_losses_end(browser: Any, tmp_path: Path) -> None:
    # Guard losses differ by little; on an axis from 0 nothing could be seen of that.
    opened = Opened(browser, make_report(STATES / "tfr-default").write(tmp_path / "state.html"))
    plots = opened.page.locator("#timeline svg.plot").all()
    assert len(plots) >= 2
    for plot in plots:
        marks = [mark.bounding_box() for mark in plot.locator(".mark").all()]
        top = min(box["y"] + box["height"] / 2 for box in marks)
        bottom = max(box["y"] + box["height"] / 2 for box in marks)
        axis = plot.locator("path.axis").bounding_box()
        assert bottom - top > 0.8 * axis["height"]
    opened.page.close()


def test_another_cell_brings_its_own_requests_and_texts(opened: Opened) -> None:
    page = opened.page
    before = page.locator("#timeline table tbody").inner_text()
    page.get_by_label("variant", exact=True).select_option("ga")
    after = page.locator("#timeline table tbody").inner_text()
    assert before != after
    assert page.locator("#cell-name").inner_text() == "stream, arithmetic, ga, seed 0"
    assert "18 accepted, 2 rejected" in page.locator("#timeline h3").inner_text()
    page.locator("#timeline g.target").nth(2).hover()
    assert REASON in page.locator("#tooltip").inner_text()
    assert REASON in after
    assert page.locator("#timeline script, #timeline b, #texts i").count() == 0
    assert page.title() == "Bench report: run"
    assert "<i>fish</i>" in page.locator("#texts").inner_text()
    assert page.locator("#channel-map").count() == 0
    page.get_by_label("kind", exact=True).select_option("tofu")
    assert page.get_by_label("stream", exact=True).input_value() == "tofu"


def test_maps_explain_their_tiles(opened: Opened, report: Path) -> None:
    path = report.parent / "cells/stream/arithmetic/tfr/0/result.json"
    result = json.loads(path.read_text())
    tooltip = opened.page.locator("#tooltip")
    opened.page.locator("#channel-map svg[role=img] >> nth=0 >> rect.tile >> nth=9").hover()
    suppressed = result["channel_map"]["suppressed"][1][2]
    assert tooltip.inner_text().startswith("layer 1, v_proj")
    assert f"suppressed: {suppressed} of 64 channels" in tooltip.inner_text()
    label = "Accuracy on the items of each request after each request"
    opened.page.locator(f"svg[aria-label='{label}'] >> rect.tile >> nth=3").hover()
    accuracy = result["forgetting"]["accuracy"]["matrix"][0][3]
    assert tooltip.inner_text().startswith("items of request 1 after request 4")
    assert f"accuracy {accuracy:.1f} %" in tooltip.inner_text()


def test_all_of_it_prints(opened: Opened) -> None:
    page = opened.page
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    assert len(pdf) > 50_000
    page.emulate_media(media="print")
    sections = page.locator("section")
    assert all(section.is_visible() for section in sections.all())
    assert page.locator(".controls").first.is_hidden()
    assert page.locator("nav").is_hidden()
    page.set_viewport_size({"width": 690, "height": 900})  # A4 between its margins
    assert opened.overflow() <= 0


def test_a_narrow_screen_can_be_used(browser: Any, report: Path) -> None:
    opened = Opened(browser, report, width=400)
    assert opened.overflow() <= 0
    opened.page.get_by_label("variant", exact=True).select_option("ga")
    assert "ga" in opened.page.locator("#cell-name").inner_text()
    box = opened.page.locator("#charts svg.plot").first.bounding_box()
    assert box["x"] >= 0
    assert 300 < box["width"] <= 400
    opened.page.close()
