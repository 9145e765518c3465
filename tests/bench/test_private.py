"""The page about private data holds what its cells say."""

from __future__ import annotations

from statistics import fmean

from benchmarks import tofu_chat_table
from benchmarks.private_table import PAGE, cells_of, private_tables
from tfrnet.core.drift import DRIFT_LIMIT
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.document import stale_tables
from tfrnet_bench.honest import honest

TEXT = " ".join(PAGE.read_text().split())
CELLS = {stream: cells_of(stream) for stream in ("lume", "knowundo")}


def refused(requests):
    """Return which request the limit on a whole stream would have refused first."""
    most = DRIFT_LIMIT * requests[0]["guard_loss_before"]
    done = [each for each in requests if each["outcome"] == "accepted"]
    return requests.index(next(each for each in done if each["guard_loss_after"] > most)) + 1


def test_the_page_shows_all_tables_and_no_words_of_the_data():
    tables = private_tables()
    text = PAGE.read_text()
    assert [table.name for table in tables if f"<!-- table: {table.name} -->" not in text] == []
    assert stale_tables(text, tables) == []
    assert not any(cell.samples or cell.answers for cells in CELLS.values() for cell in cells)


def test_the_cells_are_of_the_default_of_today_on_reporting_seeds():
    for cells in CELLS.values():
        assert [cell.seed for cell in cells] == [3, 4, 5]
        for cell in cells:
            assert TFRConfig.from_dict(cell.settings) == TFRConfig()
            assert len(cell.requests) == 20


def test_what_is_gone_and_what_is_left_are_as_told():
    def told(stream, name):
        return [honest(cell)[name] for cell in CELLS[stream]]

    gone = [*told("lume", "forgotten"), *told("knowundo", "forgotten")]
    assert (round(min(gone)), round(max(gone))) == (95, 100)
    kept = {stream: told(stream, "kept") for stream in CELLS}
    assert [round(edge) for edge in (min(kept["lume"]), max(kept["lume"]))] == [46, 59]
    assert [round(edge) for edge in (min(kept["knowundo"]), max(kept["knowundo"]))] == [60, 71]
    assert "averaged over the stream 46 to 59 and 60 to 71 %" in TEXT
    told_end = []
    for cells in CELLS.values():
        shares = [
            100
            * fmean(cell.checkpoints[-1]["retain"].values())
            / fmean(cell.checkpoints[0]["retain"].values())
            for cell in cells
        ]
        told_end.append(f"{min(shares):.0f} to {max(shares):.0f} %")
    assert f"{told_end[0]} of other people's facts (LUME) and {told_end[1]} of public" in TEXT
    assert 0.45 < fmean(told("lume", "unseen")) / 100 < 0.55
    assert 0.18 < fmean(told("knowundo", "unseen")) / 100 < 0.25
    fresh = [*told("lume", "witness"), *told("knowundo", "witness")]
    assert f"{min(fresh):.0f} to {max(fresh):.0f} times the loss they had" in TEXT


def test_the_limit_on_a_whole_stream_would_have_stopped_them_early():
    assert {refused(cell.requests) for cells in CELLS.values() for cell in cells} == {1, 2}
    default, thorough = (
        {refused(row["outcomes"]) for row in tofu_chat_table.rows_of(name)}
        for name in ("default", "thorough")
    )
    assert default == {6, 7}
    assert thorough == {9, 12}
