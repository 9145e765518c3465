"""Recomputing every digest of a state, to show that nothing in it was changed or lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tfrnet.core.errors import StateError
from tfrnet.core.tensors import TensorState
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it held, and if not, why."""

    name: str
    passed: bool
    detail: str = ""


def verify(folder: Path, problem_of: Callable[[StateStore, TensorState], str]) -> list[Check]:
    """Check a state folder without changing it. Opening it checks the chain and the pointer.

    `problem_of` is what the state's method has to say of a generation's tensors.
    """
    layout = Layout(folder)
    if not (layout.manifest.exists() or layout.ledger.exists()):
        raise StateError(f"{folder} holds no state (no manifest.json)")
    try:
        store = StateStore.open(folder)
    except StateError as error:
        return [Check("ledger chain, pointer and manifest", False, str(error))]
    entries = f"{store.lines} lines"
    if store.unfinished:
        entries += "; an unfinished commit is put right when the state is next opened for writing"
    checks = [Check("ledger chain, pointer and manifest", True, entries), _check_key(store)]
    return checks + [_check_generation(store, number, problem_of) for number in _expected(store)]


def _check_key(store: StateStore) -> Check:
    try:
        store.key()
    except StateError as error:
        return Check("key", False, str(error))
    return Check("key", True)


def _expected(store: StateStore) -> list[int]:
    """Return the generations to look at: those there, the first, and what gaps say is missing.

    Pruning takes the oldest away, so that what is kept is an unbroken row and the first.
    """
    present = store.layout.numbers()
    oldest = min((number for number in present if number > 0), default=store.generation)
    return sorted({0, *present, *range(oldest, store.generation + 1)})


def _check_generation(
    store: StateStore, number: int, problem_of: Callable[[StateStore, TensorState], str]
) -> Check:
    name = f"generation {number}"
    if number == store.generation + 1:
        return Check(name, True, "of an unfinished commit, not in the ledger yet")
    if number not in store.history.digests:
        return Check(name, False, f"{store.layout.generation(number)} is not in the ledger")
    try:
        problem = problem_of(store, store.load(number))
    except StateError as error:
        problem = str(error)
    return Check(name, not problem, problem or f"digest {store.history.digests[number][:12]}")
