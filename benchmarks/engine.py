"""What the engine costs, as ratios measured side by side in one run.

    python benchmarks/engine.py [--json FILE]

Scoring against a plain forward and backward pass of the same batch with frozen weights (time and
peak memory), live masks and the exported model against the untouched model in generate(), and one
commit of a state. Uses the default model; every memory figure comes from a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

from tfrnet import TFRConfig, load_model
from tfrnet.data.examples import Encoded
from tfrnet.export import FORMATS
from tfrnet.export.format import Job
from tfrnet.export.origin import Origin
from tfrnet.export.write import write_export
from tfrnet.masking.channels import find_channels
from tfrnet.masking.mask import ChannelMask
from tfrnet.methods.tfr.scoring import ScoreOptions, gradients_of
from tfrnet.methods.tfr.state import ChannelState
from tfrnet.models.forward import answer_losses, collate, frozen
from tfrnet.state.manifest import Manifest
from tfrnet.state.store import StateStore

MODEL = "smollm2-135m"
BATCH, LENGTH, ANSWER = 8, 64, 8
MEMORY_VARIANTS = ("plain", "plain, all logits", "scoring", "scoring, checkpointed")


def examples() -> list[Encoded]:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randint(10, 40_000, (BATCH, LENGTH), generator=generator).tolist()
    return [Encoded(tuple(row), LENGTH - ANSWER) for row in rows]


def mask_of(model, share_suppressed: float = 0.03) -> ChannelMask:
    index = find_channels(model)
    mask = ChannelMask(model, index)
    generator = torch.Generator().manual_seed(1)
    values = torch.ones(index.total)
    chosen = torch.rand(index.total, generator=generator) < share_suppressed
    values[chosen] = torch.rand(int(chosen.sum()), generator=generator)
    values[:: index.total // 500] = 0.0
    mask.set(values)
    return mask


def plain_pass(model, all_logits: bool = False) -> None:
    """Forward and backward with frozen weights: only the embeddings' output asks for a gradient.

    With `all_logits` as everybody writes it, `model(..., labels=...).loss.backward()`; without,
    through our own head for answer positions only, which leaves nothing but the mask to compare.
    """
    handle = model.get_input_embeddings().register_forward_hook(
        lambda module, inputs, output: output.requires_grad_()
    )
    with frozen(model):
        if all_logits:
            ids = torch.tensor([example.ids for example in examples()])
            labels = ids.clone()
            labels[:, :-ANSWER] = -100
            model(input_ids=ids, labels=labels, use_cache=False).loss.backward()
        else:
            answer_losses(model, collate(examples(), torch.device("cpu"))).sum().backward()
    handle.remove()


def scoring_pass(mask: ChannelMask, checkpointing: bool = False) -> None:
    options = ScoreOptions(batch_size=BATCH, gradient_checkpointing=checkpointing)
    gradients_of(mask, examples(), options)


def seconds(actions: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Return the median time of each; they take turns, so that drift hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def peak_memory(variant: str) -> dict[str, float]:
    """Return peak and resting memory in MiB of one pass, measured in a fresh process."""
    output = subprocess.run(
        [sys.executable, __file__, "--memory-of", variant],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(output.stdout.splitlines()[-1])


def _memory_of(variant: str) -> None:
    model = load_model(MODEL).model
    mask = None if variant.startswith("plain") else mask_of(model)
    actions = {
        "plain": lambda: plain_pass(model),
        "plain, all logits": lambda: plain_pass(model, all_logits=True),
        "scoring": lambda: scoring_pass(mask),
        "scoring, checkpointed": lambda: scoring_pass(mask, checkpointing=True),
    }
    actions[variant]()  # warm up: buffers that any pass needs
    Path("/proc/self/clear_refs").write_text("5")
    rest = _status("VmRSS")
    actions[variant]()
    print(json.dumps({"rest": rest, "peak": _status("VmHWM")}))


def _status(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise RuntimeError(field)


def measure_scoring() -> dict[str, float]:
    untouched, model = load_model(MODEL).model, load_model(MODEL).model
    with mask_of(model) as mask:
        times = seconds(
            {
                "plain": lambda: plain_pass(untouched),
                "all logits": lambda: plain_pass(untouched, all_logits=True),
                "scoring": lambda: scoring_pass(mask),
                "checkpointed": lambda: scoring_pass(mask, checkpointing=True),
            },
            repeats=7,
        )
    plain = times["plain"]
    memory = {v: peak_memory(v) for v in MEMORY_VARIANTS}
    return {
        "plain_seconds": plain,
        "scoring_seconds": times["scoring"],
        "scoring_over_plain_time": times["scoring"] / plain,
        "checkpointed_over_plain_time": times["checkpointed"] / plain,
        "plain_peak_mib": memory["plain"]["peak"],
        "scoring_peak_mib": memory["scoring"]["peak"],
        "plain_all_logits_seconds": times["all logits"],
        "scoring_over_plain_all_logits_time": times["scoring"] / times["all logits"],
        "plain_all_logits_peak_mib": memory["plain, all logits"]["peak"],
        "scoring_over_plain_all_logits_memory": memory["scoring"]["peak"]
        / memory["plain, all logits"]["peak"],
        "scoring_over_plain_memory": memory["scoring"]["peak"] / memory["plain"]["peak"],
        "checkpointed_over_plain_memory": memory["scoring, checkpointed"]["peak"]
        / memory["plain"]["peak"],
    }


def measure_generation() -> dict[str, float]:
    loaded, other = load_model(MODEL), load_model(MODEL)
    prompt = torch.tensor([list(examples()[0].ids[:16])])

    def generate(model) -> None:
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=32,
            min_new_tokens=32,
            do_sample=False,
            pad_token_id=0,
        )

    with tempfile.TemporaryDirectory() as folder, mask_of(loaded.model) as mask:
        job = Job(mask, loaded.tokenizer, Origin("benchmark", "", "", "", "tfr"))
        write_export(job, FORMATS.find("dense"), Path(folder) / "exported")
        exported = load_model(str(Path(folder) / "exported")).model
        times = seconds(
            {
                "untouched": lambda: generate(other.model),
                "masked": lambda: generate(loaded.model),
                "exported": lambda: generate(exported),
            },
            9,
        )
    return {
        "untouched_seconds": times["untouched"],
        "masked_over_untouched": times["masked"] / times["untouched"],
        "exported_over_untouched": times["exported"] / times["untouched"],
    }


def measure_commit() -> dict[str, float]:
    model = load_model(MODEL).model
    index = find_channels(model)
    state = ChannelState.initial(index.total, with_fisher=True)
    manifest = Manifest(MODEL, "", TFRConfig().to_dict(), index.to_list(), 0, [])
    record = {"id": "r", "outcome": "accepted", "request_digest": "", "top_channels": [0] * 128}
    times = []
    with (
        tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
        StateStore.create(Path(folder) / "state", lambda key: manifest, state) as store,
    ):
        for _ in range(10):
            start = time.perf_counter()
            store.commit(record, state)
            times.append(time.perf_counter() - start)
    return {"median_ms": 1000 * statistics.median(times), "worst_ms": 1000 * max(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        _memory_of(arguments.memory_of)
        return
    figures = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}",
        "batch": f"{BATCH} x {LENGTH} tokens, {ANSWER} answer tokens each, float32",
        "scoring": measure_scoring(),
        "generation": measure_generation(),
        "commit": measure_commit(),
    }
    for name, value in figures.items():
        if isinstance(value, dict):
            print(name)
            for key, number in value.items():
                print(f"  {key:34} {number:.3f}")
        else:
            print(f"{name}: {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
