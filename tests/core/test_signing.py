"""Keys and signatures: standard files, held against another implementation and RFC 8032."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tfrnet.core.canonical import canonical
from tfrnet.core.errors import InputError
from tfrnet.core.signing import (
    PublicKey,
    SigningKey,
    make_key,
    named_key,
    read_key,
    read_public_key,
)

VALUE = {"b": [1, 2.5, None], "a": "Zoë\n"}


def test_the_canonical_form_is_sorted_without_spaces_and_ascii() -> None:
    assert canonical(VALUE) == b'{"a":"Zo\\u00eb\\n","b":[1,2.5,null]}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical({"a": float("nan")})


def test_a_signature_holds_for_its_value_and_key_alone() -> None:
    key, other = SigningKey.new(), SigningKey.new()
    signature = key.sign(VALUE)
    assert key.public.has_signed(VALUE, signature)
    assert not other.public.has_signed(VALUE, signature)
    assert not key.public.has_signed(VALUE | {"a": "Zoe\n"}, signature)
    assert not key.public.has_signed(VALUE, None)


def test_no_character_of_a_signature_can_be_changed() -> None:
    key = SigningKey.new()
    signature = key.sign(VALUE)
    for position, old in enumerate(signature):
        for new in "AQgwBz+/=":
            if new != old:
                changed = signature[:position] + new + signature[position + 1 :]
                assert not key.public.has_signed(VALUE, changed), (position, new)
    assert not key.public.has_signed(VALUE, signature + "\n")


def test_the_signature_is_that_of_rfc_8032() -> None:
    # Test 3 of section 7.1.
    secret = bytes.fromhex("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7")
    expected = (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )
    private = ed25519.Ed25519PrivateKey.from_private_bytes(secret)
    assert private.sign(bytes.fromhex("af82")).hex() == expected
    # Ours is the same function, over the canonical bytes.
    raw = base64.b64decode(SigningKey(private).sign(VALUE))
    assert raw == private.sign(canonical(VALUE))


def test_openssl_reads_the_keys_and_agrees_on_the_signature(tmp_path: Path) -> None:
    key = make_key(tmp_path / "key.pem")
    (tmp_path / "public.pem").write_bytes(key.public.pem())
    (tmp_path / "message").write_bytes(canonical(VALUE))
    (tmp_path / "signature").write_bytes(base64.b64decode(key.sign(VALUE)))
    openssl = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin"]
    files = ["-inkey", "public.pem", "-in", "message", "-sigfile", "signature"]
    assert subprocess.run([*openssl, *files], cwd=tmp_path, capture_output=True).returncode == 0
    (tmp_path / "message").write_bytes(canonical(VALUE) + b" ")
    assert subprocess.run([*openssl, *files], cwd=tmp_path, capture_output=True).returncode != 0
    shown = subprocess.run(
        ["openssl", "pkey", "-in", "key.pem", "-pubout"], cwd=tmp_path, capture_output=True
    )
    assert shown.stdout == key.public.pem()


def test_a_key_is_made_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        key = make_key(tmp_path / "folder" / "key.pem")
    finally:
        os.umask(old)
    path = tmp_path / "folder" / "key.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["key.pem"]
    assert read_key(path).public.text == key.public.text
    (tmp_path / "public.pem").write_bytes(key.public.pem())
    assert read_public_key(tmp_path / "public.pem").text == key.public.text
    assert PublicKey.from_text(key.public.text).pem() == key.public.pem()


def test_a_key_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    make_key(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="exists already; choose a new file"):
        make_key(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["key.pem"]


def _private(key, encryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


BAD = {
    "empty": b"",
    "noise": bytes(range(256)),
    "rsa": _private(rsa.generate_private_key(65537, 2048), NoEncryption()),
    "cut": SigningKey.new().pem()[:60],
    "public": SigningKey.new().public.pem(),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_signing_key_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(BAD[name])
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"key\.pem is not an Ed25519 private key in PEM$"):
        read_key(path)


@pytest.mark.parametrize("name", ["empty", "noise", "private", "rsa"])
def test_what_is_no_public_key_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    other = rsa.generate_private_key(65537, 2048).public_key()
    contents = BAD | {
        "private": SigningKey.new().pem(),
        "rsa": other.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    }
    path = tmp_path / "public.pem"
    path.write_bytes(contents[name])
    with pytest.raises(InputError, match=r"public\.pem is not an Ed25519 public key in PEM"):
        read_public_key(path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o602])
def test_a_key_that_is_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key.pem"
    make_key(path)
    path.chmod(mode)
    with pytest.raises(InputError, match=f"is open to others \\(mode {mode:04o}\\); 'chmod 600"):
        read_key(path)


def test_a_missing_key_a_folder_a_pipe_and_one_with_a_password_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.pem does not exist"):
        read_key(tmp_path / "none.pem")
    with pytest.raises(InputError, match="is not a file"):
        read_key(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InputError, match="is not a file"):
        read_key(tmp_path / "pipe")
    locked = _private(ed25519.Ed25519PrivateKey.generate(), BestAvailableEncryption(b"secret"))
    (tmp_path / "locked.pem").write_bytes(locked)
    (tmp_path / "locked.pem").chmod(0o600)
    with pytest.raises(InputError, match="is protected by a password"):
        read_key(tmp_path / "locked.pem")


def test_the_key_is_named_by_path_or_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFRNET_KEY", raising=False)
    assert named_key(None) is None
    monkeypatch.setenv("TFRNET_KEY", "/somewhere/key.pem")
    assert named_key(None) == Path("/somewhere/key.pem")
    assert named_key("other.pem") == Path("other.pem")
    monkeypatch.setenv("TFRNET_KEY", "")
    assert named_key(None) is None
