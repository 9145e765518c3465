"""GradDiff, gradient difference: L = -forget_weight * NLL_f + retain_weight * NLL_r (token means).

Gradient ascent on forget data with descent on retain data, as in TOFU (Maini et al., COLM 2024).
"""

from __future__ import annotations

from tfrnet.core.search_space import SearchSpace
from tfrnet.methods.graddiff.config import GradDiffConfig
from tfrnet.training.ascent import AscentUnlearner


class GradientDifference(AscentUnlearner):
    """Raises the loss of the forget answers and lowers that of retain answers."""

    method = "graddiff"
    label = "GradDiff"
    config_class = GradDiffConfig
    search_space = SearchSpace(
        {
            "learning_rate": (2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4),
            "steps": (2, 5, 10, 20, 40),
            "forget_weight": (0.1, 0.3, 1.0, 3.0),
        },
        start=GradDiffConfig.tuned,
    )
    config: GradDiffConfig


METHOD = GradientDifference
