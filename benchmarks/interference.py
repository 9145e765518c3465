"""What lowering the log-odds of eight forget examples does to others, to first order.

    python -m benchmarks.interference --data-dir DATA --out RESULT.json

The gradients of log-odds of a stream's first two requests, of retain and guard examples and of
held-out ones are taken on the untouched model. `least_move` then lowers the first request by a
fixed amount, with more or fewer retain rows and other settings, and the change that the gradients
predict for all others is written down: its mean and its standard deviation over examples.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import normalize

from tfrnet.data.examples import encode_all
from tfrnet.data.items import Item
from tfrnet.data.protocol import Sizes, make_split
from tfrnet.data.sources import Source
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import ScoreOptions, gradients_of
from tfrnet.methods.tfr.steps.least_move import Bounds, Rows, least_move
from tfrnet.methods.tfr.steps.margins import certainty_weights, log_odds_gradients
from tfrnet.models.load import load_model
from tfrnet_bench.constants import FIRST_TUNING_SEED

_FALL = 10.0
_RETAIN = {"own": 96, "other": 24}


def main() -> None:
    """Measure the rows, solve for every setting, write and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-tasks")
    parser.add_argument("--stream", default="arithmetic")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    loaded = load_model(options.model, "float32", options.device)
    sizes = Sizes(requests=2, forget_eval=16, heldout=16)
    split = make_split(options.stream, FIRST_TUNING_SEED, Source("folder", options.data_dir), sizes)
    with ChannelMask(loaded.model, find_channels(loaded.model)) as mask:

        def rows(items: tuple[Item, ...]) -> tuple[torch.Tensor, torch.Tensor]:
            examples = encode_all([i.example() for i in items], loaded.tokenizer, 256, "items")
            found = gradients_of(mask, examples, ScoreOptions())
            return log_odds_gradients(found.gradients, found.values), found.values

        forget, _ = rows(split.forget)
        others = {"next request": forget[8:], "held out": rows(split.heldout[options.stream])[0]}
        retain = {}
        for task, items in split.retain.items():
            count = _RETAIN["own" if task == options.stream else "other"]
            retain[task] = rows(items[:count])
            others[f"guard {task}"] = rows(split.guard[task])[0]
    result: dict[str, Any] = {
        "stream": options.stream,
        "seed": FIRST_TUNING_SEED,
        "fall": _FALL,
        "row_norms": {
            "forget": _spread(forget.norm(dim=1)),
            **{f"retain {task}": _spread(r.norm(dim=1)) for task, (r, _) in retain.items()},
        },
        "cosines": {
            task: _spread(normalize(forget, dim=1) @ normalize(r, dim=1).T)
            for task, (r, _) in retain.items()
        },
        "moves": [],
    }
    for setting in _SETTINGS:
        row = setting | _predicted(forget[:8], retain, others, **setting)
        result["moves"].append(row)
        print(json.dumps(row), flush=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


_BASE: dict[str, float] = {"share": 1.0, "damping": 0.1, "sharpness": 0.5, "stiffness": 100.0}
_SETTINGS: list[dict[str, float]] = [
    *(_BASE | {"share": share} for share in (0.0, 0.125, 0.25, 0.5, 1.0)),
    *(_BASE | {"sharpness": sharpness} for sharpness in (0.0, 1.0)),
    *(_BASE | {"damping": damping} for damping in (1.0, 0.01)),
    *(_BASE | {"stiffness": stiffness} for stiffness in (1.0, 10.0)),
]


def _predicted(
    forget: torch.Tensor,
    retain: dict[str, tuple[torch.Tensor, torch.Tensor]],
    others: dict[str, torch.Tensor],
    share: float,
    damping: float,
    sharpness: float,
    stiffness: float,
) -> dict[str, Any]:
    """Return what a move with the given share of the retain rows does; the cost uses them all."""
    weighed = [
        rows * certainty_weights(losses, sharpness).unsqueeze(1) for rows, losses in retain.values()
    ]
    fisher = torch.cat(weighed).square().mean(0)
    kept = torch.cat([rows[: round(share * len(rows))] for rows in weighed])
    ones = torch.ones_like(fisher)
    wanted = [
        Rows(forget, torch.full((len(forget),), _FALL, device=forget.device), 10.0),
        Rows(kept, torch.zeros(len(kept), device=kept.device), stiffness / max(1, len(kept))),
    ]
    move = least_move(wanted, fisher + damping * fisher.mean(), Bounds(ones - 1, ones))
    return {
        "retain_rows": len(kept),
        "fallen": float((forget @ move).mean()),
        "norm": float(move.norm()),
        "others": {name: _spread(rows @ move) for name, rows in others.items()},
    }


def _spread(values: torch.Tensor) -> dict[str, float]:
    return {"mean": float(values.mean()), "deviation": float(values.std())}


if __name__ == "__main__":
    main()
