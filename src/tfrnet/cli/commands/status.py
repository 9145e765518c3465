"""`tfrnet status`: what a state is and holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output, ranges

if TYPE_CHECKING:
    from tfrnet.state.store import StateStore


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """Show a state: its model, method, requests, and mask if it has one."""
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    manifest, position = store.manifest, store.position
    mask = _mask_figures(store)

    output.say(f"state        {state}")
    output.say(f"method       {manifest.method}")
    output.say(f"model        {manifest.model} (fingerprint {manifest.fingerprint[:12]})")
    output.say(f"generation   {store.generation} (kept: {ranges(store.layout.numbers())})")
    output.say(
        f"requests     {position.applied} applied, {position.rejected} rejected, "
        f"{position.seen} seen in total"
    )
    key = _key(store)
    output.say(f"signed       {f'by key {key}' if key else 'no, so its history can be rewritten'}")
    if mask:
        output.say(
            f"channels     {mask['channels']} in {mask['projections']} projections, "
            f"{mask['suppressed_now']} suppressed, {mask['dormant']} dormant, "
            f"capacity {100 * mask['capacity']:.2f} %"
        )
    else:
        output.say(f"size         {store.size() / 1e6:.1f} MB per generation")
    if as_json:  # the names of all requests, for which the whole ledger is read
        output.result("status", _values(state, store) | mask)
    return 0


def _values(state: Path, store: StateStore) -> dict[str, Any]:
    manifest = store.manifest
    return {
        "state": str(state),
        "method": manifest.method,
        "model": manifest.model,
        "fingerprint": manifest.fingerprint,
        "generation": store.generation,
        "generations_kept": store.layout.numbers(),
        "requests_seen": store.position.seen,
        "applied": list(store.history.applied),
        "rejected": list(store.history.rejected),
        "digest": store.position.digest,
        "key": _key(store),
        "seed": manifest.seed,
        "config": dict(manifest.config),
    }


def _key(store: StateStore) -> str | None:
    from tfrnet.core.signing import short

    return short(store.public_key) if store.public_key else None


def _mask_figures(store: StateStore) -> dict[str, Any]:
    """Return what a state says about its channels; nothing for methods without a mask."""
    from tfrnet.masking.mask import capacity, dormant
    from tfrnet.method_state import dormant_threshold_of, has_mask, mask_of

    # Other states may be as large as their model and hold nothing to count.
    if not has_mask(store):
        return {}
    mask, threshold = mask_of(store), dormant_threshold_of(store)
    return {
        "channels": store.manifest.channel_count(),
        "projections": len(store.manifest.channels),
        "suppressed_now": int((mask < 1).sum()),
        "dormant": int(dormant(mask, threshold).sum()),
        "capacity": capacity(mask, threshold),
    }
