"""How fast the service answers, beside plain `generate` in the same process.

    python benchmarks/serving.py --json serving.json

Prints ratios of one run: service to `generate` at the same batch, 16 clients to one, the first
token's delay, completions while a request is worked out, and 1,000 submissions. Run it on an idle
machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch

from tfrnet import Session, load_model
from tfrnet.data.requests import Request
from tfrnet.demo.corpus import load_facts, split
from tfrnet.models.generation import continue_texts
from tfrnet.serve.gate import Limits
from tfrnet.serve.log import Log
from tfrnet.serve.server import bound_socket, make_server
from tfrnet.serve.service import ServiceOptions, open_primary

TOKENS = 32
CLIENTS = 16
PROMPT = "The history of the city begins with"


class Service:
    """The service in this process, asked over HTTP."""

    def __init__(self, session: Session, folder: Path) -> None:
        log = Log((folder / "log").open("w"))
        limits = Limits(rate=1e6, burst=10**6)
        options = ServiceOptions(limits=limits, rows=CLIENTS, grace=120.0)
        self.service = open_primary(session, options, log)
        listening = bound_socket("127.0.0.1", 0)
        self._server = make_server(self.service)
        self._thread = threading.Thread(target=self._server.run, args=([listening],))
        self._thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        limits_of_pool = httpx.Limits(max_connections=64)
        self.client = httpx.Client(
            base_url=url, timeout=600, trust_env=False, limits=limits_of_pool
        )
        while not self._server.started:
            time.sleep(0.01)

    def complete(self, prompt: str = PROMPT) -> int:
        """Return how many tokens an answer had."""
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0}
        answer = self.client.post("/v1/completions", json=body)
        return int(answer.raise_for_status().json()["usage"]["completion_tokens"])

    def first_token(self) -> float:
        """Return the seconds until the first piece of a stream."""
        body = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0, "stream": True}
        start = time.perf_counter()
        with self.client.stream("POST", "/v1/completions", json=body) as stream:
            next(stream.iter_lines())
            return time.perf_counter() - start

    def submit(self, request: Request) -> float:
        """Return the seconds until a request was accepted."""
        start = time.perf_counter()
        self.client.post("/v1/requests", json=request.to_dict()).raise_for_status()
        return time.perf_counter() - start

    def is_busy(self) -> bool:
        """Tell whether there are requests to work on."""
        queue = self.client.get("/v1/state").json()["queue"]
        return bool(queue["pending"] or queue["in_progress"])

    def stop(self) -> None:
        """Stop it, leaving off the request in hand."""
        self._server.handle_exit(15, None)
        self._thread.join()


def rate(service: Service, clients: int, rounds: int) -> float:
    """Return tokens a second of so many clients."""
    with ThreadPoolExecutor(clients) as pool:
        start = time.perf_counter()
        made = sum(pool.map(lambda _: service.complete(), range(clients * rounds)))
        return made / (time.perf_counter() - start)


def generate_rate(loaded: Any, batch: int) -> float:
    start = time.perf_counter()
    texts = continue_texts(loaded, [PROMPT] * batch, TOKENS, batch_size=batch)
    made = sum(len(loaded.tokenizer(text)["input_ids"]) for text in texts)
    return made / (time.perf_counter() - start)


def median(measure: Callable[[], float], times: int) -> float:
    measure()
    return statistics.median(measure() for _ in range(times))


def rate_beside(service: Service, request: Request) -> float:
    """Return tokens a second of all clients while a request is worked out."""
    service.submit(request)
    made, start = 0, time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        while service.is_busy():
            made += sum(pool.map(lambda _: service.complete(), range(CLIENTS)))
    return made / (time.perf_counter() - start)


def measured(times: int, queued: int) -> dict[str, float]:
    loaded = load_model("smollm2-135m")
    parts = split(load_facts(), "capitals")
    retain = [fact.example() for fact in parts.retain]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        generate = {n: median(lambda n=n: generate_rate(loaded, n), times) for n in (1, CLIENTS)}
        alone = median(lambda: _seconds(lambda: continue_texts(loaded, [PROMPT], 1)), times)
        service = Service(Session(*loaded, folder / "state", retain), folder)
        one = median(lambda: rate(service, 1, 2), times)
        many = median(lambda: rate(service, CLIENTS, 2), times)
        first = median(service.first_token, 3 * times)
        beside = rate_beside(service, parts.requests[0])
        figures = {
            "tokens a second, generate, batch 1": generate[1],
            f"tokens a second, generate, batch {CLIENTS}": generate[CLIENTS],
            "tokens a second, service, 1 client": one,
            f"tokens a second, service, {CLIENTS} clients": many,
            "service / generate, 1": one / generate[1],
            f"service / generate, {CLIENTS}": many / generate[CLIENTS],
            f"{CLIENTS} clients / 1": many / one,
            "first token, milliseconds over generate": 1000 * (first - alone),
            "rate beside a request / rate": beside / many,
        }
        figures |= submissions(service, parts.requests[1], queued)
        service.stop()
    return figures


def submissions(service: Service, request: Request, count: int) -> dict[str, float]:
    """Return what submitting costs with an empty and with a long queue."""
    before = psutil.Process().memory_info().rss
    seconds = [
        service.submit(Request(f"queued-{number}", request.examples)) for number in range(count)
    ]
    tenth = max(1, count // 10)
    return {
        "submission, first tenth, milliseconds": 1000 * statistics.median(seconds[:tenth]),
        "submission, last tenth, milliseconds": 1000 * statistics.median(seconds[-tenth:]),
        "memory of the queue, MB": (psutil.Process().memory_info().rss - before) / 1e6,
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5, help="repetitions; medians are shown")
    parser.add_argument("--queued", type=int, default=1000, help="requests to queue")
    parser.add_argument("--json", type=Path, help="file for the figures")
    options = parser.parse_args()
    figures = measured(options.times, options.queued)
    for name, value in figures.items():
        print(f"{name:<48}{value:10.2f}")
    if options.json:
        facts = {"threads": torch.get_num_threads(), "python": sys.version.split()[0]}
        options.json.write_text(json.dumps({"figures": figures, "facts": facts}, indent=1) + "\n")


if __name__ == "__main__":
    main()
