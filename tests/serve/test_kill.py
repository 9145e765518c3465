"""The whole service as a process, killed again and again under load."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from tests import tiny
from tests.serve.answers import alone
from tests.serve.running import ENDED
from tests.states import story, tensors
from tfrnet.method_state import apply_state, verify_state
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of

REQUESTS = tiny.requests(20, size=2)
COMPLETIONS, CLIENTS, KILLS, TOKENS = 200, 8, 5, 6
PROMPTS = [f"Item {number} of the old box is" for number in (1000, 1004, 1008, 3)]
# One for all: making one takes as long as a completion.
CLIENT = httpx.Client(timeout=60, trust_env=False)
SETTINGS = (
    *("steps=1", "guard_examples=4", "retain_examples=6"),
    *("backtracks=0", "guard_relative=0.0005"),
)


def tfrnet(*arguments: object, **options: Any) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tfrnet", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, **options)


class Process:
    """A service as a process, at a new address each time it is started."""

    def __init__(self, arguments: list[object], log: Path) -> None:
        self._arguments = arguments
        self._log = log
        self.url = ""
        self.start()

    def start(self) -> None:
        with self._log.open("a") as log:
            self.process = tfrnet(
                "serve", *self._arguments, "--port", 0, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+?(?=/?$)", line.strip())
        assert found, self._log.read_text()[-2000:]
        self.url = found[0]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def call(self, method: str, path: str, body: Any = None, end: float = 0) -> httpx.Response:
        """Ask until there is an answer, from whichever process is there then."""
        while True:
            try:
                return CLIENT.request(method, f"{self.url}{path}", json=body)
            except httpx.TransportError:
                assert time.monotonic() < end, "the service is gone"
                time.sleep(0.3)


def data_files(folder: Path) -> tuple[Path, Path]:
    retain, stream = folder / "retain.jsonl", folder / "stream.jsonl"
    retain.write_text("".join(json.dumps(e.to_dict()) + "\n" for e in tiny.examples(12)))
    stream.write_text("".join(json.dumps(r.to_dict()) + "\n" for r in REQUESTS))
    return retain, stream


def opening(model: Path, retain: Path, state: Path) -> list[object]:
    sets = [part for setting in SETTINGS for part in ("--set", setting)]
    where = ["--model", model, "--retain", retain, "--state", state, "--device", "cpu"]
    return [*where, "--preset", "deep", *sets]


def ledger_lines(state: Path) -> int:
    path = state / "ledger.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def in_threads(*works: Callable[[], None]) -> None:
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.long
@pytest.mark.slow
def test_a_service_killed_five_times_under_load_applies_everything_once(
    tiny_folder: Path, tmp_path: Path
) -> None:
    retain, stream = data_files(tmp_path)
    state, end = tmp_path / "state", time.monotonic() + 900
    service = Process(opening(tiny_folder, retain, state), tmp_path / "log")
    answers: list[tuple[str, int, str, float]] = []
    chance = random.Random(3)

    def send() -> None:
        for request in REQUESTS:
            answer = service.call("POST", "/v1/requests", request.to_dict(), end)
            assert answer.status_code in (200, 202), answer.text

    def ask(client: int) -> Callable[[], None]:
        def work() -> None:
            for number in range(COMPLETIONS // CLIENTS):
                prompt = PROMPTS[(client + number) % len(PROMPTS)]
                body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "logprobs": 1}
                answer = service.call("POST", "/v1/completions", body, end)
                assert answer.status_code == 200, answer.text
                choice = answer.json()["choices"][0]
                generation = int(answer.headers["x-tfrnet-generation"])
                first = choice["logprobs"]["token_logprobs"][0]
                answers.append((prompt, generation, choice["text"], first))
                time.sleep(0.2)  # so that they last as long as the requests do

        return work

    def kill() -> None:
        for number in range(KILLS):
            lines = 1 + number * (len(REQUESTS) // KILLS) + 2
            while ledger_lines(state) < lines:
                assert time.monotonic() < end
                time.sleep(0.002)
            time.sleep(chance.random() * 0.3)
            service.kill()
            service.start()

    try:
        in_threads(send, kill, *(ask(client) for client in range(CLIENTS)))
        states = []
        for request in REQUESTS:
            while True:
                shown = service.call("GET", f"/v1/requests/{request.id}", None, end).json()
                if shown["state"] not in ("pending", "in_progress"):
                    break
                assert time.monotonic() < end, shown
                time.sleep(0.05)
            states.append(shown["state"])
            events = service.call("GET", f"/v1/requests/{request.id}/events", None, end).text
            ends = re.findall(f"^event: ({'|'.join(ENDED)})$", events, re.MULTILINE)
            assert ends == [shown["state"]]
        assert service.call("GET", "/v1/verify", None, end).json()["passed"]
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
    finally:
        service.kill()
    assert set(states) == {"completed", "rejected"}
    assert_same_as_run(tiny_folder, retain, stream, tmp_path, states)
    assert len(answers) == COMPLETIONS
    assert len({generation for _, generation, *_ in answers}) > 1
    assert_no_half_applied_mask(tiny_folder, state, answers)


def assert_same_as_run(
    model: Path, retain: Path, stream: Path, folder: Path, states: list[str]
) -> None:
    run = tfrnet(
        *("run", "--stream", stream, *opening(model, retain, folder / "run")),
        stdout=subprocess.DEVNULL,
    )
    assert run.wait(600) == 1  # some are rejected
    assert story(folder / "state") == story(folder / "run")
    assert tensors(folder / "state") == tensors(folder / "run")
    outcomes = {"accepted": "completed", "rejected": "rejected"}
    entries = [entry for entry in story(folder / "state") if entry["kind"] == "request"]
    assert [entry["id"] for entry in entries] == [request.id for request in REQUESTS]
    assert [outcomes[entry["outcome"]] for entry in entries] == states
    assert all(check.passed for check in verify_state(folder / "state"))


def assert_no_half_applied_mask(
    model_folder: Path, state: Path, answers: list[tuple[str, int, str, float]]
) -> None:
    """Every answer is the one that the generation it names gives, to the log-probability."""
    model = AutoModelForCausalLM.from_pretrained(model_folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    expected: dict[tuple[str, int], tuple[str, float]] = {}
    for prompt, generation, text, logprob in answers:
        key = (prompt, generation)
        if key not in expected:
            twin = twin_of(model)
            with apply_state(twin, state, generation), torch.no_grad():
                ids = torch.tensor([tokenizer(prompt)["input_ids"]])
                first = float(twin(ids).logits[0, -1].log_softmax(-1).max())
                expected[key] = (alone(LoadedModel(twin, tokenizer), prompt, TOKENS), first)
        assert text == expected[key][0]
        assert logprob == pytest.approx(expected[key][1], abs=1e-4)


@pytest.mark.slow
def test_a_second_service_on_one_state_is_told_and_the_first_goes_on(
    tiny_folder: Path, tmp_path: Path
) -> None:
    retain, _ = data_files(tmp_path)
    arguments = opening(tiny_folder, retain, tmp_path / "state")
    service = Process(arguments, tmp_path / "log")
    try:
        second = tfrnet(
            *("serve", *arguments, "--port", 0), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        _, said = second.communicate(timeout=120)
        assert second.returncode == 2
        assert f"in use by process {service.process.pid}" in said
        assert len(said.splitlines()) == 1
        assert service.call("GET", "/readyz").status_code == 200
        answer = service.call("POST", "/v1/requests", REQUESTS[0].to_dict())
        assert answer.status_code == 202
        # Ended in mid-work it leaves nothing half done, and says so with 0.
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(60) == 0
        assert all(check.passed for check in verify_state(tmp_path / "state"))
    finally:
        service.kill()
