import pytest
import torch

from tfrnet.models.token_scores import TokenScores, token_statistics

LOGITS = [
    [2, 0.5, -1, 0],
    [0, 0, 0, 0],
    [3, 1, 1, -2],
    [-1, 2.5, 0.3, 0.2],
    [0.1, 0.2, 0.3, 4],
]
TARGETS = [0, 2, 1, 1, 0]


def _statistics(dtype=torch.float64, moments=True):
    logits = torch.tensor(LOGITS, dtype=dtype)
    rows = token_statistics(logits, torch.tensor(TARGETS), moments)
    return [list(column) for column in zip(*rows, strict=True)]


def test_log_probabilities_and_moments():
    """V12."""
    log_probs, argmax, mean, variance = _statistics()
    assert log_probs == pytest.approx(
        [-0.3423495824, -1.3862943611, -2.2448334268, -0.2161264977, -3.9651660209], abs=1e-9
    )
    assert mean == pytest.approx(
        [-0.8782811753, -1.3862943611, -0.6949876742, -0.6834366648, -0.3044808996], abs=1e-9
    )
    assert variance == pytest.approx(
        [0.7718683616, 0, 0.7767901520, 0.9389735979, 0.8509506408], abs=1e-9
    )
    assert argmax == [True, False, False, True, False]


def test_several_targets_may_be_read_from_one_row():
    logits, targets = torch.tensor(LOGITS, dtype=torch.float64), torch.tensor(TARGETS)
    rows = torch.tensor([4, 0, 0, 2, 4])
    found = list(token_statistics(logits, targets, True, rows))
    assert found == list(token_statistics(logits[rows], targets, True))


def test_half_precision_logits_are_widened_first():
    log_probs, *_ = _statistics(torch.bfloat16)
    assert log_probs[0] == pytest.approx(-0.3423495824, abs=1e-6)


def test_a_token_that_cannot_occur_leaves_the_moments_finite():
    logits = torch.tensor([[0.0, float("-inf"), 0.0]])
    ((log_prob, _, mean, variance),) = token_statistics(logits, torch.tensor([0]), True)
    assert (log_prob, mean) == pytest.approx((-0.6931472, -0.6931472))
    assert variance == pytest.approx(0, abs=1e-12)


def test_many_rows_are_taken_in_slices():
    logits = torch.randn(700, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(700) % 5
    found = [row[0] for row in token_statistics(logits, targets, False)]
    expected = torch.log_softmax(logits, -1)[torch.arange(700), targets]
    assert found == pytest.approx(expected.tolist())


def test_scores_survive_json_and_sum_up():
    scores = TokenScores((-0.1, -0.2, -0.3, -0.4), (True, False, True, True))
    assert scores.total == pytest.approx(-1.0)
    assert scores.average_loss == pytest.approx(0.25)
    assert TokenScores.from_dict(scores.to_dict()) == scores
    assert scores.without_last().log_probs == (-0.1, -0.2, -0.3)
