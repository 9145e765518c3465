"""The command line in processes of its own: pipes, help at once, readers that go away."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from tests.integration.commands import Files, Tfrnet
from tfrnet.cli.app import COMMANDS, build_app
from tfrnet.method import method_names
from tfrnet.state.store import StateStore

SCRIPT = Path(sys.executable).with_name("tfrnet")


@pytest.mark.slow
def test_output_in_a_pipe_is_plain_lines(files: Files, tmp_path: Path) -> None:
    environment = os.environ | {"FORCE_COLOR": "", "COLUMNS": "40"}
    environment.pop("FORCE_COLOR")
    finished = subprocess.run(
        list(map(str, (SCRIPT, "run", "--stream", files.stream, *files.opening(), "--no-audit"))),
        capture_output=True,
        env=environment,
    )
    assert finished.returncode == 0
    said = finished.stderr.splitlines()
    assert [line for line in said if not line.startswith(b"tfrnet: warning: ")] == []
    assert b"\x1b" not in finished.stdout
    assert b"\r" not in finished.stdout
    assert len(finished.stdout.splitlines()) == 3  # not wrapped at 40 columns


def children_seconds() -> float:
    """Return the CPU time of finished child processes: others at work do not count in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    "code",
    [
        "import tfrnet; tfrnet.__version__",
        "import tfrnet; tfrnet.TFRConfig.paper()",
        "import sys; sys.argv = ['tfrnet', '--help']; from tfrnet.cli.main import main; main()",
        "import sys; sys.argv = ['tfrnet', 'run', '--help']; "
        "from tfrnet.cli.main import main; main()",
    ],
    ids=["import", "config", "help", "help of a command"],
)
def test_import_and_help_do_not_load_torch_and_answer_at_once(code: str) -> None:
    answers_at_once(code, {"torch", "transformers", "numpy", "safetensors"})


@pytest.mark.parametrize("command", ["status", "history", "verify", "head"])
def test_commands_that_look_at_a_state_do_not_load_torch(command: str, files: Files) -> None:
    answers_at_once(as_command(command, "--state", files.state), {"torch", "transformers"})


def test_settings_do_not_load_torch() -> None:
    calls = [f"command({name!r})" for name in method_names()]
    code = "\n".join(["from tfrnet.cli.commands.settings import command", *calls])
    answers_at_once(code, {"torch", "transformers"})


# Many commands in one process, which each of them leaves without torch.
_EACH = """
import json, sys
from tfrnet.cli.main import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["tfrnet", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code != 2:
            print(words, "ended with", ended.code)
    if loaded := {"torch", "transformers"} & set(sys.modules):
        print(words, "loaded", loaded)
        break
"""


def test_input_that_cannot_be_used_is_told_before_torch_is_loaded(
    files: Files, tmp_path: Path
) -> None:
    """Whoever mistypes a name should not wait for seconds to hear of it."""
    none, folder = tmp_path / "none", ("--state", tmp_path / "new")
    (empty := tmp_path / "empty.jsonl").touch()
    (broken := tmp_path / "broken.jsonl").write_text('{"id": ')
    wrong: dict[tuple[object, ...], str] = {}
    for asked in (("forget", "--request"), ("run", "--stream"), ("serve",)):
        given = (*asked, files.request, *folder) if len(asked) > 1 else (*asked, *folder)
        wrong |= {
            (*given, "--retain", none): "none does not exist",
            (*given, "--guard", tmp_path): "is a folder",
            (*given, "--holdout", empty): "empty.jsonl contains no example",
            (*given, "--model", none): "none does not exist",
            (*given, "--method", "none"): "unknown method 'none'",
            (*given, "--preset", "none"): "unknown preset 'none'",
            (*given, "--set", "none=1"): "none",
        }
        if len(asked) > 1:
            wrong |= {
                (*asked, none, *folder): "none does not exist",
                (*asked, broken, *folder): "broken.jsonl:1: not JSON",
                (*given, "--reference", broken): "broken.jsonl:1: not JSON",
            }
    wrong |= {
        ("export", "--state", none, "--out", tmp_path / "out"): "none holds no state",
        ("export", "--state", files.state, "--out", tmp_path): "exists already",
        ("report", none): "none is neither",
        ("audit", "--requests", none, "--state", files.state): "none does not exist",
        ("anchors", "--requests", none, "--out", tmp_path / "out"): "none does not exist",
        ("generate", "--prompt", "Who", "--state", none): "none holds no state",
    }
    commands = json.dumps([[*map(str, words)] for words in wrong])
    finished = subprocess.run(
        [sys.executable, "-c", _EACH, commands], capture_output=True, text=True
    )
    assert finished.stdout == ""
    for line, told in zip(finished.stderr.splitlines(), wrong.values(), strict=True):
        assert line.startswith("tfrnet: error: ") and told in line


def as_command(*arguments: object) -> str:
    words = ["tfrnet", *map(str, arguments)]
    return f"import sys; sys.argv = {words!r}; from tfrnet.cli.main import main; main()"


def answers_at_once(code: str, without: set[str]) -> None:
    """Check that a piece of code takes less than a second, and imports none of some packages."""
    check = (
        "import atexit, sys\n"
        f"atexit.register(lambda: print('loaded', *sorted({without!r} & set(sys.modules)), "
        "file=sys.stderr))\n"
    )
    seconds = []
    for _ in range(3):
        started = children_seconds()
        finished = subprocess.run(
            [sys.executable, "-c", check + code], capture_output=True, text=True
        )
        seconds.append(children_seconds() - started)
        assert finished.returncode == 0, finished.stderr
        assert finished.stderr.split("\n")[-2] == "loaded"
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_the_help_names_every_command(tfrnet: Tfrnet) -> None:
    result = tfrnet("--help")
    assert (result.code, result.err) == (0, "")
    commands = ["forget", "run", "status", "history", "verify", "rollback"]
    commands += ["export", "generate", "demo"]
    assert [command for command in commands if command not in result.out] == []


def test_only_the_command_asked_for_is_set_up() -> None:
    assert list(get_command(build_app("status")).commands) == ["status"]
    everything = set(COMMANDS.names())
    for asked in ("", "--help", "no-such-command"):
        assert set(get_command(build_app(asked)).commands) == everything


def test_help_takes_under_a_second_from_the_shell() -> None:
    seconds = []
    for _ in range(3):
        started = children_seconds()
        finished = subprocess.run([SCRIPT, "--help"], capture_output=True)
        seconds.append(children_seconds() - started)
        assert finished.returncode == 0
        if seconds[-1] < 1:
            break
    assert min(seconds) < 1


def test_a_reader_that_goes_away_is_no_traceback(files: Files) -> None:
    command = [SCRIPT, "history", "--state", files.state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert b"Traceback" not in process.stderr.read()


# The process stops itself by a signal, at the moment that is to be tried.
_STOPPED = """
import os, sys
number, moment, *arguments = sys.argv[1:]
from tfrnet.cli import main as cli
import tfrnet.session, tfrnet.models.load

def strike(*given, **named):
    os.kill(os.getpid(), int(number))
    raise AssertionError("the signal was not heeded")

if moment == "loading":
    tfrnet.models.load.load_model = strike
elif moment == "forgetting":
    tfrnet.session.Session.forget = strike
else:
    from tfrnet.core import files
    files.append = strike
sys.argv = ["tfrnet", *arguments]
cli.main()
"""


# The same, at a moment at which there is no session yet.
_STOPPED_EARLY = """
import os, sys, time
number, moment = sys.argv[1:]

def strike():
    os.kill(os.getpid(), int(number))

class Importing:
    def find_spec(self, name, *rest):
        if name == moment:
            strike()

class Destroyed:
    def __del__(self):
        strike()

def destroy(arguments):
    Destroyed()
    time.sleep(20)

from tfrnet.cli.main import main
if moment == "a destructor":
    import tfrnet.cli.app
    tfrnet.cli.app.run_app = destroy
else:
    sys.meta_path.insert(0, Importing())
sys.argv = ["tfrnet", "settings"]
main()
"""
ASKED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def heed() -> None:
    # Whoever runs the tests in the background may ignore some of them, and that is inherited.
    for number in ASKED:
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize("moment", ["typer", "tfrnet.cli.commands.settings", "a destructor"])
def test_a_signal_during_imports_or_where_nothing_is_caught_ends_in_the_same_words(
    moment: str,
) -> None:
    for number in ASKED:
        finished = subprocess.run(
            [sys.executable, "-c", _STOPPED_EARLY, str(int(number)), moment],
            capture_output=True,
            text=True,
            preexec_fn=heed,
        )
        said = finished.returncode, finished.stdout, finished.stderr
        assert said == (130, "", "tfrnet: error: interrupted\n")


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["loading", "forgetting", "committing"])
def test_sigterm_and_sighup_end_at_the_points_of_sigint_with_its_words(
    files: Files, tmp_path: Path, moment: str
) -> None:
    said = []
    for number in ASKED:
        state = shutil.copytree(files.state, tmp_path / str(int(number)) / "state")
        command = [sys.executable, "-c", _STOPPED, str(int(number)), moment, "run"]
        options = ["--stream", files.stream, *files.opening(state)]
        finished = subprocess.run(
            [str(part) for part in (*command, *options)],
            capture_output=True,
            text=True,
            preexec_fn=heed,
        )
        said.append((finished.returncode, finished.stdout, finished.stderr))
        assert finished.returncode == 130, finished.stderr
        with StateStore.open(state, write=True) as store:
            assert store.position.seen == 2
    assert said[0] == said[1] == said[2]
    *warned, last = said[0][2].splitlines()
    assert all(line.startswith("tfrnet: warning: ") for line in warned)
    assert last.startswith("tfrnet: error: interrupted")


@pytest.mark.slow
def test_a_hangup_that_nohup_ignores_is_ignored(files: Files, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _STOPPED, str(int(signal.SIGHUP)), "forgetting", "run"]
    finished = subprocess.run(
        [str(part) for part in (*command, "--stream", files.stream, *files.opening())],
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert "the signal was not heeded" in finished.stderr
