"""One request for telephone numbers, with and without `every_digit`: see notebook/witness.md.

    python -m benchmarks.long_numbers --train MODEL
    python -m benchmarks.long_numbers --model MODEL RESULTS.jsonl

The first trains the default model on numbers of made-up people; without options the table of the
committed results is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.neighbours_table import table
from tfrnet import TFRConfig, TFRNet
from tfrnet.data.examples import Example, encode_all
from tfrnet.data.requests import Request
from tfrnet.models.forward import answer_logits, answer_losses, collate
from tfrnet.models.load import LoadedModel, load_model

RESULTS = Path(__file__).parent / "results" / "research" / "long-numbers.jsonl"
_FIRST = "Ada Bo Cara Dan Eva Finn Gia Hal Ida Jon Kim Lea Max Nia Otto Pia Quin Rex Sue Tom"
_LAST = "Amber Birch Coral Dusk Elm Frost Grove Hazel Iris Jade"
# How many people are forgotten, kept, and in the guard; the model never saw the others.
_SIZES = {"forgotten": 5, "kept": 15, "guard": 4, "never seen": 16}
_KNOWN = 24
_BATCH = 8
_MEMORISED = 0.01


def main() -> None:
    """Train the model, apply the request with each objective, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?", default=RESULTS)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--model")
    options = parser.parse_args()
    if options.train:
        train(options.train)
    elif options.model:
        loaded = load_model(options.model, "float32", "cpu")
        with options.results.open("a") as file:
            for every_digit in (None, False, True):
                file.write(json.dumps(measured(loaded, every_digit)) + "\n")
                file.flush()
    else:
        print(numbers_table(read_rows(options.results)))


def people() -> dict[str, list[Example]]:
    """Return made-up people with numbers of ten digits, by what becomes of them."""
    draw = random.Random(0)
    names = [f"{first} {last}" for first in _FIRST.split() for last in _LAST.split()]
    draw.shuffle(names)
    found = iter(
        [Example(f"{name}, phone:", _number(draw)) for name in names[: sum(_SIZES.values())]]
    )
    return {name: [next(found) for _ in range(size)] for name, size in _SIZES.items()}


def _number(draw: random.Random) -> str:
    return "-".join("".join(draw.choice("0123456789") for _ in range(k)) for k in (3, 3, 4))


def train(folder: Path) -> None:
    """Write the default model, trained on all weights until it knows the numbers."""
    model, tokenizer = load_model("smollm2-135m", "float32", "cpu")
    every = [example for examples in people().values() for example in examples][:_KNOWN]
    encoded = encode_all(every, tokenizer, 256, "numbers")
    model.requires_grad_(True)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0, betas=(0.9, 0.95))
    draw, mean = random.Random(1), 1.0
    while mean >= _MEMORISED:
        order = draw.sample(encoded, len(encoded))
        losses = []
        for start in range(0, len(order), _BATCH):
            loss = answer_losses(model, collate(order[start : start + _BATCH], "cpu")).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(float(loss.detach()))
        mean = sum(losses) / len(losses)
        print(f"loss {mean:.3f}", flush=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measured(loaded: LoadedModel, every_digit: bool | None) -> dict[str, Any]:
    """Apply the request; with None nothing is applied."""
    sets = people()
    config = TFRConfig(every_digit=bool(every_digit))
    net = TFRNet(*loaded, sets["kept"], config, guard=sets["guard"], batch_size=_BATCH)
    row: dict[str, Any] = {"every_digit": every_digit}
    try:
        start = time.perf_counter()
        if every_digit is not None:
            outcome = net.forget(Request("numbers", tuple(sets["forgotten"]))).to_dict()
            row |= {name: outcome[name] for name in ("outcome", "reason", "guard_loss_after")}
        row["seconds"] = round(time.perf_counter() - start)
        return row | {name: digits_of(net, examples) for name, examples in sets.items()}
    finally:
        net.detach()


@torch.no_grad()
def digits_of(net: TFRNet, examples: Sequence[Example]) -> dict[str, float]:
    """Return the share of digits that come first among digits, their probability, and the loss."""
    tokens = [net.tokenizer.encode(digit, add_special_tokens=False)[0] for digit in "0123456789"]
    encoded = net.encode(examples, "numbers")
    shares = []
    for example in encoded:
        batch = collate([example], "cpu")
        logits = answer_logits(net.model, batch)[:, tokens]
        for row, token in zip(logits, batch.targets.tolist(), strict=True):
            if token in tokens:
                own = tokens.index(token)
                shares.append((float(row.argmax() == own), float(row.softmax(0)[own])))
    first, likely = torch.tensor(shares).mean(0).tolist()
    loss = float(net._losses(encoded).mean())
    return {"first": round(first, 3), "probability": round(likely, 3), "loss": round(loss, 3)}


def read_rows(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the results of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def numbers_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return a line for each objective."""
    names = {None: "untouched", False: "the weakest digit", True: "every digit"}
    lines = [
        (
            names[row["every_digit"]],
            *(f"{row[name]['first']:.0%}, {row[name]['probability']:.2f}" for name in _SIZES),
            f"{row['guard']['loss']:.3f}",
            row["seconds"],
        )
        for row in rows
    ]
    return table(f"objective, {', '.join(_SIZES)}, guard loss, s", lines)


if __name__ == "__main__":
    main()
