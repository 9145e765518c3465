"""The page about the default holds what its cells say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import default_table as tables
from benchmarks.main_table import ENTRIES, Figures
from benchmarks.wrong_answers_table import CHOSEN, reported
from tfrnet_bench.constants import FIRST_TUNING_SEED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "benchmarks" / "notebook" / "default.md").read_text()
DOC = (ROOT / "docs" / "research.md").read_text()
CELLS = tables.read_cells()
ORACLES = tables.read_cells("default-oracle")
# The default of today is in other cells than those of the page.
TODAY = [
    cell | {"candidate": "default"}
    for cell in (
        *(c for c in tables.read_cells("witness") if c["task"] != "openbookqa"),
        *reported(tables.read_cells("wrong-answers"), CHOSEN, "openbookqa"),
    )
    if cell["candidate"] in ("h0", CHOSEN)
]
OTHERS = [cell for cell in CELLS if cell["candidate"] != "default"]


@pytest.mark.parametrize("name", ["streams_table", "topics_table", "tofu_table"])
def test_a_table_is_that_of_the_cells(name: str) -> None:
    assert getattr(tables, name)(CELLS) in PAGE


def test_the_table_beside_the_retrained_model() -> None:
    assert tables.oracle_table(CELLS, ORACLES) in PAGE
    scores = [
        f"{tables.oracle_scores(stream, CELLS, ORACLES)['honest']:.1f}" for stream in tables.STREAMS
    ]
    assert all(score in PAGE for score in scores)
    assert scores[1] in DOC


def test_streams_are_of_reporting_seeds_with_the_default_as_it_is() -> None:
    for cell in CELLS:
        is_fact = cell["task"].startswith("demo:")
        assert (cell["seed"] >= FIRST_TUNING_SEED) == is_fact
        assert cell["candidate"] != "default" or cell["settings"] == {}  # the default then
        assert cell["requests"] == (5 if is_fact else 20)


@pytest.mark.parametrize(
    ("shown", "entry"),
    [
        ("default", None),
        ("`deep`", "TFR-Net, `--preset deep`"),
        ("NPO", "NPO"),
        ("SimNPO", "SimNPO"),
    ],
)
def test_the_documents_row_is_that_of_the_cells(shown: str, entry: str | None) -> None:
    (row,) = (x for x in DOC.splitlines() if x.startswith(f"| {shown} |") and x.count("|") == 8)
    if entry is None:
        own = [tables.of(TODAY, "default", stream) for stream in tables.STREAMS]
    else:
        figures = Figures(ENTRIES[entry])
        assert figures.seeds == [3, 4, 5, 6, 7]
        own = [figures.of(stream) for stream in tables.STREAMS]
    scores = [fmean(cell["honest"] for cell in cells) for cells in own]
    wanted = [f"{score:.1f}" for score in (*scores, fmean(scores))]
    wanted.append(" / ".join(tables.mean(cells, "not_yet") for cells in own) + " %")
    wanted.append(" / ".join(f"x{fmean(c['fresh_ratio'] for c in cells):.1f}" for cells in own))
    assert [figure for figure in wanted if figure not in row.replace("*", "")] == []


def test_the_documents_topics_are_those_of_the_cells() -> None:
    for line in tables.topics_table([*TODAY, *OTHERS]).splitlines()[2:]:
        name, _, *figures = (cell.strip() for cell in line.strip("|").split("|"))
        row = next(x for x in DOC.splitlines() if figures[0] in x and name in x)
        assert [figure for figure in figures[:5] if figure not in row] == []


def test_a_measure_by_hand() -> None:
    oracle, last = {"losses": [[1.0, 2.0], [3.0, 4.0]]}, {"losses": [[0.5, 5.0], [6.0, 2.0]]}
    # At 4 all of the oracle's are counted and half of the others.
    assert tables.distance(last, oracle) == 0.5
