"""What is recorded and cut: creation, commit, rollback, pruning, backup and what else writes.

A story is a state and steps that change it. Clock and chance are fixed, so that a story that was
cut and gone on with must end in the same bytes.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.state.made_up import commit, create, made_up_state
from tests.state.power.disk import Cut, cuts
from tests.state.power.recorder import record
from tfrnet.core.errors import TfrnetError
from tfrnet.core.signing import SigningKey, read_key
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

Step = Callable[[Path], object]


@dataclass(frozen=True)
class Story:
    """Steps on the folder `state` of a disk, the first of them done before the recording."""

    name: str
    before: tuple[Step, ...]
    steps: tuple[Step, ...]


def _writing(work: Callable[[StateStore], object]) -> Step:
    def step(folder: Path) -> None:
        with StateStore.open(folder, write=True, key=_key(folder)) as store:
            work(store)

    return step


def _key(folder: Path) -> Path | None:
    """Return the file of the key that signs a state, if it is signed."""
    public = StateStore.open(folder).public_key
    keys = (folder.parent / "keys").glob("*.pem")
    return next((path for path in keys if public == read_key(path).public.text), None)


def _create(folder: Path) -> None:
    create(folder).close()


def _create_signed(folder: Path) -> None:
    with _new_keys_are(1):
        create(folder, folder.parent / "keys" / "1.pem").close()


def _rotate(number: int) -> Step:
    def step(folder: Path) -> None:
        with (
            _new_keys_are(number),
            StateStore.open(folder, write=True, key=_key(folder)) as store,
        ):
            store.rotate_key(folder.parent / "keys" / f"{number}.pem")

    return step


@contextmanager
def _new_keys_are(number: int) -> Iterator[None]:
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SigningKey, "new", lambda: key)
        yield


def _accepted(number: int, keep: int = 20) -> Step:
    return _writing(lambda store: commit(store, number, keep=keep))


def _long(number: int) -> Step:
    """A request whose line in the ledger takes many sectors, as one with many channels does."""
    record = {
        "id": f"request-{number}",
        "outcome": "accepted",
        "request_digest": f"{number:064d}",
        "top_channels": [[f"model.layers.{n}.mlp.down_proj", n, n / 7] for n in range(40)],
    }
    return _writing(lambda store: store.commit(record, made_up_state(number)))


def _rejected(number: int) -> Step:
    return _writing(lambda store: commit(store, number, accepted=False))


def _rollback(to: int) -> Step:
    return _writing(lambda store: store.rollback(to))


def _prune(keep: int) -> Step:
    return _writing(lambda store: store.prune(keep))


STORIES = [
    Story("creation", (), (_create, _accepted(1))),
    Story("commit", (_create, _accepted(1)), (_accepted(2), _accepted(3))),
    Story("commit of a long line", (_create, _accepted(1)), (_long(2), _accepted(3))),
    Story("rejection", (_create, _accepted(1)), (_rejected(2), _accepted(3))),
    Story(
        "rollback", (_create, _accepted(1), _accepted(2)), (_rollback(1), _rollback(0), _long(3))
    ),
    Story(
        "commit that prunes",
        (_create, _accepted(1), _accepted(2), _accepted(3)),
        (_accepted(4, keep=1), _accepted(5, keep=1)),
    ),
    Story(
        "pruning",
        (_create, *map(_accepted, range(1, 6))),
        (_prune(3), _prune(1), _accepted(6)),
    ),
    Story(
        "key rotation",
        (_create_signed, _accepted(1)),
        (_rotate(2), _accepted(2), _rotate(3)),
    ),
]


@contextmanager
def fixed() -> Iterator[None]:
    """Let clock and chance stand still."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("new_state", "store", "repair"):
            patch.setattr(f"tfrnet.state.{module}.now", lambda: "2026-01-01T00:00:00+00:00")
        patch.setattr(secrets, "token_bytes", lambda count: bytes(range(count)))
        patch.setattr(os, "fsync", lambda descriptor: None)  # nothing is cut off for real
        yield


@dataclass
class Tally:
    """How many states were rebuilt, and what was wrong with any."""

    rebuilt: int = 0
    wrong: list[str] = field(default_factory=list)


def try_cuts(
    story: Story, disk: Path, sector: int, most: int | None = None, seed: int = 0
) -> Tally:
    """Record a story, rebuild each state that a cut may leave, open it, and go on from there."""
    tally = Tally()
    with fixed():
        (disk / "recorded").mkdir(parents=True)
        folder = disk / "recorded" / "state"
        for step in story.before:
            step(folder)
        moments = [_files(folder)]

        def watched(step: Step) -> Callable[[], None]:
            def do() -> None:
                step(folder)
                moments.append(_files(folder))

            return do

        recording = record(disk / "recorded", [watched(step) for step in story.steps])
        for number, cut in enumerate(cuts(recording, sector, most, seed)):
            tally.rebuilt += 1
            left = disk / "left"
            rebuild(cut, left)
            if problem := _problem(story, cut, left / "state", moments):
                tally.wrong.append(f"{story.name}, state {number} (sector {sector}): {problem}")
            shutil.rmtree(left)
    return tally


def rebuild(cut: Cut, folder: Path) -> None:
    """Write what a cut left into a new folder."""
    folder.mkdir(parents=True)
    for name, data in cut.contents.items():
        if data is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o600)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def _problem(story: Story, cut: Cut, folder: Path, moments: list[dict[str, bytes]]) -> str:
    """Return what is wrong with what a cut left, if anything is."""
    try:
        if StateStore.exists(folder):
            failed = [check for check in verify_state(folder) if not check.passed]
            if failed:
                return f"verify: {failed[0].name}: {failed[0].detail}"
            StateStore.open(folder).load()
            StateStore.open(folder, write=True, key=_key(folder)).close()
            if left := list(folder.rglob("*.partial")):
                return f"{left[0].name} is left"
        found = _fitting(_files(folder) if StateStore.exists(folder) else {}, moments)
        if not found:
            return "it is neither the state before nor the one after"
        if not found & {cut.ended, cut.ended + 1}:
            return f"{cut.ended} steps had ended, and it is as after {max(found)}"
        for step in story.steps[min(found & {cut.ended, cut.ended + 1}) :]:
            step(folder)
    except TfrnetError as error:
        return str(error)
    # What a cut kept from being removed goes when a later step removes old generations.
    ended_well = len(moments) - 1 in _fitting(_files(folder), moments)
    return "" if ended_well else "going on ended elsewhere"


def _fitting(found: dict[str, bytes], moments: list[dict[str, bytes]]) -> set[int]:
    """Return after how many steps a state was as it is now.

    Old generations that are still there, or gone already, make no difference where they are what
    they were.
    """
    known = {name: data for moment in moments for name, data in moment.items()}
    if any(known.get(name) != data for name, data in found.items() if _is_old(name, found)):
        return set()
    now = _without_old(found)
    return {number for number, moment in enumerate(moments) if _without_old(moment) == now}


def _without_old(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if not _is_old(name, files)}


def _is_old(name: str, files: dict[str, bytes]) -> bool:
    generations = [each for each in files if each.startswith("generations/")]
    return name in generations and name != max(generations)
