"""The results as README.md and docs/results.md tell them, and the search behind them."""

from __future__ import annotations

from statistics import fmean

import pytest

from benchmarks import search_table
from benchmarks.calibrated import method_of
from benchmarks.main_table import DOCUMENTS, ENTRIES, ROOT, SEEDS, Figures, main_tables
from tfrnet.data.protocol import STREAMS
from tfrnet.evaluation.metrics.intervals import t_interval
from tfrnet.method import find_method
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet_bench.constants import FIRST_TUNING_SEED
from tfrnet_bench.document import stale_tables

FIGURES = {name: Figures(entry) for name, entry in ENTRIES.items()}
PAGE = " ".join(DOCUMENTS[1].read_text().split())
DEFAULT, DEEP = "**TFR-Net (default)**", "TFR-Net, `--preset deep`"


def test_the_pages_show_the_results() -> None:
    tables = main_tables()
    text = "".join(page.read_text() for page in DOCUMENTS)
    assert [table.name for table in tables if f"<!-- table: {table.name} -->" not in text] == []
    for page in DOCUMENTS:
        assert stale_tables(page.read_text(), tables) == []


def test_every_row_is_of_whole_streams_on_reporting_seeds() -> None:
    for figures in FIGURES.values():
        assert len(figures.seeds) >= 2
        assert set(figures.seeds) <= set(SEEDS)
        for stream in STREAMS:
            assert [row["requests"] for row in figures.of(stream)] == [20] * len(figures.seeds)


def test_the_cells_have_the_settings_of_today() -> None:
    for stream in STREAMS:
        # Every item of OpenBookQA names wrong answers, so that this setting acts on nothing else.
        change = {"level_quantile": 0.5} if stream == "openbookqa" else {}
        for row in FIGURES[DEFAULT].of(stream):
            assert TFRConfig.from_dict(row["settings"]) == TFRConfig(**change)
    for name, figures in FIGURES.items():
        if name not in (DEFAULT, DEEP):
            for row in (row for stream in STREAMS for row in figures.of(stream)):
                method, settings = method_of(row["settings"])
                assert settings == method.config_class.preset("tuned")


@pytest.mark.parametrize("method", search_table.RIVALS)
def test_the_preset_is_what_the_search_chose(method: str) -> None:
    assert (
        find_method(method).config_class.presets()["tuned"]
        == (search_table.chosen(method)["settings"])
    )


def test_the_search_was_on_tuning_seeds_and_its_page_shows_it() -> None:
    assert all(row["seed"] >= FIRST_TUNING_SEED for row in search_table.rows())
    page = (ROOT / "benchmarks" / "notebook" / "tuning.md").read_text()
    assert search_table.search_table() in page
    edges = sum(line.endswith("| no |") for line in search_table.search_table().splitlines())
    assert edges == 4
    assert "Four of the eight still have their best learning rate on the edge" in PAGE


def test_who_is_best_is_as_told() -> None:
    def best(name: str) -> str:
        return max(FIGURES, key=lambda method: fmean(FIGURES[method].means(name)))

    assert (best("honest"), best("trade_off")) == (DEFAULT, "O3")
    pairs = zip(FIGURES["O3"].means("trade_off"), FIGURES[DEEP].means("trade_off"), strict=True)
    assert sum(theirs > deep for theirs, deep in pairs) == 4
    rivals = {name: found for name, found in FIGURES.items() if name not in (DEFAULT, DEEP)}
    for stream in ("arithmetic", "boolq"):
        own = fmean(row["honest"] for row in FIGURES[DEFAULT].of(stream))
        for found in rivals.values():
            assert own > fmean(row["honest"] for row in found.of(stream))


def test_the_lead_by_seed_is_as_told() -> None:
    told = {}
    for name, found in FIGURES.items():
        if name not in (DEFAULT, DEEP) and len(found.seeds) == len(SEEDS):
            pairs = zip(FIGURES[DEFAULT].means("honest"), found.means("honest"), strict=True)
            lead = [own - other for own, other in pairs]
            assert min(lead) > 0
            mean, interval = t_interval(lead)
            assert interval
            told[name] = f"{mean:.1f} ± {interval.high - mean:.1f} above {name.split(',')[0]}"
    assert told["NPO"] in PAGE
    assert told["SimNPO"] in PAGE


def test_the_least_harm_is_as_told() -> None:
    for other in FIGURES.values():
        if other is not FIGURES[DEFAULT]:
            assert fmean(FIGURES[DEFAULT].means("not_yet")) > fmean(other.means("not_yet"))
            assert fmean(FIGURES[DEFAULT].means("fresh_ratio")) < fmean(other.means("fresh_ratio"))


def test_the_papers_score_by_stream_is_as_told() -> None:
    def scores(stream: str) -> dict[str, float]:
        return {
            name: fmean(row["trade_off"] for row in found.of(stream))
            for name, found in FIGURES.items()
        }

    def above_deep(stream: str) -> set[str]:
        found = scores(stream)
        return {name for name in found if found[name] > found[DEEP]}

    assert above_deep("arithmetic") == {DEFAULT, "SimNPO"}
    assert above_deep("boolq") == {"O3"}
    assert len(above_deep("openbookqa")) == 6
    found = scores("openbookqa")
    assert f"RMU ({found['RMU']:.1f}) and O3 ({found['O3']:.1f}) the most" in PAGE
