"""`tfrnet ask`: bad input is one line. What a good file says is tested with the first page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import Tfrnet
from tfrnet.export import llamacpp


def test_what_is_no_gguf_file_is_said(tfrnet: Tfrnet, tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("none")
    for path, problem in ((tmp_path, "is not a file"), (tmp_path / "notes.gguf", "not a GGUF")):
        result = tfrnet("ask", path, "--prompt", "Item")
        assert result.code == 2
        assert problem in result.error
    assert tfrnet("ask", tmp_path, "--prompt", " ").error == "--prompt is empty; give it some text"


def test_a_missing_llama_cpp_is_said(
    tfrnet: Tfrnet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(llamacpp, "find_spec", lambda name: None)
    result = tfrnet("ask", tmp_path / "model.gguf", "--prompt", "Item")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "pip install 'tfrnet[llamacpp]'" in result.error


def test_a_broken_file_is_said(tfrnet: Tfrnet, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + bytes(64))
    result = tfrnet("ask", tmp_path / "model.gguf", "--prompt", "Item")
    assert result.code == 2
    assert "llama.cpp cannot load" in result.err.splitlines()[-1]
