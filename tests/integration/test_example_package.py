"""Another package's methods, task, attack and command, next to ours, no file of ours touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasets import made_up_folder
from tests.integration.commands import SMALL, Result, Tfrnet, evaluated

PROJECT = Path(__file__).parents[1] / "example_package"
# A method that trains and has no guard, and one that does not train and has one.
METHODS = {
    "flatten": ["--set", "steps=1", "--set", "guard_examples=4"],
    "hush": ["--set", "channels=1", "--set", "guard_examples=4", "--set", "guard_relative=9"],
}

pytestmark = [pytest.mark.long, pytest.mark.slow]


def in_process_of_its_own(packages: Path) -> Tfrnet:
    """Return what runs a command in a Python that finds these packages too."""
    paths = [str(packages), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "200"}

    def run(*arguments: object) -> Result:
        command = [sys.executable, "-m", "tfrnet", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Tfrnet:
    """The example package, built and installed in a folder of its own."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("installed")
    # A build leaves files beside its sources.
    project = shutil.copytree(PROJECT, folder / "project")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--target", folder / "packages"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *map(str, options), str(project)]
    subprocess.run(pip, check=True, capture_output=True)
    return in_process_of_its_own(folder / "packages")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_up_folder(tmp_path_factory.mktemp("data"), rows=120)


@pytest.fixture(scope="module")
def split(installed: Tfrnet, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("split") / "parity"
    result = installed("split", "--task", "parity", "--out", out, "--data-dir", data, *SMALL)
    assert result.code == 0, result.err
    return out


@pytest.fixture(scope="module", params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def state(
    installed: Tfrnet,
    method: str,
    split: Path,
    tiny_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("state") / "state"
    stream = ["--stream", split / "requests.jsonl", "--retain", split / "retain.jsonl"]
    where = ["--model", tiny_folder, "--state", folder, "--device", "cpu"]
    result = installed("run", "--method", method, *stream, *where, *METHODS[method])
    assert result.code == 0, result.err
    return folder


def test_help_names_them_all(installed: Tfrnet):
    assert "tally" in installed("--help").out
    for command in ("run", "bench", "search"):
        said = installed(command, "--help").out
        assert [name for name in METHODS if name not in said] == []
    assert "parity" in installed("split", "--help").out
    options = installed("eval", "--help").out
    assert "parity" in options
    assert "shout" in options


def test_settings_are_listed_with_their_help(installed: Tfrnet):
    result = installed("settings", "--method", "flatten")
    assert result.out.startswith("method flatten: forget answers are trained towards the uniform")
    assert "retain_weight = 1.0\n    weight of the retain loss\n" in result.out
    assert "strength = 0.5\n" in installed("settings", "--method", "hush").out


def test_the_task_is_forgotten_and_the_others_are_kept(split: Path):
    parts = json.loads((split / "split.json").read_text())["parts"]
    assert {row["key"].split("/")[0] for row in parts["forget"]} == {"parity"}
    tasks = {name.removeprefix("retain/") for name in parts if name.startswith("retain/")}
    assert tasks == {"parity", "arithmetic", "openbookqa", "boolq"}


def test_a_state_of_the_method_is_one_like_any_other(
    installed: Tfrnet, method: str, state: Path, tmp_path: Path
):
    assert installed("status", "--state", state, "--json").json["method"] == method
    verdict = {"flatten": "not checked", "hush": "accepted"}[method]
    history = installed("history", "--state", state).out
    assert len([x for x in history.splitlines() if verdict in x and "parity-0-" in x]) == 3
    assert installed("verify", "--state", state).code == 0
    assert installed("tally", "--state", state).out == "3 accepted, 0 rejected\n"
    exported = installed("export", "--state", state, "--out", tmp_path / "out", "--device", "cpu")
    assert exported.code == 0, exported.err
    assert (tmp_path / "out" / "model.safetensors").is_file()
    page = installed("report", state, "--out", tmp_path / "state.html")
    assert page.code == 0, page.err
    assert method in (tmp_path / "state.html").read_text()


def test_the_task_is_evaluated_and_the_attack_carried_out(
    installed: Tfrnet, method: str, state: Path, split: Path, data: Path, tiny_folder: Path
):
    options = ["--state", state, "--split", split, "--no-cache", "--relearn-seeds", 1]
    options += ["--relearn-steps", "0,1", "--json"]
    tasks = "parity,robustness,stream"
    found = installed(*evaluated(data, tiny_folder, "--tasks", tasks, *options)).json["results"]
    parts = {result.get("part") for result in found if result["task"] == "parity"}
    assert parts == {"forget", "heldout"}
    attacks = {row["attack"] for result in found for row in result.get("attacks", ())}
    of_a_mask = {"unmask", "rescale"} if method == "hush" else set()
    assert attacks == {"quantise", "prompts", "few-shot", "insist", "relearn", "shout"} | of_a_mask


def test_the_bench_runs_them_and_shows_their_labels(
    installed: Tfrnet, data: Path, tiny_folder: Path, tmp_path: Path
):
    run = tmp_path / "run"
    chosen = ["--methods", "flatten,hush", "--streams", "parity", "--model", tiny_folder]
    options = ["--quick", "--data-dir", data, "--out", run, "--device", "cpu"]
    result = installed("bench", "main", "robust", *chosen, *options)
    assert result.code == 0, result.err
    table = (run / "tables" / "main-parity.md").read_text()
    assert "Forgetting Parity" in table
    assert "| Flatten" in table
    assert "| Hush" in table
    assert "shout" in (run / "tables" / "robust-parity.md").read_text()
    page = installed("report", run)
    assert page.code == 0, page.err
    shown = (run / "report.html").read_text()
    assert [name for name in METHODS if name not in shown] == []


def test_the_search_tries_the_points_that_the_method_declares(
    installed: Tfrnet, data: Path, tiny_folder: Path, tmp_path: Path
):
    sizes = ["--requests", 1, "--heldout", 4, "--trials", 1, "--seeds", 1000]
    where = ["--model", tiny_folder, "--data-dir", data, "--device", "cpu", "--out", tmp_path]
    chosen = ["--methods", "flatten,hush", "--streams", "parity"]
    result = installed("search", *chosen, *sizes, *where, "--json")
    assert result.code == 0, result.err
    settings = result.json["honest"]["flatten"]["settings"]
    assert settings == {"learning_rate": 1e-5, "retain_weight": 1.0}
    assert result.json["honest"]["hush"]["settings"] == {"channels": 16, "strength": 0.5}
    assert result.json["budget"]["trials"] == 1
    assert "lies on the edge: learning_rate=1e-05 is the lowest tried (try more)" in result.err


# A package that cannot be imported


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Tfrnet:
    """A package that names parts of every kind but lacks something that it imports."""
    folder = tmp_path_factory.mktemp("broken")
    kinds = ("methods", "tasks", "attacks", "commands")
    points = [f"[tfrnet.{kind}]\nbroken = tfrnet_broken\n" for kind in kinds]
    facts = folder / "tfrnet_broken-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tfrnet-broken\nVersion: 1\n")
    (facts / "entry_points.txt").write_text("\n".join(points))
    (folder / "tfrnet_broken.py").write_text("import no_such_module\n")
    return in_process_of_its_own(folder)


REASON = (
    "'broken' of package tfrnet-broken cannot be loaded: "
    "ModuleNotFoundError: No module named 'no_such_module'"
)


def test_a_part_that_cannot_be_imported_says_so_in_one_line(broken: Tfrnet, tmp_path: Path):
    for kind, arguments in {
        "method": ["settings", "--method", "broken"],
        "task": ["split", "--task", "broken", "--out", tmp_path / "split"],
        "command": ["broken", "--state", "here"],
    }.items():
        result = broken(*arguments)
        assert result.code == 2
        assert result.error == f"the {kind} {REASON}"


def test_it_leaves_the_others_alone(broken: Tfrnet, split: Path, data: Path, tiny_folder: Path):
    overview = broken("--help")
    assert overview.code == 0
    assert "cannot be loaded" in overview.out
    assert broken("settings", "--method", "ga").code == 0
    options = ["--tasks", "boolq", "--limit", 2, "--no-cache"]
    assert broken(*evaluated(data, tiny_folder, *options)).code == 0
