"""The honest Trade-off, by hand and on the committed cells."""

import json
from pathlib import Path
from statistics import fmean

import pytest

from tfrnet.core.errors import InputError
from tfrnet.evaluation.metrics.requested import HonestScores, honest_scores
from tfrnet_bench.honest import honest
from tfrnet_bench.results import CellResult

CELLS = Path(__file__).parents[3] / "benchmarks" / "results" / "paper" / "cells" / "stream"


def test_only_what_can_be_forgotten_counts_and_nothing_below_chance():
    # Of the 50 points above chance 25 are gone, then all, though 80 were lost.
    found = honest_scores(100.0, [75.0, 20.0], 50.0, 80.0, [60.0, 40.0])
    assert found == HonestScores(75.0, 62.5)
    assert found.trade_off == pytest.approx(2 * 75 * 62.5 / 137.5)


def test_more_accuracy_than_before_is_no_negative_score():
    assert honest_scores(60.0, [70.0], 50.0, 80.0, [80.0]).trade_off == 0.0


def test_a_model_at_chance_has_nothing_to_forget():
    assert honest_scores(50.0, [50.0], 50.0, 80.0, [80.0]) is None
    with pytest.raises(InputError, match="every checkpoint"):
        honest_scores(90.0, [50.0], 50.0, 80.0, [])


# Means over the three seeds, worked out apart from this code; the last three are of items not yet
# requested, as docs/results.md has them.
TOLD = {
    "tfr": ((80.7, 98.2, 96.7), (40, 95, 87)),
    "simnpo": ((77.1, 94.1, 90.0), (29, 95, 84)),
    "npo": ((69.6, 98.2, 93.0), (2, 86, 76)),
    "o3": ((69.6, 61.2, 90.9), (4, 67, 32)),
    "ga": ((70.0, 84.2, 84.8), None),
    "graddiff": ((70.0, 81.2, 87.2), None),
    "llm-eraser": ((68.5, 88.9, 74.7), None),
    "asu": ((73.3, 62.3, 72.8), None),
    "rmu": ((58.2, 64.5, 62.5), None),
}


@pytest.mark.parametrize("method", TOLD)
def test_the_committed_cells_give_the_known_numbers(method):
    scores, unseen = TOLD[method]
    for place, stream in enumerate(("arithmetic", "openbookqa", "boolq")):
        found = [
            honest(
                CellResult.from_dict(
                    json.loads((CELLS / stream / method / str(seed) / "result.json").read_text())
                )
            )
            for seed in range(3)
        ]
        assert fmean(f["honest_trade_off"] for f in found) == pytest.approx(scores[place], abs=0.25)
        if unseen:
            assert fmean(f["unseen"] for f in found) == pytest.approx(unseen[place], abs=0.55)
