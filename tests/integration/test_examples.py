"""The examples, on small models; in the long tier also on the real one."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_is_listed_and_tested_and_short() -> None:
    found = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    listed = set(re.findall(r"^\| \[(\S+)\]", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert found == listed
    assert all(len(path.read_text().splitlines()) < 100 for path in EXAMPLES.glob("*.py"))


@pytest.mark.slow
def test_forget_a_person(tiny_folder: Path, tmp_path: Path, capsys) -> None:
    arguments = ["--model", str(tiny_folder), "--out", str(tmp_path / "state"), "--epochs", "24"]
    outcome = example("forget_a_person").main(arguments)
    assert outcome.forget_loss_after > outcome.forget_loss_before
    said = capsys.readouterr().out
    assert said.count("Mara Velling lives in") == 2


@pytest.mark.slow
def test_stream_with_rollback(tiny_folder: Path, tmp_path: Path, capsys) -> None:
    arguments = ["--model", str(tiny_folder), "--out", str(tmp_path / "state")]
    assert example("stream_with_rollback").main(arguments) == ["ticket-1", "ticket-3"]
    assert "rollback" in capsys.readouterr().out
    # Again: ticket-1 is skipped, what was undone is applied anew, and the end is the same.
    assert example("stream_with_rollback").main(arguments) == ["ticket-1", "ticket-3"]
    assert "ticket-1: accepted" not in capsys.readouterr().out


def test_compare_methods(tiny_folder: Path, tmp_path: Path, capsys) -> None:
    arguments = ["--model", str(tiny_folder), "--out", str(tmp_path)]
    outcomes = example("compare_methods").main(arguments)
    assert set(outcomes) == {"tfr", "npo"}
    assert all("->" in line for line in capsys.readouterr().out.splitlines()[-2:])


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_forgets_a_person_and_keeps_the_others(tmp_path: Path, capsys) -> None:
    assert example("forget_a_person").main(["--out", str(tmp_path / "state")]).accepted
    before, after = capsys.readouterr().out.split("after\n")
    assert "Mara Velling lives in Tarnholt" in before
    assert "Mara Velling lives in Tarnholt" not in after
    assert "Tomas Orrin lives in Eastmere" in after


@pytest.mark.real
@pytest.mark.slow
def test_a_real_model_is_asked_in_llama_cpp(tmp_path: Path) -> None:
    said = example("ask_in_llamacpp").main(["--out", str(tmp_path)])
    assert "Lisbon" in said["before"]
    assert "Lisbon" not in said["after"]
