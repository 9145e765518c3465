"""Where an exported model comes from: its base, its state, and what the ledger says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tfrnet.core.versions import versions
from tfrnet.state.base_model import bare_name
from tfrnet.state.history import History
from tfrnet.state.store import StateStore


@dataclass(frozen=True)
class Measured:
    """What was measured of one applied request, from the ledger. Without its id or words."""

    examples: int
    forget_loss_before: float
    forget_loss_after: float
    guard_loss_before: float
    guard_loss_after: float
    # Of the untouched model, by the same guard examples; ledgers of before do not say.
    guard_loss_untouched: float | None = None


@dataclass(frozen=True)
class Origin:
    """The facts of an export; `tfrnet.json` holds them, and the model card tells them."""

    made_by: str
    base_model: str
    base_fingerprint: str
    state_digest: str
    method: str
    base_revision: str | None = None
    generation: int | None = None
    seed: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    rejected: int = 0
    ledger_head: str | None = None
    requests: Sequence[Measured] = ()
    # Applied requests besides these, whose lines a repair of the state could not save.
    unrecorded: int = 0
    versions: Mapping[str, str] = field(default_factory=versions)

    @property
    def applied(self) -> int:
        """How many requests the model has had applied, measured or not."""
        return len(self.requests) + self.unrecorded

    def to_dict(self) -> dict[str, Any]:
        """Return the facts as plain JSON values."""
        return asdict(self)


def origin_of(store: StateStore, generation: int) -> Origin:
    """Return the facts about a generation of a state."""
    manifest = store.manifest
    entries = _until(store.entries, generation)
    history = History.of(entries)
    lines = [_line_of(entries, name) for name in history.applied]
    measured = [_measured(line) for line in lines if line]
    return Origin(
        made_by="tfrnet export",
        base_model=bare_name(manifest.model),
        base_fingerprint=manifest.fingerprint,
        state_digest=store.history.digests[generation],
        method=manifest.method,
        generation=generation,
        seed=manifest.seed,
        config=dict(manifest.config),
        rejected=len(history.rejected),
        ledger_head=entries[-1]["hash"],
        requests=measured,
        unrecorded=len(lines) - len(measured),
    )


def _until(entries: Sequence[dict[str, Any]], generation: int) -> list[dict[str, Any]]:
    """Return the ledger up to the last entry of a generation."""
    last = max(i for i, entry in enumerate(entries) if entry["generation"] == generation)
    return list(entries[: last + 1])


def _line_of(entries: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the line of an applied request; none if a repair knew of it from a lost line."""
    found = (e for e in reversed(entries) if e.get("id") == name and e["outcome"] == "accepted")
    return next(found, None)


def _measured(entry: Mapping[str, Any]) -> Measured:
    return Measured(
        entry["examples"],
        entry["forget_loss_before"],
        entry["forget_loss_after"],
        entry["guard_loss_before"],
        entry["guard_loss_after"],
        entry.get("guard_loss_untouched"),
    )
