"""What `forget`, `run` and `serve` are given, checked before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.core.settings import Settings
from tfrnet.data.requests import Request, read_examples, refuse_overlap, refuse_shared
from tfrnet.method import DEFAULT, find_config
from tfrnet.models.place import model_place

if TYPE_CHECKING:
    from tfrnet.cli.options import SessionOptions
    from tfrnet.data.examples import Example
    from tfrnet.state.manifest import Manifest


@dataclass(frozen=True)
class Material:
    """The requests and the data that goes with them; the model may write its own retain data."""

    requests: Sequence[Request]
    retain: list[Example] | None
    guard: list[Example] | None
    holdout: list[Example]
    reference: list[Example]


def read_material(options: SessionOptions, requests: Sequence[Request]) -> Material:
    """Read all files that the options name, and refuse options that no state could have."""
    from tfrnet.state.store import StateStore

    if options.method:
        find_config(options.method)
    if not StateStore.exists(options.state):  # an existing one has a say in its settings
        chosen_config(options, None)
    if options.model:
        model_place(options.model)
    retain = read_examples(options.retain) if options.retain else None
    guard = read_examples(options.guard) if options.guard else None
    used = {"retain data": retain or (), "guard data": guard or ()}
    for label, data in used.items():
        refuse_overlap(requests, data, label)
    holdout = read_apart(options.holdout, "hold-out data", used, requests)
    used["hold-out data"] = holdout
    reference = read_apart(options.reference, "reference data", used, requests)
    return Material(requests, retain, guard, holdout, reference)


def chosen_config(options: SessionOptions, known: Manifest | None) -> Settings | None:
    """Return the settings asked for, or None if none were: an existing state has its own."""
    overrides = [*(options.overrides or ()), *(["use_guard=true"] if options.guarded else ())]
    if options.preset is None and not overrides:
        return None
    from tfrnet.method_state import settings_of

    base: Settings
    if known and options.method in (None, known.method) and options.preset is None:
        base = settings_of(known)
    else:
        method = options.method or (known.method if known else DEFAULT)
        base = find_config(method).preset(options.preset or "default")
    return base.with_overrides(overrides)


def read_apart(
    path: Path | None,
    label: str,
    used: Mapping[str, Sequence[Example]],
    requests: Sequence[Request],
) -> list[Example]:
    """Read data that may share no example with the requests or with other data, by its label."""
    if path is None:
        return []
    examples = read_examples(path)
    refuse_overlap(requests, examples, label)
    for other, data in used.items():
        refuse_shared(examples, data, label, other)
    return examples
