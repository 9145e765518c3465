"""Every byte of a state changed, one at a time: `verify` finds each, signed or not."""

from __future__ import annotations

import random
from pathlib import Path

from tests.campaign.result import Result
from tests.state.made_up import commit, make_state
from tfrnet.method_state import verify_state
from tfrnet.state.base_model import remember_place
from tfrnet.state.store import StateStore

EXPECTED = "found by verify"


def run(count: int | None, seed: int, work: Path) -> Result:
    """Flip a bit of every byte, or of `count` bytes drawn by the seed."""
    result = Result("flips", EXPECTED, seed)
    chance = random.Random(seed)
    folders = [_state(work / "unsigned", None), _state(work / "signed", work / "key.pem")]
    places = [
        (folder, path, position)
        for folder in folders
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
        for position in range(path.stat().st_size)
    ]
    for folder, path, position in places if count is None else chance.sample(places, count):
        whole = path.read_bytes()
        data = bytearray(whole)
        data[position] ^= 1 << chance.randrange(8)
        path.write_bytes(data)
        name = str(path.relative_to(work))
        result.count(f"{folder.name}: {path.suffix.removeprefix('.') or path.name}")
        try:
            found = not all(check.passed for check in verify_state(folder))
            if not found:
                result.wrong.append(f"{name}, byte {position}: not found")
        except Exception as error:
            result.wrong.append(f"{name}, byte {position}: {error!r}")
        path.write_bytes(whole)
    return result


def _state(folder: Path, key: Path | None) -> Path:
    """Make a state with every kind of line and file."""
    make_state(folder, commits=2, key=key)
    with StateStore.open(folder, write=True, key=key) as store:
        commit(store, 3, accepted=False)
        store.rollback(1)
        if key:
            store.rotate_key(key.with_name("next.pem"))
        remember_place(store.layout, str(folder))
    return folder
