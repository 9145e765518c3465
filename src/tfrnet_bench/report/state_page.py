"""The page of a state: what its ledger says, without any model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrnet.audit.change import Change
from tfrnet.masking.channel_map import channel_map
from tfrnet.masking.strength import MaskStrength
from tfrnet.method_state import dormant_threshold_of, drift_of, has_mask, mask_of, requests_words
from tfrnet.models.bundled import described
from tfrnet.state.base_model import bare_name
from tfrnet.state.store import StateStore
from tfrnet_bench.report.cell_data import request_data
from tfrnet_bench.report.compact import rounded
from tfrnet_bench.report.origin_tables import plain
from tfrnet_bench.report.page import Page, Section, render
from tfrnet_bench.report.summary import facts, paragraphs


def state_page(folder: Path, answers: Sequence[Mapping[str, str]] = ()) -> Page:
    """Return the page of a state, with answers to show if there are any."""
    store = StateStore.open(folder)
    entries = store.entries
    requests, undone = _requests(store, entries)
    now = store.position
    counts = {"accepted": now.applied, "rejected": now.rejected, "seen": now.seen}
    words = requests_words(store)
    mask_facts, mask_map, remarks = _mask(store, entries)
    rollbacks = [entry for entry in entries if entry["kind"] == "rollback"]
    remarks += [
        f"At {entry['time']} the state was rolled back to generation {entry['to']}; the requests "
        "that this took back are still shown as they went."
        for entry in rollbacks
    ]
    remarks += [
        f"Guard examples retired at {entry['time']}: {len(entry['retired'])}. Guard losses before "
        "and after that are of different examples."
        for entry in entries
        # Of lines that were lost, the line of the repair tells.
        if entry["kind"] == "guard" or (entry.get("retired") and entry["lost_lines"])
    ]
    summary = facts(
        {
            "method": store.manifest.method,
            "model": described(bare_name(store.manifest.model)),
            "requests": words,
            "generation": store.generation,
            "total drift": drift.words if (drift := drift_of(store)) else "",
            "hold-out data": _holdout(store),
            **mask_facts,
        }
    )
    sections = [
        Section("summary", "Summary", summary + paragraphs(remarks)),
        Section("cell", "Requests", "<div id=chosen></div>"),
        Section("provenance", "Provenance", _origin(store, entries)),
    ]
    cell: dict[str, Any] = {
        "kind": "state",
        "stream": "",
        "variant": store.manifest.method,
        "seed": str(store.manifest.seed),
        "about": [],
    } | ({"channel_map": mask_map} if mask_map else {})
    if requests:
        cell["requests"] = request_data(requests) | ({"undone": undone} if any(undone) else {})
    if answers:
        cell |= {"texts": [dict(answer) for answer in answers], "texts_in_all": len(answers)}
    html = render("State report", str(folder.resolve().name), sections, {"cells": [rounded(cell)]})
    return Page("state", html, counts, words)


def _requests(
    store: StateStore, entries: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[bool]]:
    """Return the requests of the ledger, and of each whether it was applied and then undone."""
    lines = [number for number, entry in enumerate(entries) if entry["kind"] == "request"]
    undone = store.history.undone()
    return [entries[number] for number in lines], [number in undone for number in lines]


def _holdout(store: StateStore) -> str:
    """Return what the hold-out data showed of the current generation; nothing without such data."""
    values = store.measures.get("holdout")
    if not values:
        return ""
    change = Change.from_dict(values)
    return (
        f"loss {change.loss_untouched:.3f} untouched, {change.loss_after:.3f} now "
        f"({100 * change.total_rise:+.1f} %), {change.examples} examples that no step or guard uses"
    )


def _mask(
    store: StateStore, entries: Sequence[dict[str, Any]]
) -> tuple[dict[str, object], dict[str, Any] | None, list[str]]:
    """Return the figures and map of a mask with remarks on them; some methods have no mask."""
    if not has_mask(store):
        return (
            {},
            None,
            [f"Method {store.manifest.method} has no mask, so there is no channel map."],
        )
    threshold = dormant_threshold_of(store)
    line = generations_in_effect(entries)
    kept = set(store.layout.numbers())
    masks = [mask_of(store, number) for number in line if number in kept]
    strength = MaskStrength.of(masks[-1].numpy(), threshold)
    figures: dict[str, object] = {
        "channels": f"{masks[-1].numel():,} in {len(store.manifest.channels)} projections",
        "mask": f"{strength.change()}; {strength.counts()}",
    }
    dropped = len(line) - len(masks)
    remarks = [
        f"{dropped} of the {len(line)} generations in effect are no longer kept; channels that "
        "were raised and lowered again between two kept ones are not counted as recovered."
    ]
    found = channel_map(store.manifest.channels, masks, threshold)
    return figures, found, remarks if dropped else []


def generations_in_effect(entries: Sequence[dict[str, Any]]) -> list[int]:
    """Return the generations that led to the current one, without those rolled back."""
    before: dict[int, int | None] = {}
    current: int | None = None
    for entry in entries:
        number = entry["generation"]
        if entry["kind"] == "rollback":
            # A generation made by a rollback is the one it returned to, under a new number.
            before[number] = before[entry["to"]]
        elif number != current:
            before[number] = current
        current = number
    line = []
    while current is not None:
        line.append(current)
        current = before[current]
    return line[::-1]


def _origin(store: StateStore, entries: Sequence[dict[str, Any]]) -> str:
    manifest = store.manifest
    requests = [entry for entry in entries if entry["kind"] == "request"]
    versions = dict.fromkeys(
        ", ".join(f"{name} {value}" for name, value in entry.get("versions", {}).items())
        for entry in requests
    )
    return (
        facts(
            {
                "model": described(bare_name(manifest.model)),
                "fingerprint": manifest.fingerprint,
                "seed": manifest.seed,
                "versions": "; ".join(versions),
                "dtype": ", ".join(dict.fromkeys(str(e.get("dtype", "")) for e in requests)),
                "batch size": ", ".join(
                    dict.fromkeys(str(e.get("batch_size", "")) for e in requests)
                ),
                "guard examples": len(store.guard),
                "made": entries[0]["time"],
                "last entry": entries[-1]["time"],
                "digest of the current generation": store.history.digests[store.generation],
                "head of the ledger": entries[-1]["hash"],
            }
        )
        + "<h3>Settings</h3>"
        + facts({name: plain(value) for name, value in sorted(manifest.config.items())})
    )
