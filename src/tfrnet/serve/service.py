"""All that one process holds: the model, the state, the queue, and the threads at work on them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tfrnet.core.errors import InputError
from tfrnet.core.tensors import State
from tfrnet.core.versions import versions
from tfrnet.method import find_config, find_method
from tfrnet.method_state import refuse_other_model, settings_of
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of
from tfrnet.serve.database import Database
from tfrnet.serve.encoding import Encoder
from tfrnet.serve.engine import Engine
from tfrnet.serve.follower import Follower, shown_of
from tfrnet.serve.gate import Limits
from tfrnet.serve.intake import Intake
from tfrnet.serve.log import Log
from tfrnet.serve.metrics import Metrics
from tfrnet.serve.news import News
from tfrnet.serve.on_commit import OnCommit, command_words
from tfrnet.serve.problems import Problem
from tfrnet.serve.queue import STATES, Event, Queue
from tfrnet.serve.tokens import TokenFile
from tfrnet.serve.vault import Vault, key_in
from tfrnet.serve.webhooks import Addresses, Deliveries
from tfrnet.serve.worker import Worker
from tfrnet.session import Session
from tfrnet.state.digests import is_digest_of
from tfrnet.state.manifest import Manifest
from tfrnet.state.store import StateStore

# A replica that is behind for longer than this says that it is not ready.
MOST_LAG = 5.0


@dataclass(frozen=True)
class ServiceOptions:
    """What an operator decides."""

    name: str = ""  # of the model, to clients
    approve: bool = False
    most_queued: int = 10_000
    rows: int = 16
    most_waiting: int = 256
    queue_folder: Path | None = None
    key_file: Path | None = None
    signing_key: Path | None = None
    webhook_hosts: tuple[str, ...] = ()
    on_commit: str | None = None
    grace: float = 30.0
    tokens: Path | None = None
    local_only: bool = True
    limits: Limits = field(default_factory=Limits)


class Service:
    """What the routes ask. `primary` applies requests; a replica only answers completions."""

    def __init__(
        self,
        loaded: LoadedModel,
        folder: Path,
        manifest: Manifest,
        state: State,
        generation: int,
        options: ServiceOptions,
        log: Log,
    ) -> None:
        """Take a bare model, for completions alone."""
        self.folder = folder
        self.manifest = manifest
        self.options = options
        self.log = log
        self.metrics = Metrics()
        self.news = News()
        self.tokens = TokenFile(options.tokens) if options.tokens else None
        self.name = options.name or Path(manifest.model).name
        self.encoder = Encoder(loaded)
        self.primary: Primary | None = None
        self.follower: Follower | None = None
        method = find_method(manifest.method)
        self.engine = Engine(
            loaded,
            lambda model: method.attach(model, settings_of(manifest)),
            state,
            generation,
            options.rows,
            options.most_waiting,
            partial(log.error, "completions failed"),
        )

    @property
    def needed_primary(self) -> Primary:
        """What only the process that applies requests has."""
        if self.primary is None:
            raise Problem(
                409, "this is a replica, which only answers completions; ask the primary service"
            )
        return self.primary

    @property
    def lag(self) -> float:
        """For how many seconds a replica has been behind its state."""
        return self.follower.lag if self.follower else 0.0

    @property
    def problem(self) -> str:
        """What keeps the service from doing its work, or nothing."""
        if self.follower:
            late = self.lag > MOST_LAG
            return self.follower.problem or ("the replica lags behind its state" if late else "")
        return self.primary.worker.problem if self.primary else ""

    def facts(self) -> dict[str, Any]:
        """Return the figures of this moment."""
        queue = self.primary.queue if self.primary else None
        return {
            "queue": queue.counts() if queue else dict.fromkeys(STATES, 0),
            "overdue": queue.overdue() if queue else 0,
            "generation": self.engine.generation,
            "lag": self.lag,
            "completions": {"waiting": self.engine.waiting, "under_way": self.engine.under_way},
        }

    @property
    def is_at_rest(self) -> bool:
        """Whether no request is in hand."""
        return self.primary is None or self.primary.worker.is_at_rest

    def begin_to_stop(self) -> None:
        """Send listeners home and begin no other request; answers under way go on."""
        self.news.end()
        if self.primary:
            self.primary.worker.begin_to_stop()

    def stop(self) -> None:
        """Finish or leave off what is in hand."""
        self.begin_to_stop()
        if self.primary:
            self.primary.stop(self.options.grace)
        if self.follower:
            self.follower.stop()
        self.engine.stop(self.options.grace)
        self.log.say("stopped", generation=self.engine.generation)


class Primary:
    """The part of a service that applies requests."""

    def __init__(self, service: Service, session: Session) -> None:
        options = service.options
        self._service = service
        self.session = session
        if options.on_commit:
            # Before the queue is bound to a state that would then be taken back.
            command_words(options.on_commit)
        # The same queue however the state is spelled.
        folder = options.queue_folder or Path(f"{service.folder.resolve()}-service")
        self._database = Database(folder / "queue.sqlite")
        if self._database.is_open_to_others:
            service.log.warn(f"{folder} is open to other users; 'chmod go= {folder}' closes it")
        vault = Vault(options.key_file or folder / "key")
        self.queue = Queue(
            self._database, vault, options.approve, options.most_queued, self._announce
        )
        store = session.store
        try:
            self.queue.refuse_other_state(
                store.identity,
                lambda digest, request: is_digest_of(digest, request, store.key()),
            )
            self.queue.refuse_unreadable()
        except BaseException:
            self._database.close()
            raise
        addresses = Addresses(options.webhook_hosts)
        self._deliveries = Deliveries(
            self._database,
            addresses,
            key_in(folder / "webhook-secret"),
            lambda result: service.metrics.deliveries.labels(result).inc(),
        )
        self.intake = Intake(session, self.queue, addresses)
        self.stages: dict[str, str] = {}
        self._on_commit = (
            OnCommit(options.on_commit, service.folder, self._command_ended)
            if options.on_commit
            else None
        )
        self.worker = Worker(session, self.queue, self)
        if self._on_commit:
            self._make_up_for_commits(self._on_commit, store.generation)
        self._deliveries.start()
        self.worker.start()

    def stop(self, seconds: float) -> None:
        """Finish or leave off the request in hand."""
        self.worker.stop(seconds)
        self._deliveries.stop()
        if self._on_commit:
            self._on_commit.stop(seconds)
        if self.worker.is_at_rest:
            self.session.close()
            self._database.close()

    def _make_up_for_commits(self, command: OnCommit, generation: int) -> None:
        """Run the command for a commit that it has not succeeded for, as after a crash."""
        last = self._database.commanded
        if last is None:  # what was committed before there was a command is none of its business
            self._database.note_commanded(generation)
        elif last != generation:
            command.committed(generation)

    # What the queue and the worker tell

    def _announce(self, event: Event) -> None:
        if event.name not in ("started", "progress"):
            self.stages.pop(event.request, None)
        self._service.log.say("request", id=event.request, what=event.name)
        self._service.news.tell(told(event))
        self._deliveries.wake()
        if event.name in ("queued", "approved", "cancelled"):
            self.worker.wake()

    def stage(self, request: str, stage: str) -> None:
        """Pass on what the worker does."""
        self.stages[request] = stage
        self._service.news.tell({"request": request, "event": "progress", "stage": stage})

    def committed(self, generation: int, state: State) -> None:
        """Let completions be of the new generation, and tell the operator's command."""
        if generation == self._service.engine.generation:
            return
        self._service.engine.show(state, generation)
        self._service.log.say("committed", generation=generation)
        self._service.news.tell({"event": "generation", "generation": generation})
        if self._on_commit:
            self._on_commit.committed(generation)

    def applied(self, outcome: Mapping[str, Any]) -> None:
        """Count a request."""
        self._service.metrics.applied(outcome)

    def failed(self, request: str, error: BaseException) -> None:
        """Note what went wrong."""
        self._service.metrics.errors.labels("request").inc()
        self._service.log.error("request failed", error, id=request)

    def _command_ended(self, generation: int, code: int) -> None:
        if code:
            self._service.metrics.errors.labels("on_commit").inc()
        else:
            try:
                self._database.note_commanded(generation)
            except sqlite3.Error as error:  # then it runs once more at the next start
                self._service.log.error("on-commit", error, generation=generation)
        self._service.log.say("on-commit", generation=generation, exit_code=code)


def told(event: Event) -> dict[str, Any]:
    """Return an event of a request as it is sent."""
    return {
        "number": event.number,
        "request": event.request,
        "event": event.name,
        "time": event.time,
    } | dict(event.facts)


def refuse_without_mask(method: str) -> None:
    """Raise if a method changes weights: those answer completions while it works."""
    if not find_config(method).has_mask:
        raise InputError(
            f"method {method} changes the model's weights while it works, so completions cannot "
            "go on beside it; 'tfrnet serve' takes methods with a mask (tfr)"
        )


def open_primary(session: Session, options: ServiceOptions, log: Log) -> Service:
    """Serve a session. Completions run on the same weights, with modules of their own."""
    store, net = session.store, session.unlearner
    refuse_without_mask(net.method)
    with net.effect.lifted():
        twin = LoadedModel(twin_of(net.model), deepcopy(net.tokenizer))
    service = Service(
        twin,
        store.layout.folder,
        store.manifest,
        session.unlearner.state,
        store.generation,
        options,
        log,
    )
    try:
        service.primary = Primary(service, session)
    except BaseException:
        service.engine.stop(options.grace)
        raise
    log.say("ready", role="primary", generation=store.generation, versions=versions())
    return service


def open_replica(loaded: LoadedModel, folder: Path, options: ServiceOptions, log: Log) -> Service:
    """Answer completions by a state that another process writes."""
    store = StateStore.open(folder)
    refuse_without_mask(store.manifest.method)
    refuse_other_model(store, *loaded)
    service = Service(loaded, folder, store.manifest, store.load(), store.generation, options, log)
    service.follower = Follower(
        folder, shown_of(store), service.engine.show, partial(log.error, "cannot follow")
    )
    service.follower.start()
    log.say("ready", role="replica", generation=store.generation, versions=versions())
    return service
