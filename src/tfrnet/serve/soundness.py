"""Whether the state on the disk is still the one that this process has written."""

from __future__ import annotations

from tfrnet.core.errors import DamagedError, StateError
from tfrnet.method_state import verify_state
from tfrnet.state import ledger
from tfrnet.state.store import StateStore


class Soundness:
    """Looks at the ledger before something is added to it: at its end only, and at when it changed.

    Where that, or somebody else, raises a doubt, all of the state is verified.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        # Counted, since others may raise one while another is being settled.
        self._doubts = self._settled = 0
        self._seen = self._stamp()

    @property
    def is_in_doubt(self) -> bool:
        """Whether there was a reason to verify the state, and it has not passed since."""
        return self._doubts > self._settled

    def doubt(self) -> None:
        """Have the state verified before anything more is written."""
        self._doubts += 1

    def take_note(self) -> None:
        """Take the ledger as it is now for what this process has written."""
        self._seen = self._stamp()

    def glance(self) -> None:
        """Raise if there is a doubt; this takes no time."""
        if self.is_in_doubt or self._has_changed():
            self.doubt()
            raise StateError("the state may have been changed by somebody else")

    def check(self) -> None:
        """Raise if the state is not sound. Only where there is a doubt this reads all of it."""
        if self._has_changed():
            self.doubt()
        if not self.is_in_doubt:
            return
        # Before anything is read, so that what changes meanwhile is seen next time.
        doubts, stamp = self._doubts, self._stamp()
        _ = self._store.entries  # the chain, up to the line that this process knows as the last
        failed = [check for check in verify_state(self._store.layout.folder) if not check.passed]
        if failed:
            raise DamagedError(f"the state failed a check: {failed[0].name}: {failed[0].detail}")
        if stamp[2:] != (self._store.position.length,):
            raise DamagedError("the ledger has lines that this process has not written")
        self._settled, self._seen = doubts, stamp

    def _has_changed(self) -> bool:
        here = self._store.position
        try:
            ledger.read_last(self._store.layout.ledger, here.length, 1, here.head)
        except (OSError, StateError):
            return True
        return self._stamp() != self._seen

    def _stamp(self) -> tuple[int, ...]:
        try:
            about = self._store.layout.ledger.stat()
        except OSError:
            return ()
        # Of the times a file has, this is the one that nobody can set.
        return about.st_ino, about.st_ctime_ns, about.st_size
