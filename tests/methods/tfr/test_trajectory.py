"""Trajectories against sequences computed by hand and by an independent scalar loop."""

import math

import numpy as np
import pytest
import torch

from tfrnet import TFRConfig
from tfrnet.methods.tfr.trajectory import Trajectory, advance, hit_threshold

CONFIG = TFRConfig.paper(risk_decay=0.5, variance_decay=0.5, hit_decay=0.5, hit_weight=2)


def start(channels):
    return Trajectory(*(torch.zeros(channels, dtype=torch.float64) for _ in range(5)))


def follow(sequence, config=CONFIG):
    """Return the trajectory after each request; `sequence` holds one list of risks per request."""
    memory, path = start(len(sequence[0])), []
    for chi in sequence:
        memory = advance(memory, torch.tensor(chi, dtype=torch.float64), config)
        path.append(memory)
    return path


def test_five_requests_by_hand():
    """Channel 0 sees the risks 4 0 4 4 8; channel 1 is always lower, so channel 0 has the hits."""
    path = follow([[4, 1], [0, 0], [4, 1], [4, 1], [8, 1]])

    def column(name):
        return [float(getattr(memory, name)[0]) for memory in path]

    assert column("risk") == [2, 1, 2.5, 3.25, 5.625]
    assert column("velocity") == [2, -1, 1.5, 0.75, 2.375]
    # 0.5 v + 0.5 (chi - risk)^2: (4-2)^2, (0-1)^2, (4-2.5)^2, (4-3.25)^2, (8-5.625)^2
    assert column("variance") == [2, 1.5, 1.875, 1.21875, 3.4296875]
    # no risk is positive in the second request, so nothing exceeds its threshold of 0
    assert column("hits") == [0.5, 0.25, 0.625, 0.8125, 0.90625]
    accelerations = [2, -3, 2.5, -0.75, 1.625]
    expected = [
        risk * (1 + 2 * hits) / (1 + abs(velocity) + abs(acceleration) + math.sqrt(variance))
        for risk, hits, velocity, acceleration, variance in zip(
            [2, 1, 2.5, 3.25, 5.625],
            [0.5, 0.25, 0.625, 0.8125, 0.90625],
            [2, -1, 1.5, 0.75, 2.375],
            accelerations,
            [2, 1.5, 1.875, 1.21875, 3.4296875],
            strict=True,
        )
    ]
    assert column("priority") == pytest.approx(expected, rel=1e-12)
    assert expected[0] == pytest.approx(4 / (5 + math.sqrt(2)))


def test_against_a_scalar_loop_over_eight_random_requests():
    generator = np.random.default_rng(3)
    sequence = np.maximum(generator.normal(0.5, 2, size=(8, 40)), 0)
    config = TFRConfig.paper(risk_decay=0.8, variance_decay=0.6, hit_decay=0.9, hit_weight=1.5)
    final = follow(sequence.tolist(), config)[-1]
    for channel in range(40):
        mu = nu = variance = omega = 0.0
        for request in sequence:
            chi = request[channel]
            kappa = np.quantile(request[request > 0], 0.9)
            new_mu = 0.8 * mu + (1 - 0.8) * chi
            new_nu = new_mu - mu
            xi = new_nu - nu
            variance = 0.6 * variance + (1 - 0.6) * (chi - new_mu) ** 2
            omega = 0.9 * omega + (1 - 0.9) * (chi > kappa)
            mu, nu = new_mu, new_nu
            gamma = mu * (1 + 1.5 * omega) / (1 + abs(nu) + abs(xi) + variance**0.5)
        assert float(final.risk[channel]) == pytest.approx(mu, rel=1e-12, abs=1e-15)
        assert float(final.velocity[channel]) == pytest.approx(nu, rel=1e-12, abs=1e-15)
        assert float(final.variance[channel]) == pytest.approx(variance, rel=1e-12, abs=1e-15)
        assert float(final.hits[channel]) == pytest.approx(omega, rel=1e-12, abs=1e-15)
        assert float(final.priority[channel]) == pytest.approx(gamma, rel=1e-12, abs=1e-15)


def test_persistent_risk_outranks_a_single_spike_of_the_same_mean():
    path = follow([[2, 0], [2, 0], [2, 0], [2, 0], [2, 10]])
    steady, spike = path[-1].priority.tolist()
    assert steady > spike


def test_threshold_interpolates_among_positive_risks_only():
    chi = torch.tensor([0.0, 0.0, 0.0, 1.0, 2.0, 3.0])
    assert float(hit_threshold(chi, 0.5)) == 2.0
    assert float(hit_threshold(chi, 0.9)) == pytest.approx(2.8)


def test_threshold_is_zero_where_no_risk_is_positive():
    assert float(hit_threshold(torch.zeros(4), 0.9)) == 0
