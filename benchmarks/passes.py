"""Scoring and guard by how much goes through the model at once, compiled or not: seconds, memory.

    python -m benchmarks.passes --json FILE [--shape 7b] [--profile]

32 examples of 256 tokens are scored, and the losses of 64 measured, by a model with random weights.
The constants of `tfrnet.models.passes` come from figures like these. `--profile` prints where the
time of a scoring goes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.scale_rates import describe_machine, find_device, timed
from benchmarks.scale_shapes import SHAPES, Writer, build_model, build_tokenizer
from tfrnet.data.examples import Encoded, encode_all
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import ScoreOptions, score_channels
from tfrnet.models.forward import evaluate_losses
from tfrnet.models.load import use_tensor_cores

# The last of an example's tokens is no input.
_LENGTH = 256 + 1
_SCORED, _GUARDED = 32, 64
# Tokens of a pass, and whether activations are computed again.
SCORING = [(512, False), (768, False), (1280, False), (2048, False), (8192, False)]
SCORING += [(4096, True), (8192, True)]
GUARD = [4096, 16384]
_MOST_EXAMPLES = 64

Row = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    device = find_device(options.device)
    use_tensor_cores(device.type)
    model = build_model(options.shape, device)
    tokenizer, writer = build_tokenizer(options.shape), Writer(options.shape, _LENGTH)
    scored, guarded = (
        encode_all(writer.examples(count), tokenizer, _LENGTH, "examples")
        for count in (_SCORED, _GUARDED)
    )
    result: dict[str, Any] = {
        "machine": describe_machine(device),
        "shape": options.shape,
        "weight_bytes": sum(parameter.nbytes for parameter in model.parameters()),
        "rows": [],
    }
    with ChannelMask(model, find_channels(model)) as mask:
        mask.set(torch.rand(mask.index.total) * 0.1 + 0.9)
        for compiled in (False, True):
            with mask.compiled(options.backend) if compiled else nullcontext():
                for row, work in cases(mask, scored, guarded):
                    row |= {"compiled": compiled} | measure(work, device, options.repeats)
                    result["rows"].append(row)
                    print(json.dumps(row), flush=True)
                    options.json.write_text(json.dumps(result, indent=1) + "\n")
                if options.profile:
                    print(_profiled(lambda: _score(mask, scored, 2048, False), device))


def cases(
    mask: ChannelMask, scored: list[Encoded], guarded: list[Encoded]
) -> list[tuple[Row, Callable[[], Any]]]:
    """Return what is measured, and the work to do for it."""

    def score(tokens: int, again: bool) -> Callable[[], Any]:
        return lambda: _score(mask, scored, tokens, again)

    def guard(tokens: int) -> Callable[[], Any]:
        return lambda: evaluate_losses(mask.model, guarded, _MOST_EXAMPLES, tokens)

    return [
        ({"what": "score", "tokens": tokens, "gradient_checkpointing": again}, score(tokens, again))
        for tokens, again in SCORING
    ] + [({"what": "guard", "tokens": tokens}, guard(tokens)) for tokens in GUARD]


def measure(work: Callable[[], Any], device: torch.device, repeats: int) -> Row:
    """Return the median seconds and the peak memory, after a first time, or that it is too much."""
    try:
        first, _ = timed(work, device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        seconds = statistics.median(timed(work, device)[0] for _ in range(repeats))
    except torch.OutOfMemoryError:
        return {"error": "out of memory"}
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {"seconds": seconds, "first_seconds": first, "peak_bytes": peak}


def _score(mask: ChannelMask, examples: list[Encoded], tokens: int, again: bool) -> None:
    options = ScoreOptions(_MOST_EXAMPLES, max_tokens=tokens, gradient_checkpointing=again)
    score_channels(mask, examples, options)


def _profiled(work: Callable[[], Any], device: torch.device) -> str:
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if on_gpu else [])
    with profile(activities=activities) as found:
        timed(work, device)
    order = "self_cuda_time_total" if on_gpu else "self_cpu_time_total"
    table: str = found.key_averages().table(sort_by=order, row_limit=20, max_name_column_width=60)
    return table


if __name__ == "__main__":
    main()
