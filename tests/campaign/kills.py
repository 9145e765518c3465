"""Real processes killed at random instants: a stream of commands always ends in the same bits.

`run`, `forget`, `rollback`, `prune` and `export` are killed one after another, each again and again
until it gets through, with the default, two presets and another method.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils import logging

from tests import tiny
from tests.campaign.result import Result
from tests.fork_server import Server, send
from tests.states import story, tensors
from tfrnet.method_state import verify_state
from tfrnet.state.store import StateStore

EXPECTED = "the same bits as without a kill"

_FAST = ["--set", "guard_examples=4", "--set", "retain_examples=4", "--set", "max_length=16"]
SETUPS = {
    # So small a model loses too much with each request to come half of the way within the guard. A
    # request that is rejected would be tried again by a run that goes on, which is another story.
    "default": [
        *_FAST,
        *("--set", "steps=1", "--set", "least_reached=0", "--set", "guard_relative=1"),
    ],
    "deep": ["--preset", "deep", *_FAST, "--set", "steps=1"],
    "paper": ["--preset", "paper", *_FAST],
    "npo": ["--method", "npo", "--set", "max_length=16", "--set", "steps=2"],
}
# A command that was killed so often is let through.
_MOST_KILLS = 8


@dataclass(frozen=True)
class Command:
    """A command, and whether what it does is done already, so that it is not to be repeated."""

    name: str
    arguments: list[str]
    is_done: Callable[[], bool]


def run(count: int, seed: int, work: Path, setups: tuple[str, ...] = tuple(SETUPS)) -> Result:
    """Kill at least `count` processes, as many with each method."""
    result = Result("kills", EXPECTED, seed)
    work.mkdir(parents=True, exist_ok=True)
    logging.disable_progress_bar()
    models = {name: work / name for name in ("random model", "trained model")}
    tiny.make_model("llama").save_pretrained(models["random model"])
    tiny.make_trained_model().save_pretrained(models["trained model"])
    for model in models.values():
        tiny.make_tokenizer().save_pretrained(model)
    each = math.ceil(count / len(setups))
    with Server(models["random model"]) as server:
        for name in setups:
            chance = random.Random(f"{seed} {name}")
            # The default leaves alone what a model does not know.
            model = models["trained model" if name == "default" else "random model"]
            _Rounds(server, model, work / name, name, chance, result).until(each)
    return result


class _Rounds:
    """The commands, in rounds: each makes a new state."""

    def __init__(
        self,
        server: Server,
        model: Path,
        work: Path,
        name: str,
        chance: random.Random,
        result: Result,
    ) -> None:
        self.server, self.work, self.name = server, work, name
        self.chance, self.result = chance, result
        self.kills = 0
        work.mkdir()
        retain, self.stream, self.request = (work / f"{n}.jsonl" for n in ("retain", "all", "one"))
        requests = tiny.requests(4, size=2)
        _write(retain, tiny.examples(8))
        _write(self.stream, requests[:3])
        _write(self.request, requests[3:])
        self.opening = ["--retain", str(retain), "--model", str(model), "--device", "cpu"]
        self.opening += SETUPS[name]
        self.seconds: dict[str, float] = {}
        self.whole = self._round(work / "whole", killing=False)
        if not StateStore.open(self.whole / "state").position.applied:
            raise RuntimeError(f"{name}: no request was applied, so that nothing could be lost")

    def until(self, kills: int) -> None:
        number = 0
        while self.kills < kills:
            number += 1
            folder = self._round(self.work / f"{number}", killing=True, most=kills)
            if problem := _difference(folder, self.whole):
                self.result.wrong.append(f"{self.name}, round {number}: {problem}")
            shutil.rmtree(folder)

    def _commands(self, folder: Path) -> list[Command]:
        state, out = folder / "state", folder / "exported"
        where = ["--state", str(state)]
        opening = [*self.opening, *where]

        def lines(kind: str) -> int:
            return sum(entry["kind"] == kind for entry in _entries(state))

        def asked(name: str) -> bool:
            return any(entry.get("id") == name for entry in _entries(state))

        return [
            Command("run", ["run", "--stream", str(self.stream), *opening], lambda: False),
            Command(
                "forget",
                ["forget", "--request", str(self.request), *opening],
                lambda: asked("request-3"),
            ),
            Command("rollback", ["rollback", "--to", "1", *where], lambda: lines("rollback") > 0),
            Command(
                "run again",
                ["run", "--stream", str(self.stream), "--retry-rejected", *opening],
                lambda: False,
            ),
            Command("prune", ["prune", "--keep", "1", *where], lambda: False),
            Command("export", ["export", "--out", str(out), *where], out.exists),
        ]

    def _round(self, folder: Path, killing: bool, most: int = 0) -> Path:
        folder.mkdir()
        for command in self._commands(folder):
            for attempt in range(_MOST_KILLS + 1):
                if command.is_done():
                    break
                kill = killing and attempt < _MOST_KILLS and self.kills < most
                if self._do(command, folder, kill):
                    break
        return folder

    def _do(self, command: Command, folder: Path, kill: bool) -> bool:
        """Run a command and tell whether it got through."""
        output = folder.with_name("output")
        delay = self.chance.random() * 1.05 * self.seconds.get(command.name, 0)

        def meddle(pid: int) -> None:
            if kill:
                time.sleep(delay)
                send(pid, signal.SIGKILL)

        start = time.monotonic()
        code = self.server.run(command.arguments, output, meddle)
        if code == -signal.SIGKILL:
            self.kills += 1
            self.result.count(f"{self.name}: {command.name}")
            self._look_at(folder / "state", command)
            return False
        said = output.read_text()
        if code not in (0, 1) or "Traceback" in said:
            problem = f"{self.name}: {command.name} ended with {code}: {said.strip()[-300:]}"
            if not kill and command.name not in self.seconds:
                raise RuntimeError(problem)  # it does not work without a kill either
            self.result.wrong.append(problem)
        self.seconds.setdefault(command.name, time.monotonic() - start)
        return True

    def _look_at(self, state: Path, command: Command) -> None:
        """What a kill leaves is sound for a reader at once."""
        if not StateStore.exists(state):
            return
        failed = [check for check in verify_state(state) if not check.passed]
        if failed:
            self.result.wrong.append(
                f"{self.name}: {command.name} killed: {failed[0].name}: {failed[0].detail}"
            )


def _write(path: Path, values: list[Any]) -> None:
    path.write_text("".join(json.dumps(value.to_dict()) + "\n" for value in values))


def _entries(state: Path) -> list[dict[str, Any]]:
    return StateStore.open(state).entries if StateStore.exists(state) else []


def _difference(folder: Path, whole: Path) -> str:
    """Return in what a round that was killed differs from one that was not."""
    if not StateStore.exists(folder / "state"):
        return "there is no state"
    failed = [check for check in verify_state(folder / "state") if not check.passed]
    if failed:
        return f"{failed[0].name}: {failed[0].detail}"
    if story(folder / "state") != story(whole / "state"):
        return "the ledger tells another story"
    if tensors(folder / "state") != tensors(whole / "state"):
        return "the generations differ"
    if left := [*folder.rglob("*.partial"), *folder.glob(".*")]:
        return f"{left[0].name} is left"
    weights = [path / "exported" / "model.safetensors" for path in (folder, whole)]
    if weights[0].read_bytes() != weights[1].read_bytes():
        return "the exported weights differ"
    return ""
