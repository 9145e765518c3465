"""A state that is made, or returned to an earlier generation, is so wholly or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.state.faults.strike import (
    COMMIT,
    CREATE,
    LINE_WRITTEN,
    assert_sound,
    die,
    disk_full,
    finish,
    killed_in_child,
    points,
    struck,
    tensors,
)
from tests.state.made_up import (
    create,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.core.errors import StateError
from tfrnet.state.store import StateStore


@pytest.mark.parametrize("strike", [disk_full, die], ids=["full", "killed"])
@pytest.mark.parametrize(("number", "half"), points(CREATE))
def test_a_state_that_could_not_be_made_is_made_by_the_next_attempt(
    tmp_path: Path, number: int, half: bool, strike: Callable[[], None]
) -> None:
    folder = tmp_path / "state"
    if strike is die:
        assert killed_in_child(lambda: create(folder), number, half)
    else:
        with (
            struck(number, half, disk_full),
            pytest.raises(StateError, match="cannot be made: No space left"),
        ):
            create(folder)
    if StateStore.exists(folder):
        StateStore.open(folder, write=True).close()  # complete; only the last fsync was missing
    else:
        with pytest.raises(StateError, match="holds no state"):
            StateStore.open(folder)
        create(folder).close()
    assert_sound(folder)
    finish(folder)
    assert tensors(folder) == tensors(make_state(tmp_path / "undisturbed", commits=4))


@pytest.mark.parametrize("strike", [disk_full, die], ids=["full", "killed"])
@pytest.mark.parametrize(("number", "half"), points(COMMIT))
def test_a_rollback_happens_wholly_or_not_at_all(
    tmp_path: Path, number: int, half: bool, strike: Callable[[], None]
) -> None:
    folder = make_state(tmp_path / "state", commits=2)

    def work() -> None:
        with StateStore.open(folder, write=True) as store:
            store.rollback(1)

    if strike is die:
        assert killed_in_child(work, number, half)
    else:
        with struck(number, half, disk_full), pytest.raises(StateError) as caught:
            work()
    with StateStore.open(folder, write=True) as store:
        done = store.entries[-1]["kind"] == "rollback"
        assert store.generation == (3 if done else 2)
        assert is_equal(store.load(), made_up_state(1 if done else 2))
        assert ("request-2" in store.history.applied) != done
        if strike is die:
            assert done == (number > LINE_WRITTEN)
        else:
            assert ("is applied" if done else "was not applied") in str(caught.value)
    assert_sound(folder)
