"""Recomputing every digest of a state, to show that nothing in it was changed or lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core import files
from tfrnet.core.errors import StateError, TfrnetError
from tfrnet.state import digest_key, generation_file
from tfrnet.state.base_model import bare_name, noted_place
from tfrnet.state.check import Check
from tfrnet.state.evidence import NOTHING_KEPT, Kept, check_evidence
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore

if TYPE_CHECKING:
    from tfrnet.core.arrays import Arrays


def verify(
    folder: Path,
    problem_of: Callable[[StateStore, Arrays], str] | None,
    kept: Kept = NOTHING_KEPT,
) -> list[Check]:
    """Check a state folder without changing it. Opening it checks the chain and the pointer.

    `problem_of` is what the state's method has to say of a generation's tensors; without it they
    are left out. `kept` is what the ledger is held against.
    """
    layout = Layout(folder)
    if not (layout.manifest.exists() or layout.ledger.exists()):
        raise StateError(
            f"{folder} holds no state (no manifest.json); give its folder with --state"
        )
    try:
        store = StateStore.open(folder)
        _ = store.history  # the whole chain
    except StateError as error:
        return [Check("ledger chain, pointer and manifest", False, str(error), repairable=True)]
    entries = f"{store.lines} lines"
    if store.unfinished:
        entries += "; an unfinished commit is put right when the state is next opened for writing"
    checks = [
        Check("ledger chain, pointer and manifest", True, entries),
        *check_evidence(store.entries, kept),
        _base_model(store),
        _check_key(store),
        _check_modes(store),
    ]
    if problem_of is None:
        return checks
    looked_at = [_check_generation(store, number, problem_of) for number in _expected(store)]
    return checks + [check for check in looked_at if check]


def _base_model(store: StateStore) -> Check:
    """Say what of the base model a state is bound to; whether it fits is seen when it is loaded."""
    try:
        noted_place(store.layout)
    except StateError as error:
        return Check("base model", False, str(error))
    manifest = store.manifest
    name = f"{bare_name(manifest.model)}, fingerprint {manifest.fingerprint[:12]}"
    if manifest.bound:
        return Check("base model", True, f"{name}; also bound: {', '.join(manifest.bound)}")
    return Check(
        "base model",
        True,
        f"{name} over weights rounded to bfloat16; made by an earlier version, which did not bind "
        "tokenizer, dtype and number of layers",
    )


def _check_key(store: StateStore) -> Check:
    try:
        store.key()
    except TfrnetError as error:
        return Check("key", False, str(error))
    own = store.layout.key
    if digest_key.place(store.layout) == own:
        return Check("key", True, f"{own}, beside the digests that it keys")
    return Check("key", True, f"elsewhere, as {digest_key.VARIABLE} says")


def _check_modes(store: StateStore) -> Check:
    """Say who can read a state. It is no damage: the folder above may be closed to others."""
    folder = store.layout.folder
    paths = [folder, *folder.iterdir(), *store.layout.generations.glob("*.safetensors")]
    opened = []
    for path in paths:
        with suppress(FileNotFoundError):  # removed by another process
            if path.stat().st_mode & files.OTHERS:
                opened.append(path)
    if not opened:
        return Check("file modes", True, "for their owner alone")
    return Check(
        "file modes",
        True,
        f"open to other users: {len(opened)} of {len(paths)} files and folders, such as "
        f"{opened[0]}; 'chmod -R go= {folder}' closes them",
    )


def _expected(store: StateStore) -> list[int]:
    """Return the generations to look at: those there, the first, and what should be there.

    Pruning takes the oldest away, so that what is kept is an unbroken row and the first. The
    ledger says where the row begins; one of an earlier version does not, so the folder has to.
    """
    present = store.layout.numbers()
    oldest = store.position.oldest
    if oldest is None:
        oldest = min((number for number in present if number > 0), default=store.generation)
    return sorted({0, *present, *range(oldest, store.generation + 1)})


def _check_generation(
    store: StateStore, number: int, problem_of: Callable[[StateStore, Arrays], str]
) -> Check | None:
    """Check a generation; None if another process has added or removed it meanwhile."""
    name = f"generation {number}"
    path = store.layout.generation(number)
    try:
        if number > store.generation:
            problem, detail = _problem_of_newer(store, number, problem_of)
        else:
            problem = problem_of(store, store.arrays(number))
            problem = problem or generation_file.problem_of_facts(store.read_file(number), number)
            detail = f"digest {store.digest_of(number)[:12]}"
    except (StateError, FileNotFoundError) as error:
        problem = str(error)
    if problem and not path.exists() and _may_be_gone(store, number):
        return None
    if problem and str(path) not in problem:
        problem = f"{path}: {problem}"
    return Check(name, not problem, problem or detail, repairable=bool(problem))


def _may_be_gone(store: StateStore, number: int) -> bool:
    """Tell whether another process may have pruned a generation, or taken an unfinished one back.

    The last commit that is known prunes after it is complete; later ones prune more.
    """
    return 0 < number < (store.position.oldest or 0) or (number != 0 and store.is_behind())


def _problem_of_newer(
    store: StateStore, number: int, problem_of: Callable[[StateStore, Arrays], str]
) -> tuple[str, str]:
    """Return what is wrong with a generation that no line names yet, or what it is."""
    if store.is_behind():
        return "", "committed while the state was checked"
    if number > store.generation + 1:
        return "not in the ledger", ""
    # A file has its name only once it is whole: a commit that was cut off leaves a sound one.
    data = store.layout.generation(number).read_bytes()
    arrays = generation_file.parse_arrays(data, store.layout.generation(number))
    problem = problem_of(store, arrays) or generation_file.problem_of_facts(data, number)
    if problem:
        return f"not in the ledger, and not of an unfinished commit either: {problem}", ""
    return "", "of an unfinished commit, not in the ledger yet"
