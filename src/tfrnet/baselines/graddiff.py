"""GradDiff, gradient difference: L = -forget_weight * NLL_f + retain_weight * NLL_r (token means).

Gradient ascent held back by descent on retain data, as in TOFU (Maini et al., COLM 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from tfrnet.baselines.ga import GAConfig, GradientAscent
from tfrnet.settings import option
from tfrnet.state.tensors import TensorState
from tfrnet.training.loop import attach
from tfrnet.unlearner import Method


@dataclass(frozen=True)
class GradDiffConfig(GAConfig):
    """Settings of gradient difference."""

    method = "graddiff"

    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    forget_weight: float = option(1.0, "weight of the ascent on the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)


class GradientDifference(GradientAscent):
    """Raises the loss of the forget answers and lowers that of retain answers."""

    method = "graddiff"
    config: GradDiffConfig


METHOD = Method(
    name="graddiff",
    about="gradient ascent on forget answers, descent on retain answers",
    config=GradDiffConfig,
    unlearner=GradientDifference,
    read_state=TensorState,
    attach=attach,
)
