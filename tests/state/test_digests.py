"""Keyed digests of requests: each under a key of its own, made from the state's by HKDF."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from tests import tiny
from tfrnet.data.requests import Request
from tfrnet.state.digests import data_digest, is_digest_of, request_digest, request_key

KEY = bytes(range(32))
ONE, OTHER = tiny.requests(2)


def hkdf(secret: bytes, name: bytes) -> bytes:
    """RFC 5869 for one block of SHA-256 and no salt."""
    extracted = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(extracted, name + b"\x01", hashlib.sha256).digest()


def test_the_digest_is_an_hmac_under_the_requests_own_key() -> None:
    key = hkdf(KEY, b"tfrnet request " + ONE.id.encode())
    assert request_key(KEY, ONE.id) == key
    text = json.dumps(ONE.to_dict()["examples"], sort_keys=True, separators=(",", ":"))
    expected = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    assert request_digest(ONE, KEY) == data_digest(ONE, key) == expected


def test_the_same_words_under_another_id_or_in_another_order_have_another_digest() -> None:
    renamed = Request("another", ONE.examples)
    turned = Request(ONE.id, ONE.examples[::-1])
    assert len({request_digest(each, KEY) for each in (ONE, renamed, turned, OTHER)}) == 4


def test_one_requests_key_tells_nothing_of_another() -> None:
    assert data_digest(OTHER, request_key(KEY, ONE.id)) != request_digest(OTHER, KEY)


@pytest.mark.parametrize("digest", [request_digest(ONE, KEY), data_digest(ONE, KEY)])
def test_a_request_is_recognised_by_its_digest_of_now_and_of_before(digest: str) -> None:
    assert is_digest_of(digest, ONE, KEY)
    assert not is_digest_of(digest, OTHER, KEY)
    assert not is_digest_of(digest, ONE, bytes(32))
