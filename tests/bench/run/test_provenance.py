"""Where results come from."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tfrnet_bench.run.provenance import COMMIT_VARIABLE, code_commit, model_identity


def test_a_name_is_the_model_that_it_means_where_one_is(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    shipped = model_identity("smollm2-tasks")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2-tasks").symlink_to(tiny_folder)
    assert model_identity("smollm2-tasks") == model_identity(str(tiny_folder)) != shipped
    (tmp_path / "smollm2-tasks").unlink()
    assert model_identity("smollm2-tasks") == shipped


def test_other_weights_are_another_model(tmp_path: Path, tiny_folder: Path):
    copy = tmp_path / "copy"
    shutil.copytree(tiny_folder, copy)
    assert model_identity(str(copy)) == model_identity(str(tiny_folder))
    other = tmp_path / "other"
    shutil.copytree(tiny_folder, other)
    change(other / "model.safetensors", -1)
    assert model_identity(str(other)) != model_identity(str(tiny_folder))


def change(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


def test_weights_count_to_their_middle_and_are_read_once_until_they_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read: list[str] = []
    digest = hashlib.file_digest

    def counted(file, name):
        read.append(Path(file.name).name)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counted)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(5 << 20))
    (tmp_path / "config.json").write_text("{}")
    first = model_identity(str(tmp_path))
    assert model_identity(str(tmp_path)) == first
    assert sorted(read) == ["config.json", "model.safetensors"]
    change(weights, 5 << 19)
    assert model_identity(str(tmp_path)) != first
    assert read[2:] == ["model.safetensors"]


def test_a_copy_of_the_code_is_told_its_commit(monkeypatch: pytest.MonkeyPatch):
    code_commit.cache_clear()
    monkeypatch.setenv(COMMIT_VARIABLE, "abc")
    assert code_commit() == "abc"
    code_commit.cache_clear()
