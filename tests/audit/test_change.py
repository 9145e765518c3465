"""The change of a loss, against an independent reference, and the words for it."""

from __future__ import annotations

import statistics

import pytest
import torch

from tfrnet.audit.change import Change


def test_means_and_the_error_of_paired_differences() -> None:
    before, after = [1.0, 2.0, 4.0], [1.5, 2.1, 4.9]
    change = Change.of(torch.tensor([1.0, 1.0, 1.0]), torch.tensor(before), torch.tensor(after))
    differences = [b - a for a, b in zip(before, after, strict=True)]
    assert change.loss_before == pytest.approx(statistics.fmean(before))
    assert change.loss_after == pytest.approx(statistics.fmean(after))
    assert change.error == pytest.approx(statistics.stdev(differences) / 3**0.5)
    assert change.rise == pytest.approx(1.5 / 7)
    assert change.total_rise == pytest.approx(statistics.fmean(after) - 1)
    assert Change.from_dict(change.to_dict() | {"digest": "more"}) == change


def test_one_example_has_no_error() -> None:
    change = Change.of(*(torch.tensor([x]) for x in (1.0, 1.0, 2.0)))
    assert change.error is None
    assert change.words == "worse by 100.0 %"


@pytest.mark.parametrize(
    ("after", "error", "words"),
    [
        (1.005, 1e-6, "unchanged"),  # sure, but too little to matter
        (1.05, 0.04, "unchanged within noise"),
        (1.05, 0.01, "worse by 5.0 %"),
        (0.9, 0.01, "better by 10.0 %"),
        (float("inf"), 0.01, "no longer finite"),
    ],
)
def test_words(after: float, error: float, words: str) -> None:
    assert Change(10, 1.0, 1.0, after, error).words == words


def test_a_loss_that_was_not_finite_is_not_unchanged() -> None:
    assert Change(1, None, float("nan"), 1.0, None).words == "finite again"
    assert Change(1, None, float("nan"), float("nan"), None).words == "not finite"
