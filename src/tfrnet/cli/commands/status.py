"""`tfrnet status`: what a state is and holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.cli import options as opt
from tfrnet.cli.audit_lines import holdout_words
from tfrnet.cli.output import Output, ranges
from tfrnet.models.bundled import described

if TYPE_CHECKING:
    from tfrnet.masking.strength import MaskStrength
    from tfrnet.state.store import StateStore


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """Show a state: its model, method, requests, and mask if it has one."""
    from tfrnet.method_state import drift_of, requests_words, strength_of
    from tfrnet.state.base_model import bare_name
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    manifest = store.manifest
    strength = strength_of(store)

    output.say(f"state        {state}")
    output.say(f"method       {manifest.method}")
    output.say(f"model        {described(bare_name(manifest.model))}")
    output.say(f"fingerprint  {manifest.fingerprint[:12]}")
    output.say(f"generation   {store.generation} (kept: {ranges(store.layout.numbers())})")
    output.say(f"requests     {requests_words(store)}")
    key = _key(store)
    output.say(f"signed       {f'by key {key}' if key else 'no, so its history can be rewritten'}")
    if drift := drift_of(store):
        output.say(f"total drift  {drift.words}")
    if held_out := store.measures.get("holdout"):
        output.say(f"hold-out     {holdout_words(held_out)}")
    if strength:
        output.say(f"channels     {strength.channels} in {len(manifest.channels)} projections")
        output.say(f"mask         {strength.change()}")
        output.say(f"             {strength.counts()}")
    else:
        output.say(f"size         {store.size() / 1e6:.1f} MB per generation")
    if as_json:  # the names of all requests, for which the whole ledger is read
        output.result("status", _values(state, store) | _mask_figures(store, strength))
    return 0


def _values(state: Path, store: StateStore) -> dict[str, Any]:
    from tfrnet.state.base_model import bare_name

    manifest = store.manifest
    return {
        "state": str(state),
        "method": manifest.method,
        "model": bare_name(manifest.model),
        "fingerprint": manifest.fingerprint,
        "generation": store.generation,
        "generations_kept": store.layout.numbers(),
        "requests_seen": store.position.seen,
        "applied": list(store.history.applied),
        "rejected": list(store.history.rejected),
        "drift": _drift_figures(store),
        "holdout": store.measures.get("holdout"),
        "guard_examples": len(store.guard),
        "digest": store.position.digest,
        "key": _key(store),
        "seed": manifest.seed,
        "config": dict(manifest.config),
    }


def _drift_figures(store: StateStore) -> dict[str, float | None] | None:
    from tfrnet.method_state import drift_of

    drift = drift_of(store)
    if drift is None:
        return None
    return {"ratio": drift.ratio, "limit": drift.limit, "used": drift.used}


def _key(store: StateStore) -> str | None:
    from tfrnet.core.signing import short

    return short(store.public_key) if store.public_key else None


def _mask_figures(store: StateStore, strength: MaskStrength | None) -> dict[str, Any]:
    """Return what a program is told of the channels; nothing for methods without a mask."""
    if strength is None:
        return {}
    return {
        "channels": strength.channels,
        "projections": len(store.manifest.channels),
        "suppressed_now": int((store.arrays()["mask"] < 1).sum()),
        "dormant": strength.dormant,
        "capacity": strength.capacity,
        "mask": strength.to_dict(),
    }
