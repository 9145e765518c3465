"""How fast the service answers, beside plain `generate` in the same process.

    python -m benchmarks.serving --json benchmarks/results/serving.json
    python -m benchmarks.serving_table

Both sides of a ratio are measured in turn, round by round, so that they see the same machine; what
is written is the median over rounds. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil
import torch

from tfrnet import Session, load_model
from tfrnet.data.requests import Request
from tfrnet.demo.corpus import load_facts, split
from tfrnet.models.generation import continue_texts
from tfrnet.models.load import LoadedModel
from tfrnet.models.twin import twin_of
from tfrnet.serve.gate import Limits
from tfrnet.serve.log import Log
from tfrnet.serve.server import bound_socket, make_server
from tfrnet.serve.service import ServiceOptions, open_primary

MODEL = "smollm2-135m"
TOKENS = 32
CLIENTS = 16
BESIDE = "rate beside a request / rate"
LAST_OVER_FIRST = "submission, last tenth / first"
PROMPT = "The history of the city begins with"


class Service:
    """The service in this process, asked over HTTP. Requests wait until they are approved."""

    def __init__(self, session: Session, folder: Path) -> None:
        self._log = (folder / "log").open("w")
        options = ServiceOptions(
            limits=Limits(rate=1e6, burst=10**6), rows=CLIENTS, grace=5.0, approve=True
        )
        listening = bound_socket("127.0.0.1", 0)
        self._server = make_server(open_primary(session, options, Log(self._log)))
        self._thread = threading.Thread(target=self._server.run, args=([listening],))
        self._thread.start()
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            timeout=600,
            trust_env=False,
            limits=httpx.Limits(max_connections=2 * CLIENTS, max_keepalive_connections=CLIENTS),
        )
        while not self._server.started:
            time.sleep(0.01)

    def complete(self) -> int:
        """Return how many tokens an answer had."""
        body = {"prompt": PROMPT, "max_tokens": TOKENS, "temperature": 0}
        answer = self.client.post("/v1/completions", json=body)
        return int(answer.raise_for_status().json()["usage"]["completion_tokens"])

    def pieces(self, tokens: int) -> Iterator[str]:
        """Yield the pieces of a stream, about one for each token."""
        body = {"prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "stream": True}
        with self.client.stream("POST", "/v1/completions", json=body) as stream:
            yield from (line for line in stream.iter_lines() if line.startswith('data: {"'))

    def submit(self, request: Request) -> float:
        """Return the seconds until a request was accepted."""
        body = request.to_dict()
        return _seconds(lambda: self.client.post("/v1/requests", json=body).raise_for_status())

    def work_out(self, request: Request) -> None:
        """Have a request applied, and wait until it is."""
        self.submit(request)
        place = f"/v1/requests/{request.id}"
        self.client.post(f"{place}/approve").raise_for_status()
        while self.client.get(place).json()["state"] in ("pending", "in_progress"):
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it."""
        self.client.close()
        self._server.handle_exit(15, None)
        self._thread.join()
        self._log.close()


def served_rate(service: Service, clients: int) -> float:
    """Return tokens a second of so many clients at once."""
    with ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        made = sum(pool.map(lambda _: service.complete(), range(clients)))
        return made / (time.perf_counter() - start)


def generated_rate(plain: LoadedModel, batch: int) -> float:
    """Return tokens a second of plain `generate`; the prompt's continuation does not end early."""
    work = lambda: continue_texts(plain, [PROMPT] * batch, TOKENS, batch_size=batch)  # noqa: E731
    return batch * TOKENS / _seconds(work)


def first_token(service: Service) -> float:
    """Return the seconds until the first piece of a stream."""
    pieces = service.pieces(1)
    seconds = _seconds(lambda: next(pieces))
    list(pieces)
    return seconds


def rounds_of(plain: LoadedModel, service: Service, rounds: int) -> dict[str, list[float]]:
    """Return what every round measured; the first, which warms up, is not kept."""
    measures: dict[str, Callable[[], float]] = {
        "generate, 1": lambda: generated_rate(plain, 1),
        "service, 1": lambda: served_rate(service, 1),
        f"generate, {CLIENTS}": lambda: generated_rate(plain, CLIENTS),
        f"service, {CLIENTS}": lambda: served_rate(service, CLIENTS),
        "first token, generate": lambda: _seconds(lambda: continue_texts(plain, [PROMPT], 1)),
        "first token, service": lambda: first_token(service),
    }
    found: dict[str, list[float]] = {name: [] for name in measures}
    for number in range(rounds + 1):
        for name, measure in measures.items():
            value = measure()
            _say(f"round {number}: {name} {value:.3f}")
            if number:
                found[name].append(value)
    return found


@contextmanager
def crowd(service: Service) -> Iterator[list[float]]:
    """Keep all clients asking in a block; give the times at which tokens arrived."""
    arrived: list[float] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            for _ in service.pieces(TOKENS):
                arrived.append(time.perf_counter())

    with ThreadPoolExecutor(CLIENTS) as pool:
        asking = [pool.submit(ask) for _ in range(CLIENTS)]
        try:
            yield arrived
        finally:
            over.set()
    for each in asking:
        each.result()


def kept_beside(service: Service, requests: list[Request], seconds: float) -> list[float]:
    """Return the share of the rate that is kept while each request is worked out.

    The rate without is measured before and after each, for so many seconds.
    """
    shares = []
    with crowd(service) as arrived:

        def rate_during(work: Callable[[], object]) -> float:
            start, before = time.perf_counter(), len(arrived)
            work()
            return (len(arrived) - before) / (time.perf_counter() - start)

        time.sleep(seconds)
        for request in requests:
            idle = [rate_during(lambda: time.sleep(seconds))]
            busy = rate_during(lambda r=request: service.work_out(r))  # type: ignore[misc]
            idle.append(rate_during(lambda: time.sleep(seconds)))
            _say(f"beside a request: {busy:.1f}, without: {idle[0]:.1f} and {idle[1]:.1f}")
            shares.append(2 * busy / sum(idle))
    return shares


def submissions(service: Service, request: Request, count: int) -> dict[str, float]:
    """Return what submitting costs at the beginning and at the end of a long queue."""
    process, tenth = psutil.Process(), max(1, count // 10)
    service.submit(Request("first", request.examples))
    before = process.memory_info().rss
    seconds = [
        service.submit(Request(f"queued-{number}", request.examples)) for number in range(count)
    ]
    first, last = median(seconds[:tenth]), median(seconds[-tenth:])
    return {
        "submission, first tenth, milliseconds": 1000 * first,
        "submission, last tenth, milliseconds": 1000 * last,
        LAST_OVER_FIRST: last / first,
        "memory of the queue, MB": (process.memory_info().rss - before) / 1e6,
    }


def measured(rounds: int, beside: int, queued: int, seconds: float) -> dict[str, float]:
    """Return all figures."""
    loaded = load_model(MODEL)
    plain = LoadedModel(twin_of(loaded.model), loaded.tokenizer)
    parts = split(load_facts(), "capitals")
    retain = [fact.example() for fact in parts.retain]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        service = Service(Session(*loaded, folder / "state", retain), folder)
        try:
            found = rounds_of(plain, service, rounds)
            shares = kept_beside(service, list(parts.requests[:beside]), seconds)
            queue = submissions(service, parts.requests[-1], queued)
        finally:
            service.stop()
    return figures_of(found, shares) | queue


def figures_of(found: dict[str, list[float]], shares: list[float]) -> dict[str, float]:
    """Return medians of what the rounds measured, and of the shares that were kept."""

    def ratio(over: str, under: str) -> float:
        return median(a / b for a, b in zip(found[over], found[under], strict=True))

    pairs = zip(found["first token, service"], found["first token, generate"], strict=True)
    rates = [name for name in found if not name.startswith("first token")]
    return {f"tokens a second, {name}": median(found[name]) for name in rates} | {
        "service / generate, 1": ratio("service, 1", "generate, 1"),
        f"service / generate, {CLIENTS}": ratio(f"service, {CLIENTS}", f"generate, {CLIENTS}"),
        f"{CLIENTS} clients / 1": ratio(f"service, {CLIENTS}", "service, 1"),
        "first token, milliseconds over generate": median(1000 * (a - b) for a, b in pairs),
        BESIDE: median(shares),
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print; write the figures where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds; medians are shown")
    parser.add_argument("--beside", type=int, default=3, help="requests worked out beside clients")
    parser.add_argument("--seconds", type=float, default=30, help="of clients without a request")
    parser.add_argument("--queued", type=int, default=1000, help="requests to queue")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    figures = measured(options.rounds, options.beside, options.queued, options.seconds)
    for name, value in figures.items():
        print(f"{name:<48}{value:10.2f}")
    if options.json:
        facts: dict[str, Any] = {
            "machine": f"{platform.machine()}, {psutil.cpu_count()} cores, "
            f"torch {torch.__version__}, {torch.get_num_threads()} threads",
            "model": MODEL,
            "tokens": TOKENS,
            "rounds": options.rounds,
            "queued": options.queued,
        }
        options.json.write_text(json.dumps(facts | {"figures": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
