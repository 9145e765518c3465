"""Where the paper's rule is accepted and forgets: see notebook/paper-rule.md.

    python -m benchmarks.paper_map RESULTS.jsonl --data-dir DATA \\
        --model natural=smollm2-135m --model memorised=smollm2-tasks --workers 8

A cell is a model, a stream, a budget of channels and a tolerance of the guard; all else is
`--preset paper`. One line is written per cell as it ends. Cells that the file already has are left
out, so a run that was cut short goes on where it ended.

The tolerances of a budget run together: a rejected request changes nothing, and the guard only says
yes or no to the same candidate, so as long as two of them agree, one computation serves both.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.calibrated import measure
from tfrnet.core.guard import GuardLoss, judge
from tfrnet.data.protocol import STREAMS, Sizes, Split, make_split
from tfrnet.data.requests import Request
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.masking.mask import capacity, dormant
from tfrnet.methods.tfr.config import TFRConfig
from tfrnet.methods.tfr.model import TFRNet
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.models.load import LoadedModel, load_model, model_folder, use_tensor_cores
from tfrnet_bench.constants import FIRST_TUNING_SEED

Row = dict[str, Any]
Right = Sequence[Sequence[bool]]
KNOWLEDGE = ("natural", "memorised")
# The paper's is the second budget and the first tolerance.
BUDGETS = (32, 128, 512, 2048)
GUARDS = (0.05, 0.2, 1.0)
# What tells one cell from another.
KEY = ("model", "task", "seed", "budget", "guard_relative")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cells and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument(
        "--model",
        action="append",
        type=_known_model,
        required=True,
        help="natural=NAME, or memorised=NAME for one that was trained on the streams' items",
    )
    parser.add_argument("--streams", nargs="+", default=list(STREAMS))
    parser.add_argument("--budgets", nargs="+", type=int, default=list(BUDGETS))
    parser.add_argument("--guards", nargs="+", type=float, default=list(GUARDS))
    parser.add_argument("--seed", type=int, default=FIRST_TUNING_SEED)
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--spare", type=int, default=10, help="requests drawn but never made")
    parser.add_argument("--heldout", type=int, default=50)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=540, help="when requests stop")
    options = parser.parse_args(arguments)
    deadline = time.time() + options.seconds
    for _, name in options.model:
        model_folder(name)  # once, before all workers convert it at the same time
    done = [row for row in cells_of(options.results) if row["requests"] == options.requests]
    groups = [
        (knowledge, name, stream, budget, guards)
        for budget in options.budgets
        for knowledge, name in options.model
        for stream in options.streams
        if (guards := _missing(done, name, stream, options.seed, budget, options.guards))
    ]
    with (
        options.results.open("a") as file,
        ProcessPoolExecutor(
            options.workers, multiprocessing.get_context("spawn"), _start, (options, deadline)
        ) as pool,
    ):
        for future in as_completed([pool.submit(_run, *group) for group in groups]):
            for row in future.result():
                file.write(json.dumps(row) + "\n")
                print(line_of(row), flush=True)
            file.flush()


def _known_model(text: str) -> tuple[str, str]:
    knowledge, _, name = text.partition("=")
    if knowledge not in KNOWLEDGE or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not natural=NAME or memorised=NAME")
    return knowledge, name


def cells_of(path: Path) -> list[Row]:
    """Return the cells of a file of results that were measured, each as it ran last."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = {tuple(row[part] for part in KEY): row for row in rows if "error" not in row}
    return list(found.values())


def _missing(
    done: Iterable[Row], name: str, stream: str, seed: int, budget: int, guards: Iterable[float]
) -> tuple[float, ...]:
    keys = {tuple(row[part] for part in KEY) for row in done}
    return tuple(g for g in guards if (label_of(name), stream, seed, budget, g) not in keys)


def label_of(name: str) -> str:
    """Return what a model is called in results: of a folder its last part."""
    return Path(name).name


_options: argparse.Namespace
_deadline: float


def _start(options: argparse.Namespace, deadline: float) -> None:
    global _options, _deadline
    torch.set_num_threads(1)
    use_tensor_cores(options.device)
    _options, _deadline = options, deadline


@cache
def _model(name: str) -> LoadedModel:
    return load_model(name, "float32", _options.device)


@cache
def _split(stream: str) -> Split:
    drawn = _options.requests + _options.spare
    sizes = Sizes(requests=drawn, forget_eval=8, heldout=_options.heldout)
    return make_split(stream, _options.seed, Source("folder", _options.data_dir), sizes)


@cache
def _untouched(name: str, stream: str) -> Row:
    return measure(_model(name), _split(stream), _options.batch_size)


def _run(
    knowledge: str, name: str, stream: str, budget: int, guards: tuple[float, ...]
) -> list[Row]:
    """Return the cells of a budget, one for each tolerance."""
    # What begins late would end before it says anything.
    if time.time() > _deadline - 0.1 * _options.seconds:
        return []
    header = {
        "model": label_of(name),
        "knowledge": knowledge,
        "task": stream,
        "seed": _options.seed,
        "budget": budget,
    }
    start = time.perf_counter()
    try:
        found = _cells(name, stream, budget, guards)
    except Exception:
        return [header | {"error": traceback.format_exc()[-3000:]}]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    seconds = {"group_seconds": round(time.perf_counter() - start, 1), "device": device}
    return [header | {"guard_relative": guard} | found[guard] | seconds for guard in guards]


def _cells(name: str, stream: str, budget: int, guards: Sequence[float]) -> dict[float, Row]:
    loaded, split, before = _model(name), _split(stream), _untouched(name, stream)
    config = TFRConfig.paper(budget=budget, guard_relative=max(guards))
    net = TFRNet(
        loaded.model,
        loaded.tokenizer,
        split.retain_examples(),
        config,
        guard=split.guard_examples(),
        seed=_options.seed,
        batch_size=_options.batch_size,
    )
    requests = split.requests()[: _options.requests]
    chance = find_task(stream).floors(split.forget)["random"]
    cells = {}
    try:
        for course in run_together(net, requests, guards, lambda: time.time() > _deadline):
            after = before
            if any(course.accepted):
                with net.showing(course.state):
                    after = measure(loaded, split, _options.batch_size)
            mask = course.state.mask
            row = {
                "requests": len(course.accepted),
                "accepted": sum(course.accepted),
                "accepted_at": [n for n, yes in enumerate(course.accepted, 1) if yes],
                "selected": course.selected,
                "channels": mask.numel(),
                "dormant": int(dormant(mask, config.dormant_threshold).sum()),
                "capacity": capacity(mask, config.dormant_threshold),
                "guard_first": course.guard_losses[0],
                "guard_last": course.guard_losses[-1],
                "guard_rises": [round(rise, 4) for rise in course.rises],
                "request_seconds": round(fmean(course.seconds), 3),
                "chance": chance,
                **compare(before, after, len(course.accepted)),
            }
            cells |= dict.fromkeys(course.guards, row)
    finally:
        net.detach()
    return cells


@dataclass(frozen=True)
class Course:
    """A stream under one or more tolerances that have agreed on every request so far.

    `rises` are what the candidates' guard loss would be, as multiples of the loss before;
    `selected`, how many channels they suppress: none once as many are dormant as may be.
    """

    guards: tuple[float, ...]
    state: ChannelState
    guard_losses: tuple[float, ...] = ()
    accepted: tuple[bool, ...] = ()
    rises: tuple[float, ...] = ()
    selected: tuple[int, ...] = ()
    seconds: tuple[float, ...] = field(default=(), repr=False)


def run_together(
    net: TFRNet,
    requests: Sequence[Request],
    guards: Sequence[float],
    is_late: Callable[[], bool] = lambda: False,
) -> list[Course]:
    """Return how a stream ends under each tolerance; `net` has the largest of them.

    When it is late, all end after the same request.
    """
    courses = [Course(tuple(guards), net.snapshot())]
    for number, request in enumerate(requests):
        courses = [
            following
            for course in courses
            for following in _next_request(net, course, number, request)
        ]
        if is_late():
            break
    return courses


def _next_request(net: TFRNet, course: Course, number: int, request: Request) -> Iterator[Course]:
    """Yield the course after a request: one, or two where the tolerances disagree."""
    net.restore(course.state)
    net.requests_seen = number
    # Known from the request before; measuring it again would take a third of the time.
    net._guard_loss = GuardLoss(course.guard_losses[-1]) if course.guard_losses else None
    proposal = net.propose(request)
    outcome = proposal.outcome
    before, after = outcome.guard_loss_before, outcome.guard_loss_after
    losses = GuardLoss(before), GuardLoss(after)
    agreeing = {
        guard
        for guard in course.guards
        if outcome.accepted and judge(*losses, replace(net.config, guard_relative=guard)).accepted
    }
    for accepted in (True, False):
        guards = tuple(guard for guard in course.guards if (guard in agreeing) == accepted)
        if guards:
            yield Course(
                guards,
                proposal.state if accepted else course.state,
                (*(course.guard_losses or (before,)), after if accepted else before),
                (*course.accepted, accepted),
                (*course.rises, after / before),
                (*course.selected, outcome.selected or 0),
                (*course.seconds, outcome.seconds["total"]),
            )


def compare(before: Row, after: Row, requests: int) -> Row:
    """Return what a model gets right before and after the first requests of a stream.

    Of items it knew, which are those that it got right before, `forgotten` is the share in percent
    that it gets wrong after; `never` are items that nobody requested.
    """
    pairs = {
        part: [
            (was, now)
            for first, last in zip(before["right"][cut], after["right"][cut], strict=True)
            for was, now in zip(first, last, strict=True)
        ]
        for part, cut in {
            "requested": slice(requests),
            "never": slice(requests, None),
        }.items()
    }
    return {
        **{part: _compared(found) for part, found in pairs.items()},
        "nats": [
            fmean(loss for part in point["losses"][:requests] for loss in part)
            for point in (before, after)
        ],
        "heldout": {name: [was, after["heldout"][name]] for name, was in before["heldout"].items()},
    }


def _compared(pairs: Sequence[tuple[bool, bool]]) -> Row:
    known = [now for was, now in pairs if was]
    return {
        "items": len(pairs),
        "right": [100 * fmean(each) for each in zip(*pairs, strict=True)] if pairs else [],
        "known": len(known),
        "forgotten": 100 * (1 - fmean(known)) if known else None,
    }


def heldout_change(row: Row) -> float:
    """Return held-out accuracy after a stream less that before, in points."""
    return fmean(after - before for before, after in row["heldout"].values())


def line_of(row: Row) -> str:
    """Return a cell in one line."""
    head = f"{row['model']:<14} {row['task']:<10} {row['budget']:>5}"
    if "error" in row:
        return f"{head} ERROR {row['error'][-900:]}"
    requested, never = row["requested"], row["never"]
    forgotten = " ".join(
        f"{name} {part['forgotten'] or 0:.0f}% of {part['known']}"
        for name, part in (("forgot", requested), ("never asked", never))
    )
    return (
        f"{head} {row['guard_relative']:<4} {row['accepted']}/{row['requests']} {forgotten} "
        f"held out {heldout_change(row):+.1f} dormant {row['dormant']} "
        f"guard {row['guard_first']:.3f}>{row['guard_last']:.3f} "
        f"{row['request_seconds']:.2f}s {row['group_seconds']:.0f}s"
    )


if __name__ == "__main__":
    main()
