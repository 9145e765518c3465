"""What the ledger says happened: which requests are applied, which generation is current."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_NOTHING = -1
# The kinds of lines after which the generation and its measures are the same as before.
_SAME_GENERATION = ("pruned", "key")


class _Event(NamedTuple):
    """A request in the ledger, and the request before it in the history that it belongs to."""

    before: int
    id: str
    digest: str
    accepted: bool
    line: int  # of the ledger, from 0


class Standing(NamedTuple):
    """The requests that are applied and those that were rejected: ids with keyed digests."""

    applied: dict[str, str]
    rejected: dict[str, str]


class History:
    """The ledger's entries, taken in one after another, each in constant time.

    Requests form a tree: each follows the one before it, and a rollback goes back to an earlier
    branching point. What is applied now is the way from the root to the latest request.
    `digests` maps generations to the digests of their tensors, `guard_losses` to their guard loss
    and `holdouts` to what the hold-out data showed, where a request has measured them; guard losses
    are those of today's guard. `retired` are the digests of guard examples that are no longer used.
    `latest_pass` are the latest request's limits on examples and on tokens in a pass.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.requests_seen = 0
        self.lines = 0
        self.digests: dict[int, str] = {}
        self.guard_losses: dict[int, float] = {}
        self.holdouts: dict[int, Mapping[str, Any]] = {}
        self.retired: set[str] = set()
        self.latest_pass: tuple[int | None, int | None] = None, None
        self._events: list[_Event] = []
        self._latest = _NOTHING
        self._latest_of: dict[int, int] = {}  # generation -> its latest event
        self._standing: Standing | None = Standing({}, {})

    @classmethod
    def of(cls, entries: Iterable[Mapping[str, Any]]) -> History:
        """Take in a whole ledger."""
        history = cls()
        for entry in entries:
            history.advance(entry)
        return history

    @property
    def applied(self) -> dict[str, str]:
        """The requests that are applied now: ids with keyed digests."""
        return self._now().applied

    @property
    def rejected(self) -> dict[str, str]:
        """The requests that were rejected and not applied since: ids with keyed digests."""
        return self._now().rejected

    def advance(self, entry: Mapping[str, Any]) -> None:
        """Take in the next entry."""
        if entry["kind"] == "request":
            self._add_request(entry, self.lines)
            self._take_measures(entry)
            self.latest_pass = entry.get("batch_size"), entry.get("batch_tokens")
        elif entry["kind"] == "rollback":
            self._same_measures(entry["to"], entry["generation"])
            # Undone requests may be asked for again, and those rejected since tried again.
            self._latest = self._latest_of[entry["to"]]
            self._standing = None
        elif entry["kind"] == "repair":
            self._same_measures(entry["salvaged"], entry["generation"])
            self._begin_anew(entry)
        elif entry["kind"] == "guard":
            self._retire(entry["retired"])
        self.lines += 1
        self.generation = entry["generation"]
        self.digests[self.generation] = entry["state_after"]
        self._latest_of[self.generation] = self._latest

    def _retire(self, digests: Iterable[str]) -> None:
        if not self.retired.issuperset(digests):
            self.retired.update(digests)
            # They were those of another guard; the next request measures the one of now.
            self.guard_losses.clear()

    def undone(self) -> set[int]:
        """Return the lines, from 0, of requests that were applied and are no longer."""
        applied = {event.line for event in self._events if event.accepted}
        return applied - {event.line for event in self._events_to(self._latest)}

    def standing_at(self, generation: int) -> Standing:
        """Return the requests that are applied and rejected once a generation is returned to."""
        return self._now() if generation == self.generation else self._at(generation)

    def totals_after(self, entry: Mapping[str, Any]) -> dict[str, int]:
        """Return how many requests are seen, applied and rejected once an entry is taken in."""
        now = self._at(entry["to"]) if entry["kind"] == "rollback" else self._now()
        applied, rejected = len(now.applied), len(now.rejected)
        if entry["kind"] == "request":
            was_applied, was_rejected = entry["id"] in now.applied, entry["id"] in now.rejected
            if entry["outcome"] == "accepted":
                applied, rejected = applied + (not was_applied), rejected - was_rejected
            else:
                rejected += not was_rejected
        seen = self.requests_seen + (entry["kind"] == "request")
        return {"seen": seen, "applied": applied, "rejected": rejected}

    @property
    def measures(self) -> dict[str, Any]:
        """What was measured of the untouched model and of the current generation, if anything."""
        return _known(
            self.guard_losses.get(0),
            self.guard_losses.get(self.generation),
            self.holdouts.get(self.generation),
        )

    def measures_after(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the measures once an entry is taken in that has no number of its own yet."""
        losses, generation = self.guard_losses, self.generation
        if entry["kind"] == "rollback":
            to = entry["to"]
            return _known(losses.get(0), losses.get(to), self.holdouts.get(to))
        if entry["kind"] == "guard":
            return _known(None, holdout=self.holdouts.get(generation))
        if entry["kind"] != "request":  # a line without a new generation, or an import
            return self.measures if entry["kind"] in _SAME_GENERATION else _known(losses.get(0))
        before = entry.get("guard_loss_before")
        untouched = losses.get(0, entry.get("guard_loss_untouched"))
        if untouched is None and generation == 0:
            untouched = before
        if entry["outcome"] == "accepted":
            return _known(untouched, entry.get("guard_loss_after"), entry.get("holdout"))
        holdout = entry.get("holdout") or self.holdouts.get(generation)
        now = untouched if generation == 0 else losses.get(generation, before)
        return _known(untouched, now, holdout)

    def _take_measures(self, entry: Mapping[str, Any]) -> None:
        """Note what a request has measured of the generation before it and of its own."""
        before, after = entry.get("guard_loss_before"), entry.get("guard_loss_after")
        if untouched := entry.get("guard_loss_untouched"):
            self.guard_losses.setdefault(0, untouched)
        if before is not None:
            self.guard_losses.setdefault(self.generation, before)
        if after is not None and entry["outcome"] == "accepted":
            self.guard_losses[entry["generation"]] = after
        if holdout := entry.get("holdout"):
            self.holdouts[entry["generation"]] = holdout

    def _same_measures(self, known: int, generation: int) -> None:
        """Note that a generation is an earlier one under a new number."""
        if known in self.guard_losses:
            self.guard_losses[generation] = self.guard_losses[known]
        if known in self.holdouts:
            self.holdouts[generation] = self.holdouts[known]

    def _begin_anew(self, entry: Mapping[str, Any]) -> None:
        """Take over what a repair found to be applied and rejected; lines before it may be lost."""
        self._retire(entry.get("retired", ()))
        self._latest, self._standing = _NOTHING, Standing({}, {})
        lines = {event.id: event.line for event in self._events}
        for name, accepted in (("rejected", False), ("applied", True)):
            for request_id, digest in entry[name].items():
                self._add_request(
                    {
                        "id": request_id,
                        "request_digest": digest,
                        "outcome": "accepted" if accepted else "rejected",
                    },
                    lines.get(request_id, self.lines),
                )
        self.requests_seen = entry["totals"]["seen"]

    def _add_request(self, entry: Mapping[str, Any], line: int) -> None:
        accepted = entry["outcome"] == "accepted"
        event = _Event(self._latest, entry["id"], entry["request_digest"], accepted, line)
        self.requests_seen += 1
        self._latest = len(self._events)
        self._events.append(event)
        if self._standing:
            _take_in(self._standing, event)

    def _now(self) -> Standing:
        if self._standing is None:
            self._standing = self._way_to(self._latest)
        return self._standing

    def _at(self, generation: int) -> Standing:
        return self._way_to(self._latest_of[generation])

    def _way_to(self, latest: int) -> Standing:
        standing = Standing({}, {})
        for event in reversed(self._events_to(latest)):
            _take_in(standing, event)
        return standing

    def _events_to(self, latest: int) -> list[_Event]:
        """Return an event and those it follows, back to the first."""
        events = []
        while latest != _NOTHING:
            events.append(self._events[latest])
            latest = self._events[latest].before
        return events


def _take_in(standing: Standing, event: _Event) -> None:
    if event.accepted:
        standing.applied[event.id] = event.digest
        standing.rejected.pop(event.id, None)
    else:
        standing.rejected[event.id] = event.digest


def _known(
    untouched: float | None,
    guard_loss: float | None = None,
    holdout: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    found = {"guard_loss_untouched": untouched, "guard_loss": guard_loss, "holdout": holdout}
    return {name: value for name, value in found.items() if value not in (None, {})}
