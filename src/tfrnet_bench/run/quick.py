"""The smoke run (`--quick`): a little of everything, to show that it works."""

from __future__ import annotations

from typing import Any

from tfrnet.data.protocol import Sizes
from tfrnet.evaluation.attacking.subject import AttackOptions
from tfrnet_bench.run.plan import TofuSizes

# What `--quick` changes of a plan.
QUICK: dict[str, Any] = {
    "methods": ("ga", "tfr"),
    "streams": ("arithmetic",),
    "seeds": (0,),
    "sizes": Sizes(
        requests=2, request_size=2, forget_eval=4, heldout=4, retain=(8, 4), guard=(2, 1)
    ),
    "tofu": TofuSizes(requests=1, retain=16, guard=4, rows=2, new_tokens=4),
    "attack": AttackOptions(limit=2, relearn_steps=(0, 1), relearn_seeds=1),
    "reduced": (
        ("steps", 1),
        ("retain_examples", 4),
        ("guard_examples", 4),
        ("max_length", 96),
    ),
}
