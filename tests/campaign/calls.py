"""Every system call of every kind of writing made to fail, and every one a point to be killed at.

`strace` makes the kernel's answers: the n-th call of a kind returns EIO, ENOSPC or EINTR, or the
process is killed as it makes it. A short write it cannot make; for that `os.write` is told to take
half of what it is given.
"""

from __future__ import annotations

import io
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from tests import tiny
from tests.campaign.result import Result
from tests.exports import export_as, masked
from tests.state.made_up import (
    commit,
    contents,
    create,
    generation_file,
    is_equal,
    made_up_state,
    make_state,
)
from tfrnet.cli.commands.certificate import command as certify
from tfrnet.core.errors import TfrnetError
from tfrnet.core.signing import read_key
from tfrnet.masking.mask import ChannelMask
from tfrnet.method_state import verify_state
from tfrnet.state.backup import back_up
from tfrnet.state.certificate import check_certificate, read_certificate, read_data_key
from tfrnet.state.repair import opened_for_repair
from tfrnet.state.restore import restore
from tfrnet.state.store import StateStore

EXPECTED = "before or after, as was said"
ERRORS = ("EIO", "ENOSPC", "EINTR")

# Works that take about the same time together, to be run beside each other.
HALVES = (
    ("export", "create", "commit", "prune"),
    ("backup", "restore", "repair", "rollback", "key rotation", "certificate"),
)

_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\(", flags=re.MULTILINE)
_SECONDS = 30


@dataclass(frozen=True)
class Work:
    """Something that writes, what is there before, and whether what is there now is sound.

    `problem` is told whether the work said that it was done (None: it was killed).
    """

    name: str
    prepare: Callable[[Path], None]
    do: Callable[[Path], None]
    problem: Callable[[Path, bool | None], str]


def run(count: int | None, seed: int, work: Path, names: Collection[str] = ()) -> Result:
    """Fail and kill at every system call, or at `count` of them drawn by the seed.

    With names it is only those works.
    """
    if shutil.which("strace") is None:
        raise SystemExit("this campaign needs strace: apt install strace")
    result = Result("calls", EXPECTED, seed)
    work.mkdir(parents=True, exist_ok=True)
    works = [each for each in WORKS if not names or each.name in names]
    for each in works:
        _warm_up(each, work)
    places = [
        (each, name, number, what)
        for each in works
        for name, calls in _calls(each, work).items()
        for number in range(1, calls + 1)
        for what in (*(f"error={error}" for error in ERRORS), "signal=SIGKILL")
    ]
    chance = random.Random(seed)
    for each, name, number, what in places if count is None else chance.sample(places, count):
        _strike(each, work, f"inject={name}:{what}:when={number}", what, result)
    for each in works:
        _short_writes(each, work, result)
    return result


def _warm_up(each: Work, work: Path) -> None:
    """Have everything imported that the work needs: those calls are not its own."""
    with _prepared(each, work) as folder:
        each.do(folder)


def _calls(each: Work, work: Path) -> Counter[str]:
    """Return how often the work makes each system call that has to do with files."""
    with _prepared(each, work) as folder:
        code, said, log = _traced(each, folder, work / "log", [])
        assert code == 0, said
    names = Counter(_CALL.findall(log))
    return Counter({name: names[name] for name in sorted(names)})


def _strike(each: Work, work: Path, inject: str, what: str, result: Result) -> None:
    with _prepared(each, work) as folder:
        code, said, _ = _traced(each, folder, work / "log", ["-e", inject])
        result.count(f"{each.name}: {what.partition('=')[2]}")
        if code not in (0, 2, -signal.SIGKILL):
            result.wrong.append(f"{each.name}, {inject}: ended with {code}: {said[-300:]}")
        elif problem := _problem(each, folder, code):
            result.wrong.append(f"{each.name}, {inject}: {problem} (it said: {said[-200:]})")


def _short_writes(each: Work, work: Path, result: Result) -> None:
    real = os.write
    with _prepared(each, work) as folder:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", lambda fd, data: real(fd, data[: max(1, len(data) // 2)]))
            each.do(folder)
        result.count(f"{each.name}: short write")
        if problem := _problem(each, folder, 0):
            result.wrong.append(f"{each.name}, short writes: {problem}")


def _problem(each: Work, folder: Path, code: int) -> str:
    try:
        return each.problem(folder, None if code == -signal.SIGKILL else code == 0)
    except TfrnetError as error:
        return f"afterwards: {error}"


@contextmanager
def _prepared(each: Work, work: Path) -> Iterator[Path]:
    folder = work / "place"
    folder.mkdir()
    try:
        each.prepare(folder)
        yield folder
    finally:
        shutil.rmtree(folder)


def _traced(each: Work, folder: Path, log: Path, options: list[str]) -> tuple[int, str, str]:
    """Do the work in a forked process under strace; return its end, its words, and the calls."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(each, folder, writer)
    os.close(writer)
    os.waitpid(pid, os.WUNTRACED)  # it stops itself until it is watched
    tracer = subprocess.Popen(
        ["strace", "-p", str(pid), "-o", log, "-e", "trace=%file,%desc", *options],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    assert "attached" in line, line
    os.kill(pid, signal.SIGCONT)
    code = _waited(pid)
    tracer.communicate()
    with os.fdopen(reader, errors="replace") as pipe:
        said = pipe.read()
    return code, said, log.read_text(errors="replace")


def _waited(pid: int) -> int:
    end = time.monotonic() + _SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 98  # it hung


def _child(each: Work, folder: Path, writer: int) -> None:
    """Stop until watched, do the work, and end as the command line would."""
    code, said = 99, ""
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            each.do(folder)
            code = 0
        except (TfrnetError, OSError) as error:
            code, said = 2, str(error)
        except BaseException as error:
            said = repr(error)
        # The words themselves may be struck too; whoever waits has the exit code.
        os.write(writer, said.encode())
    finally:
        os._exit(code)


# What is struck


def _one_commit(folder: Path) -> None:
    make_state(folder / "state", commits=1)


def _three_commits(folder: Path) -> None:
    make_state(folder / "state", commits=3)


def _writing(work: Callable[[StateStore], object]) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        with StateStore.open(folder / "state", write=True) as store:
            work(store)

    return do


def _sound(folder: Path) -> str:
    failed = [check for check in verify_state(folder) if not check.passed]
    return f"{failed[0].name}: {failed[0].detail}" if failed else ""


def _created(folder: Path, said_done: bool | None) -> str:
    state = folder / "state"
    if StateStore.exists(state):
        if problem := _sound(state):
            return problem
    elif said_done:
        return "it said it was made, and it is not"
    else:
        create(state).close()
    with StateStore.open(state, write=True) as store:
        commit(store, 1)
    return _sound(state)


def _moved(before: int, after: int) -> Callable[[Path, bool | None], str]:
    """Return the check of a commit: the state is that of before or after, and goes on."""

    def problem(folder: Path, said_done: bool | None) -> str:
        state = folder / "state"
        if problem := _sound(state):
            return problem
        with StateStore.open(state, write=True) as store:
            lines = store.lines
            wanted = before if lines == first + 1 else after
            if not is_equal(store.load(), made_up_state(wanted)):
                return "the values are neither those of before nor of after"
            if said_done and lines == first + 1:
                return "it said it was done, and it is not"
            commit(store, 9)
        return _sound(state)

    first = before
    return problem


def _pruned(folder: Path, said_done: bool | None) -> str:
    state = folder / "state"
    if problem := _sound(state):
        return problem
    with StateStore.open(state, write=True) as store:
        if said_done and store.layout.numbers() != [0, 3]:
            return "it said that it pruned, and it did not"
        store.prune(1)
        return "" if store.layout.numbers() == [0, 3] else "pruning again does not end it"


def _backed_up(folder: Path, said_done: bool | None) -> str:
    out = folder / "state.tar"
    if not out.exists():
        if said_done:
            return "it said it was written, and it is not"
        back_up(folder / "state", out)
    restore(out, folder / "back")
    same = contents(folder / "back") == contents(folder / "state")
    return "" if same else "the backup holds another state"


def _restored(folder: Path, said_done: bool | None) -> str:
    back = folder / "back"
    if not back.exists():
        if said_done:
            return "it said it was made, and it is not"
        restore(folder / "state.tar", back)
    if contents(back) != contents(folder / "state"):
        return "another state was restored"
    return _sound(back)


def _with_backup(folder: Path) -> None:
    _one_commit(folder)
    back_up(folder / "state", folder / "state.tar")


def _spoilt(folder: Path) -> None:
    _three_commits(folder)
    generation_file(folder / "state", 3).write_bytes(b"garbage")


def _repair(folder: Path) -> None:
    with opened_for_repair(folder / "state") as repair:
        repair.carry_out()


def _repaired(folder: Path, said_done: bool | None) -> str:
    if said_done and _sound(folder / "state"):
        return "it said that it repaired, and it did not"
    _repair(folder)
    # What was kept from being removed looks like an unfinished commit, and goes as such.
    with StateStore.open(folder / "state", write=True) as store:
        if not is_equal(store.load(), made_up_state(2)):
            return "another generation was salvaged"
    return _sound(folder / "state")


def _signed(folder: Path) -> None:
    make_state(folder / "state", commits=1, key=folder / "old.pem")


def _rotate(folder: Path) -> None:
    with StateStore.open(folder / "state", write=True, key=folder / "old.pem") as store:
        store.rotate_key(folder / "new.pem")


def _rotated(folder: Path, said_done: bool | None) -> str:
    state = folder / "state"
    if problem := _sound(state):
        return problem
    old, new = (folder / f"{name}.pem" for name in ("old", "new"))
    in_force = StateStore.open(state).public_key
    is_old = in_force == read_key(old).public.text
    if said_done and is_old:
        return "it said that the key was handed over, and it was not"
    if not is_old and in_force != read_key(new).public.text:
        return "a key is in force that nobody has"
    if is_old:
        _rotate(folder)
    with StateStore.open(state, write=True, key=new) as store:
        commit(store, 9)
    return _sound(state)


def _certifiable(folder: Path) -> None:
    with create(folder / "state", folder / "old.pem") as store:
        known = {"request_digest": f"{1:064d}", "digest_key": "request"}
        store.commit({"id": "request-1", "outcome": "accepted"} | known, made_up_state(1))


def _certify(folder: Path) -> None:
    with redirect_stdout(io.StringIO()):
        certify(
            id="request-1",
            out=folder / "c.json",
            data_key=folder / "c.key",
            state=folder / "state",
            key=folder / "old.pem",
        )


def _certified(folder: Path, said_done: bool | None) -> str:
    """Check that what is there is whole; a kill may come between two files."""
    document, page, data_key = (folder / f"c.{ending}" for ending in ("json", "html", "key"))
    if said_done and not all(path.exists() for path in (document, page, data_key)):
        return "it said that it certified, and a file is missing"
    if page.exists() and not page.read_text().endswith("</html>\n"):
        return "the page is not whole"
    if data_key.exists():
        read_data_key(data_key)
    if document.exists():
        value, trusted = read_certificate(document), read_key(folder / "old.pem").public
        entries = StateStore.open(folder / "state").entries
        if not all(check.passed for check in check_certificate(value, trusted, entries)):
            return "the certificate does not hold"
    return _sound(folder / "state")


@cache
def _masked() -> tuple[ChannelMask, PreTrainedTokenizerFast]:
    logging.disable_progress_bar()  # as the command does
    return masked(tiny.make_model("llama")), tiny.make_tokenizer()


@cache
def _whole_export() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        _export(Path(folder))
        return contents(Path(folder) / "exported")


def _export(folder: Path) -> None:
    export_as("dense", *_masked(), folder / "exported")


def _exported(folder: Path, said_done: bool | None) -> str:
    out = folder / "exported"
    if not out.exists():
        if said_done:
            return "it said that it exported, and it did not"
        _export(folder)
    if [path.name for path in folder.iterdir()] != ["exported"]:
        return "something is left beside it"
    return "" if contents(out) == _whole_export() else "the export is not whole"


WORKS = [
    Work("create", lambda folder: None, lambda f: create(f / "state").close(), _created),
    Work("commit", _one_commit, _writing(lambda store: commit(store, 2)), _moved(1, 2)),
    Work("rollback", _three_commits, _writing(lambda store: store.rollback(1)), _moved(3, 1)),
    Work("prune", _three_commits, _writing(lambda store: store.prune(1)), _pruned),
    Work("backup", _one_commit, lambda f: back_up(f / "state", f / "state.tar"), _backed_up),
    Work("repair", _spoilt, _repair, _repaired),
    Work("restore", _with_backup, lambda f: restore(f / "state.tar", f / "back"), _restored),
    Work("key rotation", _signed, _rotate, _rotated),
    Work("certificate", _certifiable, _certify, _certified),
    Work("export", lambda folder: None, _export, _exported),
]
