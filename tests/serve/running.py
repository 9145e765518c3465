"""A service in this process, with a small model, asked over HTTP."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from transformers import PreTrainedTokenizerFast

from tests import tiny
from tfrnet.data.examples import Example
from tfrnet.models.load import LoadedModel
from tfrnet.serve.log import Log
from tfrnet.serve.server import Server, bound_socket, make_server
from tfrnet.serve.service import Service, ServiceOptions, open_primary, open_replica
from tfrnet.session import Session

SETTINGS = ("steps=1", "guard_examples=4", "retain_examples=6")
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
ENDED = ("completed", "rejected", "failed", "cancelled")


def wait_until(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Wait for what another thread or process does; that it takes too long is a failure."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def with_template(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    tokenizer = deepcopy(tokenizer)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@dataclass
class Running:
    """A service that runs, and a client for it."""

    service: Service
    server: Server
    thread: threading.Thread
    client: httpx.Client
    url: str
    said: io.StringIO

    @property
    def state(self) -> Path:
        return self.service.folder

    def submit(self, request: Any, **more: Any) -> httpx.Response:
        body = request if isinstance(request, dict) else request.to_dict()
        return self.client.post("/v1/requests", json=body | more)

    def show(self, name: str) -> dict[str, Any]:
        answer = self.client.get(f"/v1/requests/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ended(self, name: str, seconds: float = 60) -> dict[str, Any]:
        """Wait until a request has ended."""
        end = time.monotonic() + seconds
        while (shown := self.show(name))["state"] not in ENDED:
            assert time.monotonic() < end, shown
            time.sleep(0.01)
        return shown

    def complete(self, prompt: str, tokens: int = 8, **more: Any) -> httpx.Response:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0} | more
        return self.client.post("/v1/completions", json=body)

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.said.getvalue().splitlines()]

    def stop(self) -> None:
        self.client.close()
        self.server.handle_exit(15, None)
        self.thread.join(30)
        assert not self.thread.is_alive()


def make_session(
    folder: Path,
    tokenizer: Any,
    settings: tuple[str, ...] = SETTINGS,
    model_name: str = "/somewhere/tiny",
    audit: bool = False,
    retain: Sequence[Example] | None = None,
) -> Session:
    return Session(
        tiny.make_trained_model(),
        with_template(tokenizer),
        folder,
        retain or tiny.examples(12),
        config=None
        if (folder / "manifest.json").exists()
        else tiny.deep().with_overrides(settings),
        model_name=model_name,
        audit=audit,
    )


def in_groups(examples: Sequence[Example], *names: str) -> list[Example]:
    """Return examples that are in the named groups by turns."""
    return [replace(each, group=names[place % len(names)]) for place, each in enumerate(examples)]


@contextmanager
def serving(
    service: Service, said: io.StringIO, token: str = "", port: int = 0, **options: Any
) -> Iterator[Running]:
    listening = bound_socket("127.0.0.1", port)
    server = make_server(service, **options)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    client = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)
    running = Running(service, server, thread, client, url, said)
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield running
    finally:
        if thread.is_alive():
            running.stop()


@contextmanager
def primary(
    folder: Path,
    tokenizer: Any,
    options: ServiceOptions | None = None,
    settings: tuple[str, ...] = SETTINGS,
    model_name: str = "/somewhere/tiny",
    audit: bool = False,
    retain: Sequence[Example] | None = None,
    **more: Any,
) -> Iterator[Running]:
    said = io.StringIO()
    session = make_session(folder, tokenizer, settings, model_name, audit, retain)
    service = open_primary(session, replace(options or ServiceOptions(), grace=20.0), Log(said))
    with serving(service, said, **more) as running:
        yield running


@contextmanager
def replica(folder: Path, tokenizer: Any) -> Iterator[Running]:
    said = io.StringIO()
    loaded = LoadedModel(tiny.make_trained_model(), with_template(tokenizer))
    with serving(open_replica(loaded, folder, ServiceOptions(), Log(said)), said) as running:
        yield running
