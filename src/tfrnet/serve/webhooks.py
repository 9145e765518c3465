"""Telling others that a request has ended: signed, tried again, and never to our own network."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from urllib.parse import SplitResult, urlsplit

from tfrnet.core.errors import InputError
from tfrnet.serve.database import Database

_SECONDS = 10.0
_MOST_ATTEMPTS = 10
_FIRST_WAIT, _LONGEST_WAIT = 2.0, 3600.0
_PORTS = {"http": 80, "https": 443}

Resolve = Callable[[str, int], list[str]]


class RefusedError(InputError):
    """An address that is not asked."""


def resolved(host: str, port: int) -> list[str]:
    """Return a host's addresses."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class Addresses:
    """Which addresses may be told: public ones by https, and hosts that were allowed by name."""

    def __init__(self, allowed: Sequence[str] = (), resolve: Resolve = resolved) -> None:
        self._allowed = {host.lower() for host in allowed}
        self._resolve = resolve

    def refuse(self, url: str) -> SplitResult:
        """Raise if an address is wrong or points, as far as it can be seen, to where it may not."""
        if not (url.isascii() and url.isprintable()) or " " in url:
            raise RefusedError("a callback URL must be ASCII; other characters as %XX or xn--")
        try:
            parts = urlsplit(url)
            port_is_fine = parts.port is None or 0 < parts.port < 65536
        except ValueError:
            raise RefusedError("a callback URL is not a URL") from None
        host = (parts.hostname or "").lower()
        if parts.scheme not in _PORTS or not host or not port_is_fine or "@" in parts.netloc:
            raise RefusedError("a callback URL must be https://HOST/..., without a user name")
        if host in self._allowed:
            return parts
        if parts.scheme != "https":
            raise RefusedError("a callback URL must begin with https://")
        name = host.rstrip(".")
        if name == "localhost" or name.endswith((".localhost", ".local", ".internal")):
            raise RefusedError(_PRIVATE)
        address = _written_address(name)
        if address and not _is_public(address):
            raise RefusedError(_PRIVATE)
        return parts

    def connect(self, parts: SplitResult) -> socket.socket:
        """Connect to an address that was looked at: a name can change between two looks."""
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        found = self._resolve(host, port)
        if host.lower() not in self._allowed and not all(
            _is_public(ipaddress.ip_address(address.partition("%")[0])) for address in found
        ):
            raise RefusedError(_PRIVATE)
        return socket.create_connection((found[0], port), timeout=_SECONDS)


_PRIVATE = "a callback URL must not point to this machine or a private network"


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Of IPv6, what is handed out to networks, without addresses of IPv4 in disguise (6to4).
_UNICAST, _DISGUISED = ipaddress.ip_network("2000::/3"), ipaddress.ip_network("2002::/16")


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address):
        return address.is_global and address in _UNICAST and address not in _DISGUISED
    return address.is_global and not address.is_multicast


def _written_address(host: str) -> Address | None:
    """Return the address that a host is written as, also as 127.1, 0x7f000001 or 2130706433."""
    with suppress(ValueError):
        return ipaddress.ip_address(host)
    with suppress(OSError):
        return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Return what a receiver computes too, to know that a message is ours and how old it is."""
    return hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def post(addresses: Addresses, url: str, body: bytes, secret: bytes) -> int:
    """Send one message and return the status. Redirects are not followed."""
    parts = addresses.refuse(url)
    host = parts.hostname or ""
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "tfrnet",
        "X-Tfrnet-Timestamp": timestamp,
        "X-Tfrnet-Signature": f"sha256={signature(secret, timestamp, body)}",
    }
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    # Without a port it would look for one behind the last colon, also in an address of IPv6.
    port = parts.port or http.client.HTTP_PORT
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    with _cut_off(addresses.connect(parts)) as plain:
        connection.sock = plain if parts.scheme == "http" else _encrypted(plain, host)
        connection.request("POST", target, body, headers)
        return connection.getresponse().status


def _encrypted(plain: socket.socket, host: str) -> ssl.SSLSocket:
    return ssl.create_default_context().wrap_socket(plain, server_hostname=host)


@contextmanager
def _cut_off(connection: socket.socket) -> Iterator[socket.socket]:
    """Close a connection after a block, and cut it off if that takes long.

    The sockets' own timeout is for one read: whoever sends a byte now and then is never late.
    """
    second = connection.dup()  # encryption takes the first one over
    late = threading.Timer(_SECONDS, _hang_up, (second,))
    late.daemon = True
    late.start()
    try:
        yield connection
    finally:
        late.cancel()
        connection.close()
        second.close()


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Deliveries:
    """Sends what the queue owes, in a thread of its own; it is on the disk until it has arrived."""

    def __init__(
        self,
        database: Database,
        addresses: Addresses,
        secret: bytes,
        count: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._database = database
        self._addresses = addresses
        self._secret = secret
        self._count = count
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Say that there may be something to send."""
        self._wake.set()

    def stop(self) -> None:
        """Send no more than what is on its way."""
        self._stopping = True
        self._wake.set()
        self._thread.join(2 * _SECONDS)

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if self._stopping:
                return
            try:
                wait = self._turn()
            except sqlite3.Error:
                self._count("not written")
                wait = _SECONDS
            if wait != 0:
                self._wake.wait(wait)

    def _turn(self) -> float | None:
        """Send what is due; return how long to wait, or None for as long as nothing comes.

        What was tried least comes first: an address that hangs holds up its own messages.
        """
        rows = self._database.read(
            "SELECT * FROM deliveries WHERE state = 'waiting' ORDER BY next > ?, "
            "CASE WHEN next > ? THEN next ELSE attempts END, number LIMIT 1",
            (now := time.time(), now),
        )
        if not rows:
            return None
        wait = float(rows[0]["next"]) - now
        if wait > 0:
            return wait
        self._deliver(rows[0]["number"], rows[0]["url"], rows[0]["body"], rows[0]["attempts"])
        return 0

    def _deliver(self, number: int, url: str, body: str, attempts: int) -> None:
        try:
            status = post(self._addresses, url, body.encode(), self._secret)
            result = "delivered" if 200 <= status < 300 else "failed"
        except RefusedError:
            result = "refused"
        except Exception:
            # Whatever an address and who answers there bring about: the others are told.
            result = "failed"
        self._count(result)
        last = result == "failed" and attempts + 1 >= _MOST_ATTEMPTS
        state = "waiting" if result == "failed" and not last else result
        wait = min(_FIRST_WAIT * 3**attempts, _LONGEST_WAIT)
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE deliveries SET state = ?, attempts = ?, next = ? WHERE number = ?",
                (state, attempts + 1, time.time() + wait, number),
            )
