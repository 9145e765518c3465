"""A kill at every single moment at which the service writes something."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import tiny
from tests.serve.running import primary
from tests.states import story, tensors
from tfrnet.core import files
from tfrnet.method_state import verify_state
from tfrnet.serve.database import Database
from tfrnet.serve.service import ServiceOptions

REQUEST = tiny.requests(1, size=2)[0]
APPROVED = ServiceOptions(approve=True)


class Moments:
    """Copies of a folder as a kill would leave it: before every write, and after a transaction."""

    def __init__(self, folder: Path, copies: Path) -> None:
        self._folder, self._copies = folder, copies
        self.count = 0

    def keep(self) -> None:
        shutil.copytree(self._folder, self._copies / str(self.count))
        self.count += 1

    def before(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def work(*arguments: Any) -> Any:
            self.keep()
            return real(*arguments)

        return work

    def around(self, real: Callable[[Database], Any]) -> Callable[[Database], Any]:
        @contextmanager
        def transaction(database: Database) -> Iterator[Any]:
            with real(database) as connection:
                yield connection
                self.keep()  # written, and not committed
            self.keep()

        return transaction


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:repaired")
def test_a_kill_at_any_moment_loses_nothing_and_applies_nothing_twice(
    tmp_path: Path, tokenizer
) -> None:
    moments = Moments(tmp_path / "one", tmp_path)
    with (
        primary(tmp_path / "one" / "state", tokenizer, APPROVED) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("write", "fsync", "rename"):
            patch.setattr(files, name, moments.before(getattr(files, name)))
        patch.setattr(Database, "transaction", moments.around(Database.transaction))
        patch.setattr(Database, "forget_old_pages", moments.before(Database.forget_old_pages))
        assert running.submit(REQUEST).status_code == 202
        accepted = moments.count
        running.client.post(f"/v1/requests/{REQUEST.id}/approve")
        assert running.ended(REQUEST.id)["state"] == "completed"
    assert moments.count > 15
    expected = story(tmp_path / "one" / "state"), tensors(tmp_path / "one" / "state")
    for moment in range(moments.count):
        state = tmp_path / str(moment) / "state"
        with primary(state, tokenizer, APPROVED) as running:
            place = f"/v1/requests/{REQUEST.id}"
            if running.client.get(place).status_code == 404:
                assert moment < accepted, "an accepted request is lost"
                assert running.submit(REQUEST).status_code == 202
            # Refused where it was approved before the kill.
            running.client.post(f"{place}/approve")
            assert running.ended(REQUEST.id)["state"] == "completed", moment
            events = running.client.get(f"{place}/events").text
            assert events.count("event: completed") == 1
        assert (story(state), tensors(state)) == expected, moment
        assert all(check.passed for check in verify_state(state))
