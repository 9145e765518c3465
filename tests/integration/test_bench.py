"""`tfrnet bench` and `tfrnet report` as a user meets them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.bench.run.setting import make_machine
from tfrnet.cli.main import main
from tfrnet_bench.commands.bench import _plan
from tfrnet_bench.run.plan import ALL


@pytest.fixture
def bench(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
    folder = make_machine(tmp_path).source.folder
    models = [f"--{name}={tiny_folder}" for name in ("model", "tofu-model", "oracle")]

    def run(*words: str) -> tuple[int, str, str]:
        place = ["--data-dir", str(folder), "--out", str(tmp_path / "run")]
        monkeypatch.setattr(sys, "argv", ["tfrnet", "bench", *words, *models, *place])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


@pytest.mark.slow
def test_a_cell_that_fails_is_told_and_the_exit_code_says_so(bench, tmp_path: Path):
    # The small model has three layers; RMU steers the eighth.
    code, out, err = bench("main", "--quick", "--methods", "ga,rmu")
    assert code == 1
    assert "stream/arithmetic/ga/0: F " in out
    assert "stream/arithmetic/rmu/0: failed: InputError" in out
    assert "2 of 3 cells are finished, 1 failed" in out
    assert "stream/arithmetic/rmu/0 failed: InputError" in err
    table = (tmp_path / "run" / "tables" / "main-arithmetic.md").read_text()
    assert "failed" in table
    assert (tmp_path / "run" / "figures" / "tradeoff.svg").is_file()
    assert "rmu/0" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.slow
def test_the_same_command_again_has_nothing_to_do_and_says_what_there_is(bench, tmp_path: Path):
    assert bench("main", "--quick", "--methods", "ga")[0] == 0
    code, out, _ = bench("main", "--quick", "--methods", "ga", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["schema"] == "tfrnet.bench/1"
    assert result["cells"]["total"] == len(result["cells"]["kept"]) == 2
    plans = json.loads((tmp_path / "run" / "bench.json").read_text())["plans"]
    assert [plan["methods"] for plan in plans] == [["ga"]]


def test_a_run_in_which_all_fails_says_why(bench, tmp_path: Path):
    code, out, err = bench("robust", "--quick", "--methods", "rmu")
    assert code == 1
    assert "0 of 1 cells are finished, 1 failed" in out
    assert "robust/arithmetic/rmu/0 failed: InputError" in err
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.slow
def test_a_run_of_other_sizes_is_not_mixed_in(bench, tmp_path: Path):
    assert bench("main", "--quick", "--methods", "ga")[0] == 0
    before = (tmp_path / "run" / "bench.json").read_text()
    code, _, err = bench("main", "--quick", "--methods", "ga", "--dtype", "bfloat16")
    assert code == 2
    assert "was made with another dtype; choose another folder" in err
    assert (tmp_path / "run" / "bench.json").read_text() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nope",), "unknown experiment 'nope'"),
        (("main", "--seeds", "1000"), "for tuning"),
        (("main", "--seeds", "one"), "--seeds takes numbers"),
        (("main", "--methods", "nope"), "unknown method 'nope'"),
        (("tofu",), "TOFU's forget10 has 1 authors, not 20"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line(bench, words, message):
    code, out, err = bench(*words)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("named", "chosen"),
    [(["all", "lume"], (*ALL, "lume")), (["main", "all"], ALL), (["main", "main"], ("main",))],
)
def test_all_takes_nothing_away(named: list[str], chosen: tuple[str, ...]) -> None:
    assert _plan(named, False, {}, {"forget": "10", "template": "qa"}).experiments == chosen


def test_a_name_beside_all_is_checked_too(bench) -> None:
    code, _, err = bench("all", "typo")
    assert code == 2
    assert "unknown experiment 'typo'" in err
