"""Attacks on a signed state by somebody who can write to its folder but has no key.

Each leaves a state whose hash chain and pointer are sound, so that it opens; what finds it is a
signature, the public key, or a head that was kept elsewhere. `random_attack` draws one with random
places and values.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from tests.state.made_up import commit, create, generation_file
from tfrnet.core.clock import now
from tfrnet.core.signing import PublicKey, SigningKey, read_key
from tfrnet.state import ledger
from tfrnet.state.evidence import Kept
from tfrnet.state.head import make_head
from tfrnet.state.store import StateStore

Line = dict[str, Any]


@dataclass(frozen=True)
class Scene:
    """A signed state, what the attacker has besides, and what the owner keeps elsewhere."""

    folder: Path
    older: Path  # a copy from before the last lines
    other: Path  # another state, signed with the same key
    key: Path  # the owner's; only a fork by the owner uses it
    old_key: Path  # which was rotated out, and may have leaked
    early: Line  # the head before the rotation
    head: Line

    @classmethod
    def build(cls, place: Path) -> Scene:
        """Make a state of nine lines with a rejection, a rollback and a rotation in it."""
        old_key, key = place / "old.pem", place / "key.pem"
        with create(place / "state", old_key) as store:
            for number in (1, 2, 3):
                commit(store, number)
            early = make_head(store, now(), read_key(old_key))
            store.rotate_key(key)
            commit(store, 4, accepted=False)
            shutil.copytree(place / "state", place / "older")
            store.rollback(1)
            commit(store, 5)
            commit(store, 6)
            head = make_head(store, now(), read_key(key))
        with create(place / "other", key) as store:
            for number in range(11, 19):
                commit(store, number)
        (place / "older" / "lock").unlink(missing_ok=True)
        folders = (place / "state", place / "older", place / "other")
        return cls(*folders, key, old_key, early, head)

    def copied(self, place: Path) -> Scene:
        """Return the same with a state that may be spoilt."""
        shutil.copytree(self.folder, place)
        return replace(self, folder=place)

    @property
    def public_key(self) -> PublicKey:
        """The key in force, as the owner gives it to others."""
        return read_key(self.key).public

    @property
    def kept(self) -> Kept:
        """All that the owner keeps elsewhere."""
        return Kept((self.early, self.head), self.public_key)


# The attacker's tools


def lines_of(folder: Path) -> list[Line]:
    """Return a ledger's lines."""
    return [json.loads(text) for text in (folder / "ledger.jsonl").read_text().splitlines()]


def put(folder: Path, lines: list[Line]) -> None:
    """Write a ledger with its chain hashed anew, the pointer, and no generation too many."""
    previous, texts = ledger.GENESIS, []
    for line in lines:
        entry = ledger.chained(without(line, "hash"), previous)
        previous = entry["hash"]
        texts.append(ledger.line(entry))
    (folder / "ledger.jsonl").write_bytes(b"".join(texts))
    last = lines[-1]["generation"]
    pointer = {"generation": last, "entries": len(lines), "head": previous}
    (folder / "current.json").write_text(json.dumps(pointer))
    for path in (folder / "generations").glob("*.safetensors"):
        if int(path.stem) > last:
            path.unlink()


def without(line: Line, *names: str) -> Line:
    return {name: value for name, value in line.items() if name not in names}


def renumbered(lines: list[Line]) -> list[Line]:
    """Return lines that say of themselves where they stand."""
    return [line | {"sequence": number} for number, line in enumerate(lines, start=1)]


def signed_anew(lines: list[Line], first: int, key: SigningKey) -> list[Line]:
    """Return lines that are all, from one on, signed with a key of the attacker's."""
    done: list[Line] = []
    previous, identity = ledger.GENESIS, ""
    for number, line in enumerate(lines):
        if number < first:
            entry = line
        else:
            unsigned = without(line, "signer", "signature", "hash")
            named = {"public_key": key.public.text} if "public_key" in line else {}
            place = {"state": identity} if number else {}
            entry = ledger.chained(unsigned | named | place, previous, key)
        previous = entry["hash"]
        identity = identity or previous
        done.append(entry)
    return done


# The attacks


def remove_the_tail(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    put(scene.folder, lines[: random.randrange(1, len(lines))])


def put_back_an_older_copy(scene: Scene, random: Random) -> None:
    shutil.rmtree(scene.folder)
    shutil.copytree(scene.older, scene.folder)


def fork_with_the_key(scene: Scene, random: Random) -> None:
    put_back_an_older_copy(scene, random)
    with StateStore.open(scene.folder, write=True, key=scene.key) as store:
        for number in range(random.randrange(3, 9)):
            commit(store, 20 + number)


def fork_with_the_old_key(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    put(scene.folder, lines[: random.randrange(1, 5)])
    with StateStore.open(scene.folder, write=True, key=scene.old_key) as store:
        for number in range(random.randrange(5, 9)):
            commit(store, 20 + number)


def change_a_value(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    line = random.choice(lines)
    changes = [("time", "1999-12-31T00:00:00+00:00"), ("state_after", "0" * 64), ("id", "other")]
    changes += [("request_digest", "0" * 64), ("outcome", "accepted"), ("extra", 1)]
    name, value = random.choice(changes)
    line[name] = value if line.get(name) != value else "rejected"
    put(scene.folder, lines)


def change_values_and_hash_anew_without_signatures(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    random.choice(lines)["time"] = "1999-12-31T00:00:00+00:00"
    names = ("signer", "signature", "public_key", "hash")
    first, *rest = [without(line, *names) for line in lines if line["kind"] != "key"]
    identity = ledger.chained(first, ledger.GENESIS)["hash"]
    put(scene.folder, renumbered([first, *(line | {"state": identity} for line in rest)]))


def sign_everything_with_another_key(scene: Scene, random: Random) -> None:
    put(scene.folder, signed_anew(lines_of(scene.folder), 0, SigningKey.new()))


def sign_the_end_with_another_key(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    put(scene.folder, signed_anew(lines, random.randrange(1, len(lines)), SigningKey.new()))


def remove_a_line(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    # The first is bound to the manifest; the last would be a tail.
    del lines[random.randrange(1, len(lines) - 1)]
    put(scene.folder, renumbered(lines) if random.random() < 0.5 else lines)


def swap_two_lines(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    one, other = random.sample(range(1, len(lines) - 1), 2)
    lines[one], lines[other] = lines[other], lines[one]
    put(scene.folder, renumbered(lines) if random.random() < 0.5 else lines)


def repeat_a_line(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    again = random.choice(lines[1:]) | {"generation": lines[-1]["generation"]}
    put(scene.folder, [*lines, again])


def splice_two_ledgers(scene: Scene, random: Random) -> None:
    own, other = lines_of(scene.folder), lines_of(scene.other)
    cut = random.randrange(1, len(own) - 1)
    for path in (scene.other / "generations").iterdir():
        shutil.copy(path, scene.folder / "generations" / path.name)
    put(scene.folder, own[:cut] + other[cut:])


def put_another_state_in_its_place(scene: Scene, random: Random) -> None:
    shutil.rmtree(scene.folder)
    shutil.copytree(scene.other, scene.folder)


def change_a_signature(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    line = random.choice(lines)
    text = line["signature"]
    place = random.randrange(len(text) - 2)
    new = random.choice([each for each in "ABCDwxyz0189+/" if each != text[place]])
    line["signature"] = text[:place] + new + text[place + 1 :]
    put(scene.folder, lines)


def remove_a_signature(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    line = random.choice(lines)
    del line["signature"]
    if random.random() < 0.5:
        del line["signer"]
    put(scene.folder, lines)


def swap_the_named_key(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    line = random.choice([each for each in lines if "public_key" in each])
    line["public_key"] = SigningKey.new().public.text
    put(scene.folder, lines)


def add_a_line(scene: Scene, random: Random) -> None:
    """Without a signature, with that of another line, or with one of the attacker's or old key."""
    lines = lines_of(scene.folder)
    last = without(lines[-1], "hash", "signer", "signature")
    forged = last | {"sequence": len(lines) + 1, "id": "forged"}
    keys = [None, SigningKey.new(), read_key(scene.old_key)]
    if random.random() < 0.5:
        forged |= {"kind": "key", "public_key": SigningKey.new().public.text}
    put(scene.folder, [*lines, ledger.chained(forged, lines[-1]["hash"], random.choice(keys))])


def exchange_a_generation(scene: Scene, random: Random) -> None:
    lines = lines_of(scene.folder)
    number = random.randrange(1, lines[-1]["generation"] + 1)
    shutil.copy(generation_file(scene.other, number + 1), generation_file(scene.folder, number))
    stolen = next(e for e in lines_of(scene.other) if e["generation"] == number + 1)
    for line in lines:
        if line["generation"] == number:
            line["state_after"] = stolen["state_after"]
    put(scene.folder, lines)


Attack = Callable[[Scene, Random], None]

# What has to be kept elsewhere to find them: nothing, the public key, or a head.
FOUND_BY_ITSELF: tuple[Attack, ...] = (
    change_a_value,
    sign_the_end_with_another_key,
    remove_a_line,
    swap_two_lines,
    repeat_a_line,
    splice_two_ledgers,
    change_a_signature,
    remove_a_signature,
    swap_the_named_key,
    add_a_line,
    exchange_a_generation,
)
FOUND_BY_PUBLIC_KEY: tuple[Attack, ...] = (
    change_values_and_hash_anew_without_signatures,
    sign_everything_with_another_key,
    fork_with_the_old_key,
)
FOUND_BY_HEAD: tuple[Attack, ...] = (
    remove_the_tail,
    put_back_an_older_copy,
    put_another_state_in_its_place,
    fork_with_the_key,
)
ATTACKS = FOUND_BY_ITSELF + FOUND_BY_PUBLIC_KEY + FOUND_BY_HEAD


def random_attack(scene: Scene, random: Random) -> str:
    """Do one of the attacks to a scene's state, and return which."""
    attack = random.choice(ATTACKS)
    attack(scene, random)
    return attack.__name__
