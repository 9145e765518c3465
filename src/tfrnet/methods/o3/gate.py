"""The adapter's weight as a function of a prompt's distance."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import expit, ndtr

Gate = Literal["tofu", "soft", "always"]


def raw_weight(d: Any, mu1: float, mu2: float, sigma: float) -> Any:
    """Return 1 - |P(d) - P(2 x0 - d)|: 1 in the middle of the known prompts, 0 far from them.

    P is the distribution function of N(mu1, sigma^2) and N(mu2, sigma^2), half of each; x0 is the
    mean of mu1 and mu2.
    """

    def p(x: Any) -> Any:
        return (ndtr((x - mu1) / sigma) + ndtr((x - mu2) / sigma)) / 2

    return 1 - np.abs(p(d) - p(mu1 + mu2 - d))


def soft_weight(d: Any, mu1: float, mu2: float, sigma: float, zeta: float = 10.0) -> Any:
    """Return sigmoid(zeta * raw - 2), which is between 0.12 and 1 for the published zeta."""
    return expit(zeta * raw_weight(d, mu1, mu2, sigma) - 2)


def tofu_gate(w: Any) -> Any:
    """Return the weight that the original TOFU runs use: 1, small, or exactly 0."""
    w = np.asarray(w, dtype=float)
    return np.where(w >= 0.32, 1.0, np.where(w > 0.2, 10 * w**2, 0.0))
