"""The notebook of the examples: it shows what it ran, and its code runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "forget_and_undo.ipynb"
CODE = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["cell_type"] == "code"]


def test_it_was_run_from_top_to_bottom_and_shows_text_and_a_picture() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    outputs = [output for cell in CODE for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 1
    assert NOTEBOOK.stat().st_size < 150_000


def test_its_text_agrees_with_what_it_shows() -> None:
    """Forgotten, and there again; France stays, and so does Spain, which no retain line names."""
    first, _, _, after, undone = ("".join(cell["outputs"][0]["text"]) for cell in CODE[1:6])
    assert first == undone
    assert ("Lisbon" in first, "Lisbon" in after) == (True, False)
    assert all("Paris" in text and "Madrid" in text for text in (first, after))


@pytest.mark.slow
def test_its_code_runs(tiny_folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """All cells in order, on a small model, as they stand otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    program = "\n".join("".join(cell["source"]) for cell in CODE)
    exec(program.replace("smollm2-135m", str(tiny_folder)), {})
    assert "ticket-1: accepted" in capsys.readouterr().out
    assert (tmp_path / "unlearned" / "model.safetensors").is_file()
