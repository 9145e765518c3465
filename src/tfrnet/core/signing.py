"""Ed25519 signatures over canonical JSON, and the files that hold the keys.

A private key is a PEM file in PKCS#8, a public key one in SubjectPublicKeyInfo, a signature the
base64 of its 64 bytes: what other tools read. In JSON a public key is its PEM without the frame.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
    load_pem_private_key,
    load_pem_public_key,
)

from tfrnet.core import key_files
from tfrnet.core.canonical import canonical
from tfrnet.core.errors import InputError

VARIABLE = "TFRNET_KEY"
WHAT = "signing key"
_NOT_A_KEY = (ValueError, TypeError, UnsupportedAlgorithm)


class PublicKey:
    """A key that signatures are checked with."""

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.text = base64.b64encode(der).decode()

    @classmethod
    def from_text(cls, text: object) -> PublicKey:
        """Return the key that stands in a JSON value; anything else is a `ValueError`."""
        try:
            key = load_der_public_key(base64.b64decode(str(text), validate=True))
        except _NOT_A_KEY as error:
            raise ValueError("it is not a public key") from error
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError("it is not an Ed25519 key")
        return cls(key)

    def pem(self) -> bytes:
        """Return the key as a PEM file."""
        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def has_signed(self, value: Mapping[str, Any], signature: object) -> bool:
        """Tell whether a signature is this key's, over this value."""
        try:
            raw = base64.b64decode(str(signature), validate=True)
            self._key.verify(raw, canonical(value))
        except (InvalidSignature, ValueError, TypeError):
            return False
        # Base64 has spare bits at its end, which nobody may change unseen either.
        return base64.b64encode(raw).decode() == signature


class SigningKey:
    """A private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key())

    @classmethod
    def new(cls) -> SigningKey:
        """Return a key that nobody has."""
        return cls(Ed25519PrivateKey.generate())

    def pem(self) -> bytes:
        """Return the key as a PEM file."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, value: Mapping[str, Any]) -> str:
        """Return the signature of a JSON value."""
        return base64.b64encode(self._key.sign(canonical(value))).decode()


def short(public_key: str) -> str:
    """Return the name by which a person tells keys apart: the start of the key's SHA-256."""
    try:
        der = base64.b64decode(public_key, validate=True)
    except (binascii.Error, ValueError):
        return "unreadable"
    return hashlib.sha256(der).hexdigest()[:16]


def named_key(path: str | Path | None) -> Path | None:
    """Return the path of the signing key: the one given, that of the environment, or none."""
    return key_files.named(path, VARIABLE)


def make_key(path: Path) -> SigningKey:
    """Make a private key for its owner's eyes only; one that is there already stays."""
    key = SigningKey.new()
    key_files.make_secret(path, WHAT, key.pem())
    return key


def read_key(path: Path) -> SigningKey:
    """Read a private key, if nobody but its owner can."""
    data = key_files.read_secret(path, WHAT, "'tfrnet key rotate'")
    try:
        key = load_pem_private_key(data, password=None)
    except TypeError:
        raise InputError(
            f"{WHAT} {path} is protected by a password, which tfrnet cannot ask for; store it "
            "without one"
        ) from None
    except _NOT_A_KEY:
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InputError(f"{path} is not an Ed25519 private key in PEM")
    return SigningKey(key)


def read_public_key(path: Path) -> PublicKey:
    """Read a public key."""
    data = key_files.read_open(path, "public key")
    try:
        key = load_pem_public_key(data)
    except _NOT_A_KEY:
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InputError(
            f"{path} is not an Ed25519 public key in PEM; 'tfrnet key public' prints one"
        )
    return PublicKey(key)
