"""The page about private data holds what its cells say."""

from __future__ import annotations

from itertools import chain
from statistics import fmean

from benchmarks import tofu_chat_table
from benchmarks.default_table import losses
from benchmarks.private_table import (
    PAGE,
    RUN,
    cells_of,
    of_bench,
    of_rows,
    private_tables,
    retrained,
)
from tfrnet.core.drift import DRIFT_LIMIT
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.document import stale_tables

TEXT = " ".join(PAGE.read_text().split())
CELLS = {stream: cells_of(RUN, stream, "tfr") for stream in ("lume", "knowundo")}


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
    found = {stream: of_bench(RUN, stream, "tfr") for stream in CELLS}

    def both(name):
        return " and ".join(
            f"{fmean(getattr(each, name) for each in own):.0f}" for own in found.values()
        )

    assert f"{both('forgotten')} % is no longer said word for word" in TEXT
    assert f"{both('kept')} % of the facts to be kept are said word for word on average" in TEXT
    assert f"Fresh examples have {both('fresh')} times the loss" in TEXT
    nats = " and ".join(
        f"{fmean(chain(*(each.losses for each in own))):.1f}" for own in found.values()
    )
    assert f"at {nats} nats" in TEXT
    left = []
    for cells in CELLS.values():
        first, last = (
            fmean(chain(*(cell.checkpoints[place]["retain"].values() for cell in cells)))
            for place in (0, -1)
        )
        left.append(last / first)
    # "In the end about a third and a half".
    assert abs(left[0] - 1 / 3) < 0.04 and abs(left[1] - 1 / 2) < 0.04


def test_a_retrained_model_is_as_told():
    nats, right = [], []
    for stream in CELLS:
        rows = retrained(stream).values()
        assert [row["seed"] for row in rows] == [3, 4, 5]
        nats.append(f"{fmean(chain(*(losses(row) for row in rows))):.1f}")
        right.append(fmean(chain(*(row["by_request"] for row in rows))))
    assert f"a model retrained without these people has {' and '.join(nats)}" in TEXT
    assert 13 < right[0] < 17 and right[1] < 2
    # Of six facts it says none but the fifth, the e-mail address.
    verdicts = chain(*(row["right"] for row in retrained("lume").values()))
    said = {place for facts in verdicts for place, right in enumerate(facts) if right}
    assert said == {4}


def test_the_other_methods_keep_as_little_as_told():
    kept = {
        method: [of_bench(RUN, stream, method)[0].kept for stream in CELLS]
        for method in ("simnpo", "npo", "graddiff")
    }
    assert "SimNPO keeps {:.0f} and {:.0f} %".format(*kept["simnpo"]) in TEXT
    assert max(kept["npo"] + kept["graddiff"]) < 0.5
    more = [of_rows(stream, "thorough, more retain data") for stream in CELLS]
    shares = [f"{fmean(each.kept for each in own):.0f}" for own in more]
    assert f"{shares[0]} % is kept on LUME in place of 51" in TEXT
    assert f"{shares[1]} % on KnowUnDo in place of 65" in TEXT


def test_the_limit_on_a_whole_stream_would_have_stopped_them_early():
    assert {refused(cell.requests) for cells in CELLS.values() for cell in cells} == {1, 2}
    default, thorough = (
        {refused(row["outcomes"]) for row in tofu_chat_table.rows_of(name)}
        for name in ("default", "thorough")
    )
    assert default == {6, 7}
    assert thorough == {9, 12}
