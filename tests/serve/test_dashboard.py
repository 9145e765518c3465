"""The dashboard in a real browser."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.browser import needed_playwright, open_browser
from tests.serve.running import Running, in_groups, make_session, primary, serving
from tfrnet.serve.log import Log
from tfrnet.serve.service import ServiceOptions, open_primary
from tfrnet.serve.tokens import add_token

sync_api = needed_playwright()

PROMPT = "Item 3 of the very very very old box is"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, tokenizer) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("dashboard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFRNET_KEY", str(folder / "key.pem"))
        retain = in_groups(tiny.examples(12), "<b>laws</b>", "letters")
        with primary(folder / "state", tokenizer, audit=True, retain=retain) as running:
            yield running


@pytest.fixture(scope="module")
def browser(running: Running) -> Iterator[Any]:
    with open_browser(sync_api) as browser:
        yield browser


@pytest.fixture
def page(browser: Any, running: Running) -> Iterator[Any]:
    """A page that asks nobody but the service and complains of nothing."""
    page = browser.new_page(viewport={"width": 1200, "height": 900})
    asked: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(running.url)
    page.locator("#live", has_text="live").wait_for()
    yield page
    page.close()
    assert errors == []
    assert [url for url in asked if not url.startswith((running.url, "data:", "blob:"))] == []


def submit(page: Any, name: str, number: int) -> None:
    example = tiny.requests(8)[number].examples[0]
    page.fill("#id", name)
    page.fill("#example-prompt", example.prompt)
    page.fill("#example-answer", example.answer)
    page.locator("#submit-form button").press("Enter")


def row(page: Any, name: str) -> Any:
    return page.locator(f"#requests tr[data-id='{name}']")


def test_a_request_is_sent_watched_and_certified(page: Any, running: Running) -> None:
    submit(page, "from <b>here</b>", 0)
    page.locator("#watched", has_text="from <b>here</b>").wait_for()
    page.locator("#way li", has_text="completed").wait_for()
    assert page.locator("#way li").first.inner_text() == "queued"
    mine = page.locator("#requests tr", has_text="from <b>here</b>")
    mine.locator(".completed").wait_for()
    assert "forget loss" in mine.inner_text()
    told = running.show("from <b>here</b>")
    groups = told["outcome"]["guard_groups"]
    shown = {name: "{before:.3f} -> {after:.3f}".format(**groups[name]) for name in groups}
    assert set(shown) == {"<b>laws</b>", "letters"}
    assert f"(by group: {told['guard_groups']})" in mine.inner_text()
    assert all(f"{name} {losses}" in told["guard_groups"] for name, losses in shown.items())
    # The charts follow the row: they are drawn once the history has been fetched too.
    sync_api.expect(page.locator("#losses svg polyline")).to_have_count(3)
    sync_api.expect(page.locator("#strength svg polyline")).to_have_count(2)
    with page.expect_download() as download:
        mine.get_by_role("button", name="Certificate").click()
    certificate = json.loads(Path(download.value.path()).read_text())
    assert certificate["request"]["id"] == "from <b>here</b>"
    assert page.locator("#requests b").count() == 0


def test_a_new_page_watches_the_newest_request_and_shows_its_audit(
    page: Any, running: Running
) -> None:
    request = tiny.requests(8)[4]
    running.submit(request)
    done = running.ended(request.id)
    page.reload()
    sync_api.expect(page.locator("#watched")).to_have_text(request.id)
    page.locator("#way li", has_text="completed").wait_for()
    sync_api.expect(page.locator("#verdict")).to_have_text(done["audit"])
    assert " wordings" in done["audit"]
    page.get_by_text("Figures").click()
    own = done["outcome"]["audit"]["wordings"]["own"]
    cells = page.locator("#wordings tbody tr", has_text="Its own words").locator("td")
    counts = [str(own[name]) for name in ("tried", "before", "after")]
    assert cells.all_inner_texts() == ["Its own words", *counts]
    kept = done["outcome"]["audit"]["kept"]
    losses = [f"{kept[name]:.3f}" for name in ("loss_before", "loss_after")]
    cells = page.locator("#texts tbody tr", has_text="Nearest kept data").locator("td")
    assert cells.all_inner_texts() == ["Nearest kept data", str(kept["examples"]), *losses]


def test_a_page_that_was_empty_watches_the_first_request(
    browser: Any, tmp_path: Path, tokenizer
) -> None:
    """Sent by somebody else; this one is not audited."""
    with primary(tmp_path / "state", tokenizer) as running:
        page = browser.new_page()
        page.goto(running.url)
        page.locator("#live", has_text="live").wait_for()
        assert page.locator("#watched").inner_text() == "the last request"
        running.submit(tiny.requests(1)[0])
        page.locator("#way li", has_text="completed").wait_for()
        assert page.locator("#watched").inner_text() == "request-0"
        row(page, "request-0").locator(".completed").wait_for()
        assert running.show("request-0")["audit"] == ""
        assert page.locator("#audit").is_hidden()
        page.close()


def test_a_page_that_begins_anew_while_it_reads_shows_every_request_once(
    page: Any, running: Running
) -> None:
    """As it does when the service is back: what was under way must not mix with what follows."""
    store = running.service.primary.session.store
    page.wait_for_function("(read) => lines === read", arg=store.lines)
    page.evaluate(
        """() => {
          const real = window.fetch, go = new Promise((resolve) => { window.goOn = resolve; });
          window.held = 0;
          window.fetch = async (path, ...rest) => {
            if (path.includes("v1/history")) { window.held += 1; await go; }
            return real(path, ...rest);
          };
        }"""
    )
    running.submit(tiny.requests(8)[5])
    running.ended("request-5")
    page.wait_for_function("() => window.held > 0")
    page.evaluate("() => { readAnew(); goOn(); }")
    shown = page.evaluate("async () => { await readOn(); return applied.map((one) => one.hash); }")
    assert shown == [entry["hash"] for entry in store.entries if entry["kind"] == "request"]


def test_before_and_after_are_those_of_the_models(page: Any, running: Running) -> None:
    page.fill("#prompt", PROMPT)
    page.locator("#ask-form button").click()
    texts = []
    for model in ("tiny@0", "tiny"):
        answer = running.complete(PROMPT, 40, model=model).json()
        texts.append(answer["choices"][0]["text"])
    # The untouched model answers last.
    sync_api.expect(page.locator("#before")).to_have_text(texts[0])
    assert page.locator("#before").text_content() == texts[0]
    assert page.locator("#after").text_content() == texts[1]
    generation = running.service.engine.generation
    assert page.locator("#answered").text_content() == f", generation {generation}"


def test_verify_and_roll_back_with_a_question_by_keyboard(page: Any, running: Running) -> None:
    submit(page, "undone", 1)
    row(page, "undone").locator(".completed").wait_for()
    page.locator("#verify").press("Enter")
    page.locator("#checked", has_text="checks passed").wait_for()
    before = running.service.engine.generation
    page.locator("#generation").select_option("0")
    page.locator("#rollback").press("Enter")
    assert "generation 0" in page.locator("#question").inner_text()
    page.keyboard.press("Enter")  # the safe answer has the focus
    page.locator("#confirm").wait_for(state="hidden")
    page.locator("#rollback").press("Enter")
    page.locator("#confirm button[value=yes]").press("Enter")
    # Only this answer has made a generation.
    page.locator("#checked", has_text=f"generation {before + 1}").wait_for()
    row(page, "undone").get_by_text("rolled back").wait_for()


def test_it_rolls_back_to_what_the_question_said(page: Any) -> None:
    """The list may lose that generation while the question is open."""
    page.route("**/v1/rollback", lambda route: route.fulfill(json={"generation": 99}))
    page.evaluate(
        """() => {
          $("generation").replaceChildren(new Option(7, 7));
          $("rollback").click();
          $("generation").replaceChildren(new Option(8, 8));
        }"""
    )
    assert "generation 7" in page.locator("#question").inner_text()
    with page.expect_request("**/v1/rollback") as asked:
        page.locator("#confirm button[value=yes]").click()
    assert asked.value.post_data_json == {"to": 7}
    page.locator("#checked", has_text="generation 99").wait_for()


def test_a_keyboard_reaches_everything(page: Any) -> None:
    page.locator("#generation option").first.wait_for(state="attached")
    page.bring_to_front()
    reached = page.evaluate("() => { document.body.focus(); return []; }")
    for _ in range(120):
        page.keyboard.press("Tab")
        focused = page.evaluate(
            "() => { const e = document.activeElement; const style = getComputedStyle(e);"
            " return [e.id || e.textContent, style.outlineStyle, e === document.body]; }"
        )
        if focused[2]:
            if reached:
                break
            # A busy browser may lose keys until the page has the focus.
            page.wait_for_timeout(100)
            continue
        assert focused[1] != "none", focused
        reached.append(focused[0])
    assert page.evaluate("document.activeElement === document.body"), "the focus is caught"
    wanted = ["id", "example-prompt", "example-answer", "Submit", "prompt", "Compare"]
    wanted += ["verify", "generation", "rollback"]
    assert [each for each in reached if each in wanted] == wanted


def test_the_focus_stays_on_a_row_when_the_list_is_made_anew(page: Any, running: Running) -> None:
    first, second = tiny.requests(8)[6:8]
    running.submit(first)
    row(page, first.id).get_by_role("button", name="Certificate").wait_for()
    row(page, first.id).get_by_role("button", name="Certificate").focus()
    running.submit(second)
    row(page, second.id).locator(".completed").wait_for()
    label = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert label == f"Certificate {first.id}"


def test_it_fits_a_narrow_screen_and_the_dark(browser: Any, running: Running) -> None:
    for width, scheme in ((400, "light"), (400, "dark"), (1200, "dark")):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.goto(running.url)
        page.locator("#live", has_text="live").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        ink, paper = (
            page.evaluate(f"getComputedStyle(document.body).{name}")
            for name in ("color", "backgroundColor")
        )
        light = [sum(map(int, value[4:-1].split(","))) for value in (ink, paper)]
        assert (light[0] > light[1]) is (scheme == "dark")
        if folder := os.environ.get("TFRNET_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/{width}-{scheme}.png", full_page=True)
        page.close()


def test_a_wrong_token_and_a_right_one(browser: Any, tmp_path: Path, tokenizer) -> None:
    secret = add_token(tmp_path / "tokens.json", "me", ["admin"], None)
    options = ServiceOptions(tokens=tmp_path / "tokens.json", approve=True)
    with primary(tmp_path / "state", tokenizer, options) as guarded:
        page = browser.new_page()
        page.goto(guarded.url)
        page.locator("#entry").wait_for()
        assert page.locator("#main").is_hidden()
        page.fill("#token", "wrong")
        page.keyboard.press("Enter")
        page.locator("#problem", has_text="a valid token is needed").wait_for()
        page.fill("#token", secret)
        page.keyboard.press("Enter")
        page.locator("#main").wait_for()
        submit(page, "mine", 2)
        row(page, "mine").get_by_text("waiting for approval").wait_for()
        row(page, "mine").get_by_role("button", name="Approve").click()
        page.locator("#problem", has_text="somebody other").wait_for()
        row(page, "mine").get_by_role("button", name="Cancel").click()
        row(page, "mine").locator(".cancelled").wait_for()
        page.close()


def test_a_token_that_may_not_read_can_be_replaced(browser: Any, tmp_path: Path, tokenizer) -> None:
    path = tmp_path / "tokens.json"
    writer, reader = (add_token(path, name, [name], None) for name in ("submit", "read"))
    with primary(tmp_path / "state", tokenizer, ServiceOptions(tokens=path)) as guarded:
        page = browser.new_page()
        page.goto(guarded.url)
        page.fill("#token", writer)
        page.keyboard.press("Enter")
        page.locator("#problem", has_text="scope").wait_for()
        page.reload()
        page.locator("#problem", has_text="scope").wait_for()
        page.fill("#token", reader)
        page.keyboard.press("Enter")
        page.locator("#live", has_text="live").wait_for()
        # What this one may not do is only said.
        page.evaluate("failed(new Refused(403, 'not with this one'))")
        assert page.locator("#main").is_visible()
        page.close()


@pytest.mark.slow
def test_a_service_that_is_gone_and_back(browser: Any, tmp_path: Path, tokenizer) -> None:
    with primary(tmp_path / "state", tokenizer) as first:
        page = browser.new_page()
        page.goto(first.url)
        page.locator("#live", has_text="live").wait_for()
        first.stop()
        page.locator("#problem", has_text="cannot be reached").wait_for()
        port = int(first.url.rsplit(":", 1)[1])
        said = io.StringIO()
        service = open_primary(
            make_session(tmp_path / "state", tokenizer), ServiceOptions(), Log(said)
        )
        with serving(service, said, port=port):
            page.locator("#live", has_text="live").wait_for()
            assert page.locator("#problem").is_hidden()
            submit(page, "after", 3)
            row(page, "after").locator(".completed").wait_for()
        page.close()
