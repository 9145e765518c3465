"""Models in the cache: what a killed process leaves, and what others are making meanwhile."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tfrnet.models import cache
from tfrnet.models.cache import CHECKED, new_model

# Makes a model for ever.
ENDLESS = """
import sys, time
from pathlib import Path
from tfrnet.models.cache import new_model

with new_model(Path(sys.argv[1])) as folder:
    (folder / "half.safetensors").write_bytes(b"half")
    print(folder, flush=True)
    time.sleep(3600)
"""


@contextmanager
def another_process(target: Path) -> Iterator[Path]:
    """The folder that a process works in; it is killed when the block ends."""
    command = [sys.executable, "-c", ENDLESS, str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield Path(process.stdout.readline().strip())
        finally:
            process.kill()


def make(target: Path) -> None:
    with new_model(target) as folder:
        (folder / "config.json").write_text("{}")


def test_what_a_killed_process_left_goes_when_the_next_one_begins(tmp_path: Path) -> None:
    models = tmp_path / "models"
    with another_process(models / "a") as folder:
        make(models / "b")
        assert (folder / "half.safetensors").is_file()  # it is still at work
        with new_model(models / "c"):
            assert (folder / "half.safetensors").is_file()
    assert folder.is_dir()
    make(models / "a")
    assert sorted(path.name for path in models.iterdir()) == ["a", "b", "c"]
    assert {path.name for path in (models / "a").iterdir()} == {"config.json", CHECKED}


@pytest.mark.parametrize("name", [".converting-x", ".merging-x"])
def test_what_earlier_versions_left_goes_too(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "model.safetensors").touch()
    (tmp_path / "other").mkdir()
    make(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "other"]


def test_one_who_takes_a_new_folder_for_abandoned_is_not_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock another process may remove it."""
    real, removed = cache.FolderLock, []

    def late(folder: Path) -> cache.FolderLock:
        if not removed:
            removed.append(folder)
            folder.rmdir()
        return real(folder)

    monkeypatch.setattr(cache, "FolderLock", late)
    make(tmp_path / "a")
    assert removed
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
