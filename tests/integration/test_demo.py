"""The demo as a user runs it, on the real model: it must forget, and it must keep."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.integration.commands import write_lines
from tests.serve.running import make_session
from tfrnet.cli.main import main
from tfrnet.core.errors import InputError, StateError
from tfrnet.demo.story import prepare_folder, quick
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.state.store import StateStore

README = (Path(__file__).parents[2] / "README.md").read_text()
TFRNET = Path(sys.executable).with_name("tfrnet")


def run_there(folder, *arguments):
    command = [TFRNET, *arguments, "--json"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A folder in which the demo was run, and what it said."""
    folder = tmp_path_factory.mktemp("told")
    return folder, run_there(folder, "demo")


@pytest.mark.real
@pytest.mark.long
@pytest.mark.slow
def test_the_demo_forgets_and_keeps(told):
    folder, result = told
    before, after = result["accuracy_before"], result["accuracy_after"]
    assert before["forgotten"] - after["forgotten"] >= 30
    assert before["same_topic"] - after["same_topic"] <= 40
    assert before["others"] - after["others"] <= 5
    assert [outcome["outcome"] for outcome in result["outcomes"]] == ["accepted"] * 3
    assert len(result["generations"]) == len(result["other_words"]) == 3
    assert all(outcome["audit"] for outcome in result["outcomes"])
    assert result["drift"] > 0
    assert result["generations"][0]["before"] != result["generations"][0]["after"]
    out = folder / "tfrnet-demo"
    assert (out / "trajectory.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((out / "state" / "generations").iterdir())) == 4


@pytest.mark.real
@pytest.mark.long
@pytest.mark.slow
def test_three_commands_of_the_first_page_lead_to_llama_cpp(told):
    folder, _ = told
    (block,) = re.findall(r"^```sh\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    first, export, ask = (shlex.split(line, comments=True)[1:] for line in block.splitlines())
    assert first == ["demo"]
    run_there(folder, *export)
    (said,) = run_there(folder, *ask)["answers"]
    requests = (folder / "tfrnet-demo" / "requests.jsonl").read_text().splitlines()
    forgotten = [example for line in requests for example in json.loads(line)["examples"]]
    (wanted,) = (e["answer"] for e in forgotten if e["prompt"] == said["prompt"])
    state = ["--state", "tfrnet-demo/state"]
    (shown,) = run_there(folder, "generate", *state, "--prompt", said["prompt"])["generations"]
    assert wanted in shown["before"]
    assert wanted not in said["answer"]


def run_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["tfrnet", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return stop.value.code


def test_a_folder_that_is_not_the_demos_is_left_alone(tmp_path, monkeypatch, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert run_main(monkeypatch, "demo", "--out", tmp_path) == 2
    assert "was not made by the demo" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_an_unknown_topic_is_refused_with_the_list(tmp_path, monkeypatch, capsys):
    assert run_main(monkeypatch, "demo", "--out", tmp_path / "x", "--topic", "cooking") == 2
    assert "capitals" in capsys.readouterr().err


def test_an_unknown_preset_is_refused_before_anything_is_written(tmp_path, monkeypatch, capsys):
    assert run_main(monkeypatch, "demo", "--out", tmp_path / "x", "--preset", "best") == 2
    assert "unknown preset 'best'" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_presets_of_the_demo_differ_from_the_named_ones_only_in_what_makes_it_quick():
    def changes(preset):
        named = TFRConfig.preset(preset).effective()
        return {name: v for name, v in quick(preset).effective().items() if v != named[name]}

    small = {"guard_examples": 16, "retain_examples": 16}
    assert changes("default") == small
    assert changes("deep") == small | {"step_margin": 6}
    assert changes("paper") == small
    assert changes("calibrated") == small | {"retain_examples": 64, "hold_rivals": False}


def test_somebody_elses_demo_json_is_no_licence_to_delete(tmp_path, monkeypatch):
    (tmp_path / "demo.json").write_text('{"scenes": 3}')
    (tmp_path / "thesis.txt").write_text("mine")
    assert run_main(monkeypatch, "demo", "--out", tmp_path) == 2
    assert (tmp_path / "demo.json").read_text() == '{"scenes": 3}'


def test_a_demo_with_other_requests_or_in_use_is_kept(tmp_path, tokenizer):
    folder = tmp_path / "demo"
    assert not prepare_folder(folder)
    own, other = tiny.requests(2)
    write_lines(folder / "requests.jsonl", [own.to_dict()])
    with make_session(folder / "state", tokenizer) as session:
        session.forget(own)
        with pytest.raises(StateError, match="is in use"):
            prepare_folder(folder)
        session.forget(other)
    with pytest.raises(InputError, match=r"has requests besides the demo's \(request-1\)"):
        prepare_folder(folder)
    with StateStore.open(folder / "state", write=True) as store:
        store.rollback(1)
    assert prepare_folder(folder)
    assert not (folder / "state").exists()


def test_an_earlier_demo_is_replaced_and_nothing_else_in_its_folder(tmp_path):
    prepare_folder(tmp_path / "demo")
    (tmp_path / "demo" / "state").mkdir()
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    prepare_folder(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["demo.json", "notes.txt"]
