"""Recognising a request that a state holds already."""

from __future__ import annotations

from tfrnet.core.errors import InputError
from tfrnet.data.requests import Request
from tfrnet.state.digests import is_digest_of
from tfrnet.state.store import StateStore


def is_applied(store: StateStore, request: Request) -> bool:
    """Tell whether a request is applied already; the same id with other words is an error."""
    known = store.history.applied.get(request.id)
    if known is None:
        return False
    if not is_digest_of(known, request, store.key()):
        raise InputError(
            f"request id {request.id!r} was already applied with other examples; "
            "give the new request another id"
        )
    return True


def refuse_applied(store: StateStore, request: Request) -> None:
    """Raise if a request is applied already."""
    if is_applied(store, request):
        raise InputError(f"request {request.id!r} is applied already; nothing was changed")
