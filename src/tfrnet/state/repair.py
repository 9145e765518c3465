"""Saving what can be saved of a damaged state: first said, then done.

The lines of the ledger up to the first that does not hold stay as they are. After them a line of
kind `repair` says what was lost, and adopts the newest generation whose digest holds; later lines
that are sound in themselves tell which generation that is and which requests are in it. Nothing
that is replaced is thrown away: it goes to a folder beside the state.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.core import files
from tfrnet.core.clock import now
from tfrnet.core.errors import DamagedError, StateError
from tfrnet.core.lock import FolderLock
from tfrnet.core.signing import named_key
from tfrnet.state import digest_key, generation_file, ledger
from tfrnet.state.history import History
from tfrnet.state.layout import Layout
from tfrnet.state.manifest import Manifest
from tfrnet.state.pointer import Pointer
from tfrnet.state.signatures import is_signed_by, key_after
from tfrnet.state.signer import Signer

if TYPE_CHECKING:
    from tfrnet.core.tensors import TensorState

_ATTEMPTS = 3
_RESTORE = "the state cannot be repaired without it; restore a backup"


@dataclass(frozen=True)
class Plan:
    """What is wrong with a state, what of it is lost, and what is to be done.

    Without problems there is nothing to do.
    """

    problems: tuple[str, ...]
    lost: tuple[str, ...]
    lines: list[dict[str, Any]]  # of the ledger that stays
    event: dict[str, Any] | None  # the line to add, if anything was lost
    salvaged: int  # the generation that becomes the current one
    removed: tuple[int, ...]  # generations that go


@contextmanager
def opened_for_repair(folder: Path, key: str | Path | None = None) -> Iterator[Repair]:
    """Keep all others from writing to a state while it is looked at and repaired."""
    layout = Layout(folder)
    if not (layout.manifest.exists() or layout.ledger.exists()):
        raise StateError(
            f"{folder} holds no state (no manifest.json); give its folder with --state"
        )
    with _file_errors(folder):
        lock = FolderLock(folder)
    try:
        with _file_errors(folder):
            repair = Repair(layout, Signer(folder, named_key(key)))
        yield repair
    finally:
        lock.release()


class Repair:
    """A state that may be damaged: `plan` says what would be done, `carry_out` does it."""

    def __init__(self, layout: Layout, signer: Signer) -> None:
        self._layout, self._signer = layout, signer
        data = _content(layout.ledger)
        self._lines, self._later, self._unread = _lines(data)
        self._first = self._beginning()
        self._pointer = _pointer(layout.pointer)
        self._history = History.of(self._lines)
        self._known = self._played_on()
        self._holds: dict[int, bool] = {}
        self.plan = self._planned()

    # Looking

    def _beginning(self) -> dict[str, Any]:
        """Return the first line; it binds manifest and key, and without them nothing is left."""
        layout = self._layout
        if not self._lines:
            raise StateError(f"{layout.ledger} is damaged from its first line on: {_RESTORE}")
        first = self._lines[0]
        manifest = _content(layout.manifest)
        if first.get("manifest") != hashlib.sha256(manifest).hexdigest():
            raise StateError(f"{layout.manifest} is damaged: {_RESTORE}")
        Manifest.from_bytes(manifest, layout.manifest)
        try:
            digest_key.read(layout, first.get("key", ""))
        except DamagedError as error:
            raise StateError(f"{error}: {_RESTORE}") from None
        return first

    def _played_on(self) -> History:
        """Return what happened as far as any sound line tells, beyond the first damaged one too."""
        known = History.of(self._lines)
        in_force = key_after(self._lines[-1])
        for entry in self._later:
            if in_force and not is_signed_by(entry, in_force):
                break  # it may be anybody's
            try:
                known.advance(entry)
            except (KeyError, TypeError):
                break  # it builds on what is lost
            in_force = key_after(entry)
        return known

    def _planned(self) -> Plan:
        damaged = self._damaged = self._damaged_generations()
        strays = self._strays()
        problems = [*self._ledger_problems(), *damaged.values()]
        problems += [f"{self._layout.generation(n)} does not belong to the state" for n in strays]
        if not problems:
            return Plan((), (), self._lines, None, self._history.generation, ())
        if 0 in damaged:
            raise StateError(f"{damaged[0]}; {_RESTORE}")
        salvaged = self._newest_sound()
        current = self._history.generation
        lost_lines = self._lost_lines()
        if not (lost_lines or damaged or salvaged != current):
            return Plan(tuple(problems), (), self._lines, None, current, tuple(strays))
        event = self._event(salvaged, lost_lines)
        removed = [
            number
            for number in self._layout.numbers()
            if number > event["generation"] or 0 < number < event["oldest"]
        ]
        lost = self._lost(event, lost_lines)
        return Plan(tuple(problems), lost, self._lines, event, salvaged, tuple(removed))

    def _ledger_problems(self) -> list[str]:
        layout, pointer = self._layout, self._pointer
        found = []
        if self._unread:
            found.append(f"{layout.ledger} is damaged from line {len(self._lines) + 1} on")
        elif self._lost_lines():
            found.append(f"{layout.ledger} has lost its last lines")
        if pointer is None:
            found.append(f"{layout.pointer} is missing or damaged")
        elif not found and not self._is_pointed_at():
            found.append(f"{layout.pointer} does not fit the ledger")
        return found

    def _is_pointed_at(self) -> bool:
        """Tell whether the pointer names the last line, or the one before after a crash."""
        pointer = self._pointer
        assert pointer is not None
        named = [(number, e["hash"]) for number, e in enumerate(self._lines, start=1)][-2:]
        return (pointer.entries, pointer.head) in named

    def _lost_lines(self) -> int:
        """Return how many of the ledger's lines are gone, as far as can be told."""
        pointer, last = self._pointer, self._lines[-1]
        is_last = pointer and (pointer.entries, pointer.head) == (len(self._lines), last["hash"])
        if is_last and not self._later:
            return 0  # what follows was never committed
        if pointer and last["kind"] == "repair" and last["replaced"] == pointer.head:
            return 0  # of a repair that was cut off before its last step
        missing = pointer.entries - len(self._lines) if pointer else 0
        return max(missing, self._unread + len(self._later))

    def _damaged_generations(self) -> dict[int, str]:
        """Return what is wrong with each generation that ought to be there."""
        layout = self._layout
        expected = {0, *range(max(self._oldest_kept(), 1), self._history.generation + 1)}
        found = {}
        for number in sorted(expected & self._history.digests.keys()):
            path = layout.generation(number)
            if not self._is_sound(number):
                found[number] = f"{path} is missing or damaged"
            elif problem := generation_file.problem_of_facts(_read(path), number):
                found[number] = f"{path} is damaged: {problem}"
        return found

    def _oldest_kept(self) -> int:
        """Return the oldest generation besides the first that ought to be there."""
        oldest: int | None = self._lines[-1].get("oldest")
        if oldest is None:  # a ledger of before: the folder tells
            present = [number for number in self._layout.numbers() if number > 0]
            oldest = min(present, default=self._history.generation)
        return oldest

    def _strays(self) -> list[int]:
        """Return the generations that need not be there, and that no interrupted commit leaves."""
        current, oldest = self._history.generation, self._oldest_kept()
        there = self._layout.numbers()
        newer = [n for n in there if n > current and n not in self._known.digests]
        if newer == [current + 1] and self._is_whole(current + 1):
            newer = []
        older = [n for n in there if 0 < n < oldest and not self._is_sound(n)]
        return [*older, *newer]

    def _is_whole(self, number: int) -> bool:
        try:
            self._tensors(number)
        except StateError:
            return False
        return not generation_file.problem_of_facts(_read(self._layout.generation(number)), number)

    def _newest_sound(self) -> int:
        for number in sorted(self._known.digests, reverse=True):
            if self._is_sound(number):
                return number
        raise StateError(
            f"no generation of {self._layout.folder} is intact, so it cannot be repaired; "
            "restore a backup"
        )

    def _is_sound(self, number: int) -> bool:
        """Tell whether a generation's tensors are those that the ledger names."""
        if number not in self._holds:
            try:
                digest = self._tensors(number).digest()
                self._holds[number] = digest == self._known.digests[number]
            except (OSError, StateError):
                self._holds[number] = False
        return self._holds[number]

    def _tensors(self, number: int) -> TensorState:
        path = self._layout.generation(number)
        return generation_file.parse(_read(path), path)

    # Planning

    def _event(self, salvaged: int, lost_lines: int) -> dict[str, Any]:
        """Return the line that tells of the repair, to be chained and signed."""
        known, last, current = self._known, self._lines[-1], self._history.generation
        standing = known.standing_at(salvaged)
        # Later requests draw their samples by their number, so no number comes twice.
        seen = max([known.requests_seen, *(e.get("number", 0) for e in self._later)])
        number = current + 1
        return {
            "kind": "repair",
            "salvaged": salvaged,
            "lost_lines": lost_lines,
            "replaced": self._pointer.head if self._pointer else "",
            "applied": standing.applied,
            "rejected": standing.rejected,
            "retired": sorted(known.retired),
            "time": now(),
            "sequence": len(self._lines) + 1,
            "state": self._first["hash"],
            "generation": number,
            "state_before": last["state_after"],
            "state_after": known.digests[salvaged],
            "totals": {
                "seen": seen,
                "applied": len(standing.applied),
                "rejected": len(standing.rejected),
            },
            "oldest": self._oldest_sound(number),
        }

    def _oldest_sound(self, newest: int) -> int:
        """Return where the unbroken row of sound generations that ends with `newest` begins."""
        there = set(self._layout.numbers()) - self._damaged.keys()
        while newest > 1 and newest - 1 in there:
            newest -= 1
        return newest

    def _lost(self, event: Mapping[str, Any], lost_lines: int) -> tuple[str, ...]:
        found = []
        if lost_lines:
            first = len(self._lines) + 1
            found.append(
                f"{lost_lines} lines of the ledger, from line {first} on; a head that was kept "
                "elsewhere and is newer than that will no longer fit"
            )
        if self._unread:
            found.append(
                f"the record of {self._unread} events that cannot be read: requests among them "
                "count as not applied, so run the stream again; guard examples retired by them "
                "count again (--retire-guard)"
            )
        undone = [name for name in self._known.applied if name not in event["applied"]]
        if undone:
            found.append(
                f"the effect of {len(undone)} requests, to be run again: {', '.join(undone)}"
            )
        # Also those that cannot be read or are not there: only what is kept can be returned to.
        gone = list(range(max(self._oldest_kept(), 1), event["oldest"]))
        if gone:
            found.append(f"rollbacks to generations {', '.join(map(str, gone))}")
        return tuple(found)

    # Doing

    def carry_out(self) -> Path | None:
        """Do what the plan says; return the folder with what was replaced, if anything was.

        All that takes space is written first, beside what is there: a full disk changes nothing.
        """
        if not self.plan.problems:
            return None
        entry = self._chained(self.plan.event) if self.plan.event else self._lines[-1]
        with _file_errors(self._layout.folder):
            aside = self._set_aside()
            staged: list[tuple[Path, Path]] = []
            try:
                for path, data in self._new_files(entry):
                    staged.append((files.staged(path, data, files.PRIVATE), path))
            except BaseException:
                for path in self._layout.partials():
                    path.unlink(missing_ok=True)
                shutil.rmtree(aside)
                raise
            for temporary, path in staged:
                files.put_in_place(temporary, path)
            for number in self.plan.removed:
                files.remove(self._layout.generation(number))
        return aside

    def _chained(self, event: Mapping[str, Any]) -> dict[str, Any]:
        last = self._lines[-1]
        return ledger.chained(event, last["hash"], self._signer.key_for(key_after(last)))

    def _new_files(self, entry: Mapping[str, Any]) -> Iterator[tuple[Path, bytes]]:
        """Yield the files to be replaced, in the order in which they take their places."""
        layout, lines = self._layout, [*self._lines]
        if self.plan.event:
            lines.append(dict(entry))
            number, state = entry["generation"], self._tensors(self.plan.salvaged)
            yield layout.generation(number), generation_file.to_bytes(state, number)
        yield layout.ledger, b"".join(map(ledger.line, lines))
        pointer = Pointer(entry["generation"], len(lines), entry["hash"])
        yield layout.pointer, pointer.to_bytes()

    def _set_aside(self) -> Path:
        """Keep what is to be replaced or removed in a new folder beside the state."""
        layout = self._layout
        aside = _free(layout.folder)
        try:
            files.make_folder(aside / layout.generations.name, files.PRIVATE_FOLDER)
            aside.chmod(files.PRIVATE_FOLDER)
            for path in (layout.ledger, layout.pointer):
                if path.exists():
                    files.replace_file(aside / path.name, path.read_bytes(), files.PRIVATE)
            event = self.plan.event
            going = {*self.plan.removed, *([event["generation"]] if event else ())}
            for number in sorted(going & set(layout.numbers())):
                path = layout.generation(number)
                _keep(path, aside / layout.generations.name / path.name)
            files.fsync_folder(aside / layout.generations.name)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        return aside


def _lines(data: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """Return the lines up to the first that does not follow, sound later ones, and the others.

    Bytes after the last line's end are of a commit that was cut off, and count as nothing.
    """
    lines: list[dict[str, Any]] = []
    later: list[dict[str, Any]] = []
    unread, is_whole = 0, True
    for text in data.split(b"\n")[:-1]:
        entry = ledger.parsed(text)
        previous = lines[-1]["hash"] if lines else ledger.GENESIS
        is_whole = is_whole and entry is not None and entry["previous"] == previous
        if entry is None:
            unread += 1
        else:
            (lines if is_whole else later).append(entry)
    return lines, later, unread


def _pointer(path: Path) -> Pointer | None:
    try:
        return Pointer.read(path)
    except StateError:
        return None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise StateError(f"{path} is missing: {_RESTORE}") from None


def _read(path: Path) -> bytes:
    """Read a file, more than once if need be: only what stays unreadable is damaged."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError:
            continue
    return path.read_bytes()


def _keep(path: Path, place: Path) -> None:
    """Give a generation's file a second place; it is never changed in place, so a link will do."""
    try:
        os.link(path, place)
    except OSError:  # not every file system has links
        shutil.copyfile(path, place)
        place.chmod(files.PRIVATE)


def _free(folder: Path) -> Path:
    """Return a name beside the state that is not taken."""
    place = folder.absolute()
    number = 1
    while (found := place.with_name(f"{place.name}.before-repair-{number}")).exists():
        number += 1
    return found


@contextmanager
def _file_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StateError(
            f"state {folder} cannot be repaired: {error.strerror} ({error.filename or folder}); "
            "try again when that is fixed"
        ) from error
