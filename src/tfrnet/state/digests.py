"""Keyed digests: to recognise words again without keeping them.

Without the key nobody can test a guess against a digest; with a plain hash anybody could. Each
request has a key of its own, made from the state's and its id, so that it can be handed out with a
certificate and tells nothing about other requests.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tfrnet.core.canonical import canonical
from tfrnet.data.examples import Example
from tfrnet.data.requests import Request

KEY_BYTES = 32


def example_digest(example: Example, key: bytes) -> str:
    """Return the keyed digest of one example."""
    return _keyed(example.words(), key)


def examples_digest(examples: Sequence[Example], key: bytes) -> str:
    """Return the keyed digest of a set of examples, in any order."""
    return _keyed(sorted(example_digest(example, key) for example in examples), key)


def request_key(key: bytes, request_id: str) -> bytes:
    """Return the key of one request, made from the state's key."""
    name = b"tfrnet request " + request_id.encode("utf-8")
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=name).derive(key)


def data_digest(request: Request, key: bytes) -> str:
    """Return the digest of a request's examples under the request's own key."""
    return _keyed([example.words() for example in request.examples], key)


def request_digest(request: Request, key: bytes) -> str:
    """Return the digest of a request's examples, given the state's key."""
    return data_digest(request, request_key(key, request.id))


def is_digest_of(digest: str, request: Request, key: bytes) -> bool:
    """Tell whether a digest in the ledger is that of a request, given the state's key."""
    # Earlier versions took the state's key itself.
    known = (request_digest(request, key), data_digest(request, key))
    return any(hmac.compare_digest(digest, each) for each in known)


def _keyed(value: Any, key: bytes) -> str:
    return hmac.new(key, canonical(value), hashlib.sha256).hexdigest()
