"""`tfrnet export --push`, against a stand-in for the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest

from tests.integration.commands import Files, Tfrnet
from tests.integration.hub import Hub, running_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with running_hub() as hub:
        connect(monkeypatch, hub.address)
        yield hub


def connect(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    from huggingface_hub.utils import _http

    for name, value in (
        ("ENDPOINT", address),
        ("HF_HUB_OFFLINE", False),
        ("HF_HUB_DISABLE_XET", True),
    ):
        monkeypatch.setattr(huggingface_hub.constants, name, value)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda seconds: None)
    _http.close_session()  # made for another address, or while the hub was switched off


def exported(files: Files, out: Path, *more: object) -> list[object]:
    return ["export", "--format", "dense", "--out", out, "--state", files.state, *more]


def test_the_folder_becomes_a_private_model_in_one_commit(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, hub: Hub
) -> None:
    out = tmp_path / "out"
    result = tfrnet(*exported(files, out, "--push", "me/forgot", "--json"))
    assert result.code == 0, result.err
    assert result.json["pushed_to"] == f"{hub.address}/me/forgot"
    assert hub.private == {"me/forgot": True}
    found = hub.repositories["me/forgot"]
    assert found.keys() - {".gitattributes"} == {path.name for path in out.iterdir()}
    assert all(found[path.name] == path.read_bytes() for path in out.iterdir())
    assert json.loads(found["tfrnet.json"])["format"] == "dense"


def test_it_is_public_only_if_asked(tfrnet: Tfrnet, files: Files, tmp_path: Path, hub: Hub) -> None:
    assert tfrnet(*exported(files, tmp_path / "out", "--push", "me/x", "--public")).code == 0
    assert hub.private == {"me/x": False}


@pytest.mark.usefixtures("no_model")
def test_a_name_that_is_taken_is_refused_before_the_work(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, hub: Hub
) -> None:
    hub.repositories["me/forgot"] = {"README.md": b"theirs"}
    result = tfrnet(*exported(files, tmp_path / "out", "--push", "me/forgot"))
    assert (result.code, "has a model me/forgot already" in result.error) == (2, True)
    assert hub.repositories == {"me/forgot": {"README.md": b"theirs"}}
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("name", "words"), [("a/b/c", "is not a valid model name"), ("me/forgot", "hf auth login")]
)
def test_a_bad_name_and_no_token_are_one_line(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, hub: Hub, monkeypatch, name: str, words: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    result = tfrnet(*exported(files, tmp_path / "out", "--push", name))
    assert (result.code, words in result.error) == (2, True), result.err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("no_model", "hub")
def test_an_adapter_of_a_model_on_this_machine_is_not_pushed(
    tfrnet: Tfrnet, files: Files, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ["--format", "ia3", "--out", out, "--push", "me/forgot"]
    result = tfrnet("export", "--state", files.state, *more)
    assert (result.code, "is on this machine only" in result.error) == (2, True), result.err
    assert not out.exists()


@pytest.mark.usefixtures("no_model")
def test_no_network_is_one_line(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(monkeypatch, "http://127.0.0.1:9")  # nobody listens there
    result = tfrnet(*exported(files, tmp_path / "out", "--push", "me/forgot"))
    assert (result.code, "the hub cannot be reached" in result.error) == (2, True), result.err
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    from huggingface_hub.utils import _http

    _http.close_session()
    result = tfrnet(*exported(files, tmp_path / "out", "--push", "me/forgot"))
    assert (result.code, "switched off by HF_HUB_OFFLINE" in result.error) == (2, True), result.err
    assert not (tmp_path / "out").exists()


def test_an_upload_that_fails_leaves_no_repository(
    tfrnet: Tfrnet, files: Files, tmp_path: Path, hub: Hub
) -> None:
    hub.fails_at = "/commit/"
    result = tfrnet(*exported(files, tmp_path / "out", "--push", "me/forgot"))
    assert (result.code, "the hub refused me/forgot" in result.err) == (2, True)
    assert hub.repositories == {}
