"""What operators and their tools ask, and the pages for people."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from tfrnet.serve.problems import busy
from tfrnet.serve.routes.common import StrictRoute, TheService, needs, page_headers
from tfrnet.serve.tokens import Token

router = APIRouter(tags=["operations"], route_class=StrictRoute)

Reader = Annotated[Token, needs("read")]

# The page runs its own script and asks nobody but this service.
_OWN_SCRIPT = page_headers("script-src 'unsafe-inline'; connect-src 'self'; ")


@router.get("/healthz", summary="Is the process alive")
async def health() -> dict[str, str]:
    """Answer as long as the process can."""
    return {"status": "ok"}


@router.get("/readyz", summary="Can it do its work")
async def ready(service: TheService) -> dict[str, Any]:
    """Answer 200, or 503 with the reason."""
    if service.problem:
        raise busy(service.problem)
    return {"status": "ready", "generation": service.engine.generation}


@router.get("/metrics", response_class=Response, summary="Figures for Prometheus")
def metrics(service: TheService, caller: Reader) -> Response:
    """Return the figures of this moment."""
    return Response(service.metrics.page(service.facts), media_type=CONTENT_TYPE_LATEST)


@router.get("/", response_class=HTMLResponse, include_in_schema=False)
async def dashboard() -> HTMLResponse:
    """Return the dashboard; what it shows it asks for with the reader's own token."""
    return HTMLResponse(_page("dashboard.html"), headers=_OWN_SCRIPT)


@router.get("/docs", response_class=HTMLResponse, include_in_schema=False)
async def docs(request: Request) -> HTMLResponse:
    """Return the list of addresses, made without anything from outside."""
    rows = [
        f"<tr><td><code>{method.upper()} {escape(path)}</code><td>{escape(about['summary'])}"
        for path, methods in request.app.openapi()["paths"].items()
        for method, about in methods.items()
    ]
    text = (
        "<!doctype html><meta charset=utf-8><title>tfrnet service</title>"
        "<style>body{font:16px system-ui;margin:2em auto;max-width:50em}"
        "td{padding:.2em 1em .2em 0}</style><h1>Addresses of the service</h1>"
        "<p>The whole description is <a href=openapi.json>openapi.json</a>.</p>"
        f"<table>{''.join(rows)}</table>"
    )
    return HTMLResponse(text, headers=page_headers())


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> JSONResponse:
    """Return the OpenAPI document."""
    return JSONResponse(request.app.openapi())


@cache
def _page(name: str) -> str:
    return (files("tfrnet.serve") / name).read_text("utf-8")
