"""The page of a bench run against numbers worked out from its files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy.stats import t as student

from tests.bench import made_up
from tests.bench.report.reading import ReadPage
from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.tofu_scores import forget_quality
from tfrnet_bench.report import make_report

VARIANTS = ("none", "ga", "tfr-paper", "tfr", "tfr-no-recovery")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up.write_run(tmp_path_factory.mktemp("bench") / "run", seeds=2, variants=VARIANTS)


@pytest.fixture(scope="module")
def page(made: Path) -> ReadPage:
    return ReadPage(make_report(made).html)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(made, tmp_path / "run")


def results(folder: Path, pattern: str) -> list[dict]:
    paths = sorted((folder / "cells").glob(f"{pattern}/result.json"))
    return [json.loads(path.read_text()) for path in paths]


def change(folder: Path, cell: str, **values: object) -> None:
    path = folder / "cells" / cell / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# Tables


@pytest.mark.parametrize("variant", ["none", "ga", "tfr", "tfr-paper"])
@pytest.mark.parametrize("stream", made_up.STREAMS)
def test_main_scores_are_means_over_seeds_with_intervals(made, page, stream, variant):
    row = page.row(f"Stream {stream}", variant)
    names = {
        "F Avg": "forget_average",
        "F@20": "forget_final",
        "R Avg": "retain_average",
        "Trade-off": "trade_off",
    }
    for label, name in names.items():
        values = [r["scores"][name] for r in results(made, f"stream/{stream}/{variant}/*")]
        reach = student.ppf(0.975, 1) * np.std(values, ddof=1) / np.sqrt(2)
        assert row[label].number == pytest.approx(np.mean(values))
        assert row[label].text == f"{np.mean(values):.1f}± {reach:.1f}"
    assert row["Seeds"].number == 2


def test_rows_come_sorted_with_the_floors_below(page):
    rows = page.tables["Stream openbookqa"]
    trade_offs = [row["Trade-off"].number for row in rows]
    assert trade_offs[:4] == sorted(trade_offs[:4], reverse=True)
    assert [(row["Method"].text, row["F Avg"].number) for row in rows[4:]] == [
        ("floor: random", 25.0),
        ("floor: longest choice", 42.0),  # of what is to be forgotten, over both seeds
    ]


def test_the_mean_trade_off_is_over_all_streams(made, page):
    by_stream = [
        fmean(r["scores"]["trade_off"] for r in results(made, f"stream/{stream}/ga/*"))
        for stream in made_up.STREAMS
    ]
    row = page.row("Trade-off by stream", "ga")
    assert row["Mean"].number == pytest.approx(fmean(by_stream))
    assert page.tables["Trade-off by stream"][0]["Method"].text == "ga"
    assert f"is that of ga: {fmean(by_stream):.1f} (95 % interval " in page.text


def test_methods_that_share_the_best_mean_are_all_named(run):
    for stream in made_up.STREAMS:
        for seed, result in enumerate(results(run, f"stream/{stream}/ga/*")):
            change(run, f"stream/{stream}/tfr/{seed}", scores=result["scores"])
    text = ReadPage(make_report(run).html).text
    assert "is that of ga, tfr: " in text
    assert "After it: tfr-paper " in text


def test_a_method_that_lacks_a_stream_has_no_mean_and_is_named(run):
    shutil.rmtree(run / "cells/stream/boolq/ga")
    page = ReadPage(make_report(run).html)
    assert page.row("Trade-off by stream", "ga")["Mean"].text == "-"
    assert "is that of tfr: " in page.text
    assert "Not finished on all streams, so without a mean: ga." in page.text


def test_streams_of_other_models_are_not_in_the_mean(run):
    before = ReadPage(make_report(run).html)
    for variant in ("ga", "tfr"):
        for seed in (0, 1):
            place = run / f"cells/stream/lume/{variant}/{seed}"
            shutil.copytree(run / f"cells/stream/boolq/{variant}/{seed}", place)
            scores = {"forget_average": 1, "forget_final": 1, "retain_average": 99, "trade_off": 99}
            change(run, f"stream/lume/{variant}/{seed}", stream="lume", scores=scores)
    after = ReadPage(make_report(run).html)
    for variant in ("ga", "tfr", "tfr-paper"):
        rows = [page.row("Trade-off by stream", variant) for page in (before, after)]
        assert rows[0]["Mean"] == rows[1]["Mean"]
    assert after.row("Trade-off by stream", "ga")["lume"].number == 99
    assert "over the 3 streams (arithmetic, boolq, openbookqa)" in after.text
    points = [page.data["methods"]["points"]["all streams"] for page in (before, after)]
    assert points[0] == points[1]


def test_a_retrained_model_is_no_method_and_no_ablation(run):
    for stream in made_up.STREAMS:
        for seed in (0, 1):
            place = run / f"cells/stream/{stream}/oracle/{seed}"
            shutil.copytree(run / f"cells/stream/{stream}/none/{seed}", place)
            change(run, f"stream/{stream}/oracle/{seed}", variant="oracle")
    page = ReadPage(make_report(run).html)
    for name, rows in page.tables.items():
        if name.startswith(("Stream", "Variants", "Trade-off", "What a request")):
            assert all(row[next(iter(row))].text != "oracle" for row in rows)
    assert any(
        row["Method"].text == "oracle"
        for row in page.tables["The paper's score and what it cannot show"]
    )


def test_how_many_seeds_recover_half_is_said(run):
    (first,) = results(run, "robust/boolq/tfr/*")
    shutil.copytree(run / "cells/robust/boolq/tfr/0", run / "cells/robust/boolq/tfr/1")
    for seed, steps in enumerate((5, None)):
        robustness = first["robustness"]
        for figures in robustness["relearning"].values():
            figures["steps_to_half_recovery"] = steps
        change(run, f"robust/boolq/tfr/{seed}", seed=seed, robustness=robustness)
    rows = ReadPage(make_report(run).html).tables["Relearning"]
    here = [r for r in rows if (r["Method"].text, r["Stream"].text) == ("tfr", "boolq")]
    shown = {r["Steps to half recovery"].text for r in here}
    assert shown == {"51 of 2 seeds"}


def test_the_no_op_row_comes_from_the_other_cells_where_it_was_not_run(run):
    for stream in made_up.STREAMS:
        shutil.rmtree(run / f"cells/stream/{stream}/none")
    page = ReadPage(make_report(run).html)
    (first, _) = results(run, "stream/boolq/tfr/*")
    assert first["untouched"]["trade_off"] != first["scores"]["trade_off"]
    by_seed = {r["seed"]: r["untouched"]["trade_off"] for r in results(run, "stream/boolq/*/*")}
    row = page.row("Stream boolq", "none")
    assert row["Trade-off"].number == pytest.approx(fmean(by_seed.values()))


def test_ablations_stand_beside_their_method_with_paired_differences(made, page):
    row = page.row("Variants on stream boolq", "tfr-no-recovery")
    base, other = (
        [r["scores"]["trade_off"] for r in results(made, f"stream/boolq/{name}/*")]
        for name in ("tfr", "tfr-no-recovery")
    )
    assert row["Δ Trade-off"].number == pytest.approx(np.mean(np.subtract(other, base)))
    capacity = [r["structure"]["capacity"][-1] for r in results(made, "stream/boolq/tfr/*")]
    base_row = page.row("Variants on stream boolq", "tfr")
    assert base_row["Capacity"].number == pytest.approx(100 * np.mean(capacity))
    assert base_row["Δ Trade-off"].text == "-"
    # A preset is a method of its own, not an ablation.
    assert len(page.tables["Variants on stream boolq"]) == 2


def test_tofu_has_forget_quality_against_the_oracle_of_the_same_seed(made, page):
    found = [
        forget_quality(mine["truth_ratios"], oracle["truth_ratios"]).log10_p
        for mine, oracle in zip(
            results(made, "tofu/tofu/tfr/*"), results(made, "tofu/tofu/retain90/*"), strict=True
        )
    ]
    row = page.row("TOFU", "tfr")
    assert row["log10 forget quality"].number == pytest.approx(fmean(found))
    assert row["Utility"].number == pytest.approx(0.25)
    assert page.row("TOFU", "retain90")["log10 forget quality"].text == "-"


def test_robustness_lists_every_attack(page):
    rows = page.tables["Attacks"]
    assert len(rows) == 6 * len(made_up.STREAMS)
    assert rows[0]["Attack"].text == "relearn: forgotten, 80 steps"
    assert rows[0]["Recovery"].number == pytest.approx(50 / 75)
    assert {row["Steps to half recovery"].number for row in page.tables["Relearning"]} == {40}


def test_cost_is_of_requests_and_apart_by_device(run):
    result = results(run, "stream/boolq/ga/0")[0]
    result["requests"][3]["seconds"]["total"] = 20.9
    result["requests"][3]["memory"]["peak"] = 3_000_000_000
    result["provenance"]["device"] = "another"
    change(run, "stream/boolq/ga/0", **result)
    page = ReadPage(make_report(run).html)
    rows = [r for r in page.tables["Cost of a request"] if r["Method"].text == "ga"]
    (row,) = [r for r in rows if r["Device"].text == "another"]
    assert row["Seconds"].number == pytest.approx(0.9 + 20 / 20)
    assert (row["Slowest"].number, row["Peak GB"].number) == (20.9, 3.0)
    assert {r["Device"].text for r in rows} == {"cpu", "another"}


# Failed and damaged cells


def test_failed_unfinished_and_damaged_cells_are_listed(run):
    (run / "cells/stream/boolq/tfr/0/result.json").write_text("{")
    (run / "cells/stream/boolq/npo/0").mkdir(parents=True)
    made = make_report(run)
    assert made.counts == {"cells": 40, "failed": 2}
    page = ReadPage(made.html)
    errors = {row["Cell"].text: row["Error"].text for row in page.tables["Cells without a result"]}
    assert errors["stream/boolq/rmu/0"] == "InputError: no such layer"
    assert errors["stream/boolq/tfr/0"].startswith("its files cannot be read: ")
    assert errors["stream/boolq/npo/0"] == "neither a result nor an error yet"
    assert "40 finished, 2 failed, 1 without a result" in page.text


def test_a_run_in_which_everything_failed_has_a_page(tmp_path):
    cell = tmp_path / "cells/stream/boolq/tfr/0"
    cell.mkdir(parents=True)
    (cell / "error.json").write_text(json.dumps({"error": "out of memory"}))
    assert "out of memory" in ReadPage(make_report(tmp_path).html).text


def test_a_later_result_counts_over_an_earlier_error(run):
    (run / "cells/stream/boolq/tfr/0/error.json").write_text(json.dumps({"error": "once"}))
    assert make_report(run).counts == {"cells": 41, "failed": 1}


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "neither a bench run .* nor a state"),
        ({"bench.json": "{}"}, "no finished cell yet"),
        ({"bench.json": "{", "cells/a/b/c/0/error.json": "{}"}, "bench.json is not JSON"),
        ({"bench.json": "[]", "cells/a/b/c/0/error.json": "{}"}, "bench.json is not a JSON object"),
    ],
)
def test_other_folders_are_refused(tmp_path, files, message):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        make_report(tmp_path)


# Provenance


def test_settings_of_a_variant_are_those_that_differ(page):
    assert page.row("Settings", "ga")["Settings"].text == "steps=4, use_recovery=false"
    row = page.row("Settings", "tfr-no-recovery")
    assert row["Settings"].text == "as tfr, but use_recovery=true"
    assert row["Overrides"].text == "use_recovery=false"
    assert page.row("Settings", "tfr-paper")["Settings"].text == "as tfr"


def test_origins_are_counted(made, page):
    rows = page.tables["Origin of the cells"]
    assert sum(row["Cells"].number for row in rows) == len(results(made, "*/*/*/*"))
    assert rows[0]["Versions"].text == "tfrnet 0.1.0, torch 2.13.0"
    assert {row["Inputs digest"].text for row in page.tables["Inputs"]} == {"0" * 16}


def test_many_inputs_are_counted_and_shown_with_their_cells(run):
    change(run, "stream/boolq/ga/0", inputs="abc" * 20)
    page = ReadPage(make_report(run).html)
    (row,) = [r for r in page.tables["Inputs"] if r["Kind"].text == "stream" and "boolq" in str(r)]
    assert row["Inputs digest"].text == "2 different, each shown with its cell"
    cell = next(c for c in page.data["cells"] if c["variant"] == "ga" and c["stream"] == "boolq")
    assert ["inputs digest", "abcabcabcabcabca"] in cell["about"]


def test_all_that_a_run_was_asked_for_is_said(run):
    asked = {"experiments": ["main"], "sizes": {"requests": 2}, "reduced": [["a", 1]], "minutes": 3}
    (run / "bench.json").write_text(json.dumps({"plans": [asked, {"experiments": ["tofu"]}]}))
    text = ReadPage(make_report(run).html).text
    for words in ('sizes={"requests": 2}', '["a", 1]', "minutes=3", "Plan 2", "main, tofu"):
        assert words in text


# The data behind the charts


def test_every_cell_is_in_the_data_with_what_is_shown_of_it(made, page):
    cells = page.data["cells"]
    assert len(cells) == len(results(made, "*/*/*/*"))
    (cell,) = [
        c
        for c in cells
        if [c["kind"], c["stream"], c["variant"], c["seed"]] == ["stream", "boolq", "tfr", "1"]
    ]
    (result,) = results(made, "stream/boolq/tfr/1")
    assert cell["matrix"] == result["forgetting"]["accuracy"]["matrix"]
    assert cell["channel_map"] == result["channel_map"]
    assert cell["requests"]["outcome"] == [r["outcome"] for r in result["requests"]]
    assert cell["requests"]["reason"][6] == result["requests"][6]["reason"]
    assert cell["checkpoints"][0]["retain"] == result["checkpoints"][0]["retain"]
    assert cell["texts"] == [
        {name: answer[name] for name in ("key", "gold", "before", "after")}
        for answer in result["answers"]
    ]


def test_points_and_lines_of_the_charts_are_means_over_seeds_and_streams(made, page):
    methods = page.data["methods"]
    scores = [r["scores"]["retain_average"] for r in results(made, "stream/*/tfr/*")]
    point = methods["points"]["all streams"]["tfr"]
    assert point["retain_average"][0] == pytest.approx(fmean(scores), rel=1e-4)
    at_ten = [
        c["forget"]
        for r in results(made, "stream/boolq/tfr/*")
        for c in r["checkpoints"]
        if c["request"] == 10
    ]
    line = methods["lines"]["boolq"]["tfr"]
    assert line["forget"][line["requests"].index(10)] == pytest.approx(fmean(at_ten), rel=1e-4)
    assert methods["groups"]["variants"] == ["tfr", "tfr-no-recovery"]


def test_whole_texts_take_the_place_of_answers(run):
    samples = [
        {
            "key": "boolq/train/0",
            "prompt": "P" * 999 + "Q" * 99,
            "gold": "yes",
            "before": "a",
            "after": "b",
        }
    ]
    cell = run / "cells/stream/boolq/ga/0"
    (cell / "samples.jsonl").write_text("".join(json.dumps(s) + "\n" for s in samples))
    data = ReadPage(make_report(run).html).data["cells"]
    texts = next(c for c in data if c["variant"] == "ga" and c["stream"] == "boolq")["texts"]
    assert texts[0]["prompt"] == "P" * 106 + " … " + "P" * 115 + "Q" * 99
    assert [text["key"] for text in texts].count("boolq/train/0") == 1
    assert len(texts) == 6


def test_numbers_that_are_not_finite_become_null(run):
    requests = [made_up.outcome(1, "ga", "boolq", 0) | {"forget_loss_after": float("nan")}]
    change(run, "stream/boolq/ga/0", requests=requests, peak_bytes=None)
    data = ReadPage(make_report(run).html).data["cells"]
    cell = next(c for c in data if c["variant"] == "ga" and c["stream"] == "boolq")
    assert cell["requests"]["forget_loss_after"] == [None]


# Safety and size


def test_nothing_in_the_data_becomes_markup(run):
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u2028"
    result = results(run, "stream/boolq/ga/0")[0]
    result["requests"][0] |= {"reason": evil, "id": evil}
    result["answers"][0]["after"] = evil
    result["settings"] = {evil: evil}
    result["model"]["name"] = evil
    result["provenance"]["versions"] = {evil: evil}
    change(run, "stream/boolq/ga/0", **result)
    (run / "cells/stream/boolq/rmu/0/error.json").write_text(json.dumps({"error": evil}))
    (run / "bench.json").write_text(json.dumps({"plans": [{"experiments": [evil], evil: evil}]}))
    html = make_report(run).html
    page = ReadPage(html)
    assert page.tags.count("script") == 2
    assert "img" not in page.tags
    assert "\u2028" not in html.split('id="data">')[1].split("</script>")[0]
    cell = next(c for c in page.data["cells"] if c["variant"] == "ga" and c["stream"] == "boolq")
    assert cell["requests"]["reason"][0] == evil
    assert page.tables["Cells without a result"][0]["Error"].text == evil


def test_the_page_loads_nothing_from_elsewhere(page, made):
    html = make_report(made).html
    assert all(link.startswith("#") for link in page.links)
    assert {link[1:] for link in page.links} <= {
        part.split('"')[0] for part in html.split('id="')[1:]
    }
    assert not {"link", "img", "iframe", "video", "audio", "object"} & set(page.tags)
    addresses = {part.split('"')[0] for part in html.replace("https:", "http:").split("http:")[1:]}
    assert addresses == {"//www.w3.org/2000/svg"}
    assert "url(" not in html
    assert "@import" not in html


@pytest.mark.slow
def test_a_run_of_130_cells_is_under_three_megabytes(tmp_path):
    result = made_up.stream_result("tfr", "boolq", 0)
    layers, projections = 30, 7
    counts = np.random.default_rng(0).integers(0, 1536, (4, layers, projections)).tolist()
    names = ("channels", "suppressed", "dormant", "recovered")
    result["channel_map"] |= dict(zip(names, counts, strict=True)) | {"layers": [*range(layers)]}
    for request in result["requests"]:
        request["top_channels"] = [*range(128)]
        request["forget_loss_after"] = 1 / 3
    words = dict.fromkeys(("prompt", "gold", "before", "after"), "word " * 100)
    for seed in range(130):
        cell = tmp_path / f"cells/stream/boolq/tfr/{seed}"
        cell.mkdir(parents=True)
        (cell / "result.json").write_text(json.dumps(result | {"seed": seed}))
        lines = [json.dumps({"key": f"boolq/{n}"} | words) for n in range(20)]
        (cell / "samples.jsonl").write_text("\n".join(lines))
    html = make_report(tmp_path).html
    assert len(html.encode()) < 3_000_000
    assert "top_channels" not in html
