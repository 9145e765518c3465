"""The HTTP server: bounded in connections and in patience, stopped with grace."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import signal
import socket
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tfrnet.core.errors import InputError
from tfrnet.serve.app import application
from tfrnet.serve.log import Log
from tfrnet.serve.problems import MEDIA_TYPE, RETRY_SECONDS, body_of
from tfrnet.serve.service import Service

# So long a client may take for the head of a request.
_HEAD_SECONDS = 15.0
# So long a connection that is one too many may stay, for its answer to arrive.
_REFUSED_SECONDS = 2.0
# So long a client may leave unread what it has asked for.
_UNREAD_SECONDS = 60.0
# So many bytes are taken at once: a body in tiny pieces takes long, and others have their turn.
_AT_ONCE = 16_384
# Files that are open besides connections: the service's own, and connections about to be closed.
_OTHER_FILES = 12_000


def _last_words(status: int, detail: str, *headers: str) -> bytes:
    """Return an answer after which a connection is closed."""
    body = json.dumps(body_of(status, detail)).encode()
    head = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body)}",
        *headers,
        "Connection: close",
    ]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


class Connection(H11Protocol):
    """A connection that is refused where there are too many, and closed where it says nothing."""

    most = 1000
    _timer: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        """Count the connection."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):
            transport.max_size = _AT_ONCE
        self._is_refused = len(self.connections) > self.most
        if self._is_refused:
            # Told once it has asked, so that it can hear it; or soon, if it does not ask.
            self._timer = self.loop.call_later(_REFUSED_SECONDS, self._turn_away)
        else:
            self._wait(_HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Take what comes; a refused one is told so."""
        if self._is_refused:
            self._turn_away()
            return
        if self._timer is None:
            self._wait(_HEAD_SECONDS)
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go."""
        self._wait(None)
        self.resume_writing()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Wait for a client that does not read, but not for ever."""
        super().pause_writing()
        self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on."""
        if self._unread is not None:
            self._unread.cancel()
        self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, unless an answer is under way."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            self.transport.write(_last_words(400, "this is not HTTP, or its headers are too large"))
        self.transport.close()

    def shutdown(self) -> None:
        """End after the answer under way; whoever is still sending is not waited for."""
        if self.cycle is not None and self.cycle.more_body and not self.cycle.response_started:
            self.transport.write(_last_words(503, "the service is stopping"))
            self.transport.close()
        else:
            super().shutdown()

    def on_response_complete(self) -> None:
        """Go on to the next request on the connection."""
        self._wait(None)
        super().on_response_complete()

    def _turn_away(self) -> None:
        if not self.transport.is_closing():
            detail = "too many connections; try again later"
            self.transport.write(_last_words(503, detail, f"Retry-After: {RETRY_SECONDS}"))
            self.transport.close()

    def _wait(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if seconds is not None:
            self._timer = self.loop.call_later(seconds, self.transport.close)


class Server(uvicorn.Server):
    """Tells the service at once that it has to stop, and then waits for the answers under way."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop."""
        if self._loop:
            # Not here: a signal comes at any moment, also while a lock is held.
            self._loop.call_soon_threadsafe(self.service.begin_to_stop)
        super().handle_exit(sig, frame)


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens, or say in one line why there is none."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = "; give another with --port (0 takes a free one)" if taken else ""
        raise InputError(f"cannot listen on {host} port {port}: {reason}{hint}") from None
    return listening


def make_server(service: Service, most_connections: int = 1000, root_path: str = "") -> Server:
    """Return a server for a service."""
    _allow_files(most_connections + _OTHER_FILES)
    protocol = type("BoundedConnection", (Connection,), {"most": most_connections})
    _pass_on_logs(service.log)
    config = uvicorn.Config(
        application(service, root_path),
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(service.options.grace)),
        timeout_keep_alive=10,
    )
    return Server(config, service)


def run(server: Server, listening: socket.socket) -> None:
    """Serve until a signal comes; then end as one that was asked to."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # The server raises what it caught once more when it has ended.
        signal.signal(number, lambda *_: None)
    server.run([listening])
    if not server.service.is_at_rest:
        # A pass under way cannot be interrupted, and torch aborts if it outlives the interpreter.
        # The state and its queue stay locked until the process is gone.
        os._exit(0)


def _allow_files(wanted: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class _Passing(logging.Handler):
    """Puts what uvicorn says into our log, without the texts of errors."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error:
            self._log.error("server", error)
        else:
            self._log.say("server", detail=record.getMessage().splitlines()[0])


def _pass_on_logs(log: Log) -> None:
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        logger.handlers = [_Passing(log)]
        logger.propagate = False
