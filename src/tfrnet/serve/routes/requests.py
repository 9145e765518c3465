"""Deletion requests: sent, listed, watched, approved, denied, cancelled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import HTMLResponse, StreamingResponse

from tfrnet.audit.figures import Figures
from tfrnet.core.loss_words import group_words
from tfrnet.serve.certificates import issue_certificate
from tfrnet.serve.queue import Entry, State
from tfrnet.serve.routes.common import (
    MOST,
    StrictRoute,
    TheService,
    event_text,
    needs,
    page_headers,
)
from tfrnet.serve.schema import DenyIn, RequestIn, RequestOut, RequestPage
from tfrnet.serve.service import Primary, Service, told
from tfrnet.serve.tokens import ANYBODY, Token
from tfrnet.state.certificate import certificate_bytes
from tfrnet.state.certificate_page import certificate_page

router = APIRouter(prefix="/v1", tags=["requests"], route_class=StrictRoute)

_DAY = 86400
# So often a silent stream says that it is still there.
_HEARTBEAT = 10.0
_ENDED = ("completed", "rejected", "failed", "cancelled")

Submitter = Annotated[Token, needs("submit")]
Approver = Annotated[Token, needs("approve")]
Reader = Annotated[Token, needs("read")]
EventNumber = Annotated[int, Header(alias="Last-Event-ID", ge=0, le=MOST)]


@router.post("/requests", status_code=202, summary="Ask for something to be forgotten")
async def submit(
    sent: RequestIn, service: TheService, caller: Submitter, http: Request, response: Response
) -> RequestOut:
    """Accept a request: when this answers, it is on the disk. The same again gives the same."""
    primary = service.needed_primary
    entry, is_new = await asyncio.to_thread(primary.intake.submit, sent, caller.name)
    if not is_new:
        response.status_code = 200
    place = quote(entry.id, safe="/")
    response.headers["Location"] = f"{http.scope.get('root_path', '')}/v1/requests/{place}"
    return shown(primary, entry)


@router.get("/requests", summary="List requests")
def list_requests(
    service: TheService,
    caller: Reader,
    state: State | None = None,
    after: Annotated[int, Query(ge=0, le=MOST)] = 0,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> RequestPage:
    """Return requests in their order."""
    primary = service.needed_primary
    entries = primary.queue.page(state, after, limit)
    return RequestPage(
        requests=[shown(primary, entry) for entry in entries],
        next=entries[-1].number if len(entries) == limit else None,
    )


@router.get("/events", response_class=StreamingResponse, summary="Watch everything")
async def all_events(service: TheService, caller: Reader) -> StreamingResponse:
    """Send what happens from now on, as server-sent events."""
    return _stream(service, caller, _news(service))


@router.get(
    "/requests/{name:path}/events", response_class=StreamingResponse, summary="Watch a request"
)
async def events(
    name: str, service: TheService, caller: Reader, last: EventNumber = 0
) -> StreamingResponse:
    """Send a request's way as server-sent events, until it has ended."""
    queue = service.needed_primary.queue
    await asyncio.to_thread(queue.find, name)
    return _stream(service, caller, _way(service, name, last))


@router.get("/requests/{name:path}/certificate", response_model=None, summary="Certify a request")
def certificate(name: str, service: TheService, caller: Reader, page: bool = False) -> Response:
    """Return the signed certificate of an applied request, as JSON or as a page for printing."""
    made = issue_certificate(service, name)
    if page:
        return HTMLResponse(certificate_page(made), headers=page_headers())
    return Response(certificate_bytes(made), media_type="application/json")


@router.post("/requests/{name:path}/approve", summary="Approve a request")
def approve(name: str, service: TheService, caller: Approver) -> RequestOut:
    """Let a request be worked on; its sender cannot."""
    by = None if caller is ANYBODY else caller.name
    return _done(service, lambda primary: primary.queue.approve(name, by))


@router.post("/requests/{name:path}/deny", summary="Deny a request")
def deny(name: str, service: TheService, caller: Approver, why: DenyIn | None = None) -> RequestOut:
    """End a request that waits for approval; its words are destroyed."""
    reason = why.reason if why else ""
    return _done(service, lambda primary: primary.queue.deny(name, caller.name, reason))


@router.post("/requests/{name:path}/cancel", summary="Cancel a request")
def cancel(name: str, service: TheService, caller: Submitter) -> RequestOut:
    """End a request that nobody works on yet; its words are destroyed."""
    return _done(service, lambda primary: primary.queue.cancel(name, caller.name))


@router.get("/requests/{name:path}", summary="Look at a request")
def show(name: str, service: TheService, caller: Reader) -> RequestOut:
    """Return a request as it stands."""
    return _done(service, lambda primary: primary.queue.find(name))


def _done(service: Service, action: Callable[[Primary], Entry]) -> RequestOut:
    primary = service.needed_primary
    return shown(primary, action(primary))


def shown(primary: Primary, entry: Entry) -> RequestOut:
    """Return a request as others may see it."""
    history = primary.session.store.history
    pending = entry.state == "pending"
    return RequestOut(
        id=entry.id,
        state=entry.state,
        approval=entry.approval,
        examples=entry.examples,
        received_time=_time(entry.received),
        due=_time(entry.due),
        days_left=round((entry.due - time.time()) / _DAY, 2),
        ahead=primary.queue.ahead_of(entry) if pending else None,
        started_time=_time(entry.started) if entry.started else None,
        ended_time=_time(entry.ended) if entry.ended else None,
        reason=entry.reason,
        stage=primary.stages.get(entry.id),
        in_force=entry.id in history.applied if entry.state == "completed" else None,
        outcome=dict(entry.outcome) if entry.outcome else None,
        guard_groups=group_words((entry.outcome or {}).get("guard_groups", {})),
        audit=_verdict(entry),
        submitted_by=entry.submitted_by,
        decided_by=entry.decided_by,
    )


def _verdict(entry: Entry) -> str:
    """Return what the audit of an applied request says, if it was audited."""
    figures = (entry.outcome or {}).get("audit")
    return Figures.from_dict(figures).verdict if figures and entry.state == "completed" else ""


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(round(seconds, 3), UTC)


def _stream(service: Service, caller: Token, texts: AsyncGenerator[str, None]) -> StreamingResponse:
    return StreamingResponse(
        _while_allowed(service, caller, texts),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store"},
    )


async def _while_allowed(
    service: Service, caller: Token, texts: AsyncGenerator[str, None]
) -> AsyncIterator[str]:
    """Yield texts until the token is revoked or expires; a silent stream yields heartbeats."""
    async with aclosing(texts):
        async for text in texts:
            if service.tokens and not service.tokens.still_has(caller):
                return
            yield text


async def _news(service: Service) -> AsyncGenerator[str, None]:
    with service.news.listening() as listener:
        yield event_text("hello", {"event": "hello", "generation": service.engine.generation})
        while (news := await listener.hear(_HEARTBEAT)) is not None:
            yield event_text(news["event"], news, news.get("number")) if news else ": waiting\n\n"


async def _way(service: Service, name: str, last: int) -> AsyncGenerator[str, None]:
    """Yield what has happened to a request, then what happens, until it ends."""
    queue = service.needed_primary.queue
    with service.news.listening() as listener:
        # Asked first: what ends only after this is among the events that follow.
        has_ended = (await asyncio.to_thread(queue.find, name)).has_ended
        while page := await asyncio.to_thread(queue.events, name, last):
            for event in page:
                last = event.number
                yield event_text(event.name, told(event), event.number)
                # The last one says it: what has ended may have been sent again.
                has_ended = event.name in _ENDED
        if has_ended:
            return
        while (news := await listener.hear(_HEARTBEAT)) is not None:
            number = news.get("number")
            if not news:
                yield ": waiting\n\n"
            elif news.get("request") == name and (number is None or number > last):
                yield event_text(news["event"], news, number)
                if news["event"] in _ENDED:
                    return
