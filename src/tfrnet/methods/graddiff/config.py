"""Settings of GradDiff: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from tfrnet.core.settings import option
from tfrnet.training.training_settings import AscentSettings


@dataclass(frozen=True)
class GradDiffConfig(AscentSettings):
    """Settings of gradient difference."""

    about: ClassVar[str] = "gradient ascent on forget answers, descent on retain answers"
    tuned: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 0.0001,
        "steps": 10,
        "forget_weight": 1.0,
    }
    # With a ceiling, which also ended the descent on the retain data.
    published: ClassVar[Mapping[str, Any]] = {
        "learning_rate": 5e-05,
        "steps": 5,
        "forget_weight": 1.0,
        "forget_ceiling": 6.0,
        "ceiling_counts_end": True,
    }

    steps: int = option(10, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    forget_weight: float = option(1.0, "weight of the ascent on the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)


CONFIG = GradDiffConfig
