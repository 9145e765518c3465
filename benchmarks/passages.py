"""Passages that the default model knows by heart, forgotten: see notebook/passages.md.

    python -m benchmarks.passages RESULTS.jsonl --method tfr --seed 3

The passages are famous and free of copyright. Those that the untouched model finds likely are
known; of these a seed draws some to forget, a request each, some to keep, which are given as retain
data, and the others, which nobody names. One line is written at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.calibrated import method_of
from tfrnet.data.examples import Encoded, Example
from tfrnet.data.requests import Request
from tfrnet.data.sampling import seeded_order
from tfrnet.demo import corpus
from tfrnet.evaluation.metrics.fluency import fluency
from tfrnet.models.generation import continue_rows
from tfrnet.models.load import LoadedModel, load_model
from tfrnet.unlearner import Unlearner

Row = dict[str, Any]
PASSAGES = Path(__file__).with_name("passages.jsonl")
# Nats a token: a passage below the first is known by heart, one above the second is not known.
KNOWN, UNKNOWN = 2.5, 3.5
FORGOTTEN, KEPT = 4, 5
# The model goes on from the first tokens of a passage.
_BEGUN, _SAID = 8, 32


def main() -> None:
    """Run one stream of requests and append its line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--method", default="tfr")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--name", help="how the line is called (default: method and preset)")
    parser.add_argument("--facts-only", action="store_true", help="give no passages to keep")
    options = parser.parse_args()
    torch.set_num_threads(1)
    row = stream(options.method, options.preset, options.seed, options.facts_only)
    name = options.name or f"{options.method}, {options.preset}"
    with options.results.open("a") as file:
        file.write(json.dumps({"name": name} | row) + "\n")


def read_passages() -> dict[str, Example]:
    """Return the passages by name."""
    rows = [json.loads(line) for line in PASSAGES.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: Example("", row["text"], is_text=True) for row in rows}


def stream(method: str, preset: str, seed: int, facts_only: bool) -> Row:
    """Forget some passages one after another; return what became of them and of the others."""
    loaded = load_model("smollm2-135m", "float32")
    passages = read_passages()
    facts = corpus.split(corpus.load_facts(), "capitals")
    kind, settings = method_of({"method": method, "preset": preset})
    before = _by_token(loaded, passages)
    known = [name for name, own in before.items() if fmean(own["losses"]) < KNOWN]
    order = [known[i] for i in seeded_order(len(known), "passages", seed)]
    forgotten, rest = order[:FORGOTTEN], order[FORGOTTEN:]
    kept, fresh = rest[:KEPT], rest[KEPT:]
    given = [] if facts_only else [passages[name] for name in kept]
    net = kind(
        loaded.model,
        loaded.tokenizer,
        [*(fact.example() for fact in facts.retain), *given],
        settings,
        seed=seed,
    )
    others = net.encode([fact.example() for fact in facts.others], "facts")
    begun = [net.encode([passages[name]], name)[0].ids[:_BEGUN] for name in forgotten]
    own_words = _continued(loaded, begun)
    facts_before = float(net._losses(others).mean())
    outcomes, start = [], time.perf_counter()
    for name in forgotten:
        outcomes.append(net.forget(Request(name, (passages[name],))))
        print(name, outcomes[-1].outcome, f"{time.perf_counter() - start:.0f} s", flush=True)
    seconds = time.perf_counter() - start
    after = _by_token(loaded, passages)
    facts_after = float(net._losses(others).mean())
    words = _continued(loaded, begun)
    net.detach()
    heard = fluency(
        [loaded.tokenizer.decode(text[_BEGUN:]) for text in words],
        _losses(net, words),
        _losses(net, own_words),
    )
    unknown = [name for name, own in before.items() if fmean(own["losses"]) > UNKNOWN]
    sets = {"forgotten": forgotten, "kept": kept, "fresh": fresh, "unknown": unknown}
    return {
        "seed": seed,
        "facts_only": facts_only,
        "sets": sets,
        "before": {name: before[name] for names in sets.values() for name in names},
        "after": {name: after[name] for names in sets.values() for name in names},
        "facts": [round(facts_before, 4), round(facts_after, 4)],
        "fluency": asdict(heard),
        "accepted": sum(each.outcome == "accepted" for each in outcomes),
        "guard": [outcomes[0].guard_loss_before, outcomes[-1].guard_loss_after],
        "request_seconds": round(seconds / len(forgotten), 1),
    }


@torch.no_grad()
def _by_token(loaded: LoadedModel, passages: dict[str, Example]) -> dict[str, Row]:
    """Return the loss of every token of each passage, and which are the first choice."""
    found = {}
    for name, passage in passages.items():
        ids = torch.tensor(loaded.tokenizer(passage.answer).input_ids)
        logs = loaded.model(ids[None]).logits[0, :-1].log_softmax(1)
        losses = -logs.gather(1, ids[1:, None]).squeeze(1)
        found[name] = {
            "losses": [round(loss, 3) for loss in losses.tolist()],
            "first": (logs.argmax(1) == ids[1:]).int().tolist(),
        }
    return found


def _continued(loaded: LoadedModel, begun: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    added = continue_rows(loaded, begun, _SAID)
    return [(*start, *more) for start, more in zip(begun, added, strict=True)]


def _losses(net: Unlearner[Any], texts: Sequence[tuple[int, ...]]) -> list[float]:
    said = [Encoded(text, _BEGUN) for text in texts if len(text) > _BEGUN]
    return [float(loss) for loss in net._losses(said)]


if __name__ == "__main__":
    main()
