"""Settings of SimNPO: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class SimNPOConfig(TrainingSettings):
    """Settings of SimNPO."""

    about: ClassVar[str] = "SimNPO: a saturating, reference-free preference loss on forget answers"
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 20,
        "beta": 0.5,
        "forget_weight": 1.0,
    }
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 20,
        "beta": 0.5,
        "forget_weight": 1.0,
    }

    steps: int = option(10, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    beta: float = option(4.5, "sharpness; the larger, the earlier the gradient vanishes", 1e-6)
    gamma: float = option(0.0, "margin for the mean loss of a forget answer")
    forget_weight: float = option(0.125, "weight of the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)


CONFIG = SimNPOConfig
