"""Opening models and sessions for subcommands: all input is checked before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrnet.cli.output import Output
from tfrnet.core.settings import Settings
from tfrnet.data.requests import Request, read_examples, refuse_overlap
from tfrnet.method import DEFAULT, find_method

if TYPE_CHECKING:
    from tfrnet.core.team import Team
    from tfrnet.models.load import LoadedModel
    from tfrnet.session import Session

DEFAULT_MODEL = "smollm2-135m"


@dataclass(frozen=True)
class SessionOptions:
    """What `forget` and `run` are told on the command line."""

    state: Path
    model: str | None
    retain: Path
    guard: Path | None
    method: str | None
    guarded: bool
    preset: str | None
    overrides: list[str]
    seed: int | None
    dtype: str
    device: str
    batch_size: int | None
    keep: int | None
    gradient_checkpointing: bool
    compiled: bool
    team: Team


def lead(work: Callable[[SessionOptions], int], output: Output, device: str, **rest: Any) -> int:
    """Do the work in the first of the processes launched, or the only one; the others follow."""
    from tfrnet.distributed.follow import follow
    from tfrnet.distributed.launch import joined_team

    with joined_team(device) as (team, own_device):
        if team.leads:
            return work(SessionOptions(device=own_device, team=team, **rest))
        place = team.device.type
        follow(team, lambda wanted: load(wanted.model, wanted.dtype, own_device, output, place))
        return 0


def open_session(
    options: SessionOptions, requests: Sequence[Request], output: Output, may_be_done: bool
) -> Session:
    """Check everything that can be checked without the model, then load it and open the state.

    `may_be_done` tells whether requests that are applied already are fine (they are in a stream).
    """
    config = _chosen_config(options)
    retain = read_examples(options.retain)
    guard = read_examples(options.guard) if options.guard else None
    refuse_overlap(requests, retain, "retain data")
    if guard:
        refuse_overlap(requests, guard, "guard data")
    _check_state(options, config, requests, output, may_be_done)
    name = model_name(options.model, options.state)
    from tfrnet.distributed.messages import Load
    from tfrnet.distributed.together import load_together
    from tfrnet.session import Session

    options.team.broadcast(Load(name, options.dtype))
    place = options.team.device.type if options.team.size > 1 else None
    loaded = load_together(
        options.team, lambda: load(name, options.dtype, options.device, output, place)
    )
    return Session(
        loaded.model,
        loaded.tokenizer,
        options.state,
        retain,
        guard=guard,
        method=options.method,
        config=config,
        seed=options.seed,
        batch_size=options.batch_size,
        keep=options.keep,
        model_name=name,
        gradient_checkpointing=options.gradient_checkpointing,
        compiled=options.compiled,
        team=options.team,
    )


def _check_state(
    options: SessionOptions,
    config: Settings | None,
    requests: Sequence[Request],
    output: Output,
    may_be_done: bool,
) -> None:
    """Find out before a large model is loaded that a state is in use, damaged or done already."""
    from tfrnet.method_state import settings_of
    from tfrnet.state.applied import is_applied, refuse_applied
    from tfrnet.state.store import StateStore

    folder = options.state
    if not StateStore.exists(folder):
        return
    with StateStore.open(folder, write=True) as store:
        store.manifest.refuse_method(folder, options.method)
        made = settings_of(store.manifest)
        store.manifest.refuse_settings(folder, made, config, options.seed)
        for repair in store.repairs:
            output.note(f"repaired {folder}: {repair}")
        for request in requests:
            (is_applied if may_be_done else refuse_applied)(store, request)


def _chosen_config(options: SessionOptions) -> Settings | None:
    """Return the config asked for, or None where nothing was: an existing state has its own."""
    if options.method:
        find_method(options.method)
    overrides = options.overrides + (["use_guard=true"] if options.guarded else [])
    if options.preset is None and not overrides:
        return None
    from tfrnet.method_state import settings_of
    from tfrnet.state.store import StateStore

    known = StateStore.open(options.state).manifest if StateStore.exists(options.state) else None
    base: Settings
    if known and options.method in (None, known.method) and options.preset is None:
        base = settings_of(known)
    else:
        method = options.method or (known.method if known else DEFAULT)
        base = find_method(method).config_class.preset(options.preset or "default")
    return base.with_overrides(overrides)


def model_name(given: str | None, state: Path | None) -> str:
    """Return the model to load: the one given, the state's, or the default."""
    if given:
        # A path is kept whole, so that the state finds its model from any folder.
        return str(Path(given).resolve()) if Path(given).exists() else given
    from tfrnet.state.store import StateStore

    if state and StateStore.exists(state):
        return StateStore.open(state).manifest.model
    return DEFAULT_MODEL


def load(
    name: str, dtype: str, device: str, output: Output, computes_on: str | None = None
) -> LoadedModel:
    """Load a model, quietly."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with output.waiting(f"loading {name}"):
        from transformers.utils import logging

        from tfrnet.models.load import load_model

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        return load_model(name, dtype, device, computes_on)
