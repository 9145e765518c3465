"""A small client of the service, with nothing but the standard library.

client = Client("http://localhost:8000", token)
client.submit({"id": "17", "examples": [{"text": "Jane Roe lives in Springfield"}]})
for event in client.watch("17"):
    print(event["event"])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tfrnet.core.errors import InputError, TfrnetError

_SECONDS = 60.0


class ServiceError(TfrnetError):
    """What the service, or the way to it, refused; `status` is 0 where there was no answer."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _NoRedirects(HTTPRedirectHandler):
    """Follows nothing: the token and the words of requests are for one host."""

    def redirect_request(self, *asked: Any) -> None:
        """Return no request."""


class Client:
    """Talks to one service."""

    def __init__(self, url: str, token: str | None = None, seconds: float = _SECONDS) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
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
        return self._call("POST", "/v1/requests", request)

    def show(self, name: str) -> dict[str, Any]:
        """Return a request as it stands."""
        return self._call("GET", _place(name))

    def requests(self, state: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield all requests, or those in a state, in their order."""
        after: int | None = 0
        while after is not None:
            query = urlencode({"after": after} | ({"state": state} if state else {}))
            page = self._call("GET", f"/v1/requests?{query}")
            yield from page["requests"]
            after = page["next"]

    def watch(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield what happens to a request until it has ended."""
        with self._open("GET", f"{_place(name)}/events") as answer:
            for line in answer:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

    def approve(self, name: str) -> dict[str, Any]:
        """Let a request be worked on."""
        return self._call("POST", f"{_place(name)}/approve")

    def deny(self, name: str, reason: str = "") -> dict[str, Any]:
        """End a request that waits for approval."""
        return self._call("POST", f"{_place(name)}/deny", {"reason": reason})

    def cancel(self, name: str) -> dict[str, Any]:
        """End a request that nobody works on yet."""
        return self._call("POST", f"{_place(name)}/cancel")

    def state(self) -> dict[str, Any]:
        """Return what is in force."""
        return self._call("GET", "/v1/state")

    def rollback(self, generation: int) -> dict[str, Any]:
        """Return to a kept generation."""
        return self._call("POST", "/v1/rollback", {"to": generation})

    def verify(self) -> dict[str, Any]:
        """Let the service check its state."""
        return self._call("GET", "/v1/verify")

    def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        with self._open(method, path, body) as answer:
            try:
                found: dict[str, Any] = json.loads(answer.read())
            except ValueError:
                raise ServiceError(f"{self._url} is not a tfrnet service") from None
        return found

    def _open(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = self._headers | ({"Content-Type": "application/json"} if data else {})
        request = Request(f"{self._url}{path}", data, headers, method=method)
        try:
            return self._opener.open(request, timeout=self._seconds)
        except HTTPError as error:
            if target := error.headers.get("Location") if 300 <= error.code < 400 else None:
                place = urljoin(request.full_url, target).removesuffix(path)
                raise ServiceError(
                    f"{self._url} redirects to {place}; give that as --url", error.code
                ) from None
            raise ServiceError(_detail(error), error.code) from None
        except (URLError, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ServiceError(f"{self._url} cannot be reached: {reason}") from None


def _place(name: str) -> str:
    return f"/v1/requests/{quote(name, safe='/')}"


def _detail(error: HTTPError) -> str:
    """Return what a problem document says."""
    try:
        return f"{json.loads(error.read())['detail']} ({error.code})"
    except (ValueError, KeyError, TypeError):
        return f"{error.reason} ({error.code})"
