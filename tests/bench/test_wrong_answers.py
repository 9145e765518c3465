"""The pages about named wrong answers and about Gemma have what their cells say."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from benchmarks import gemma_table
from benchmarks import wrong_answers_table as tables
from benchmarks.calibrated import method_of
from benchmarks.default_table import STREAMS, lost_accuracy, of, read_cells
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED

NOTEBOOK = Path(__file__).parents[2] / "benchmarks" / "notebook"
PAGE = " ".join((NOTEBOOK / "wrong-answers.md").read_text().split())
RESULTS = (NOTEBOOK.parents[1] / "docs" / "results.md").read_text()
GEMMA_PAGE = (NOTEBOOK / "gemma.md").read_text()
CELLS, GEMMA = read_cells("wrong-answers"), read_cells("gemma")


def test_the_tables_are_those_of_the_cells() -> None:
    page = (NOTEBOOK / "wrong-answers.md").read_text()
    oracles = read_cells("default-oracle")
    assert tables.report_table(tables.report_variants(), oracles) in page
    assert tables.tuning_table(CELLS) in page
    assert tables.own_text_table(tables.own_text_variants()) in page
    assert gemma_table.scores_table(GEMMA) in GEMMA_PAGE
    assert gemma_table.side_table(GEMMA) in GEMMA_PAGE


def test_what_was_tried_ran_on_tuning_seeds_and_what_was_chosen_on_all_reporting_seeds() -> None:
    tuned = [row for row in CELLS if row["candidate"] not in (tables.CHOSEN, tables.OWN_TEXT)]
    assert all(row["seed"] >= FIRST_TUNING_SEED for row in tuned)
    chosen = tables.reported(CELLS, tables.CHOSEN, "openbookqa")
    assert [row["seed"] for row in chosen] == [3, 4, 5, 6, 7]
    assert all(row["requests"] == 20 for row in CELLS)


def test_the_mean_over_streams_is_as_told() -> None:
    before = read_cells("witness")
    streams = {stream: of(before, "h0", stream) for stream in STREAMS}
    streams["openbookqa"] = tables.reported(CELLS, tables.CHOSEN, "openbookqa")
    mean = fmean(fmean(row["honest"] for row in rows) for rows in streams.values())
    assert f"is {mean:.1f} on five seeds" in PAGE


def test_how_far_streams_without_retain_data_are_from_those_with_it() -> None:
    variants = tables.own_text_variants()
    apart = {
        stream: fmean(map(lost_accuracy, variants["given"][stream]))
        - fmean(map(lost_accuracy, variants["none"][stream]))
        for stream in STREAMS
    }
    told = (
        "OpenBookQA ({openbookqa:.1f} points apart before rounding) and BoolQ ({boolq:.1f}), "
        "not on arithmetic"
    )
    assert f"{told} ({{arithmetic:.1f}})".format_map(apart) in PAGE


# What the search had chosen when Gemma's cells ran, where it was something else.
_CHOSEN_THEN: dict[str, dict[str, float]] = {
    "simnpo": {"steps": 10},
    "o3": {"learning_rate": 0.001},
    "graddiff": {"learning_rate": 5e-05},
    "npo": {},
}


def test_gemmas_cells_have_the_settings_that_the_page_names() -> None:
    for row in GEMMA:
        method, settings = method_of(row["settings"])
        if row["candidate"] == "default":
            change = {"level_quantile": 0.5} if row["task"] == "openbookqa" else {}
            assert settings == TFRConfig(**change)
        elif row["candidate"] in _CHOSEN_THEN:
            change = _CHOSEN_THEN[row["candidate"]]
            tuned = method.config_class.presets()["tuned"]
            assert settings == method.config_class.from_dict({**tuned, **change})
    short = [row for row in GEMMA if row["requests"] < 20]
    assert [(r["candidate"], r["task"], r["seed"]) for r in short] == [("simnpo", "arithmetic", 5)]


def test_on_gemma_the_default_is_ahead_of_the_other_methods_as_told() -> None:
    def score(method: str, seeds: tuple[int, ...] = (3, 4, 5)) -> float:
        return fmean(
            fmean(r["honest"] for r in gemma_table.whole(GEMMA, method, s) if r["seed"] in seeds)
            for s in STREAMS
        )

    assert all(score("default") > score(name) for name in ("o3", "simnpo", "npo", "graddiff"))
    same = f"{score('default', (3, 4)):.1f}"
    assert f"({score('deep'):.1f} and {same})" in words(GEMMA_PAGE)
    assert f"the default has {same}" in words(RESULTS)


def test_what_is_kept_on_gemma_of_what_is_not_yet_requested_is_as_told() -> None:
    def kept(method: str) -> list[float]:
        cells = [gemma_table.whole(GEMMA, method, stream) for stream in STREAMS]
        return [fmean(row["not_yet"] for row in own) for own in cells]

    others = [share for name in gemma_table.METHODS[2:] for share in kept(name)]
    assert "It keeps {:.0f}, {:.0f} and {:.0f} %".format(*kept("default")) in words(RESULTS)
    assert f"keep {min(others):.0f} to {max(others):.0f} %" in words(RESULTS)


def words(text: str) -> str:
    return " ".join(text.split())
