"""The same requests by one process and by several on one GPU: whether every bit is the same.

    python -m benchmarks.processes --json FILE [--shape 135m] [--requests 2]

Several processes share the one card, so this shows what they compute and what each holds, not that
they are faster. NCCL wants a card for each: it is tried with one process, whose weights FSDP2 has.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.scale_rates import describe_machine, find_device, timed
from benchmarks.scale_shapes import SHAPES, Sizes, Writer, build_model, build_tokenizer
from tfrnet import TFRConfig
from tfrnet.core.team import SOLO, Team
from tfrnet.distributed.follow import follow
from tfrnet.distributed.messages import Load
from tfrnet.distributed.processes import ProcessTeam
from tfrnet.distributed.together import load_together
from tfrnet.methods.tfr.presets import DEEP
from tfrnet.models.load import LoadedModel, use_tensor_cores
from tfrnet.session import Session

SIZES = Sizes(forget=4, retain=8, guard=12)
_LENGTH = 128
# Given, since the cut into passes decides about rounding, and several passes are to be shared.
_BATCH = 4
_LIMIT = 120.0


@dataclass(frozen=True)
class Trial:
    """So many processes that meet by a backend of torch.distributed, with weights spread or not."""

    processes: int
    backend: str = ""
    spread: bool = False


TRIALS = [
    Trial(1),
    Trial(2, "gloo"),
    Trial(3, "gloo"),
    Trial(2, "gloo", spread=True),
    Trial(1, "nccl", spread=True),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the trials; return 1 if one failed or differs from the first."""
    options = _parse(arguments)
    if options.trial:
        _work(Trial(**json.loads(options.trial)), options)
        return 0
    device = find_device(options.device)
    use_tensor_cores(device.type)
    machine = describe_machine(device)
    rows: list[dict[str, Any]] = []
    for trial in TRIALS:
        if trial.backend == "nccl" and device.type != "cuda":
            continue
        rows.append(asdict(trial) | run(trial, options))
        rows[-1]["same"] = "error" not in rows[-1] and rows[-1]["states"] == rows[0].get("states")
        print(json.dumps(rows[-1]), flush=True)
        document = {"machine": machine, "shape": options.shape, "trials": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return int(not all(row["same"] for row in rows))


def run(trial: Trial, options: argparse.Namespace) -> dict[str, Any]:
    """Start the processes of a trial, and return what the first one found or what went wrong."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port.getsockname()[1])}
        port.close()
        found = Path(folder) / "found.json"
        command = [sys.executable, "-m", "benchmarks.processes", "--json", str(found)]
        command += ["--shape", options.shape, "--requests", str(options.requests)]
        command += ["--device", options.device, "--trial", json.dumps(asdict(trial))]
        started = [
            subprocess.Popen(
                command,
                env=os.environ | shared | {"RANK": str(rank), "WORLD_SIZE": str(trial.processes)},
            )
            for rank in range(trial.processes)
        ]
        try:
            codes = [process.wait(_LIMIT) for process in started]
        except subprocess.TimeoutExpired:
            return {"error": f"not done after {_LIMIT:g} s"}
        finally:
            for process in started:
                process.kill()
                process.wait()
        if any(codes):
            return {"error": f"exit codes {codes}"}
        result: dict[str, Any] = json.loads(found.read_text())
        return result


def _work(trial: Trial, options: argparse.Namespace) -> None:
    """Be one of a trial's processes."""
    device = find_device(options.device)
    use_tensor_cores(device.type)
    team = _team(trial, device)

    def load(wanted: Load) -> LoadedModel:
        # By the host in any case: another device would draw other weights.
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        model = build_model(wanted.model, torch.device("cpu"), dtype=dtype)
        # Those to be spread stay there, since one card may not hold them all.
        home = model if trial.spread else model.to(device)
        return LoadedModel(home, build_tokenizer(wanted.model))

    if team.leads:
        options.json.write_text(json.dumps(_lead(team, load, options, device)))
    else:
        follow(team, load)
    if trial.backend:
        dist.destroy_process_group()


def _team(trial: Trial, device: torch.device) -> Team:
    if not trial.backend:
        return SOLO
    dist.init_process_group(trial.backend)
    control = None if trial.backend == "gloo" else dist.new_group(backend="gloo")
    return ProcessTeam(device, control, in_lockstep=trial.spread)


def _lead(
    team: Team,
    load: Callable[[Load], LoadedModel],
    options: argparse.Namespace,
    device: torch.device,
) -> dict[str, Any]:
    message = Load(options.shape, "auto", trust_remote_code=False)
    team.broadcast(message)
    loaded = load_together(team, lambda: load(message))
    writer = Writer(options.shape, _LENGTH)
    changes = {
        "max_length": _LENGTH,
        "retain_examples": SIZES.retain,
        "guard_examples": SIZES.guard,
        "guard_relative": 10,
    }
    config = TFRConfig.from_dict(DEEP | changes)
    states, seconds = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(
            *loaded,
            Path(folder) / "state",
            writer.examples(SIZES.retain),
            config=config,
            guard=writer.examples(SIZES.guard),
            batch_size=_BATCH,
            team=team,
        ) as session,
    ):
        for _ in range(options.requests):
            request = writer.request(SIZES.forget)
            took, outcome = timed(lambda request=request: session.forget(request), device)
            seconds.append(took)
            told = [outcome.outcome, outcome.forget_loss_after, outcome.guard_loss_after]
            states.append([session.unlearner.state.digest(), *told])
    if isinstance(team, ProcessTeam):
        team.end()
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated(device) if on_gpu else None
    return {"states": states, "seconds": seconds, "peak_bytes_of_the_first": peak}


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--shape", choices=list(SHAPES), default="135m")
    parser.add_argument("--requests", type=int, default=2)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trial", help="be one of the processes of a trial (JSON)")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
