"""The HTTP application: routes, errors, and the gate before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

import tfrnet
from tfrnet.serve.gate import Gate
from tfrnet.serve.problems import answer_with_problems
from tfrnet.serve.routes import completions, operations, requests, state
from tfrnet.serve.service import Service


def routes() -> FastAPI:
    """Return the application without a service behind it: enough for its description."""
    app = FastAPI(
        title="tfrnet service",
        version=tfrnet.__version__,
        summary="Deletion requests and completions on one live model.",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # to an address made of the caller's Host
        lifespan=_until_stopped,
    )
    answer_with_problems(app)
    for router in (requests.router, state.router, completions.router, operations.router):
        app.include_router(router)
    return app


@asynccontextmanager
async def _until_stopped(app: FastAPI) -> AsyncIterator[None]:
    """Stop the service after the last answer."""
    yield
    await asyncio.to_thread(app.state.service.stop)


def openapi_document() -> Mapping[str, Any]:
    """Return the description of the service."""
    return routes().openapi()


def application(service: Service, root_path: str = "") -> ASGIApp:
    """Return the application of a service."""
    app = routes()
    app.root_path = root_path
    app.state.service = service
    options = service.options
    return Gate(
        app, options.limits, service.tokens, options.local_only, service.log, service.metrics
    )
