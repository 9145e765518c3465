"""The page about repairs holds what its cells say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from benchmarks import repair_table as tables
from benchmarks.cost_table import TOFU
from benchmarks.default_table import of, read_cells
from tfrnet import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

PAGE = (Path(__file__).parents[2] / "benchmarks" / "notebook" / "repair.md").read_text()
SUMMARY = " ".join(PAGE.split("\n\n")[1].split())


def test_the_tables_are_those_of_the_cells() -> None:
    rows = tables.cells()
    assert tables.tofu_table(rows) in PAGE
    assert tables.streams_table(rows) in PAGE
    assert tables.rounded_table(rows) in PAGE
    assert tables.channels_table(rows) in PAGE
    assert tables.sums_table() in PAGE


def test_the_summary_is_what_was_measured() -> None:
    rows = tables.cells()
    (held,), (repaired,) = (of(rows, name, TOFU) for name in ("t", "tR"))
    fresh = [row["fresh_loss"][1] for row in (repaired, held)]
    assert "{:.3f} in place of {:.3f}".format(*fresh) in SUMMARY
    kept = [row["sets"]["retain"]["probability"] for row in (repaired, held)]
    assert "{:.2f} in place of {:.2f}".format(*kept) in SUMMARY
    depths = [fmean(row["forget_loss_after"]) for row in (repaired, held)]
    assert "{:.1f} and {:.1f} nats".format(*depths) in SUMMARY
    ratio = repaired["request_seconds"] / held["request_seconds"]
    assert f"{ratio:.1f} times the time" in SUMMARY


def test_the_cells_had_the_changes_of_the_preset() -> None:
    rows = tables.cells()
    settings = [
        row["settings"] for name in ("R3", "dR") for row in rows if row["candidate"] == name
    ]
    assert settings
    assert all(
        TFRConfig.from_dict(own) == TFRConfig.preset("thorough") != TFRConfig() for own in settings
    )


def test_what_held_tokens_do_to_facts_is_what_was_measured() -> None:
    kept = []
    for name in ("s1", "d"):
        row = of(tables.cells(), name, "demo:capitals")[0]
        kept.append(row["points"][-1]["same_topic"])
    assert "{:.0f} % of the same topic are kept in place of {:.0f}".format(*kept) in PAGE


def test_how_many_channels_were_lowered_is_what_was_measured() -> None:
    rows = tables.cells()
    few, every = (
        [
            f"{of(rows, name, task)[0]['lowered'][0]:,}"
            for task in ("demo:capitals", "demo:geography")
        ]
        for name in ("c4096", "d")
    )
    shown = f"({' and '.join(few)} in place of {' and '.join(every)})"
    assert shown in " ".join(PAGE.split())


def test_the_cells_of_this_page_are_of_no_reporting_seed() -> None:
    assert min(row["seed"] for row in read_cells("repair")) >= FIRST_TUNING_SEED
