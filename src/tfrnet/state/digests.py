"""Keyed digests: to recognise words again without keeping them.

Without the key nobody can test a guess against a digest; with a plain hash anybody could.
"""

from __future__ import annotations

import hashlib
import hmac
import json

from tfrnet.data.examples import Example
from tfrnet.data.requests import Request


def example_digest(example: Example, key: bytes) -> str:
    """Return the keyed digest of one example."""
    return _keyed(example.to_dict(), key)


def request_digest(request: Request, key: bytes) -> str:
    """Return the keyed digest of a request's examples; its id is not part of it."""
    return _keyed(request.to_dict()["examples"], key)


def _keyed(value: object, key: bytes) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode("utf-8"), hashlib.sha256).hexdigest()
