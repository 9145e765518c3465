"""Before anything else: who is it, is it too much, too large, too slow. And afterwards the log.

A plain ASGI middleware, so that streams pass through it piece by piece.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tfrnet.serve.log import Log
from tfrnet.serve.metrics import Metrics
from tfrnet.serve.problems import Problem, busy, problem_of, response, route_of
from tfrnet.serve.tokens import ANYBODY, TokenFile

# Always answered, so that whoever watches over the service can tell overload from death.
_OPEN = ("/healthz", "/readyz")
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_METHODS = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE")
# So many callers are remembered for their rates.
_MOST_CALLERS = 10_000


@dataclass(frozen=True)
class Limits:
    """How much is too much."""

    under_way: int = 512  # requests at once
    of_one: int = 384  # of these, of one caller: others find room
    body: int = 1 << 20  # bytes
    body_seconds: float = 30.0
    rate: float = 100.0  # requests a second, of one caller
    burst: int = 300


class Rates:
    """A bucket of tokens for every caller, which fills up again at a steady rate."""

    def __init__(self, rate: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._now = rate, burst, now
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, caller: str) -> float:
        """Count a request; return 0, or after how many seconds it may be tried again."""
        now = self._now()
        left, then = self._left.pop(caller, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._rate)
        wait = 0.0 if left >= 1 else (1 - left) / self._rate
        self._left[caller] = (left if wait else left - 1, now)
        if len(self._left) > _MOST_CALLERS:
            self._left.popitem(last=False)
        return wait


class Gate:
    """Lets requests in, one way or another with an answer."""

    def __init__(
        self,
        app: ASGIApp,
        limits: Limits,
        tokens: TokenFile | None,
        local_only: bool,
        log: Log,
        metrics: Metrics,
    ) -> None:
        self._app = app
        self._limits = limits
        self._tokens = tokens
        self._local_only = local_only
        self._log = log
        self._metrics = metrics
        self._rates = Rates(limits.rate, limits.burst)
        self._under_way = 0
        self._of_callers: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start = time.perf_counter()
        status = 0
        begun = False

        async def noting(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
            await send(message)

        self._under_way += 1
        who = ""
        try:
            who = self._identify(scope)
            self._of_callers[who] += 1
            ready = await self._checked(scope, who, receive)
            await self._app(scope, ready, noting)
        except Exception as error:
            # The app has answered and written it down.
            if begun:
                raise
            problem = problem_of(error)
            if problem.status == 500:
                self._log.error("failed", error, route=route_of(scope))
            await response(problem)(scope, receive, noting)
        finally:
            self._under_way -= 1
            self._of_callers -= Counter({who: 1})  # which forgets those who are at 0
            self._note(scope, status or 499, time.perf_counter() - start)

    async def _checked(self, scope: Scope, who: str, receive: Receive) -> Receive:
        if not who:
            return receive
        limits = self._limits
        if self._under_way > limits.under_way or self._of_callers[who] > limits.of_one:
            raise busy("too many calls at once; try again later")
        if wait := self._rates.wait(who):
            raise busy("too many calls in a short time; try again later", 429, math.ceil(wait))
        return await self._whole_body(_headers(scope), receive)

    def _identify(self, scope: Scope) -> str:
        """Find out who it is, and return a name to count them by; none where all are answered.

        What they may do is asked where it is done.
        """
        state = scope.setdefault("state", {})
        state["caller"] = None
        if scope["path"].removeprefix(scope.get("root_path", "")) in _OPEN:
            return ""
        headers = _headers(scope)
        if self._tokens is None:
            if self._local_only:
                _refuse_elsewhere(headers)
            state["caller"] = ANYBODY
        else:
            kind, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            if kind.lower() == "bearer":
                state["caller"] = self._tokens.find(secret.strip())
        caller = state["caller"]
        address = (scope.get("client") or ("",))[0]
        return caller.name if caller and caller.name else f"@{address}"

    async def _whole_body(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Read the body, within its limits, and hand it on as one."""
        most = self._limits.body
        too_large = Problem(413, f"the body is larger than {most} bytes")
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > most:
            raise too_large
        body = b""
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the body of the call is incomplete")
                    body += message.get("body", b"")
                    if len(body) > most:
                        raise too_large
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise Problem(408, "the body of the call arrived too slowly") from None
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = route_of(scope)
        caller: Any = scope.get("state", {}).get("caller")
        # A method of the caller's own could be anything, and there could be any number of them.
        method = scope["method"] if scope["method"] in _METHODS else "(other)"
        self._metrics.http(method, route, status, seconds)
        self._log.say(
            "http",
            method=method,
            route=route,
            status=status,
            seconds=round(seconds, 4),
            caller=caller.name if caller else None,
        )


def _headers(scope: Scope) -> dict[bytes, bytes]:
    return {name.lower(): value for name, value in scope["headers"]}


def _refuse_elsewhere(headers: dict[bytes, bytes]) -> None:
    """Raise if a page from elsewhere makes a browser ask us, be it under its name or ours."""
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin", b"").decode("latin-1")
    if _host_of(f"//{host}") not in _LOCAL_NAMES:
        raise Problem(403, "a service without tokens answers only calls to localhost")
    # With its port: at another one of this machine somebody else's page may lie.
    if origin and origin.partition("://")[2].lower() != host.lower():
        raise Problem(403, "a service without tokens answers only its own pages")


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
