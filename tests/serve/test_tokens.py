"""Names and days of tokens, and that nobody approves what they have sent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import run_main
from tests.serve.running import primary
from tfrnet.core.errors import InputError
from tfrnet.serve.service import ServiceOptions
from tfrnet.serve.tokens import TokenFile, add_token, read_tokens, revoke_token

REQUEST = tiny.requests(1, size=2)[0]
BAD = ["", "  ", "a\x1b[2Jb", "a\nb", "a\u202eb", "a" * 201]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_does_not_name_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "tokens.json"
    with pytest.raises(InputError, match="the token's name"):
        add_token(path, name, ["read"], None)
    assert not path.exists()


@pytest.mark.parametrize("name", [*BAD, 5, None])
def test_a_file_with_such_a_name_lets_nobody_in_until_it_is_revoked(
    tmp_path: Path, name: object
) -> None:
    path = tmp_path / "tokens.json"
    secret = add_token(path, "me", ["read"], None)
    tokens = TokenFile(path)
    values = json.loads(path.read_text())["tokens"]
    path.write_text(json.dumps({"tokens": [*values, values[0] | {"name": name, "sha256": "0"}]}))
    with pytest.raises(InputError, match="the name of token 2") as caught:
        read_tokens(path)
    assert "\x1b" not in str(caught.value)
    assert tokens.find(secret) is None
    if isinstance(name, str):
        revoke_token(path, name)
        assert tokens.find(secret)


def test_who_is_known_to_nobody_is_not_the_sender(tmp_path: Path, tokenizer) -> None:
    """Without tokens nobody can be told apart; with them the sender has a name."""
    path = tmp_path / "tokens.json"
    scopes = ["submit", "approve", "read"]
    first, second = (add_token(path, name, scopes, None) for name in ("first", "second"))
    options = ServiceOptions(approve=True, tokens=path)
    with primary(tmp_path / "state", tokenizer, options, token=first) as running:
        queue = running.service.primary.queue
        assert running.submit(REQUEST).status_code == 202
        place = "/v1/requests/request-0/approve"
        assert running.client.post(place).status_code == 409
        # A queue of before may have a sender with an empty name.
        with queue._database.transaction() as connection:
            connection.execute("UPDATE requests SET submitted_by = ''")
        with pytest.raises(Exception, match="somebody other than its sender"):
            queue.approve("request-0", "")
        other = running.client.post(place, headers={"Authorization": f"Bearer {second}"})
        assert other.json()["decided_by"] == "second"


def test_too_many_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    add = ("token", "add", "--tokens", tmp_path / "tokens.json", "--name", "me", "--days")
    assert run_main((*add, 4_000_000)) == 2
    assert capsys.readouterr().err == "tfrnet: error: --days is at most 36500, a hundred years\n"
    assert run_main((*add, 36_500)) == 0
