"""Power cuts: every state that a file system may leave is opened and gone on with."""

from __future__ import annotations

from pathlib import Path

from tests.campaign.result import Result
from tests.state.power.stories import STORIES, try_cuts

EXPECTED = "before or after, and the same bytes in the end"
SECTORS = (512, 4096)


def run(count: int | None, seed: int, work: Path) -> Result:
    """Rebuild every state, or at most `count` for each point of each story, drawn by the seed."""
    result = Result("power", EXPECTED, seed)
    for story in STORIES:
        for sector in SECTORS:
            tally = try_cuts(story, work / f"{story.name} {sector}", sector, count, seed)
            result.count(story.name, tally.rebuilt)
            result.wrong += tally.wrong
    return result
