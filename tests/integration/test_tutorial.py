"""The tutorial and all other commands marked as runnable, on a small model in place of the default.

Those of the README are run by test_demo.py, the check of a certificate by test_certificate.py.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tfrnet.cli import opening

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall((DOCS / "tutorial.md").read_text())
OTHERS = [
    path
    for path in sorted(DOCS.glob("*.md"))
    if path.name != "tutorial.md" and "\n```sh\ntfrnet " in path.read_text()
]
COMMAND = re.compile(r"^(tfrnet .*)$", flags=re.MULTILINE)


@pytest.fixture
def empty_folder(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "DEFAULT_MODEL", str(tiny_folder))
    return tmp_path


@pytest.mark.long
@pytest.mark.slow
def test_it_runs_as_written(empty_folder, tfrnet, capsys):
    said = ""
    for language, block in BLOCKS:
        if language == "python":
            exec(compile(block, "tutorial.md", "exec"), {})
            continue
        # Between its commands a block writes files, as a shell does.
        for part in filter(str.strip, COMMAND.split(block)):
            if COMMAND.match(part):
                result = tfrnet(*shlex.split(part)[1:])
                assert result.code == 0, (part, result.err)
                said += result.out
            else:
                subprocess.run(["bash", "-euc", part], check=True)
    assert all(f"{ticket}: accepted" in said for ticket in ("ticket-1", "ticket-2", "ticket-3"))
    assert "generation 4 restores generation 2; requests undone: ticket-3" in said
    assert (empty_folder / "unlearned-model" / "config.json").is_file()
    assert capsys.readouterr().out.startswith("The capital of Portugal is")


def test_it_shows_the_way_from_requests_to_an_exported_model():
    commands = [shlex.split(c)[1] for _, block in BLOCKS for c in COMMAND.findall(block)]
    order = [
        "generate",
        "run",
        "status",
        "generate",
        "audit",
        "forget",
        "history",
        "rollback",
        "verify",
        "export",
    ]
    assert commands == order


def test_no_page_with_runnable_commands_is_left_out():
    marked = {path.name for path in DOCS.glob("*.md") if "\n```sh\n" in path.read_text()}
    assert marked == {"tutorial.md", "security.md", *(path.name for path in OTHERS)}


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda path: path.name)
def test_commands_of_other_pages_run_after_those_of_the_tutorial(page, empty_folder, tfrnet):
    """They start from the tutorial's files and a state with its first requests."""
    for _, block in BLOCKS:
        if block.startswith("cat >") and not COMMAND.search(block):
            subprocess.run(["bash", "-euc", block], check=True)
    assert tfrnet("run", "--stream", "requests.jsonl", "--retain", "retain.jsonl").code == 0
    commands = [
        c
        for kind, text in BLOCK.findall(page.read_text())
        if kind == "sh"
        for c in text.splitlines()
    ]
    assert commands
    for command in commands:
        result = tfrnet(*shlex.split(command, comments=True)[1:])
        assert result.code == 0, (command, result.err)
