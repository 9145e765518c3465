"""`backup`, `restore` and `prune` as a user calls them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import Files, Tfrnet
from tests.state.made_up import contents

pytestmark = pytest.mark.usefixtures("no_model")


def test_backup_and_restore(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    out, back = tmp_path / "state.tar", tmp_path / "back"
    result = tfrnet("backup", "--state", files.state, "--out", out)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"backed up state {files.state} at generation 2 to {out} (7 files")
    result = tfrnet("restore", out, "--state", back)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"restored state {back} at generation 2 from {out}")
    # Where the base model lies is noted for this machine alone.
    assert contents(files.state).keys() - contents(back).keys() == {"base-model"}
    (files.state / "base-model").unlink()
    assert contents(back) == contents(files.state)
    assert tfrnet("verify", "--state", back).code == 0


def test_backup_and_restore_as_json(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "state.tar"
    made = tfrnet("backup", "--state", files.state, "--out", out, "--json").json
    assert (made["schema"], made["bytes"]) == ("tfrnet.backup/1", out.stat().st_size)
    back = tfrnet("restore", out, "--state", tmp_path / "back", "--json").json
    assert back["schema"] == "tfrnet.restore/1"
    assert back["files"] == made["files"]


def test_what_cannot_be_done_is_one_line_and_2(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "no.tar").write_bytes(b"no tar at all")
    cases = [
        (("backup", "--state", tmp_path / "none", "--out", tmp_path / "a.tar"), "holds no state"),
        (("backup", "--state", files.state, "--out", files.retain), "exists already"),
        (("backup", "--state", files.state, "--out", tmp_path / "no" / "a.tar"), "cannot be wri"),
        (("backup", "--state", files.state, "--out", files.state / "a.tar"), "lies in the state"),
        (
            ("backup", "--state", files.state, "--out", files.state / "generations" / "a.tar"),
            "lies in the state",
        ),
        (("restore", tmp_path / "none.tar", "--state", tmp_path / "b"), "does not exist"),
        (("restore", tmp_path / "no.tar", "--state", tmp_path / "b"), "is not a backup of a state"),
        (("prune", "--state", tmp_path / "none", "--keep", 1), "holds no state"),
        (("prune", "--state", files.state, "--keep", 0), "--keep"),
    ]
    before = contents(files.state)
    for arguments, message in cases:
        result = tfrnet(*arguments)
        assert result.code == 2
        assert message in result.error
        assert result.out == ""
    assert contents(files.state) == before
    assert not (tmp_path / "b").exists()


def test_prune(tfrnet: Tfrnet, files: Files) -> None:
    result = tfrnet("prune", "--state", files.state, "--keep", 1)
    assert (result.code, result.err) == (0, "")
    assert result.out == f"state {files.state}: 1 generations removed (1), kept: 0, 2\n"
    assert tfrnet("verify", "--state", files.state).code == 0
    again = tfrnet("prune", "--state", files.state, "--keep", 1, "--json").json
    assert (again["removed"], again["kept"]) == ([], [0, 2])
