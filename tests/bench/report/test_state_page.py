"""The page of a state, from its ledger and generations alone."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests import tiny
from tests.bench.report.reading import ReadPage
from tfrnet.cli.main import main
from tfrnet.core.errors import InputError
from tfrnet.masking.channel_map import channel_map
from tfrnet.method_state import verify_state
from tfrnet.methods.ga.config import GAConfig
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.session import Session
from tfrnet.state.store import StateStore
from tfrnet_bench.report import make_report
from tfrnet_bench.report.answers_file import read_answers
from tfrnet_bench.report.cell_data import request_data
from tfrnet_bench.report.state_page import generations_in_effect

# Of four requests some are rejected, and some bring channels back.
MIXED = TFRConfig.paper(guard_examples=6, retain_examples=6, guard_relative=1e-4, max_sparsity=0.2)


@pytest.fixture(scope="module")
def model():
    return tiny.make_model("llama")


def run_requests(model, tokenizer, folder: Path, count: int = 4, **options) -> list[str]:
    options = {"config": MIXED} | options
    with Session(model, tokenizer, folder, tiny.examples(12), **options) as session:
        return [outcome.outcome for outcome in session.run(tiny.requests(count))]


def test_requests_and_channels_are_those_of_the_ledger(model, tokenizer, tmp_path):
    outcomes = run_requests(model, tokenizer, tmp_path / "state")
    assert set(outcomes) == {"accepted", "rejected"}
    made = make_report(tmp_path / "state")
    assert made.counts == {**Counter(outcomes), "seen": 4}
    page = ReadPage(made.html)
    store = StateStore.open(tmp_path / "state")
    (cell,) = page.data["cells"]
    entries = [entry for entry in store.entries if entry["kind"] == "request"]
    assert cell["requests"]["outcome"] == outcomes
    assert cell["requests"]["reason"] == [entry["reason"] for entry in entries]
    assert cell["requests"]["guard_loss_after"] == pytest.approx(
        [entry["guard_loss_after"] for entry in entries], rel=1e-4
    )
    masks = [store.load(number).tensors()["mask"] for number in range(store.generation + 1)]
    assert cell["channel_map"] == channel_map(store.manifest.channels, masks, 0.1)
    assert sum(map(sum, cell["channel_map"]["recovered"])) > 0
    counts = Counter(outcomes)
    assert f"{counts['accepted']} applied, {counts['rejected']} rejected, 4 seen" in page.text
    assert store.manifest.fingerprint in page.text
    assert "guard_relative" in page.text


def test_guard_losses_by_group_are_shown_where_there_are_groups():
    plain = {"id": "a", "outcome": "accepted", "reason": "", "checked": True}
    grouped = plain | {"guard_groups": {"laws": {"before": 1.0, "after": 1.25}}}
    assert request_data([plain, grouped])["guard_groups"] == ["", "laws 1.000 -> 1.250"]
    assert "guard_groups" not in request_data([plain])


def test_what_was_rolled_back_is_not_in_the_map(model, tokenizer, tmp_path):
    run_requests(model, tokenizer, tmp_path)
    with StateStore.open(tmp_path, write=True) as store:
        store.rollback(1)
        expected = [store.load(number).tensors()["mask"] for number in (0, 1)]
        layout = store.manifest.channels
    page = ReadPage(make_report(tmp_path).html)
    assert page.data["cells"][0]["channel_map"] == channel_map(layout, expected, 0.1)
    assert "rolled back to generation 1" in page.text


def test_requests_that_are_undone_do_not_count_as_applied(model, tokenizer, tmp_path):
    """After a rollback the same requests may come again; each counts once."""
    config = TFRConfig.paper(guard_examples=4, retain_examples=6, use_guard=False)
    run_requests(model, tokenizer, tmp_path, 2, config=config)
    with StateStore.open(tmp_path, write=True) as store:
        store.rollback(0)
    assert make_report(tmp_path).counts == {"accepted": 0, "rejected": 0, "seen": 2}
    run_requests(model, tokenizer, tmp_path, 1, config=None)
    made = make_report(tmp_path)
    page = ReadPage(made.html)
    assert made.counts == {"accepted": 1, "rejected": 0, "seen": 3}
    assert made.words.startswith("1 applied") and made.words in page.text
    requests = page.data["cells"][0]["requests"]
    assert requests["outcome"] == ["accepted"] * 3
    assert requests["undone"] == [True, True, False]


def test_generations_that_are_gone_are_said(model, tokenizer, tmp_path):
    run_requests(model, tokenizer, tmp_path, keep=1)
    text = ReadPage(make_report(tmp_path).html).text
    assert "generations in effect are no longer kept" in text


def test_a_method_without_a_mask_has_no_map(model, tokenizer, tmp_path):
    config = GAConfig(guard_examples=4)
    run_requests(model, tokenizer, tmp_path, 1, method="ga", config=config)
    made = make_report(tmp_path)
    page = ReadPage(made.html)
    assert made.words == "1 applied, not checked (no guard), 0 rejected, 1 seen in total"
    assert made.words in page.text
    assert "channel_map" not in page.data["cells"][0]
    assert "Method ga has no mask" in page.text


def test_a_new_state_has_a_page(model, tokenizer, tmp_path):
    run_requests(model, tokenizer, tmp_path, 0)
    page = ReadPage(make_report(tmp_path).html)
    assert "0 applied, 0 rejected, 0 seen in total" in page.text


def test_generations_in_effect_follow_rollbacks():
    def entry(kind: str, generation: int, to: int | None = None) -> dict:
        return {"kind": kind, "generation": generation, "to": to}

    entries = [
        entry("created", 0),
        entry("request", 1),
        entry("request", 2),
        entry("request", 2),  # rejected
        entry("rollback", 3, to=1),
        entry("request", 4),
        entry("rollback", 5, to=2),
        entry("request", 6),
    ]
    expected = [[0], [0, 1], [0, 1, 2], [0, 1, 2], [0, 3], [0, 3, 4], [0, 1, 5], [0, 1, 5, 6]]
    for count, line in enumerate(expected, start=1):
        assert generations_in_effect(entries[:count]) == line


def test_the_command_writes_into_the_folder_and_harms_no_state(
    model, tokenizer, tmp_path, monkeypatch, capsys
):
    state = tmp_path / "state"
    counts = Counter(run_requests(model, tokenizer, state))
    assert report(monkeypatch, state, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["schema"] == "tfrnet.report/1"
    assert printed["kind"] == "state"
    assert {name: printed[name] for name in counts} == counts
    assert printed["bytes"] == (state / "report.html").stat().st_size
    assert all(check.passed for check in verify_state(state))
    counts += Counter(run_requests(model, tokenizer, state, 5, config=None))

    other = tmp_path / "other.html"
    assert report(monkeypatch, state, "--out", other) == 0
    said = f"{counts['accepted']} applied, {counts['rejected']} rejected, 5 seen in total"
    assert capsys.readouterr().out.startswith(f"wrote {other} ({said}; ")
    assert ReadPage(other.read_text()).data["cells"]


def test_another_folder_is_one_line(tmp_path, monkeypatch, capsys):
    assert report(monkeypatch, tmp_path) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tfrnet: error: {tmp_path} is neither a bench run")
    assert len(error.splitlines()) == 1


def report(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr("sys.argv", ["tfrnet", "report", *map(str, arguments)])
    with pytest.raises(SystemExit) as caught:
        main()
    return int(caught.value.code or 0)


pytestmark = pytest.mark.usefixtures("one_thread")


ANSWERS = [{"prompt": "The box is", "before": " red <b>", "after": " gone"}]


def test_words_are_shown_only_where_the_user_allows_it(model, tokenizer, tmp_path):
    state, file = tmp_path / "state", tmp_path / "answers.json"
    run_requests(model, tokenizer, state, count=1)
    file.write_text(json.dumps({"schema": "tfrnet.generate/1", "generations": ANSWERS}))
    assert "texts" not in ReadPage(make_report(state).html).data["cells"][0]
    html = make_report(state, read_answers(file)).html
    assert ReadPage(html).data["cells"][0]["texts"] == ANSWERS
    assert " red <b>" not in html  # never as markup


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"generations": [{"prompt": "p", "answer": "a"}]}', "\udcff"]
)
def test_what_holds_no_answers_is_refused(tmp_path, content):
    file = tmp_path / "answers.json"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match="does not hold answers before and after"):
        read_answers(file)


def test_a_page_in_the_folder_of_a_state_is_as_closed_as_the_state(
    model, tokenizer, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "state"
    run_requests(model, tokenizer, folder, count=1)
    for more in ([], ["--out", str(tmp_path / "page.html")]):
        monkeypatch.setattr("sys.argv", ["tfrnet", "report", str(folder), *more])
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code
    assert (folder / "report.html").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "page.html").stat().st_mode & 0o044
    checks = {check.name: check.detail for check in verify_state(folder)}
    assert checks["file modes"] == "for their owner alone"


def test_a_page_takes_the_place_of_an_older_one_and_of_nothing_else(model, tokenizer, tmp_path):
    folder, mine = tmp_path / "state", tmp_path / "retain.jsonl"
    run_requests(model, tokenizer, folder, count=1)
    page = make_report(folder)
    mine.write_text("mine")
    ledger = (folder / "ledger.jsonl").read_bytes()
    for target in (mine, folder / "ledger.jsonl", tmp_path):
        with pytest.raises(InputError, match="is not a page that tfrnet wrote"):
            page.write(target)
    assert (mine.read_text(), (folder / "ledger.jsonl").read_bytes()) == ("mine", ledger)
    for _ in range(2):
        assert page.write(tmp_path / "page.html").read_text() == page.html
