"""The page about private data holds what its cells say."""

from __future__ import annotations

from itertools import chain
from statistics import fmean

from benchmarks import tofu_chat_table
from benchmarks.default_table import losses, read_cells
from benchmarks.private_table import (
    FIRM,
    PAGE,
    RUN,
    THOROUGH,
    cells_of,
    of_bench,
    of_rows,
    private_tables,
    retrained,
    rows_of,
)
from tfrnet.core.drift import DRIFT_LIMIT
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.document import stale_tables

DOCS = PAGE.parents[2] / "docs"
TEXT, CHOOSING, RESEARCH = (
    " ".join(page.read_text().split())
    for page in (PAGE, DOCS / "choosing.md", DOCS / "research.md")
)
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

    assert f"{both('forgotten')} % of it is not said word for word" in TEXT
    assert f"said before, {both('kept')} % are still said on average" in TEXT
    assert f"whose request is still to come: {both('not_yet')} %" in TEXT
    assert f"Fresh examples have {both('fresh')} times the loss" in TEXT
    left = []
    for cells in CELLS.values():
        first, last = (
            fmean(chain(*(cell.checkpoints[place]["retain"].values() for cell in cells)))
            for place in (0, -1)
        )
        left.append(last / first)
    assert "in the end about a third and a half" in TEXT
    assert abs(left[0] - 1 / 3) < 0.04 and abs(left[1] - 1 / 2) < 0.04


def test_a_retrained_model_is_as_told():
    oracles = {stream: retrained(stream) for stream in CELLS}
    assert all(list(found) == [3, 4, 5] for found in oracles.values())

    def nats(stream, ours, keep=lambda place: True):
        """Return the mean loss by seed of the facts at some places of a request."""
        known = (
            {each.seed: each.losses for each in of_bench(RUN, stream, "tfr")}
            if ours
            else {seed: losses(row) for seed, row in oracles[stream].items()}
        )
        return [
            fmean(loss for number, loss in enumerate(own) if keep(number % 6))
            for own in known.values()
        ]

    for_authors = [f"{fmean(nats('knowundo', ours)):.1f}" for ours in (True, False)]
    assert "({} nats; {})".format(*for_authors) in TEXT
    # Of six facts the fifth is the e-mail address; the retrained model says no other.
    verdicts = chain(*(row["right"] for row in oracles["lume"].values()))
    said = {place for facts in verdicts for place, right in enumerate(facts) if right}
    assert said == {4}
    apart = [nats("lume", ours, lambda place: place != 4) for ours in (True, False)]
    edges = [f"{edge(own):.1f}" for own in apart for edge in (min, max)]
    assert "answers end at {} to {} nats, where that model has {} to {}".format(*edges) in TEXT
    (row,) = (row for row in private_tables()[0].rows if row[:2] == ["LUME", "*a retrained model*"])
    assert f"{row[4]} % of LUME is all there is to forget" in TEXT


def test_the_other_methods_keep_as_little_as_told():
    kept = {
        method: [of_bench(RUN, stream, method)[0].kept for stream in CELLS]
        for method in ("simnpo", "npo", "graddiff")
    }
    assert "SimNPO keeps {:.0f} and {:.0f} %".format(*kept["simnpo"]) in TEXT
    assert max(kept["npo"] + kept["graddiff"]) < 0.5


def test_more_retain_data_keeps_as_much_as_told():
    found = {
        stream: [of_rows(stream, "thorough, more retain data"), of_bench(RUN, stream, "tfr")]
        for stream in CELLS
    }
    pairs = {
        stream: "{:.0f} % in place of {:.0f}".format(*(fmean(r.kept for r in own) for own in both))
        for stream, both in found.items()
    }
    assert f"keeps more of LUME**, {pairs['lume']}" in TEXT
    assert f"On KnowUnDo it keeps {pairs['knowundo']}" in TEXT
    more, default = found["lume"]
    assert all(a.kept > b.kept for a, b in zip(more, default, strict=True))
    assert fmean(each.fresh for each in more) > fmean(each.fresh for each in default)
    refusals = {
        refused(row["outcomes"])
        for stream in CELLS
        for row in rows_of(stream, "thorough, more retain data")
    }
    assert refusals <= set(range(1, 6))


def test_what_a_firm_guard_keeps_and_refuses_is_as_told():
    firm, thorough, default = (
        {stream: read(stream) for stream in CELLS}
        for read in (
            lambda stream: of_rows(stream, FIRM),
            lambda stream: of_bench(THOROUGH, stream, "tfr"),
            lambda stream: of_bench(RUN, stream, "tfr"),
        )
    )

    def mean(found, stream, name):
        return fmean(getattr(each, name) for each in found[stream])

    kept = [mean(found, "lume", "kept") for found in (firm, default)]
    assert "keeps {:.0f} % of LUME** in place of {:.0f}".format(*kept) in TEXT
    refusals = sum(each.requests - each.accepted for each in firm["lume"])
    assert f"refuses {refusals} of 60 requests" in TEXT
    gone = [mean(found, "lume", "forgotten") for found in (firm, default)]
    assert "{:.0f} % is forgotten in place of {:.0f}".format(*gone) in TEXT
    assert f"On KnowUnDo it keeps {mean(firm, 'knowundo', 'kept'):.0f} %, no more" in TEXT
    both = [each.seed for each in thorough["knowundo"]]
    pair = [
        fmean(each.kept for each in found["knowundo"] if each.seed in both)
        for found in (firm, thorough)
    ]
    assert "({:.0f} on seeds 3 and 4, where `thorough` has {:.0f})".format(*pair) in TEXT
    ends = rows_of("lume", FIRM)
    said = fmean(row["seen"][-1] for row in ends)
    held = [
        fmean(fmean(row["checkpoints"][place]["heldout"].values()) for row in ends)
        for place in (-1, 0)
    ]
    told = "{:.0f} % of the held-out facts are still said ({:.0f} before)".format(*held)
    assert f"In the end {told}" in TEXT
    assert f"and {said:.0f} % of what was requested" in TEXT
    assert f"in the end {said:.0f} % of what was requested is still said" in CHOOSING
    told = f"keeps {kept[0]:.0f} %, with 240 retain examples, and refuses {refusals} of 60"
    assert told in CHOOSING
    assert f"it is {kept[0] - kept[1]:.0f} points, but {refusals} of 60" in RESEARCH
    grown = [row["guard_last"] / row["guard_first"] for s in CELLS for row in rows_of(s, FIRM)]
    assert f"(held firmly {min(grown):.0f} to {max(grown):.0f})" in CHOOSING
    assert {refused(row["outcomes"]) for s in CELLS for row in rows_of(s, FIRM)} <= set(range(2, 6))
    for stream in CELLS:
        for row in rows_of(stream, FIRM):
            assert row["settings"] == {
                "preset": "thorough",
                "guard_absolute": 0.005,
                "retain_sharpness": 0,
                "memory_fall": 0.1,
            }
    # Of LUME every request that is refused comes after the sixth.
    for row in rows_of("lume", FIRM):
        assert {outcome["outcome"] for outcome in row["outcomes"][:6]} == {"accepted"}


def test_the_tuning_seeds_are_as_told():
    rows = read_cells("private-tuning")
    assert {row["seed"] for row in rows} == {1000, 1001}
    assert {row["requests"] for row in rows} == {5}

    def kept(stream, candidate):
        found = [r["keeping"] for r in rows if (r["task"], r["candidate"]) == (stream, candidate)]
        assert len(found) == 2
        return round(fmean(found))

    told = f"keeps {kept('lume', 'firm guard')} % in place of {kept('lume', 'default')}**"
    assert f"On LUME the firm guard {told}" in TEXT
    assert f"with `thorough` {kept('lume', 'firm guard, thorough')}, and" in TEXT
    for candidate in ("firm guard", "firm guard, thorough"):
        assert abs(kept("knowundo", candidate) - kept("knowundo", "default")) < 5
    prompts = kept("knowundo", "tokens, by other prompts")
    assert f"the second rule keeps {prompts} %" in TEXT
    for stream in CELLS:
        assert kept(stream, "tokens, as in passages") < kept(stream, "default")
    depth = [
        fmean(row["nats_after"] for row in rows if (row["task"], row["candidate"]) == of)
        for of in (("knowundo", "tokens, as in passages"), ("knowundo", "default"))
    ]
    assert "deeper than the default on KnowUnDo ({:.1f} nats; {:.1f})".format(*depth) in TEXT


def test_no_cell_holds_words_of_the_data():
    for name in ("private", "private-tuning", "tofu-chat", "tofu-chat-tuning", "tofu-chat-01"):
        for row in read_cells(name):
            assert not {"said", "question", "answer", "samples"} & set(row)


def test_the_limit_on_a_whole_stream_would_have_stopped_them_early():
    assert {refused(cell.requests) for cells in CELLS.values() for cell in cells} == {1, 2}
    default, thorough = (
        {refused(row["outcomes"]) for row in tofu_chat_table.rows_of(name)}
        for name in ("default", "thorough")
    )
    assert default == {6, 7}
    assert thorough == {9, 12}
