"""Settings of NPO: names, defaults, ranges and help texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tfrnet.core.settings import option
from tfrnet.training.training_settings import TrainingSettings


@dataclass(frozen=True)
class NPOConfig(TrainingSettings):
    """Settings of NPO."""

    about: ClassVar[str] = "NPO: a preference loss against the model's own earlier likelihoods"
    tuned: ClassVar[Mapping[str, Any]] = {"learning_rate": 5e-05, "steps": 20, "beta": 0.1}
    published: ClassVar[Mapping[str, Any]] = {"learning_rate": 5e-05, "steps": 20, "beta": 0.1}

    steps: int = option(10, "optimiser steps per request", 1, 10_000)
    weight_decay: float = option(0.01, "decoupled weight decay of AdamW", 0)
    beta: float = option(0.1, "sharpness; near 0 the loss becomes gradient ascent", 1e-6)
    forget_weight: float = option(1.0, "weight of the forget loss", 0)
    retain_weight: float = option(1.0, "weight of the retain loss", 0)
    reference: Literal["previous", "start"] = option(
        "previous", "reference model: the one before this request, or before the first"
    )


CONFIG = NPOConfig
