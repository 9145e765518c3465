"""A key is handed over, or begins to sign, wholly or not at all."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.state.faults.strike import (
    assert_sound,
    ctrl_c,
    die,
    disk_full,
    killed_in_child,
    points,
    struck,
)
from tests.state.made_up import commit, make_state
from tfrnet.core.errors import TfrnetError
from tfrnet.core.signing import read_key
from tfrnet.state.store import StateStore


def rotate(place: Path) -> None:
    with StateStore.open(place / "state", write=True, key=place / "old.pem") as store:
        store.rotate_key(place / "new.pem")


def operations() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        make_state(Path(folder) / "state", commits=1, key=Path(folder) / "old.pem")
        with struck(-1, False, disk_full) as seen:
            rotate(Path(folder))
        return seen


@pytest.mark.parametrize("strike", [disk_full, ctrl_c, die], ids=["full", "ctrl-c", "killed"])
@pytest.mark.parametrize(("number", "half"), points(operations()))
def test_after_a_rotation_that_was_cut_off_one_of_the_keys_is_in_force(
    tmp_path: Path, number: int, half: bool, strike: Callable[[], None]
) -> None:
    state = make_state(tmp_path / "state", commits=1, key=tmp_path / "old.pem")
    if strike is die:
        assert killed_in_child(lambda: rotate(tmp_path), number, half)
    else:
        with struck(number, half, strike), pytest.raises((TfrnetError, KeyboardInterrupt)):
            rotate(tmp_path)
    keys = [path for path in (tmp_path / "old.pem", tmp_path / "new.pem") if path.exists()]
    in_force = StateStore.open(state).public_key
    (key,) = [path for path in keys if read_key(path).public.text == in_force]
    with StateStore.open(state, write=True, key=key) as store:
        commit(store, 2)
    assert_sound(state)
    if key.name == "old.pem":
        rotate(tmp_path)
        assert_sound(state)


def test_a_store_that_survives_a_failed_rotation_goes_on_with_the_key_in_force(
    tmp_path: Path,
) -> None:
    state = make_state(tmp_path / "state", commits=1, key=tmp_path / "old.pem")
    with StateStore.open(state, write=True, key=tmp_path / "old.pem") as store:
        number = operations().index("rename")  # of the pointer: the line is written
        with struck(number, False, disk_full), pytest.raises(TfrnetError, match="is applied"):
            store.rotate_key(tmp_path / "new.pem")
        assert store.public_key == read_key(tmp_path / "new.pem").public.text
        commit(store, 2)
    assert_sound(state)
