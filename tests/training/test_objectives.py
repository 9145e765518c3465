"""Every objective against numbers worked out by hand from its formula."""

import pytest
import torch

from tfrnet.data.examples import Encoded
from tfrnet.models.forward import collate, mean_by_example, sum_by_example, token_losses
from tfrnet.training import objectives

STUDENT = torch.tensor(
    [
        [2, 0.5, -1, 0, 1],
        [0.1, 1.5, 0.3, -0.7, 0],
        [-0.5, 0.2, 2.2, 0.4, -1.2],
        [0, 0, 0, 0, 0],
        [1, -1, 0.5, 3, 0.2],
    ],
    dtype=torch.float64,
)
REFERENCE = torch.tensor(
    [
        [3, 0.5, -1, 0, 1],
        [0.1, 2.5, 0.3, -0.7, 0],
        [-0.5, 0.2, 3.2, 0.4, -1.2],
        [0, 0, 0, 1, 0],
        [1, -1, 0.5, 4, 0.2],
    ],
    dtype=torch.float64,
)
LABELS = torch.tensor([0, 1, 2, 3, 3])
# Three answer tokens and two.
BATCH = collate([Encoded((4, 0, 1, 2), 1), Encoded((4, 3, 3), 1)], torch.device("cpu"))
RETAIN = 1.25


def close(value, expected, tolerance=1e-5):
    assert torch.as_tensor(value).tolist() == pytest.approx(expected, abs=tolerance)


def student():
    return token_losses(STUDENT, LABELS)


def reference():
    return token_losses(REFERENCE, LABELS)


def test_token_losses_sums_and_means():
    close(student(), [0.574438, 0.632189, 0.337338, 1.609438, 0.259704])
    close(reference(), [0.251166, 0.280936, 0.137671, 0.904832, 0.103543])
    close(sum_by_example(student(), BATCH), [1.543965, 1.869142])
    close(sum_by_example(reference(), BATCH), [0.669772, 1.008375])
    means = mean_by_example(student(), BATCH)
    close(means, [0.514655, 0.934571])
    close(student().mean(), 0.682621)
    close(means.mean(), 0.724613)


def test_gradient_ascent_and_difference():
    ascent = objectives.gradient_ascent(student())
    close(ascent, -0.682621)
    close(ascent + RETAIN, 0.567379)


@pytest.mark.parametrize(("beta", "expected"), [(0.1, 13.152555), (2.5, 0.134466), (4.5, 0.024201)])
def test_simnpo(beta, expected):
    close(objectives.simnpo(mean_by_example(student(), BATCH), beta), expected)


def test_simnpo_per_sequence_margin_gradient_and_totals():
    means = mean_by_example(student(), BATCH)
    close([objectives.simnpo(m[None], 2.5).item() for m in means], [0.195108, 0.073824])
    close(objectives.simnpo(means, 2.5, gamma=0.5), 0.386295)
    # The paper puts the margin outside beta: gamma / beta in the released form.
    close(objectives.simnpo(means, 2.5, gamma=0.5 / 2.5), 0.209261)
    leaf = means.clone().requires_grad_()
    objectives.simnpo(leaf, 2.5).backward()
    close(leaf.grad * 2, [-0.432845, -0.176301])
    close(0.1375 * objectives.simnpo(means, 2.5) + RETAIN, 1.268489)
    close(0.125 * objectives.simnpo(means, 4.5) + RETAIN, 1.253025)


@pytest.mark.parametrize(
    ("m", "beta", "pressure"),
    [(0.3, 0.1, 0.9850), (0.7, 2.5, 0.2961), (1.6, 2.5, 0.0360), (0.05, 4.5, 0.8880)],
)
def test_simnpo_saturates_on_short_answers(m, beta, pressure):
    leaf = torch.tensor([m], dtype=torch.float64, requires_grad=True)
    objectives.simnpo(leaf, beta).backward()
    close(-leaf.grad[0], pressure, 5e-5)


def test_npo():
    sums = sum_by_example(student(), BATCH)
    frozen = sum_by_example(reference(), BATCH)
    close(objectives.npo(sums, frozen, 0.1), 13.014272)
    pairs = zip(sums, frozen, strict=True)
    close([objectives.npo(s[None], f[None], 0.1).item() for s, f in pairs], [13.007850, 13.020694])
    close(objectives.npo(sums, frozen, 1.0), 0.701336)


@pytest.mark.parametrize(("gap", "weight"), [(0, 1), (5, 0.7551), (20, 0.2384), (50, 0.0134)])
def test_npo_lets_go_of_what_is_forgotten(gap, weight):
    leaf = torch.tensor([float(gap)], dtype=torch.float64, requires_grad=True)
    objectives.npo(leaf, torch.zeros(1, dtype=torch.float64), 0.1).backward()
    close(-leaf.grad[0], weight, 5e-5)


def distillation(logits, teacher):
    return mean_by_example(objectives.divergences(logits, teacher), BATCH).mean()


def test_distillation_from_a_teacher():
    teacher = torch.log_softmax(REFERENCE, -1)
    close(distillation(STUDENT, teacher), 0.088178)
    by_sequence = mean_by_example(objectives.divergences(STUDENT, teacher), BATCH)
    close(by_sequence, [0.092849, 0.083507])
    close(0.1 * distillation(STUDENT, teacher) + RETAIN, 1.258818)
    leaf = STUDENT.clone().requires_grad_()
    distillation(leaf, teacher).backward()
    close(leaf.grad[0], [-0.035812, 0.010296, 0.002297, 0.006245, 0.016975])
    own = torch.log_softmax(STUDENT, -1)
    close(distillation(STUDENT, own), 0.0, 1e-12)


def test_rmu():
    direction = torch.full((4,), 0.5)
    hidden = torch.tensor([[1.0, 0, 2, -1], [0.5, 0.5, 0.5, 0.5]], requires_grad=True)
    loss = objectives.to_control(hidden, 6.5 * direction)
    loss.backward()
    close(loss, 8.1875)
    close(hidden.grad[0, 0], -0.5625)
    close(objectives.to_control(hidden[:1], 6.5 * direction), 8.8125)
    kept = objectives.to_frozen(
        torch.tensor([[1.0, 1, 0, 0], [0, 2, 0, 1]]),
        torch.tensor([[1.0, 1, 0.1, 0], [0, 1.8, 0, 1]]),
    )
    close(kept, 0.00625)
    close(loss + 1200 * kept, 15.6875, 1e-4)
    norm = hidden.detach().norm(dim=-1).mean()
    close(norm, 1.724745)
    close(objectives.to_control(hidden, 5 * norm * direction), 15.155293)


def test_the_control_direction_is_uniform_and_of_length_one():
    direction = objectives.control_direction(4096, seed=0)
    assert float(direction.norm()) == pytest.approx(1)
    assert bool((direction >= 0).all())
    other = objectives.control_direction(4096, seed=1)
    # Two uniform vectors are far from orthogonal: cosine 0.75.
    assert float(direction @ other) == pytest.approx(0.75, abs=0.02)
    assert torch.equal(direction, objectives.control_direction(4096, seed=0))


def test_half_precision_is_widened():
    losses_half = token_losses(STUDENT.bfloat16(), LABELS)
    assert losses_half.dtype == torch.float32
