"""What is applied after requests and rollbacks, against playing everything back anew."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tfrnet.state.history import History


def _reference(entries: list[dict[str, Any]]) -> tuple[dict[str, str], dict[str, str]]:
    """Requests applied and rejected, by playing back the part of the ledger that counts."""
    applied: dict[str, str] = {}
    rejected: dict[str, str] = {}
    for position, entry in enumerate(entries):
        if entry["kind"] == "rollback":
            # Up to the last line of the generation returned to.
            before = entries[:position]
            last = max(i for i, e in enumerate(before) if e["generation"] == entry["to"])
            applied, rejected = _reference(before[: last + 1])
        elif entry["kind"] == "request" and entry["outcome"] == "accepted":
            applied[entry["id"]] = entry["request_digest"]
            rejected.pop(entry["id"], None)
        elif entry["kind"] == "request":
            rejected[entry["id"]] = entry["request_digest"]
    return applied, rejected


def _random_ledger(chance: random.Random) -> list[dict[str, Any]]:
    entries = [{"kind": "created", "generation": 0, "state_after": "0"}]
    for number in range(1, 40):
        generation = entries[-1]["generation"]
        kind = chance.choices(["accepted", "rejected", "rollback", "pruned"], [6, 3, 1, 1])[0]
        entry: dict[str, Any] = {"kind": "request", "id": str(chance.randrange(15))}
        if kind in ("rollback", "pruned"):
            entry = {"kind": kind, "to": chance.randint(0, generation)}
        entry |= {"outcome": kind, "request_digest": f"digest {number}"}
        moved = kind in ("accepted", "rollback")
        entries.append(entry | {"generation": generation + moved, "state_after": str(number)})
    return entries


def _applies(line: int, entry: dict[str, Any], undone: set[int]) -> bool:
    is_applied = entry["kind"] == "request" and entry["outcome"] == "accepted"
    assert is_applied or line not in undone
    return is_applied and line not in undone


def test_after_every_line_the_applied_and_rejected_requests_are_those_of_a_playback() -> None:
    for seed in range(60):
        entries = _random_ledger(random.Random(seed))
        history = History()
        for position, entry in enumerate(entries, start=1):
            totals = history.totals_after(entry)
            history.advance(entry)
            found = list(history.applied.items()), list(history.rejected.items())
            expected = _reference(entries[:position])
            assert found == tuple(list(part.items()) for part in expected), (seed, position)
            undone = history.undone()
            in_force = {e["id"] for n, e in enumerate(entries[:position]) if _applies(n, e, undone)}
            assert in_force == history.applied.keys(), (seed, position)
            assert totals == {
                "seen": history.requests_seen,
                "applied": len(expected[0]),
                "rejected": len(expected[1]),
            }
        at_once = History.of(entries)
        assert (at_once.applied, at_once.rejected) == _reference(entries)


@given(st.lists(st.tuples(st.sampled_from("ARBPI"), st.integers(0, 9), st.booleans()), max_size=25))
def test_a_line_says_the_measures_that_the_whole_history_gives(steps):
    """A: accepted, R: rejected, B: rolled back, P: pruned, I: imported."""
    first = {"kind": "created", "generation": 0, "state_after": "d0"}
    history = History.of([first])
    for number, (kind, value, measured) in enumerate(steps, start=1):
        generation = history.generation + (kind in "ABI")
        entry = {"generation": generation, "state_after": f"d{generation}"}
        if kind in "AR":
            entry |= {"kind": "request", "id": f"{number}", "request_digest": ""}
            entry |= {"outcome": "accepted" if kind == "A" else "rejected"}
            entry |= {"guard_loss_before": 1.0 + value, "guard_loss_after": 2.0 + value}
            entry |= {"holdout": {"loss_after": value} if measured else {}}
            entry |= {"guard_loss_untouched": 0.5} if value == 3 else {}
        elif kind == "B":
            entry |= {"kind": "rollback", "to": value % (history.generation + 1)}
        else:
            entry |= {"kind": "pruned" if kind == "P" else "import"}
        told = history.measures_after(entry)
        history.advance(entry)
        assert told == history.measures


def test_a_repair_undoes_nothing_that_it_found_to_be_applied() -> None:
    def request(name: str, generation: int) -> dict[str, Any]:
        known = {"kind": "request", "id": name, "outcome": "accepted", "request_digest": name}
        return known | {"generation": generation, "state_after": name}

    entries = [
        {"kind": "created", "generation": 0, "state_after": ""},
        request("kept", 1),
        request("undone", 2),
        {"kind": "rollback", "to": 1, "generation": 3, "state_after": "kept"},
        {
            "kind": "repair",
            "salvaged": 3,
            "generation": 4,
            "state_after": "kept",
            "applied": {"kept": "kept", "of a lost line": "x"},
            "rejected": {},
            "totals": {"seen": 3},
        },
        request("new", 5),
    ]
    history = History.of(entries)
    assert list(history.applied) == ["kept", "of a lost line", "new"]
    assert history.undone() == {2}
