"""Random attacks on a signed state by somebody without its key: `verify` finds each.

The owner has kept the public key and two heads elsewhere.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.campaign.result import Result
from tests.state.attacks import Scene, random_attack
from tfrnet.core.errors import StateError
from tfrnet.method_state import verify_state

EXPECTED = "found by verify"


def run(count: int, seed: int, work: Path) -> Result:
    """Make `count` attacks."""
    result = Result("attacks", EXPECTED, seed)
    work.mkdir(parents=True, exist_ok=True)
    scene = Scene.build(work)
    chance = random.Random(seed)
    for number in range(count):
        spoilt = scene.copied(work / "spoilt")
        name = random_attack(spoilt, chance)
        result.count(name.replace("_", " "))
        try:
            found = not all(check.passed for check in verify_state(spoilt.folder, spoilt.kept))
        except StateError:
            found = True
        if not found:
            result.wrong.append(f"{number} (seed {seed}): {name} was not found")
        shutil.rmtree(spoilt.folder)
    return result
