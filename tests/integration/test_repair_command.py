"""`repair` as a user calls it: what is lost comes first, and nothing is done unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.commands import Files, Tfrnet
from tests.state.made_up import contents, generation_file

pytestmark = pytest.mark.usefixtures("no_model")


@pytest.fixture
def damaged(files: Files) -> Files:
    generation_file(files.state, 2).write_bytes(b"garbage")
    return files


def test_nothing_is_done_without_yes(tfrnet: Tfrnet, damaged: Files) -> None:
    before = contents(damaged.state)
    result = tfrnet("repair", "--state", damaged.state)
    assert result.code == 2
    assert result.error == "nothing was changed; give --yes to repair the state as described"
    first, *lost = result.out.splitlines()
    assert first == f"damaged: {generation_file(damaged.state, 2)} is missing or damaged"
    assert lost == [
        "lost: the effect of 1 requests, to be run again: request-1",
        "lost: rollbacks to generations 1, 2",
    ]
    assert contents(damaged.state) == before
    assert not list(damaged.state.parent.glob("*.before-repair*"))


def test_with_yes_it_is_repaired_and_goes_on(tfrnet: Tfrnet, damaged: Files) -> None:
    result = tfrnet("repair", "--state", damaged.state, "--yes")
    assert (result.code, result.err) == (0, "")
    aside = damaged.state.with_name("state.before-repair-1")
    assert result.out.splitlines()[-1] == (
        f"repaired state {damaged.state}: generation 1 is current again; what was replaced is in "
        f"{aside}"
    )
    assert tfrnet("verify", "--state", damaged.state).code == 0
    history = tfrnet("history", "--state", damaged.state).out.splitlines()
    assert history[-1].endswith("repaired: generation 1 salvaged, 0 lines lost, 1 requests applied")
    assert tfrnet("status", "--state", damaged.state, "--json").json["applied"] == ["request-0"]


def test_as_json(tfrnet: Tfrnet, damaged: Files) -> None:
    asked = tfrnet("repair", "--state", damaged.state, "--json")
    assert asked.code == 2
    assert (asked.json["repaired"], len(asked.json["lost"])) == (False, 2)
    done = tfrnet("repair", "--state", damaged.state, "--json", "--yes").json
    assert (done["schema"], done["repaired"], done["salvaged"]) == ("tfrnet.repair/1", True, 1)
    assert Path(done["replaced"]).is_dir()


def test_a_sound_state_and_none(tfrnet: Tfrnet, files: Files, tmp_path: Path) -> None:
    result = tfrnet("repair", "--state", files.state)
    assert result.code == 0
    assert result.out == f"state {files.state} is sound; there is nothing to repair\n"
    nothing = tfrnet("repair", "--state", tmp_path / "none")
    assert nothing.code == 2
    assert "holds no state" in nothing.error


def test_what_cannot_be_repaired_is_one_line(tfrnet: Tfrnet, files: Files) -> None:
    (files.state / "key").unlink()
    result = tfrnet("repair", "--state", files.state, "--yes")
    assert result.code == 2
    assert result.error.endswith("restore a backup")
