"""What all routes ask first: the service, and whether the caller may."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from tfrnet.serve.problems import Problem
from tfrnet.serve.service import Service
from tfrnet.serve.tokens import Scope, Token

# The largest number that a database holds.
MOST = 2**63 - 1


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


def event_text(name: str, value: Mapping[str, Any], number: int | None = None) -> str:
    """Return a server-sent event."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {name}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n"
