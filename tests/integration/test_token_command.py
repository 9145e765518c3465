"""The file of tokens when several change it at once, or reach it through a link."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.commands import Tfrnet
from tfrnet.core import files
from tfrnet.serve.tokens import add_token, read_tokens, revoke_token


def names(path: Path) -> list[str]:
    return [token.name for token in read_tokens(path)]


def test_what_is_revoked_while_another_is_added_stays_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adding reads the file, and is slow to write it; revoking begins in between."""
    path = tmp_path / "tokens.json"
    add_token(path, "old", ["admin"], None)
    has_read, replace = threading.Event(), files.replace_file

    def slowly(*arguments: Any, **named: Any) -> None:
        if not has_read.is_set():
            has_read.set()
            time.sleep(0.3)
        replace(*arguments, **named)

    monkeypatch.setattr(files, "replace_file", slowly)
    adding = threading.Thread(target=add_token, args=(path, "new", ["read"], None))
    adding.start()
    assert has_read.wait(10)
    revoke_token(path, "old")
    adding.join(10)
    assert names(path) == ["new"]


def test_a_link_stays_one_and_its_file_loses_the_token(tmp_path: Path) -> None:
    real, link = tmp_path / "real" / "tokens.json", tmp_path / "tokens.json"
    add_token(real, "old", ["admin"], None)
    link.symlink_to(real)
    add_token(link, "new", ["read"], None)
    revoke_token(link, "old")
    assert link.is_symlink()
    assert names(real) == ["new"]


def test_a_file_that_is_not_there_is_not_made_by_revoking(tfrnet: Tfrnet, tmp_path: Path) -> None:
    path = tmp_path / "none" / "tokens.json"
    result = tfrnet("token", "revoke", "--tokens", path, "--name", "me")
    assert (result.code, "does not exist" in result.error) == (2, True)
    assert list(tmp_path.iterdir()) == []
