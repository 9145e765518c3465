"""The state: what is in force, how it came about, whether it is sound, and the way back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query

import tfrnet
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state
from tfrnet.serve.problems import Problem
from tfrnet.serve.routes.common import MOST, StrictRoute, TheService, needs
from tfrnet.serve.schema import (
    CheckOut,
    HistoryOut,
    RollbackIn,
    RollbackOut,
    StateOut,
    VerifyOut,
)
from tfrnet.serve.service import Service
from tfrnet.serve.tokens import Token
from tfrnet.state import digest_key
from tfrnet.state.check import Check
from tfrnet.state.layout import Layout
from tfrnet.state.store import StateStore

router = APIRouter(prefix="/v1", tags=["state"], route_class=StrictRoute)

Reader = Annotated[Token, needs("read")]
Admin = Annotated[Token, needs("admin")]


def _store(service: Service) -> StateStore:
    return service.primary.session.store if service.primary else StateStore.open(service.folder)


@router.get("/state", summary="What is in force")
def state(service: TheService, caller: Reader) -> StateOut:
    """Return the generation, the queue and what is kept."""
    store, facts = _store(service), service.facts()
    return StateOut(
        model=service.name,
        method=service.manifest.method,
        generation=store.generation,
        serving=service.engine.generation,
        requests_seen=store.history.requests_seen,
        kept_generations=store.layout.numbers(),
        newest_request=service.primary.queue.newest() if service.primary else None,
        queue=facts["queue"],
        overdue=facts["overdue"],
        role="primary" if service.primary else "replica",
        lag_seconds=round(service.lag, 3),
        problem=service.problem,
        version=tfrnet.__version__,
    )


@router.get("/history", summary="Every event of the ledger")
def history(
    service: TheService,
    caller: Reader,
    after: Annotated[int, Query(ge=0, le=MOST, description="Lines to skip.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> HistoryOut:
    """Return lines of the ledger, oldest first."""
    entries = _store(service).entries_after(after)
    more = limit < len(entries)
    return HistoryOut(entries=entries[:limit], next=after + limit if more else None)


@router.get("/verify", summary="Recompute every digest and the chain")
def verify(service: TheService, caller: Reader) -> VerifyOut:
    """Check the state on the disk without changing it."""
    # The whole path, so that it is found in the details and nothing else is taken for it.
    folder = service.folder.resolve()
    checks = [
        CheckOut(name=check.name, passed=check.passed, detail=_without_places(check, folder))
        for check in verify_state(folder)
    ]
    passed = all(check.passed for check in checks)
    if service.primary and not passed:
        service.primary.worker.doubt()
    return VerifyOut(passed=passed, checks=checks)


def _without_places(check: Check, folder: Path) -> str:
    layout = Layout(folder)
    if check.name == "key" and not check.passed and digest_key.place(layout) != layout.key:
        return f"it is kept elsewhere, as {digest_key.VARIABLE} says, and is not usable"
    return check.detail.replace(str(folder), "state")


@router.post("/rollback", summary="Return to a generation")
async def rollback(sent: RollbackIn, service: TheService, caller: Admin) -> RollbackOut:
    """Return to a kept generation, after the request in hand; the ledger keeps the record."""
    primary = service.needed_primary
    kept = primary.session.store.layout.numbers()
    if sent.to not in kept:
        raise Problem(409, f"generation {sent.to} is not kept; choose from {_listed(kept)}")
    try:
        made = await asyncio.wrap_future(primary.worker.rollback(sent.to))
    except StateError as error:
        service.log.error("rollback failed", error)
        raise
    return RollbackOut(generation=made)


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
