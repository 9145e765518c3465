"""`tfrnet status`: what a state is and holds."""

from __future__ import annotations

from tfrnet.cli import _options as opt
from tfrnet.cli._output import Output


def command(state: opt.State = opt.DEFAULT_STATE, as_json: opt.AsJson = False) -> int:
    """Show a state: its model, its requests, its mask."""
    from tfrnet.masking.mask import capacity, dormant
    from tfrnet.state.store import StateStore

    output = Output(as_json)
    store = StateStore.open(state)
    manifest, history = store.manifest, store.history
    mask = store.load().mask
    threshold = manifest.tfr_config().dormant_threshold
    values = {
        "state": str(state),
        "model": manifest.model,
        "fingerprint": manifest.fingerprint,
        "generation": store.generation,
        "generations_kept": store.layout.numbers(),
        "requests_seen": history.requests_seen,
        "applied": list(history.applied),
        "rejected": list(history.rejected),
        "channels": manifest.channel_count(),
        "projections": len(manifest.channels),
        "suppressed_now": int((mask < 1).sum()),
        "dormant": int(dormant(mask, threshold).sum()),
        "capacity": capacity(mask, threshold),
        "digest": history.digests[store.generation],
        "seed": manifest.seed,
        "config": dict(manifest.config),
    }
    output.say(f"state        {state}")
    output.say(f"model        {manifest.model} (fingerprint {manifest.fingerprint[:12]})")
    output.say(f"generation   {store.generation} (kept: {_ranges(store.layout.numbers())})")
    output.say(
        f"requests     {len(history.applied)} applied, {len(history.rejected)} rejected, "
        f"{history.requests_seen} seen in all"
    )
    output.say(
        f"channels     {values['channels']} in {values['projections']} projections, "
        f"{values['suppressed_now']} suppressed, {values['dormant']} dormant, "
        f"capacity {100 * capacity(mask, threshold):.2f} %"
    )
    output.result("status", values)
    return 0


def _ranges(numbers: list[int]) -> str:
    """Return 0, 3 to 7 for [0, 3, 4, 5, 6, 7]."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(g[0]) if len(g) == 1 else f"{g[0]} to {g[-1]}" for g in groups)
