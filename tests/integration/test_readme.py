"""What the README shows is run as written, on a small model in place of the default one."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.datasets import made_up_folder, tofu_rows
from tests.datasets import write_lines as write_rows
from tfrnet.cli import opening
from tfrnet.cli.main import main
from tfrnet.models.shipped import BACKBONES

README = (Path(__file__).parents[2] / "README.md").read_text()
COMMANDS = re.findall(r"^    (tfrnet .*?)(?:  +#.*)?$", README, flags=re.MULTILINE)
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)


def write_lines(path, rows):
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row.to_dict()) + "\n" for row in rows))


@pytest.fixture
def workplace(tmp_path, monkeypatch, tiny_folder):
    """A folder with the files that the README names, and a small default model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(opening, "DEFAULT_MODEL", str(tiny_folder))
    write_lines(tmp_path / "requests.jsonl", tiny.requests(4))
    write_lines(tmp_path / "retain.jsonl", tiny.examples(30))
    write_lines(tmp_path / "one.jsonl", tiny.requests(5)[4:])
    data = made_up_folder(tmp_path / "data", rows=150)
    write_rows(data / "tofu" / "retain90.jsonl", tofu_rows(40, offset=400))
    for name in BACKBONES:
        # A folder comes before the backbone of its name that comes along.
        (tmp_path / name).symlink_to(tiny_folder)
    return tmp_path


@pytest.mark.long
@pytest.mark.slow
def test_every_command_runs_as_written(workplace, monkeypatch, capsys):
    shown = {shlex.split(command)[1] for command in COMMANDS}
    assert shown >= {"run", "forget", "status", "history", "verify", "rollback", "export"}
    for command in COMMANDS:
        words = shlex.split(command)
        if words[1:3] == ["bench", "all"]:
            words.append("--quick")  # whole, it takes hours
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0, (command, capsys.readouterr().err)


def test_the_python_examples_run_as_written_in_an_empty_folder(
    tmp_path, monkeypatch, tiny_folder, capsys
):
    monkeypatch.chdir(tmp_path)
    assert not list(tmp_path.iterdir())
    for example in PYTHON:
        example = example.replace('"smollm2-135m"', repr(str(tiny_folder)))
        exec(compile(example, "README.md", "exec"), {})
    said = capsys.readouterr().out
    assert re.search(r"ticket-1 (accepted|rejected) \d", said)
    assert "The capital of France is" in said
    assert (tmp_path / "my-state" / "ledger.jsonl").is_file()
    assert (tmp_path / "unlearned-folder" / "config.json").is_file()
