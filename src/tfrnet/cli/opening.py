"""Opening models and sessions for subcommands. All input is checked before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tfrnet.cli.material import Material, chosen_config, read_material
from tfrnet.cli.output import Output
from tfrnet.core.settings import Settings
from tfrnet.data.cautions import cautions
from tfrnet.data.groups import small_groups
from tfrnet.distributed.environment import launched_size
from tfrnet.method import DEFAULT, find_method
from tfrnet.models.bundled import described

if TYPE_CHECKING:
    from tfrnet.cli.options import SessionOptions
    from tfrnet.core.team import Team
    from tfrnet.data.examples import Example
    from tfrnet.data.requests import Request
    from tfrnet.distributed.messages import Load
    from tfrnet.models.load import LoadedModel
    from tfrnet.session import Session
    from tfrnet.state.new_state import NewState
    from tfrnet.state.store import StateStore

DEFAULT_MODEL = "smollm2-135m"
# The last events of a state that say how long a request takes.
_JUDGED_BY = 5


def lead(
    read: Callable[[], Sequence[Request]],
    work: Callable[[SessionOptions, Team, Material], int],
    options: SessionOptions,
    output: Output,
) -> int:
    """Read what is given and do the work in the first process; others of a launcher follow it.

    The work receives the options with the device of its process.
    """
    # Several processes are joined first, so that an error ends all of them.
    given = read_material(options, read()) if launched_size() == 1 else None
    with output.waiting("starting"):  # torch alone takes seconds to import
        from tfrnet.distributed.follow import follow
        from tfrnet.distributed.launch import joined_team

    with joined_team(options.device) as (team, own_device):
        if team.leads:
            given = given or read_material(options, read())
            return work(replace(options, device=own_device), team, given)
        place = team.device.type

        def load_as_told(wanted: Load) -> LoadedModel:
            return load(
                *(wanted.model, wanted.dtype, own_device, output, place),
                trust_remote_code=wanted.trust_remote_code,
            )

        follow(team, load_as_told)
        return 0


def open_session(
    options: SessionOptions, team: Team, given: Material, output: Output, may_be_done: bool
) -> Session:
    """Check everything that can be checked without the model, then load it and open the state.

    With `may_be_done`, as in a stream, requests that are already applied are no error.
    """
    from tfrnet.state.store import StateStore

    if options.method:
        find_method(options.method)
    requests, retain = given.requests, given.retain
    with ExitStack() as until_handed_over:
        opened = _open_state(options.state, options.key, output)
        until_handed_over.enter_context(opened)
        store = opened if isinstance(opened, StateStore) else None
        config = chosen_config(options, store.manifest if store else None)
        if given.reference:
            _settings(options, store, config).refuse_reference()
        if store:
            _check_state(store, options, config, requests, may_be_done)
        name = model_name(options.model, store)
        dtype = store.manifest.dtype(options.dtype) if store else options.dtype
        loaded = _load_together(name, dtype, options, team, output)
        writes = retain is None and not store
        with output.waiting(
            "having the model write text to keep" if writes else "opening the state"
        ):
            from tfrnet.session import Session

            session = Session(
                *loaded,
                opened,
                retain,
                guard=given.guard,
                reference=given.reference,
                holdout=given.holdout,
                audit=not options.no_audit,
                retire_guard=options.retire_guard,
                method=options.method,
                config=config,
                seed=options.seed,
                batch_size=options.batch_size,
                keep=options.keep,
                key=options.key,
                model_name=name,
                gradient_checkpointing=options.gradient_checkpointing,
                compiled=options.compiled,
                team=team,
            )
        until_handed_over.pop_all()
    is_checked = bool(given.holdout) or session.unlearner.guard_is_apart
    if session.retiring:
        output.warn(
            "guard examples missing from the data, to be retired with the next request: "
            f"{len(session.retiring)}; {len(session.unlearner.guard)} are left"
        )
    for line in [
        *_about_own_text(session, retain),
        *cautions(requests, session.unlearner.retain, session.unlearner.holdable, is_checked),
        *small_groups([*(given.retain or ()), *(given.guard or ())], session.unlearner.guard),
    ]:
        output.warn(line)
    return session


def earlier_seconds(session: Session) -> list[float]:
    """Return how long the last requests of a state took."""
    store = session.store
    last = store.entries_after(max(0, store.lines - _JUDGED_BY))
    return [entry["seconds"]["total"] for entry in last if "total" in entry.get("seconds", {})]


def _about_own_text(session: Session, retain: Sequence[Example] | None) -> Iterator[str]:
    """Say what becomes of the model's own text, if the state was begun without retain data."""
    if retain is None:
        yield (
            f"no retain data: {len(session.unlearner.retain)} lines that the model wrote itself "
            "stand in for it; data of your own protects what you need better (--retain)"
        )
    elif session.store.manifest.own_text is not None:
        yield (
            "this state was begun without retain data: its steps now use yours in place of the "
            "text that the model wrote, and its guard stays as it was"
        )


def _open_state(folder: Path, key: Path | None, output: Output) -> StateStore | NewState:
    """Open a state for writing, or a place for it: locked, also while the model loads."""
    from tfrnet.state.store import StateStore, open_or_place

    found = open_or_place(folder, key)
    for repair in found.repairs if isinstance(found, StateStore) else ():
        output.note(f"repaired {folder}: {repair}")
    return found


def _check_state(
    store: StateStore,
    options: SessionOptions,
    config: Settings | None,
    requests: Sequence[Request],
    may_be_done: bool,
) -> None:
    """Refuse a state that does not match before a large model is loaded."""
    from tfrnet.method_state import needed_own_text, settings_of
    from tfrnet.state.applied import is_applied, refuse_applied

    folder, manifest = options.state, store.manifest
    store.key()
    manifest.refuse_method(folder, options.method)
    manifest.refuse_settings(folder, settings_of(manifest), config, options.seed)
    if options.retain is None:
        needed_own_text(store)
    for request in requests:
        (is_applied if may_be_done else refuse_applied)(store, request)


def _settings(
    options: SessionOptions, store: StateStore | None, chosen: Settings | None
) -> Settings:
    """Return the settings that will act: those asked for, the state's, or the method's own."""
    from tfrnet.method_state import settings_of

    if chosen or not store:
        return chosen or find_method(options.method or DEFAULT).config_class()
    return settings_of(store.manifest)


def _load_together(
    name: str, dtype: str, options: SessionOptions, team: Team, output: Output
) -> LoadedModel:
    """Load the model in this process and in those that follow it."""
    from tfrnet.distributed.messages import Load
    from tfrnet.distributed.together import load_together

    trust = options.trust_remote_code
    team.broadcast(Load(name, dtype, trust))
    place = team.device.type if team.size > 1 else None
    return load_together(
        team, lambda: load(name, dtype, options.device, output, place, trust_remote_code=trust)
    )


def model_name(given: str | None, known: StateStore | None) -> str:
    """Return the model to load: the one given, the state's, or the default."""
    if given:
        # An absolute path, so that the state finds its model from any folder.
        return str(Path(given).resolve()) if Path(given).exists() else given
    return known.model if known else DEFAULT_MODEL


def load(
    name: str,
    dtype: str,
    device: str,
    output: Output,
    computes_on: str | None = None,
    *,
    trust_remote_code: bool = False,
) -> LoadedModel:
    """Load a model without the output of transformers."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    with output.waiting(f"loading {described(name)}"):
        from transformers.utils import logging

        from tfrnet.models.load import load_model

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        return load_model(name, dtype, device, computes_on, trust_remote_code)
