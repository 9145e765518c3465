"""GradDiff, gradient difference: L = -forget_weight * NLL_f + retain_weight * NLL_r (token means).

Gradient ascent on forget data with descent on retain data, as in TOFU (Maini et al., COLM 2024).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.core.search_space import SearchSpace
from tfrnet.core.settings import option
from tfrnet.training.ascent import AscentSettings, AscentUnlearner


@dataclass(frozen=True)
class GradDiffConfig(AscentSettings):
    """Settings of gradient difference."""

    tuned: ClassVar[Mapping[str, Any]] = {"learning_rate": 5e-05, "steps": 5, "forget_weight": 1.0}

    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    forget_weight: float = option(1.0, "weight of the ascent on the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)


class GradientDifference(AscentUnlearner):
    """Raises the loss of the forget answers and lowers that of retain answers."""

    method = "graddiff"
    label = "GradDiff"
    about = "gradient ascent on forget answers, descent on retain answers"
    config_class = GradDiffConfig
    search_space = SearchSpace(({"forget_weight": 1.0}, {"forget_weight": 0.3}))
    config: GradDiffConfig


METHOD = GradientDifference
