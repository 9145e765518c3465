"""A small client of the service, with nothing but the standard library.

client = Client("http://localhost:8000", token)
client.submit({"id": "17", "examples": [{"text": "Jane Roe lives in Springfield"}]})
for event in client.watch("17"):
    print(event["event"])
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException, InvalidURL
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tfrnet.core.errors import InputError, TfrnetError

_SECONDS = 60.0
# So long a call in all waits, where the service says when to try again.
_PATIENCE = 60
# So often a stream that ends early is asked for again, and so many seconds after.
_MORE_TRIES = 5
_PAUSE = 1.0
# A request in one of these states has not ended.
OPEN = ("pending", "in_progress")
# What an answer of a service has, of any version of it.
_OF_REQUEST = {"id", "state", "approval", "days_left", "reason", "outcome"}


class ServiceError(TfrnetError):
    """What the service, or the way to it, refused; `status` is 0 where there was no answer.

    `retry_after` is the number of seconds after which it may be asked again, where it says so.
    """

    def __init__(self, message: str, status: int = 0, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


class CutOffError(ServiceError):
    """A stream that ends, again and again, before the request that it tells of."""

    exit_code = 1


class _NoRedirects(HTTPRedirectHandler):
    """Follows nothing: the token and the words of requests are for one host."""

    def redirect_request(self, *asked: Any) -> None:
        """Return no request."""


class Client:
    """Talks to one service."""

    def __init__(self, url: str, token: str | None = None, seconds: float = _SECONDS) -> None:
        if not _is_address(url):
            raise InputError(f"--url must begin with http:// or https://, but is {url!r}")
        self._url = url.rstrip("/")
        token = (token or "").strip()  # a file with Windows line ends leaves one at its end
        if not (token.isascii() and token.isprintable()):
            raise InputError("the token has characters that no token has; copy it once more")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._seconds = seconds
        self._opener = build_opener(_NoRedirects)

    def submit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request: `id`, `examples`, and perhaps `due` and `callback_urls`."""
        return self._request("POST", "/v1/requests", request)

    def show(self, name: str) -> dict[str, Any]:
        """Return a request as it stands."""
        return self._request("GET", _place(name))

    def requests(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all requests, or those in a state, in their order."""
        after: int | None = 0
        while after is not None:
            asked = {"after": after} | ({"state": state} if state else {})
            page = self._call("GET", f"/v1/requests?{urlencode(asked, errors='replace')}")
            found = page.get("requests")
            if not (isinstance(found, list) and all(map(_is_request, found)) and "next" in page):
                raise self._stranger()
            yield from found
            after = page["next"]

    def watch(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield what happens to a request until it has ended.

        A stream that ends early is asked for again, from where it was; a `CutOffError` says that
        nothing more comes of it.
        """
        last, tries = 0, 0
        while True:
            reached = last
            for number, event in self._events(name, last):
                last = max(last, number)
                yield event
            if self.show(name)["state"] not in OPEN:
                return
            tries = 0 if last > reached else tries + 1
            if tries > _MORE_TRIES:
                raise CutOffError(
                    f"{self._url} stops telling of request {name!r}, which has not ended; watch it "
                    "again later"
                )
            time.sleep(_PAUSE)

    def _events(self, name: str, after: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the events after one, with their numbers, 0 if they have none."""
        number = 0
        with self._open("GET", f"{_place(name)}/events", last=after) as answer:
            try:
                for line in answer:
                    field, _, value = line.rstrip().partition(b": ")
                    if field == b"id":
                        number = int(value)
                    elif field == b"data":
                        event = json.loads(value)
                        if not (isinstance(event, dict) and "event" in event):
                            raise self._stranger()
                        yield number, event
                        number = 0
            except ValueError:
                raise self._stranger() from None
            except (OSError, HTTPException):
                return  # cut off: what came so far counts

    def approve(self, name: str) -> dict[str, Any]:
        """Let a request be worked on."""
        return self._request("POST", f"{_place(name)}/approve")

    def deny(self, name: str, reason: str = "") -> dict[str, Any]:
        """End a request that waits for approval."""
        return self._request("POST", f"{_place(name)}/deny", {"reason": reason})

    def cancel(self, name: str) -> dict[str, Any]:
        """End a request that nobody works on yet."""
        return self._request("POST", f"{_place(name)}/cancel")

    def state(self) -> dict[str, Any]:
        """Return what is in force."""
        return self._call("GET", "/v1/state")

    def rollback(self, generation: int) -> dict[str, Any]:
        """Return to a kept generation."""
        return self._call("POST", "/v1/rollback", {"to": generation})

    def verify(self) -> dict[str, Any]:
        """Let the service check its state."""
        return self._call("GET", "/v1/verify")

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        found = self._call(method, path, body)
        if not _is_request(found):
            raise self._stranger()
        return found

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        with self._open(method, path, body) as answer:
            try:
                found: object = json.loads(answer.read())
            except ValueError:
                raise self._stranger() from None
            except (OSError, HTTPException) as error:
                raise self._unreached(error) from None
        if not isinstance(found, dict):
            raise self._stranger()
        return found

    def _open(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, last: int = 0
    ) -> Any:
        """Return the answer; where there were too many calls, wait as long as the service says."""
        patience = _PATIENCE
        while True:
            try:
                return self._ask(method, path, body, last)
            except ServiceError as error:
                wait = error.retry_after
                if error.status != 429 or wait is None or wait > patience:
                    raise
                patience -= max(wait, 1)
                time.sleep(wait)

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, last: int) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if data else {})
        headers |= {"Last-Event-ID": str(last)} if last else {}
        request = Request(f"{self._url}{path}", data, headers, method=method)
        try:
            return self._opener.open(request, timeout=self._seconds)
        except HTTPError as error:
            if target := error.headers.get("Location") if 300 <= error.code < 400 else None:
                place = urljoin(request.full_url, target).removesuffix(path)
                raise ServiceError(
                    f"{self._url} redirects to {place}; give that as --url", error.code
                ) from None
            wait = error.headers.get("Retry-After", "")
            raise ServiceError(
                _detail(error), error.code, int(wait) if wait.isdecimal() else None
            ) from None
        except (OSError, InvalidURL) as error:
            raise self._unreached(error) from None
        except HTTPException:  # something that does not speak HTTP
            raise self._stranger() from None

    def _unreached(self, error: Exception) -> ServiceError:
        reason = getattr(error, "reason", error)
        refused = isinstance(reason, ConnectionRefusedError)
        hint = "; is 'tfrnet serve' running there? --url gives another address" if refused else ""
        return ServiceError(f"{self._url} cannot be reached: {reason}{hint}")

    def _stranger(self) -> ServiceError:
        return ServiceError(f"{self._url} is not a tfrnet service")


def _is_address(url: str) -> bool:
    try:
        return url.isascii() and urlsplit(url).scheme in ("http", "https")
    except ValueError:  # half of an IPv6 address
        return False


def _is_request(value: object) -> bool:
    return isinstance(value, dict) and value.keys() >= _OF_REQUEST


def _place(name: str) -> str:
    # An id that is no UTF-8 is one that no service has, and it says so.
    return f"/v1/requests/{quote(name, safe='/', errors='replace')}"


def _detail(error: HTTPError) -> str:
    """Return what a problem document says."""
    try:
        return f"{json.loads(error.read())['detail']} ({error.code})"
    except (ValueError, KeyError, TypeError, OSError, HTTPException):
        return f"{error.reason} ({error.code})"
