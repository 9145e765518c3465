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
    search_space = SearchSpace(({"forget_weight": 1.0}, {"forget_weight": 0.3}))
    config: GradDiffConfig


METHOD = GradientDifference
