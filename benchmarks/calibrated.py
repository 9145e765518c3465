"""Cells of calibrated forgetting and of its rivals: see notebook/calibrated.md.

    python -m benchmarks.calibrated PLAN.json RESULTS.jsonl --data-dir DATA --workers 16

PLAN.json is {"candidates": {"name": {"setting": value}}, "cells": [["name", "boolq", 1000], ...]},
cells in order of importance. The task may be tofu, or tofu-all where all of its retain data is
given but for what is measured, or tofu-given where that is given too, as TOFU's authors do, or
demo:TOPIC for a topic of the demo's facts. A candidate may name another "method" and a "preset" of
it, and an "arm" of `benchmarks.arms`; {"oracle": "NAME"} only measures another model on a stream;
{"own_text": true} gets no retain data and no guard: what the model writes itself stands in;
{"retain_rows": N} gets N retain examples of a stream's own task.

One line is written per cell as it ends. A cell that the time does not suffice for ends early and
says after how many requests. With --attacks the streams end with these.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch

from benchmarks.arms import REAL, pool_of, recovering
from tfrnet.data.anchors import without_answers
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.protocol import Sizes, Split, make_split
from tfrnet.data.sampling import sample_indices
from tfrnet.data.sources import Source
from tfrnet.data.tasks import find_task
from tfrnet.data.tofu import SIZES, Template, TofuRow, tofu_example, tofu_prompt
from tfrnet.demo import corpus
from tfrnet.evaluation.attacking.subject import AttackOptions, Subject
from tfrnet.evaluation.evaluator import Evaluator
from tfrnet.evaluation.metrics import requested
from tfrnet.evaluation.metrics.continual import trade_off
from tfrnet.evaluation.metrics.fluency import fluency
from tfrnet.evaluation.privacy import evaluate_privacy
from tfrnet.evaluation.ranking import rank
from tfrnet.evaluation.robustness import run_attacks
from tfrnet.evaluation.tasks import evaluate_task
from tfrnet.evaluation.tofu import evaluate_tofu
from tfrnet.method import find_method
from tfrnet.models.load import LoadedModel, load_model, use_tensor_cores
from tfrnet.models.own_text import write_own_text
from tfrnet.unlearner import Unlearner
from tfrnet_bench.constants import FIRST_TUNING_SEED
from tfrnet_bench.run.plan import TofuSizes
from tfrnet_bench.run.tofu_stream import TofuStream, make_tofu_stream

Row = dict[str, Any]
_KEPT = (
    *("outcome", "reason", "forget_loss_before", "forget_loss_after", "guard_loss_before"),
    *("guard_loss_after", "selected", "recovered", "dormant", "attempts", "seconds"),
)
# Retain examples of a stream's own task; of each other task half as many.
_RETAIN = 240
_FRESH = 64
_SAID = 16
# How much of TOFU's retain data a method is given beside what is measured.
_TOFU = {"tofu": 480, "tofu-all": 3000, "tofu-given": 3000}
_DEMO = "demo:"
# What a candidate may say beside the settings of its method.
_OF_THE_CELL = ("arm", "oracle", "own_text", "retain_rows")
# The streams that are not of the tasks' model.
_MODELS = {"lume": "smollm2-lume", "knowundo": "smollm2-knowundo"}


def main() -> None:
    """Run the cells and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--model", help="in place of the shipped backbones")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--heldout", type=int, default=100)
    parser.add_argument("--tofu-rows", type=int)
    parser.add_argument("--tofu-template", choices=get_args(Template), default="qa")
    parser.add_argument("--tofu-forget", choices=tuple(SIZES), default="10")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--attacks", nargs="*", default=[], help="after a stream")
    parser.add_argument("--report", action="store_true", help="look at reporting seeds")
    parser.add_argument("--seconds", type=float, default=540, help="when requests stop")
    options = parser.parse_args()
    plan = json.loads(options.plan.read_text())
    cells = [(name, plan["candidates"][name], task, seed) for name, task, seed in plan["cells"]]
    if not options.report and any(seed < FIRST_TUNING_SEED for *_, seed in cells):
        parser.error(f"seeds below {FIRST_TUNING_SEED} are for reporting: --report")
    for settings in plan["candidates"].values():
        method_of(settings)
    deadline = time.time() + options.seconds
    with (
        options.results.open("a") as file,
        ProcessPoolExecutor(
            options.workers, multiprocessing.get_context("spawn"), _start, (options, deadline)
        ) as pool,
    ):
        for future in as_completed([pool.submit(_run, *cell) for cell in cells]):
            if row := future.result():
                file.write(json.dumps(row) + "\n")
                file.flush()
                print(line_of(row), flush=True)


_options: argparse.Namespace
_deadline: float
_models: dict[str, LoadedModel] = {}


def _start(options: argparse.Namespace, deadline: float) -> None:
    global _options, _deadline
    torch.set_num_threads(1)
    use_tensor_cores(options.device)
    _options, _deadline = options, deadline


def _model(name: str) -> LoadedModel:
    name = _options.model or name
    if name not in _models:
        _models.clear()
        _models[name] = load_model(name, "float32", _options.device)
    return _models[name]


def _run(name: str, settings: Row, task: str, seed: int) -> Row | None:
    # What begins late would end before it says anything.
    if time.time() > _deadline - 0.2 * _options.seconds:
        return None
    header = {"candidate": name, "settings": settings, "task": task, "seed": seed}
    start = time.perf_counter()
    try:
        kind = _tofu if task in _TOFU else _demo if task.startswith(_DEMO) else _stream
        found = kind(settings, task, seed)
    except Exception:
        return header | {"error": traceback.format_exc()[-3000:]}
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    seconds = {"seconds": round(time.perf_counter() - start, 1), "device": device}
    return header | found | seconds


def method_of(candidate: Row) -> tuple[type[Unlearner[Any]], Any]:
    """Return a candidate's method and its settings."""
    settings = {k: v for k, v in candidate.items() if k not in _OF_THE_CELL}
    method = find_method(settings.pop("method", "tfr"))
    preset = method.config_class.presets()[settings.pop("preset", "default")]
    return method, method.config_class.from_dict({**preset, **settings})


class _Going:
    """A method on its way through a stream."""

    def __init__(
        self,
        loaded: LoadedModel,
        settings: Row,
        seed: int,
        retain: Sequence[Example],
        guard: Sequence[Example] | None,
        fresh: Sequence[Example],
    ) -> None:
        method, config = method_of(settings)
        self._own_text = write_own_text(loaded) if settings.get("own_text") else None
        if self._own_text:
            retain, guard = self._own_text.retain, self._own_text.guard
        self.net = method(
            loaded.model,
            loaded.tokenizer,
            retain,
            config,
            guard=guard,
            seed=seed,
            batch_size=_options.batch_size,
        )
        self._pool = pool_of(settings.get("arm", REAL), self.net.layout())
        self.outcomes: list[Row] = []
        self._taken: list[list[Encoded]] = []
        self._fresh = self.net.encode(fresh, "fresh examples")
        self.fresh = [self._fresh_loss()]

    def take(self, request: Any) -> None:
        if self._own_text:
            self.net.use_retain(without_answers(self._own_text.retain, request))
        with recovering(self._pool):
            outcome = self.net.forget(request).to_dict()
        self.outcomes.append({key: outcome[key] for key in _KEPT})
        self._taken.append(self.net.encode(request.examples, "request"))

    def measure_fresh(self) -> None:
        self.fresh.append(self._fresh_loss())

    def result(self) -> Row:
        mask = self.net.state.tensors().get("mask", torch.ones(0))
        guard = self.outcomes
        return {
            "requests": len(guard),
            "accepted": sum(o["outcome"] == "accepted" for o in guard),
            "fresh_loss": self.fresh,
            "fresh_ratio": self.fresh[-1] / self.fresh[0],
            "guard_first": guard[0]["guard_loss_before"],
            "guard_last": guard[-1]["guard_loss_after"]
            if guard[-1]["outcome"] == "accepted"
            else guard[-1]["guard_loss_before"],
            # Of each request, as it is after the last one.
            "forget_loss_end": [self._loss(own) for own in self._taken],
            "request_seconds": sum(o["seconds"]["total"] for o in guard) / len(guard),
            "lowered": [int((mask < limit).sum()) for limit in (1, 0.9, 0.5, 0.1)],
            "raised": [int((mask > limit).sum()) for limit in (1, 1.1)],
            "outcomes": guard,
        }

    def _fresh_loss(self) -> float:
        return self._loss(self._fresh)

    def _loss(self, examples: list[Encoded]) -> float:
        return float(self.net._losses(examples).mean())


def _stream(settings: Row, stream: str, seed: int) -> Row:
    oracle = settings.get("oracle")
    loaded = _model(oracle or _MODELS.get(stream, "smollm2-tasks"))
    requests, every = _options.requests, _options.every
    # Twice the guard: its second half is seen by nobody.
    sizes = Sizes(
        requests=requests,
        forget_eval=min(100, 8 * requests),
        heldout=_options.heldout,
        guard=(64, 32),
        retain=(settings.get("retain_rows", _RETAIN), _RETAIN // 2),
    )
    split = make_split(stream, seed, Source("folder", _options.data_dir), sizes)
    if oracle:
        return measure(loaded, split, _options.batch_size)
    guard = [item.example() for v in split.guard.values() for item in v[: len(v) // 2]]
    fresh = [item.example() for v in split.guard.values() for item in v[len(v) // 2 :]]
    points = [measure(loaded, split, _options.batch_size) | {"request": 0}]
    going = _Going(loaded, settings, seed, split.retain_examples(), guard, fresh)
    try:
        for number, request in enumerate(split.requests(), 1):
            going.take(request)
            if number % every == 0 or number == requests:
                points.append(measure(loaded, split, _options.batch_size) | {"request": number})
                going.measure_fresh()
            if time.time() > _deadline:
                break
        result = going.result() | _attacked(loaded, going.net, split)
    finally:
        going.net.detach()
    chance = find_task(stream).floors(split.forget)["random"]
    return honest_scores(points, chance) | result | {"checkpoints": points}


def _attacked(loaded: LoadedModel, net: Unlearner[Any], split: Split) -> Row:
    if not _options.attacks:
        return {}
    start = time.perf_counter()
    evaluator = Evaluator(loaded, 4 * _options.batch_size)
    rows = run_attacks(
        Subject(evaluator, net.effect, split, AttackOptions(relearn_seeds=1)), _options.attacks
    )
    seconds = round(time.perf_counter() - start, 1)
    return {"attacks": [row.to_dict() for row in rows], "attack_seconds": seconds}


def honest_scores(points: Sequence[Row], chance: float) -> Row:
    """Return the scores of a stream whose items are worth forgetting down to chance.

    `forgetting` is over the items requested so far, floored at chance; `keeping` is what is left
    of held-out accuracy; both are means over the checkpoints, in percent.
    """
    first, later = points[0], points[1:]
    if not later:
        return {}
    before = _mean(first["by_request"])
    held = [_mean(p["heldout"].values()) for p in points]
    seen = [_mean(p["by_request"][: p["request"]]) for p in later]
    unseen = [p["by_request"][p["request"] :] for p in later]
    # The streams' models know what is to be forgotten.
    found = requested.honest_scores(before, seen, chance, held[0], held[1:])
    assert found is not None
    retain = _mean(held[1:])
    forget = _mean(p["forget"] for p in later)
    last = later[-1]
    nats = [x for part in last["losses"][: last["request"]] for x in part]
    return {
        "honest": found.trade_off,
        # No less than nothing: a retrained model may know more than the one before.
        "forgetting": max(found.forgotten, 0.0),
        "keeping": found.kept,
        "seen": seen,
        "not_yet": _mean(_mean(part) for part in unseen if part) if any(unseen) else None,
        "not_yet_before": before,
        "trade_off": trade_off(forget, retain),
        "forget": forget,
        "retain": retain,
        "nats_after": _mean(nats),
        "nats_largest": max(nats),
        "nats_before": _mean(x for part in first["losses"] for x in part),
    }


def _mean(values: Any) -> float:
    numbers = list(map(float, values))
    return sum(numbers) / len(numbers)


def measure(loaded: LoadedModel, split: Split, batch_size: int) -> Row:
    """Return what a model gets right of a stream's items, by request, and of held-out ones."""
    evaluator = Evaluator(loaded, 4 * batch_size)
    result = evaluate_task(evaluator, find_task(split.forget_task), split.forget, "forget")
    known = {sample["key"]: sample for sample in result.samples}
    right = [bool(known[item.key]["correct"]) for item in split.forget]
    losses = [round(float(known[item.key]["loss"]), 4) for item in split.forget]
    fixed = [value for value, counts in zip(right, split.is_fixed(), strict=True) if counts]
    size = split.request_size
    cuts = range(0, len(right), size)
    heldout = {
        name: evaluate_task(evaluator, find_task(name), items, "heldout")
        for name, items in split.heldout.items()
    }
    return {
        "forget": 100 * sum(fixed) / len(fixed),
        "by_request": [100 * sum(right[i : i + size]) / size for i in cuts],
        "right": [right[i : i + size] for i in cuts],
        "losses": [losses[i : i + size] for i in cuts],
        "heldout": {name: found.accuracy for name, found in heldout.items()},
        "heldout_nats": {
            name: _mean(float(sample["loss"]) for sample in found.samples)
            for name, found in heldout.items()
        },
    }


def _tofu(settings: Row, task: str, seed: int) -> Row:
    sizes = TofuSizes(requests=_options.requests, rows=_options.tofu_rows, retain=_TOFU[task]).on(
        _options.tofu_forget, _options.tofu_template
    )
    loaded = _model(settings.get("oracle") or sizes.models[0])

    def example(row: TofuRow) -> Example:
        return tofu_example(tofu_prompt(row.question, loaded.tokenizer, sizes.template), row.answer)

    stream = make_tofu_stream(Source("folder", _options.data_dir), sizes)
    if "oracle" in settings:
        return _measure_tofu(loaded, stream)
    retain, guard = stream.retain(seed, loaded.tokenizer)
    if task == "tofu-given":
        retain += [example(row) for row in stream.sets["retain"]]
    used = {example.answer for example in [*retain, *guard]}
    left = [row for row in stream.kept if row.answer not in used]
    chosen = sample_indices(len(left), _FRESH, "tofu-fresh", seed)
    fresh = [example(left[i]) for i in chosen]
    going = _Going(loaded, settings, seed, retain, guard, fresh)
    try:
        for number, request in enumerate(stream.requests(seed, loaded.tokenizer), 1):
            going.take(request)
            if number % _options.every == 0:
                going.measure_fresh()
            # Measuring takes its time too.
            if time.time() > _deadline - 100:
                break
        going.measure_fresh()
        return _measure_tofu(loaded, stream) | going.result()
    finally:
        going.net.detach()


def _measure_tofu(loaded: LoadedModel, stream: TofuStream) -> Row:
    evaluator, sizes = Evaluator(loaded, 4 * _options.batch_size), stream.sizes
    tofu = evaluate_tofu(evaluator, stream.sets, sizes.options)
    privacy = evaluate_privacy(
        evaluator, stream.members, stream.non_members, sizes.options, gradients=True
    )
    said = [
        {"question": row.question, "answer": row.answer, "said": figures["generated"][:200]}
        for row, figures in list(zip(stream.sets["forget"], tofu.rows["forget"], strict=True))[::25]
    ]
    return {
        "utility": tofu.model_utility,
        "sets": {name: dict(values) for name, values in tofu.sets.items()},
        "truth_ratio_forms": tofu.to_dict()["truth_ratio_forms"],
        # What Forget Quality compares with a retrained model's.
        "truth_ratios": [float(f"{ratio:.7g}") for ratio in tofu.truth_ratios()],
        "privacy": privacy.to_dict(),
        # What an attack with a reference model compares with that model's, one by one.
        "losses": [[round(loss, 4) for loss in side] for side in privacy.scores["loss"]],
        "said": said,
        "sizes": asdict(sizes),
    }


def _demo(settings: Row, task: str, seed: int) -> Row:
    """Forget a topic of the demo's facts, with every set of facts looked at after each request."""
    loaded = _model("smollm2-135m")
    # The first tuning seed is the demo's own draw.
    parts = corpus.split(
        corpus.load_facts(), task.removeprefix(_DEMO), seed=seed % FIRST_TUNING_SEED
    )
    size = len(parts.requests[0].examples)
    evaluator = Evaluator(loaded, 4 * _options.batch_size)
    sets = {"forgotten": parts.forgotten, "same_topic": parts.same_topic, "others": parts.others}
    prompts = [fact.prompt for fact in parts.forgotten]

    def look() -> Row:
        found: Row = {}
        for name, facts in sets.items():
            ranks = rank(*loaded, [fact.question() for fact in facts], batch_size=64)
            found[name] = [ranking.chosen == ranking.gold for ranking in ranks]
            found[f"{name}_nats"] = [-ranking.log_likelihoods[ranking.gold] for ranking in ranks]
        found["said"] = evaluator.generate(prompts, _SAID, 64)
        return found

    def reading(texts: Sequence[str]) -> list[float]:
        pairs = [
            Example(prompt, f" {said.strip() or '.'}")
            for prompt, said in zip(prompts, texts, strict=True)
        ]
        return [float(x) for x in going.net._losses(going.net.encode(pairs, "said"))]

    before = look()
    retain, fresh = ([f.example() for f in facts] for facts in (parts.retain, parts.others))
    going = _Going(loaded, settings, seed, retain, None, fresh)
    own, points = reading(before["said"]), []
    try:
        for number, request in enumerate(parts.requests[: _options.requests], 1):
            going.take(request)
            now, done = look(), number * size
            going.net.effect.set(torch.ones_like(going.net.state.mask))
            said = reading(now["said"])
            going.net.effect.set(going.net.state.mask)
            heard = fluency(now["said"][:done], said[:done], own[:done])
            points.append(
                {
                    "request": number,
                    "forgotten": 100 * _mean(now["forgotten"][:done]),
                    "not_yet": 100 * _mean(now["forgotten"][done:]) if number < 5 else None,
                    "same_topic": 100 * _mean(now["same_topic"]),
                    "others": 100 * _mean(now["others"]),
                    "forgotten_nats": _mean(now["forgotten_nats"][:done]),
                    "same_topic_nats": _mean(now["same_topic_nats"]),
                    "others_nats": _mean(now["others_nats"]),
                    "fluency": asdict(heard),
                    "said": now["said"][:done:4],
                }
            )
            if time.time() > _deadline:
                break
        result = going.result()
    finally:
        going.net.detach()
    first = {f"{n}_nats": _mean(before[f"{n}_nats"]) for n in sets}
    return {"points": points, "before": first} | result


def line_of(row: Row) -> str:
    """Return a cell in one line."""
    head = f"{row['candidate']:<14} {row['task']:<10} {row['seed']}"
    if "by_request" in row:
        return f"{head} right {_mean(row['by_request']):.1f}"
    if "error" in row:
        return f"{head} ERROR {row['error'][-900:]}"
    tail = f"{row['seconds']:.0f}s"
    if "outcomes" in row:
        tail = (
            f"fresh x{row['fresh_ratio']:.2f} ({row['fresh_loss'][0]:.3f}) "
            f"guard {row['guard_first']:.3f}>{row['guard_last']:.3f} "
            f"{row['accepted']}/{row['requests']} {row['request_seconds']:.1f}s "
            f"low {row['lowered']} {tail}"
        )
    if row["task"] in _TOFU:
        sets = row["sets"]
        figures = " ".join(
            f"{name[:6]} p{sets[name]['probability']:.3f} r{sets[name]['rouge']:.3f}"
            for name in ("forget", "retain", "real_authors", "world_facts")
        )
        return f"{head} {figures} U {row['utility']:.3f} mia {row['privacy']['mia_gap']:.3f} {tail}"
    if row["task"].startswith(_DEMO):
        last = row["points"][-1]
        names = ("forgotten", "same_topic", "others")
        figures = " ".join(
            f"{name[:6]} {last[name]:.1f}% ({last[f'{name}_nats']:.1f})" for name in names
        )
        heard = last["fluency"]
        return (
            f"{head} {figures} fluency {heard['perplexity_ratio']:.2f} "
            f"{heard['not_language']:.0f}% {tail}"
        )
    if "honest" not in row:
        return f"{head} no checkpoint {tail}"
    return (
        f"{head} H {row['honest']:5.1f} (f {row['forgetting']:.0f} k {row['keeping']:.0f}) "
        f"not yet {row['not_yet'] or 0:.0f} T {row['trade_off']:.1f} "
        f"nats {row['nats_before']:.2f}>{row['nats_after']:.1f} max {row['nats_largest']:.0f} "
        f"unknown {row['checkpoints'][0]['heldout_nats'][row['task']]:.2f} "
        f"held {' '.join(f'{v:.0f}' for v in row['checkpoints'][-1]['heldout'].values())} {tail}"
    )


if __name__ == "__main__":
    main()
