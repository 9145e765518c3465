"""What all routes ask first: the service, and whether the caller may."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from tfrnet.core import strict_json
from tfrnet.serve.problems import Problem
from tfrnet.serve.service import Service
from tfrnet.serve.tokens import Scope, Token

# The largest number that a database holds.
MOST = 2**63 - 1


class _StrictRequest(Request):
    """A call whose body means one thing only."""

    async def json(self) -> Any:
        """Return the value of the body."""
        try:
            return strict_json.parse(await self.body())
        except strict_json.RepeatedKeyError:
            # Which one is not said: it could be a word of a request.
            raise Problem(400, "an object in the body has a key twice") from None


class StrictRoute(APIRoute):
    """A route that reads JSON as the command line does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a call."""
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


def service_of(request: Request) -> Service:
    """Return the service that an app was built for."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]


def needs(scope: Scope) -> Any:
    """Return what a route depends on that needs a scope; it gives the caller."""

    def caller_with_scope(request: Request) -> Token:
        caller: Token | None = request.state.caller
        ask = {"WWW-Authenticate": "Bearer"}
        if caller is None:
            raise Problem(401, "a valid token is needed: Authorization: Bearer TOKEN", ask)
        if caller.is_expired:
            raise Problem(401, "the token has expired", ask)
        if not caller.allows(scope):
            raise Problem(403, f"the token lacks the scope {scope}")
        return caller

    return Depends(caller_with_scope)


def page_headers(more: str = "") -> dict[str, str]:
    """Return the headers of a page: it may load nothing, but for what `more` adds."""
    return {
        "Content-Security-Policy": f"default-src 'none'; {more}style-src 'unsafe-inline'; "
        "img-src data:; form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


def event_text(name: str, value: Mapping[str, Any], number: int | None = None) -> str:
    """Return a server-sent event."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
