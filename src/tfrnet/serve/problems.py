"""Errors as problem documents (RFC 9457). None repeats a path, a stack or words of a request."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Scope

from tfrnet.core.errors import InputError, StateError
from tfrnet.serve.engine import TooManyError
from tfrnet.serve.queue import ConflictError, QueueFullError, UnknownRequestError

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 2


class Problem(Exception):  # noqa: N818 (the RFC's word)
    """An error to be answered."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def busy(detail: str, status: int = 503, seconds: int = RETRY_SECONDS) -> Problem:
    """Return a problem that goes away by itself."""
    return Problem(status, detail, {"Retry-After": str(seconds)})


def body_of(status: int, detail: str) -> dict[str, Any]:
    """Return the document; OpenAI's clients read `error.message`."""
    title = HTTPStatus(status).phrase
    return {
        "type": "about:blank",
        "title": title,
        "status": status,
        "detail": detail,
        "error": {"message": detail, "type": title.lower().replace(" ", "_"), "code": status},
    }


def response(problem: Problem) -> JSONResponse:
    """Return the answer."""
    return JSONResponse(
        body_of(problem.status, problem.detail),
        problem.status,
        problem.headers,
        media_type=MEDIA_TYPE,
    )


def problem_of(error: BaseException) -> Problem:
    """Return what to answer to an error."""
    match error:
        case Problem():
            return error
        case UnknownRequestError():
            return Problem(404, "there is no request with this id")
        case ConflictError():
            return Problem(409, str(error))
        case QueueFullError():
            return busy("too many requests are waiting; try again later")
        case TooManyError():
            return busy("too many completions are waiting; try again later")
        case InputError():
            return Problem(422, str(error))
        case sqlite3.Error():
            return busy("the queue cannot be used at the moment; the service's log says why")
        case StateError():
            return busy("the state cannot be used at the moment; the service's log says why")
        case RequestValidationError():
            return Problem(400 if _is_no_json(error) else 422, _first_fault(error))
        case HTTPException(__cause__=Problem() as problem):  # ours, met while a body was read
            return problem
        case HTTPException():
            return Problem(error.status_code, _said(error.status_code), error.headers)
    return Problem(500, "something went wrong in the service; its log says what")


def _said(status: int) -> str:
    if status == 400:
        return "the body is not JSON in UTF-8, or is nested too deep"
    return HTTPStatus(status).phrase


def _is_no_json(error: RequestValidationError) -> bool:
    return any(fault["type"] == "json_invalid" for fault in error.errors())


def _first_fault(error: RequestValidationError) -> str:
    """Say where and what is wrong, in names that are ours: others could be words of a request."""
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        return "the body is not JSON"
    if fault["type"] == "extra_forbidden":
        return "the body has an unknown field"
    place = ".".join(str(part) for part in fault["loc"][1:] if _is_ours(part))
    message = fault["msg"] if not fault["type"].endswith("_error") else fault["msg"][:200]
    return f"{place}: {message}" if place else message


def _is_ours(part: Any) -> bool:
    return isinstance(part, int) or (isinstance(part, str) and part.isidentifier())


def route_of(scope: Scope) -> str:
    """Return the pattern of the address, which holds no id."""
    return getattr(scope.get("route"), "path", "(none)")


def answer_with_problems(app: FastAPI) -> None:
    """Answer every error of an app with a problem document."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        problem = problem_of(error)
        # Before the answer goes out, so that whoever reads it finds the reason in the log.
        if problem.status == 500 or isinstance(error, StateError | sqlite3.Error):
            request.app.state.service.log.error("failed", error, route=route_of(request.scope))
        return response(problem)

    for kind in (
        *(Problem, UnknownRequestError, ConflictError, QueueFullError, TooManyError),
        *(InputError, StateError, RequestValidationError, HTTPException, sqlite3.Error),
        Exception,
    ):
        app.add_exception_handler(kind, handle)
