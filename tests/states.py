"""Reading state folders, to compare two that must have ended alike."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file

# Of what the ledger says of a request, this differs from run to run; digests of data by their key.
_VARYING = {
    *("time", "received", "seconds", "memory", "hash", "previous", "request_digest", "state"),
    *("reference", "own_text"),
}


def tensors(state: Path) -> dict[str, dict[str, bytes]]:
    """The tensors of every generation, as bytes."""
    return {
        path.name: {name: value.numpy().tobytes() for name, value in load_file(path).items()}
        for path in sorted((state / "generations").glob("*.safetensors"))
    }


def story(state: Path) -> list[dict]:
    """What the ledger says of the requests, without what differs from run to run."""
    lines = (state / "ledger.jsonl").read_text().splitlines()[1:]
    return [{k: v for k, v in json.loads(line).items() if k not in _VARYING} for line in lines]
