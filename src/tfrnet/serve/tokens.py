"""Bearer tokens with scopes, kept as hashes in a file.

A token is 32 random bytes, so a plain SHA-256 of it tells nothing and cannot be guessed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from tfrnet.core import files
from tfrnet.core.errors import InputError
from tfrnet.core.lock import changing
from tfrnet.core.text import is_printable
from tfrnet.data.requests import MAX_ID_LENGTH

Scope = Literal["submit", "approve", "read", "complete", "admin"]
SCOPES: tuple[Scope, ...] = ("submit", "approve", "read", "complete", "admin")
_PREFIX = "tfr_"
_MOST_DAYS = 36_500


@dataclass(frozen=True)
class Token:
    """Who may do what until when; `admin` may do everything."""

    name: str
    sha256: str
    scopes: tuple[str, ...]
    expires: str | None = None

    def allows(self, scope: Scope) -> bool:
        """Tell whether it is good for something."""
        return scope in self.scopes or "admin" in self.scopes

    @property
    def is_expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and datetime.fromisoformat(self.expires) < _now()


# Without a tokens file, whoever reaches the service may do everything.
ANYBODY = Token("", "", ("admin",))


class TokenFile:
    """The tokens of a service; a change of the file counts from the next request on."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}
        self._refresh()

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret, or none."""
        self._refresh()
        return self._tokens.get(_hash(secret))

    def still_has(self, token: Token) -> bool:
        """Tell whether a token that was found is still good."""
        self._refresh()
        return self._tokens.get(token.sha256) == token and not token.is_expired

    def _refresh(self) -> None:
        try:
            about = self._path.stat()
            stamp = (about.st_mtime_ns, about.st_ino, about.st_size)
            if stamp != self._stamp:
                self._tokens = {token.sha256: token for token in read_tokens(self._path)}
                self._stamp = stamp
        except (OSError, InputError):
            if self._stamp is None:
                raise
            # A file that has gone or cannot be read lets nobody in; the same one may come back.
            self._tokens, self._stamp = {}, (0, 0, 0)


def read_tokens(path: Path) -> list[Token]:
    """Read the tokens of a file."""
    tokens = _tokens_in(path)
    for number, token in enumerate(tokens, start=1):
        if problem := _problem_of_name(token.name):
            raise InputError(f"{path}: the name of token {number} {problem}; revoke it")
    return tokens


def _problem_of_name(name: object) -> str:
    """Return what is wrong with a name, or nothing. The rules are those for ids of requests."""
    if not isinstance(name, str) or not name.strip():
        return "is empty"  # and nobody could be told from anybody by it
    if not is_printable(name):
        return "has characters that cannot be printed"
    return f"is longer than {MAX_ID_LENGTH} characters" if len(name) > MAX_ID_LENGTH else ""


def _tokens_in(path: Path) -> list[Token]:
    """Read the tokens of a file, whatever their names."""
    try:
        values = json.loads(path.read_text())["tokens"]
        tokens = [Token(**value | {"scopes": tuple(value["scopes"])}) for value in values]
        for token in tokens:
            _ = token.is_expired
    except FileNotFoundError:
        raise _no_file(path) from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path} is not a file of tokens") from None
    return tokens


def _no_file(path: Path) -> InputError:
    return InputError(
        f"{path} does not exist; 'tfrnet token add --tokens {path} --name NAME' makes it"
    )


def add_token(path: Path, name: str, scopes: Sequence[str], days: int | None) -> str:
    """Make a token, keep its hash in the file, and return it: it cannot be had again."""
    if problem := _problem_of_name(name):
        raise InputError(f"the token's name {problem}")
    if days is not None and days > _MOST_DAYS:
        raise InputError(f"--days is at most {_MOST_DAYS}, a hundred years")
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise InputError(
            f"unknown scope {unknown[0]!r}; choose from {', '.join(SCOPES)}"
            if unknown
            else f"a token needs a scope: {', '.join(SCOPES)}"
        )
    secret = _PREFIX + secrets.token_urlsafe(32)
    expires = None if days is None else (_now() + timedelta(days=days)).isoformat()
    place = _place(path)
    files.make_folder(place.parent)
    with changing(place):
        known = read_tokens(path) if path.exists() else []
        if any(token.name == name for token in known):
            raise InputError(f"{path} has a token named {name!r} already; revoke it first")
        _write(place, [*known, Token(name, _hash(secret), tuple(scopes), expires)])
    return secret


def revoke_token(path: Path, name: str) -> None:
    """Take a token out of the file."""
    if not path.exists():
        raise _no_file(path)
    place = _place(path)
    with changing(place):
        known = _tokens_in(path)  # also one whose name would not do now
        kept = [token for token in known if token.name != name]
        if len(kept) == len(known):
            raise InputError(f"{path} has no token named {name!r}")
        _write(place, kept)


def _place(path: Path) -> Path:
    """Return where a file lies: a link stays one, and what it leads to is what changes."""
    return Path(os.path.realpath(path))


def _write(path: Path, tokens: Sequence[Token]) -> None:
    text = json.dumps({"tokens": [asdict(token) for token in tokens]}, indent=1)
    files.replace_file(path, f"{text}\n".encode(), mode=0o600)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)
